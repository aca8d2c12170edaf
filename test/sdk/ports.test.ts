import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect as connectTcp, createServer } from "node:net";
import { setImmediate } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import type { DSecError } from "../../src/sdk/index.ts";
import { httpService, PortFleet, tcpService } from "../scheduler/port-fleet.ts";

async function textOf(stream: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** A port that nobody listens on. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const bound = server.address();
  server.close();
  await once(server, "close");
  return typeof bound === "object" && bound !== null ? bound.port : 0;
}

describe("connect", () => {
  test("carries ten megabytes both ways at once, byte for byte, to a slow reader", async () => {
    const { sandbox } = await PortFleet.start();
    const port = await tcpService((socket) => void socket.pipe(socket));
    const stream = await sandbox.connect(port);
    const sent = randomBytes(10 * 1_048_576);
    stream.end(sent);
    const hash = createHash("sha256");
    let received = 0;
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      await setImmediate();
      hash.update(chunk);
      received += chunk.length;
    }
    expect({ received, hash: hash.digest("hex") }).toEqual({ received: sent.length, hash: sha256(sent) });
  });

  test("ends each direction on its own, whichever end begins", async () => {
    const { sandbox } = await PortFleet.start();
    const asked = await tcpService((socket) => {
      void textOf(socket).then((question) => socket.end(`answer to ${question}`));
    });
    const first = await sandbox.connect(asked);
    first.end("question");
    expect(await textOf(first)).toBe("answer to question");

    const told = Promise.withResolvers<string>();
    const telling = await tcpService((socket) => {
      socket.end("goodbye");
      void textOf(socket).then(told.resolve);
    });
    const second = await sandbox.connect(telling);
    expect(await textOf(second)).toBe("goodbye");
    second.end("still here");
    expect(await told.promise).toBe("still here");
  });

  test("tells a connection that broke from one that ended", async () => {
    const { sandbox } = await PortFleet.start();
    const port = await tcpService((socket) => {
      socket.write("half of it");
      socket.once("data", () => socket.resetAndDestroy());
    });
    const stream = await sandbox.connect(port);
    expect(String(await once(stream, "data"))).toBe("half of it");
    const broken = once(stream, "error") as Promise<[DSecError]>;
    stream.write("more");
    expect((await broken)[0]).toMatchObject({ code: "connection_lost" });
    expect(stream.readableEnded).toBe(false);
  });

  test("ends at the service when it is dropped here", async () => {
    const fleet = await PortFleet.start();
    const ended = Promise.withResolvers<string>();
    const port = await tcpService((socket) => void textOf(socket).then(ended.resolve));
    const stream = await fleet.sandbox.connect(port);
    stream.write("begun");
    await expect.poll(() => fleet.accepted[0]?.readableFlowing).toBe(true);
    stream.destroy();
    expect(await ended.promise).toBe("begun");
  });

  test.each([
    ["a port nobody listens on", async () => freePort(), "port_refused"],
    ["port 0", async () => 0, "invalid_argument"],
    ["port 65536", async () => 65_536, "invalid_argument"],
    ["half a port", async () => 80.5, "invalid_argument"],
  ])("%s is refused by name", async (_what, port, code) => {
    const { sandbox } = await PortFleet.start();
    await expect(sandbox.connect(await port())).rejects.toMatchObject({ code, ambiguous: false });
  });

  test("ends with the sandbox, at once and saying why; later ones are refused", async () => {
    const fleet = await PortFleet.start();
    const port = await tcpService(() => undefined);
    const stream = await fleet.sandbox.connect(port);
    const ended = once(stream, "error") as Promise<[DSecError]>;
    fleet.endSandbox();
    expect((await ended)[0]).toMatchObject({ code: "sandbox_not_running", details: { state: "stopped" } });
    await expect(fleet.sandbox.connect(port)).rejects.toMatchObject({ code: "sandbox_not_running" });
  });

  test("slows a service that nobody listens to", async () => {
    const { sandbox } = await PortFleet.start();
    let written = 0;
    const port = await tcpService((socket) => {
      const chunk = Buffer.alloc(65_536);
      const write = (): void => {
        while (written < 256 * 1_048_576 && socket.write(chunk)) written += chunk.length;
      };
      socket.on("drain", write);
      write();
    });
    const stream = await sandbox.connect(port);
    await expect.poll(() => stream.readableLength).toBeGreaterThan(0);
    let before = -1;
    await expect
      .poll(() => [before, (before = written)].every((now) => now === written), { interval: 100 })
      .toBe(true);
    expect(written).toBeLessThan(32 * 1_048_576);
    stream.destroy();
  });
});

