import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type IncomingMessage, request as httpRequest } from "node:http";
import { connect, type Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { codeOf, mirror, mirrored, send } from "./http-mirror.ts";
import { httpService, PortFleet, sandboxId, tcpService } from "./port-fleet.ts";

describe("a request", () => {
  test.each(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])(
    "%s passes with its body",
    async (method) => {
      const fleet = await PortFleet.start();
      const { port } = await mirror();
      const headers = { ...fleet.authorization, "content-length": 4 };
      expect(mirrored(await send(fleet.url(port, "/a"), { method, headers }, "body"))).toMatchObject({
        method,
        url: "/a",
        body: "body",
      });
    },
  );

  test("says where it came from, whatever the client says, and takes nothing of its connection along", async () => {
    const fleet = await PortFleet.start();
    const { port } = await mirror();
    const headers = {
      ...fleet.authorization,
      connection: "close, x-hop",
      "x-hop": "1",
      te: "trailers",
      "keep-alive": "timeout=5",
      "proxy-authorization": "Basic x",
      forwarded: "for=6.6.6.6",
      "x-forwarded-for": "6.6.6.6",
      "x-forwarded-host": "evil",
      "x-end-to-end": "2",
      cookie: "a=1; b=2",
    };
    const seen = mirrored(await send(fleet.url(port), { headers })).headers;
    const origin = new URL(fleet.url(port));
    expect(seen).toMatchObject({
      host: `localhost:${port}`,
      "x-forwarded-for": "127.0.0.1",
      "x-forwarded-proto": "http",
      "x-forwarded-host": origin.host,
      "x-forwarded-prefix": `/v1/sandboxes/${sandboxId}/http/${port}`,
      "x-end-to-end": "2",
      cookie: "a=1; b=2",
    });
    for (const name of ["x-hop", "te", "forwarded", "proxy-authorization", "authorization"])
      expect(seen).not.toHaveProperty(name);
  });

  test.each([
    "/../../../v1/sandboxes",
    "//elsewhere/",
    "/a%2f..%2fb",
    "/%00",
    "/?http://elsewhere/",
    "/a;b?c#d",
  ])("the path %j goes to the service as it is, and nowhere else", async (rest) => {
    const fleet = await PortFleet.start();
    const { port } = await mirror();
    const target = new URL(fleet.url(port));
    const answer = await send(target.origin, {
      path: target.pathname.slice(0, -1) + rest,
      headers: fleet.authorization,
    });
    expect(mirrored(answer).url).toBe(rest);
  });

  test("without a slash after the port is redirected to where relative links work", async () => {
    const fleet = await PortFleet.start();
    const answer = await send(fleet.url(8080, "?a=b"), { headers: fleet.authorization });
    expect(answer).toMatchObject({ status: 308, headers: { location: "8080/?a=b" } });
    expect(new URL(answer.headers.location ?? "", fleet.url(8080, "")).href).toBe(fleet.url(8080, "/?a=b"));
  });

  test.each([
    ["0", "invalid_argument"],
    ["65536", "invalid_argument"],
    ["http", "invalid_argument"],
    ["1", "port_refused"],
  ])("to port %s is %s", async (port, code) => {
    const fleet = await PortFleet.start();
    expect(
      codeOf(
        await send(fleet.url(1).replace("/http/1/", `/http/${port}/`), { headers: fleet.authorization }),
      ),
    ).toBe(code);
  });

  test("with two lengths, or a coding that hides one, is refused before anything of it goes inside", async () => {
    const fleet = await PortFleet.start();
    const { port } = await mirror();
    const { hostname, port: tcp, pathname } = new URL(fleet.url(port));
    const head = `POST ${pathname} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${fleet.coordinator.token}\r\n`;
    const smuggled = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    for (const framing of [
      "content-length: 5\r\ntransfer-encoding: chunked\r\n",
      "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
      "content-length: 5\r\ncontent-length: 6\r\n",
      "transfer-encoding: chunked, identity\r\n",
      "transfer-encoding: gzip, chunked\r\n",
      "transfer-encoding: xchunked\r\n",
      "transfer-encoding : chunked\r\n",
      "content-length: +5\r\n",
    ]) {
      const socket = connect(Number(tcp), hostname);
      socket.write(`${head}${framing}\r\n${smuggled}`);
      const [answer] = (await once(socket, "data")) as [Buffer];
      expect(String(answer).slice(0, 12)).toBe("HTTP/1.1 400");
      socket.destroy();
    }
    expect(fleet.accepted).toHaveLength(0);
  });

  test("whose client goes away is ended at the service", async () => {
    const fleet = await PortFleet.start();
    const closed = Promise.withResolvers<boolean>();
    const reached = Promise.withResolvers<void>();
    const { port } = await httpService((request, response) => {
      reached.resolve();
      response.on("close", () => closed.resolve(response.writableFinished));
      request.resume();
    });
    const outgoing = httpRequest(fleet.url(port), { agent: false, headers: fleet.authorization });
    outgoing.on("error", () => undefined);
    outgoing.end();
    await reached.promise;
    outgoing.destroy();
    expect(await closed.promise).toBe(false);
  });

  test("that is answered before its body has ended gets the answer", async () => {
    const fleet = await PortFleet.start();
    const { port } = await httpService((_request, response) => {
      response.writeHead(413, { connection: "close" }).end("too much");
    });
    const outgoing = httpRequest(fleet.url(port), {
      agent: false,
      method: "POST",
      headers: fleet.authorization,
    });
    outgoing.on("error", () => undefined);
    outgoing.write("the beginning");
    const [response] = (await once(outgoing, "response")) as [IncomingMessage];
    expect(response.statusCode).toBe(413);
    outgoing.destroy();
  });
});