describe("fetch", () => {
  test("has the web's types, and the service sees method, path, headers and body", async () => {
    const { sandbox } = await PortFleet.start();
    const { port } = await httpService((request, response) => {
      void textOf(request).then((body) => {
        response.setHeader("set-cookie", ["a=1", "b=2"]);
        response.writeHead(201, "Made");
        const { method, url, headers } = request;
        response.end(JSON.stringify({ method, url, headers, body }));
      });
    });
    const response = await sandbox.fetch(port, "/a/b?c=d&e", {
      method: "POST",
      headers: { "x-mine": "yes", authorization: "Bearer of-the-service" },
      body: "content",
    });
    expect(response).toMatchObject({ status: 201, statusText: "Made", ok: true });
    expect(response.headers.getSetCookie()).toEqual(["a=1", "b=2"]);
    expect(await response.json()).toMatchObject({
      method: "POST",
      url: "/a/b?c=d&e",
      body: "content",
      headers: {
        host: `localhost:${port}`,
        "x-mine": "yes",
        authorization: "Bearer of-the-service",
        "content-length": "7",
      },
    });
  });

  test("streams bodies both ways at once", async () => {
    const { sandbox } = await PortFleet.start();
    const { port } = await httpService((request, response) => void request.pipe(response));
    const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const parts = async function* () {
      yield Buffer.from("first");
      await gates[0]?.promise;
      yield Buffer.from("second");
      await gates[1]?.promise;
    };
    const body = ReadableStream.from(parts());
    const response = await sandbox.fetch(port, "/", { method: "PUT", body });
    const reader = response.body?.getReader();
    expect(String(Buffer.from((await reader?.read())?.value ?? []))).toBe("first");
    gates[0]?.resolve();
    expect(String(Buffer.from((await reader?.read())?.value ?? []))).toBe("second");
    gates[1]?.resolve();
    expect(await reader?.read()).toMatchObject({ done: true });
  });

  test("gives server-sent events as they come, and its abort ends them at the service", async () => {
    const { sandbox } = await PortFleet.start();
    const closed = Promise.withResolvers<void>();
    let send: ((text: string) => void) | undefined;
    const { port } = await httpService((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      send = (text) => void response.write(`data: ${text}\n\n`);
      response.flushHeaders();
      response.on("close", closed.resolve);
    });
    const abort = new AbortController();
    const response = await sandbox.fetch(port, "/events", { signal: abort.signal });
    const reader = response.body?.getReader();
    for (const word of ["one", "two", "three"]) {
      send?.(word);
      expect(String(Buffer.from((await reader?.read())?.value ?? []))).toBe(`data: ${word}\n\n`);
    }
    abort.abort();
    await expect(reader?.read()).rejects.toMatchObject({ code: "cancelled" });
    await closed.promise;
  });

  test("keeps connections for requests that change nothing, until the sandbox stops", async () => {
    const fleet = await PortFleet.start();
    const { port } = await httpService((_request, response) => void response.end("hello"));
    const warnings: Error[] = [];
    const warned = (warning: Error): void => void warnings.push(warning);
    process.on("warning", warned);
    onTestFinished(() => void process.off("warning", warned));
    for (let round = 0; round < 20; round += 1)
      expect(await (await fleet.sandbox.fetch(port, "/")).text()).toBe("hello");
    expect(fleet.accepted).toHaveLength(1);
    // of listeners that pile up on the kept connection
    expect(warnings).toEqual([]);
    fleet.endSandbox();
    await expect(fleet.sandbox.fetch(port, "/")).rejects.toMatchObject({ code: "sandbox_not_running" });
  });

  test("is not confused by a service that ends kept connections, or says more than it was asked", async () => {
    const fleet = await PortFleet.start();
    let answered = 0;
    const port = await tcpService((socket) => {
      socket.on("data", () => {
        answered += 1;
        const answer = `HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n${answered % 10}\n`;
        // the second answer is to a question that nobody asked
        socket.write(
          answered % 2 === 0 ? answer : `${answer}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil`,
        );
        if (answered % 3 === 0) socket.end();
      });
    });
    const texts: string[] = [];
    for (let round = 1; round <= 12; round += 1)
      texts.push(await (await fleet.sandbox.fetch(port, "/")).text());
    expect(texts).toEqual(Array.from({ length: 12 }, (_, index) => `${(index + 1) % 10}\n`));
  });

  test.each<[string, (socket: import("node:net").Socket) => void, string]>([
    ["speaks no HTTP", (socket) => void socket.end("SSH-2.0-OpenSSH\r\n"), "protocol_error"],
    ["says nothing", (socket) => void socket.once("data", () => socket.end()), "connection_lost"],
    ["resets", (socket) => void socket.once("data", () => socket.resetAndDestroy()), "connection_lost"],
    [
      "sends endless headers",
      (socket) => void socket.end(`HTTP/1.1 200 OK\r\n${"a: b\r\n".repeat(100_000)}`),
      "protocol_error",
    ],
    [
      "has a status of its own",
      (socket) => void socket.once("data", () => socket.end("HTTP/1.1 999 X\r\ncontent-length: 0\r\n\r\n")),
      "protocol_error",
    ],
  ])("a service that %s is an error by name", async (_what, serve, code) => {
    const { sandbox } = await PortFleet.start();
    const port = await tcpService(serve);
    await expect(sandbox.fetch(port, "/")).rejects.toMatchObject({ code, ambiguous: false });
  });

  test("a request that changes something and got no answer is ambiguous", async () => {
    const { sandbox } = await PortFleet.start();
    const port = await tcpService((socket) => void socket.once("data", () => socket.end()));
    await expect(sandbox.fetch(port, "/", { method: "POST", body: "x" })).rejects.toMatchObject({
      code: "connection_lost",
      ambiguous: true,
    });
  });

  test("an answer that breaks off is an error, not an end", async () => {
    const { sandbox } = await PortFleet.start();
    const port = await tcpService((socket) => {
      socket.once("data", () => {
        socket.write("HTTP/1.1 200 OK\r\n\r\nhalf of it", () => socket.resetAndDestroy());
      });
    });
    const response = await sandbox.fetch(port, "/");
    await expect(response.text()).rejects.toMatchObject({ code: "connection_lost" });
  });

  test.each(["no-slash", "@elsewhere/", ""])("the path %j is refused", async (path) => {
    const { sandbox } = await PortFleet.start();
    await expect(sandbox.fetch(80, path)).rejects.toMatchObject({ code: "invalid_argument" });
  });

  test("a path cannot lead to another host or port", async () => {
    const { sandbox } = await PortFleet.start();
    const { port } = await httpService(
      (request, response) => void response.end(`${request.headers.host} ${request.url}`),
    );
    const response = await sandbox.fetch(port, "//elsewhere:1/x");
    expect(await response.text()).toBe(`localhost:${port} //elsewhere:1/x`);
  });
});

describe("forward", () => {
  test("carries many connections at once, each ending on its own", async () => {
    const { sandbox } = await PortFleet.start();
    const remote = await tcpService((socket) => {
      void textOf(socket).then((question) => socket.end(question.toUpperCase()));
    });
    await using forward = await sandbox.forward({ remote });
    const ask = async (text: string): Promise<string> => {
      const socket = connectTcp({ port: forward.port, host: forward.host, allowHalfOpen: true });
      socket.end(text);
      return textOf(socket);
    };
    const questions = Array.from({ length: 50 }, (_, index) => `question ${index}`);
    expect(await Promise.all(questions.map(ask))).toEqual(questions.map((text) => text.toUpperCase()));
  });

  test("passes WebSockets", async () => {
    const { sandbox } = await PortFleet.start();
    const { port, server } = await httpService((_request, response) => void response.end());
    const sockets = new WebSocketServer({ server });
    sockets.on("connection", (socket) =>
      socket.on("message", (data, binary) => socket.send(data, { binary })),
    );
    await using forward = await sandbox.forward({ remote: port });
    const socket = new WebSocket(`ws://${forward.host}:${forward.port}/`);
    await once(socket, "open");
    const sent = randomBytes(1_000_000);
    socket.send(sent);
    const [echo] = (await once(socket, "message")) as [Buffer];
    expect(echo.equals(sent)).toBe(true);
    socket.close();
    await once(socket, "close");
  });

  test("resets a connection that cannot be made, and says why", async () => {
    const { sandbox } = await PortFleet.start();
    const errors: DSecError[] = [];
    await using forward = await sandbox.forward({
      remote: await freePort(),
      onError: (error) => errors.push(error),
    });
    const socket = connectTcp(forward.port, forward.host);
    const [error] = (await once(socket, "error")) as [NodeJS.ErrnoException];
    expect(error.code).toBe("ECONNRESET");
    expect(errors).toMatchObject([{ code: "port_refused" }]);
  });

  test("cuts its connections when it is closed, and gives its port back", async () => {
    const { sandbox } = await PortFleet.start();
    const remote = await tcpService(() => undefined);
    const forward = await sandbox.forward({ remote });
    const socket = connectTcp(forward.port, forward.host);
    await expect.poll(() => forward.connections).toBe(1);
    const closed = once(socket, "close");
    await forward.close();
    await closed;
    await using again = await sandbox.forward({ remote, local: forward.port });
    expect(again.port).toBe(forward.port);
    await expect(sandbox.forward({ remote, local: forward.port })).rejects.toMatchObject({
      code: "address_in_use",
    });
  });
});