describe("an answer", () => {
  test("streams: events arrive as they are sent", async () => {
    const fleet = await PortFleet.start();
    let say: ((text: string) => void) | undefined;
    const { port } = await httpService((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
      say = (text) => void response.write(`data: ${text}\n\n`);
    });
    const outgoing = httpRequest(fleet.url(port), { agent: false, headers: fleet.authorization });
    outgoing.end();
    const [response] = (await once(outgoing, "response")) as [IncomingMessage];
    for (const word of ["one", "two", "three"]) {
      say?.(word);
      expect(String((await once(response, "data"))[0])).toBe(`data: ${word}\n\n`);
    }
    response.destroy();
  });

  test("keeps repeated headers, and loses those of the connection and of the whole origin", async () => {
    const fleet = await PortFleet.start();
    const { port } = await httpService((_request, response) => {
      response.setHeader("set-cookie", ["a=1", "b=2"]);
      response.setHeader("strict-transport-security", "max-age=1");
      response.setHeader("alt-svc", 'h3="evil:443"');
      response.setHeader("clear-site-data", '"*"');
      response.setHeader("connection", "keep-alive, x-hop");
      response.setHeader("x-hop", "1");
      response.setHeader("upgrade", "h2c");
      response.setHeader("x-mine", "yes");
      response.end("body");
    });
    const { headers, text } = await send(fleet.url(port), { headers: fleet.authorization });
    expect(text).toBe("body");
    expect(headers).toMatchObject({ "set-cookie": ["a=1", "b=2"], "x-mine": "yes" });
    for (const name of ["strict-transport-security", "alt-svc", "clear-site-data", "x-hop", "upgrade"])
      expect(headers).not.toHaveProperty(name);
  });

  test("to HEAD, 204 and 304 has no body, and the connection is still good", async () => {
    const fleet = await PortFleet.start();
    const { port } = await httpService((request, response) => {
      response
        .writeHead(Number(request.url?.slice(1)), request.method === "HEAD" ? { "content-length": 5 } : {})
        .end();
    });
    for (const [method, status] of [
      ["HEAD", 200],
      ["GET", 204],
      ["GET", 304],
    ] as const)
      expect(
        await send(fleet.url(port, `/${status}`), { method, headers: fleet.authorization }),
      ).toMatchObject({
        status,
        text: "",
      });
  });

  const answered = (bytes: string) => (socket: Socket) =>
    void socket.once("data", () => socket.end(bytes, "latin1"));
  test.each<[string, (socket: Socket) => void]>([
    ["no HTTP", (socket) => void socket.end("SSH-2.0-OpenSSH\r\n")],
    ["endless headers", (socket) => void socket.end(`HTTP/1.1 200 OK\r\n${"a: b\r\n".repeat(100_000)}`)],
    ["one endless header", (socket) => void socket.end(`HTTP/1.1 200 OK\r\na: ${"b".repeat(1_000_000)}`)],
    ["a header with a NUL", answered("HTTP/1.1 200 OK\r\na: b\0c\r\ncontent-length: 0\r\n\r\n")],
    [
      "a header with a bare CR",
      answered("HTTP/1.1 200 OK\r\na: b\rset-cookie: c\r\ncontent-length: 0\r\n\r\n"),
    ],
    ["a header without a colon", answered("HTTP/1.1 200 OK\r\nabc\r\n\r\n")],
    ["two lengths", answered("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab")],
    [
      "an upgrade that nobody asked for",
      answered("HTTP/1.1 101 X\r\nupgrade: a\r\nconnection: upgrade\r\n\r\n"),
    ],
    ["a status below 100", answered("HTTP/1.1 042 X\r\ncontent-length: 0\r\n\r\n")],
    ["nothing", (socket) => void socket.once("data", () => socket.end())],
    ["a reset", (socket) => void socket.once("data", () => socket.resetAndDestroy())],
  ])("that is %s is a bad gateway, and the coordinator goes on", async (_what, serve) => {
    const fleet = await PortFleet.start();
    const port = await tcpService(serve);
    const answer = await send(fleet.url(port), { headers: fleet.authorization });
    expect(answer.status).toBe(502);
    expect(["protocol_error", "connection_lost"]).toContain(codeOf(answer));
    const { port: good } = await mirror();
    expect((await send(fleet.url(good), { headers: fleet.authorization })).status).toBe(200);
  });

  test("that breaks off in the middle does so for the client, too", async () => {
    const fleet = await PortFleet.start();
    for (const framing of ["content-length: 100\r\n", "transfer-encoding: chunked\r\n", ""]) {
      const port = await tcpService((socket) => {
        socket.once("data", () => {
          socket.write(`HTTP/1.1 200 OK\r\n${framing}\r\n5\r\nhello\r\n`);
          setImmediate(() => socket.resetAndDestroy());
        });
      });
      await expect(send(fleet.url(port), { headers: fleet.authorization })).rejects.toMatchObject({
        code: "ECONNRESET",
      });
    }
  });

  test("nobody reads stops the service, whatever it has to say", async () => {
    const fleet = await PortFleet.start();
    let written = 0;
    const { port } = await httpService((_request, response) => {
      const chunk = Buffer.alloc(65_536);
      const write = (): void => {
        while (written < 256 * 1_048_576 && response.write(chunk)) written += chunk.length;
      };
      response.on("drain", write);
      write();
    });
    const outgoing = httpRequest(fleet.url(port), { agent: false, headers: fleet.authorization });
    outgoing.end();
    const [response] = (await once(outgoing, "response")) as [IncomingMessage];
    response.pause();
    let before = -1;
    await expect
      .poll(() => [before, (before = written)].every((now) => now === written), { interval: 100 })
      .toBe(true);
    expect(written).toBeLessThan(32 * 1_048_576);
    response.destroy();
  });
});

describe("an upgrade", () => {
  async function echoServer() {
    const seen: IncomingMessage[] = [];
    const { port, server } = await httpService((_request, response) => void response.end());
    const sockets = new WebSocketServer({ server });
    sockets.on("connection", (socket, request) => {
      seen.push(request);
      socket.on("message", (data, binary) => socket.send(data, { binary }));
    });
    return { port, seen };
  }

  test("to WebSocket passes, with a token in the address, and the service does not see it", async () => {
    const fleet = await PortFleet.start();
    const { port, seen } = await echoServer();
    const { token } = await fleet.sandbox.createPortToken(port);
    const socket = new WebSocket(fleet.url(port, `/socket?a=b&dsec_token=${token}`).replace("http:", "ws:"));
    await once(socket, "open");
    const sent = randomBytes(1_000_000);
    socket.send(sent);
    const [echo] = (await once(socket, "message")) as [Buffer];
    expect(echo.equals(sent)).toBe(true);
    expect(seen[0]?.url).toBe("/socket?a=b");
    expect(JSON.stringify(seen[0]?.headers)).not.toContain(token);
    socket.close(4000, "bye");
    expect((await once(socket, "close"))[0]).toBe(4000);
  });

  test("ends with the sandbox", async () => {
    const fleet = await PortFleet.start();
    const { port } = await echoServer();
    const socket = new WebSocket(fleet.url(port).replace("http:", "ws:"), { headers: fleet.authorization });
    await once(socket, "open");
    const closed = once(socket, "close");
    fleet.endSandbox();
    expect((await closed)[0]).toBe(1006);
  });

  test("needs the credential", async () => {
    const fleet = await PortFleet.start();
    const { port } = await echoServer();
    const socket = new WebSocket(fleet.url(port).replace("http:", "ws:"));
    const [, response] = (await once(socket, "unexpected-response")) as [unknown, IncomingMessage];
    expect(response.statusCode).toBe(401);
    socket.on("error", () => undefined).terminate();
    expect(fleet.accepted).toHaveLength(0);
  });

  test("that the service does not want is its answer, after which the connection takes no other request", async () => {
    const fleet = await PortFleet.start();
    const requests: string[] = [];
    const { port } = await httpService((request, response) => {
      requests.push(request.url ?? "");
      response.writeHead(426, { "content-length": 4 }).end("nope");
    });
    const { hostname, port: tcp, pathname } = new URL(fleet.url(port, "/first"));
    const socket = connect(Number(tcp), hostname);
    const ask = (path: string): void =>
      void socket.write(
        `GET ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${fleet.coordinator.token}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n`,
      );
    let text = "";
    socket.on("data", (chunk: Buffer) => {
      if (text === "") ask("/v1/secret");
      text += String(chunk);
    });
    socket.on("error", () => undefined);
    ask(pathname);
    await once(socket, "close");
    expect(text).toMatch(/^HTTP\/1\.1 426 [^]*connection: close[^]*\r\n\r\n4\r\nnope\r\n0\r\n\r\n$/);
    expect(requests).toEqual(["/first"]);
  });

  test("with a body is refused", async () => {
    const fleet = await PortFleet.start();
    const { port } = await echoServer();
    const headers = {
      ...fleet.authorization,
      connection: "upgrade",
      upgrade: "websocket",
      "content-length": "3",
    };
    expect(codeOf(await send(fleet.url(port), { method: "POST", headers }, "abc"))).toBe("invalid_argument");
  });
});
