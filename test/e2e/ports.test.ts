import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { connect as connectTcp } from "node:net";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { WebSocket } from "ws";
import type { DSecClient, DSecError, Sandbox } from "../../src/sdk/index.ts";
import { type Fleet, startFleet } from "./fleet.ts";
import { webSocketScript } from "./inside-services.ts";

let fleet: Fleet;
let client: DSecClient;
let sandbox: Sandbox;

const eventsScript = `#!/bin/sh
printf 'content-type: text/event-stream\\r\\n\\r\\n'
for word in one two three; do
  until read -r go < /tmp/next; do :; done
  printf 'data: %s\\n\\n' $word
done
`;

beforeAll(async () => {
  fleet = await startFleet();
  client = await fleet.client();
  sandbox = await client.runContainer({ image: "busybox", memoryMb: 128, ttlRunningStop: 0 });
  const put = async (path: string, content: string): Promise<void> => {
    await sandbox.exec(["sh", "-c", `mkdir -p "$(dirname ${path})" && cat > ${path} && chmod 755 ${path}`], {
      stdin: content,
    });
  };
  await put("/www/index.html", "hello from inside\n");
  await put("/www/cgi-bin/events", eventsScript);
  await put("/tmp/ws", webSocketScript);
  await sandbox.exec(["mkfifo", "/tmp/next"]);
  // on the sandbox's loopback only
  await sandbox.execDetached(["httpd", "-f", "-p", "127.0.0.1:8080", "-h", "/www"]);
  await sandbox.execDetached(["nc", "-ll", "-p", "7000", "-e", "cat"]);
  await sandbox.execDetached(["nc", "-ll", "-p", "7001", "-e", "sha256sum"]);
  await sandbox.execDetached(["nc", "-ll", "-p", "7002", "-e", "/tmp/ws"]);
  for (const port of [8080, 7000, 7001, 7002]) await listening(sandbox, port);
});

afterAll(async () => {
  await client.close();
  await fleet[Symbol.asyncDispose]();
});

/** Resolves when a service inside accepts connections. */
async function listening(inside: Sandbox, port: number): Promise<void> {
  await vi.waitUntil(
    async () => {
      const stream = await inside.connect(port).catch(() => undefined);
      return stream?.destroy() !== undefined;
    },
    { timeout: 20_000 },
  );
}

async function textOf(stream: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

describe("a connection", () => {
  test("carries bytes both ways, byte for byte", async () => {
    const stream = await sandbox.connect(7000);
    const sent = randomBytes(5_000_000);
    stream.end(sent);
    const hash = createHash("sha256");
    for await (const chunk of stream as AsyncIterable<Buffer>) hash.update(chunk);
    expect(hash.digest("hex")).toBe(createHash("sha256").update(sent).digest("hex"));
  });

  test("is half-closed: the service answers what it has read to the end", async () => {
    const stream = await sandbox.connect(7001);
    const sent = randomBytes(3_000_000);
    stream.end(sent);
    expect(await textOf(stream)).toContain(createHash("sha256").update(sent).digest("hex"));
  });

  test("to a port that nobody listens on is refused by name", async () => {
    await expect(sandbox.connect(9)).rejects.toMatchObject({ code: "port_refused", ambiguous: false });
    await expect(sandbox.fetch(9, "/")).rejects.toMatchObject({ code: "port_refused" });
  });

  test("more than a sandbox may have are refused by name, and those that end make room", async () => {
    const streams = await Promise.all(Array.from({ length: 1024 }, async () => sandbox.connect(8080)));
    await expect(sandbox.connect(8080)).rejects.toMatchObject({ code: "connection_limit" });
    for (const stream of streams) stream.destroy();
    await expect
      .poll(async () => sandbox.fetch(8080, "/").then(({ status }) => status), { timeout: 20_000 })
      .toBe(200);
  });
});

describe("HTTP", () => {
  test("reaches a service on the sandbox's loopback, many requests at once", async () => {
    const answers = await Promise.all(
      Array.from({ length: 50 }, async () => (await sandbox.fetch(8080, "/index.html")).text()),
    );
    expect(new Set(answers)).toEqual(new Set(["hello from inside\n"]));
    expect(await sandbox.fetch(8080, "/nothing")).toMatchObject({ status: 404 });
  });

  test("gives events as they come, by the SDK and by the API server's route", async () => {
    const next = async (): Promise<void> => void (await sandbox.exec(["sh", "-c", "echo > /tmp/next"]));
    for (const open of [
      async () => (await sandbox.fetch(8080, "/cgi-bin/events")).body,
      async () => apiServer("/cgi-bin/events"),
    ]) {
      const body = await open();
      const reader = body?.getReader();
      let text = "";
      for (const word of ["one", "two", "three"]) {
        await next();
        while (!text.includes(`data: ${word}\n\n`))
          text += Buffer.from((await reader?.read())?.value ?? []).toString();
      }
      expect(await reader?.read()).toMatchObject({ done: true });
    }
  });
});

/** A path of port 8080 by the API server's HTTP route, with a token of the port alone; the transport is a Unix socket's. */
async function apiServer(path: string): Promise<ReadableStream<Uint8Array> | null> {
  const { token, path: prefix } = await sandbox.createPortToken(8080);
  const { request } = await import("node:http");
  const outgoing = request({
    socketPath: fleet.address.slice("unix:".length),
    path: prefix.slice(0, -1) + path,
    headers: { "x-dsec-token": token },
  });
  outgoing.end();
  const [response] = (await once(outgoing, "response")) as [import("node:http").IncomingMessage];
  expect(response.statusCode).toBe(200);
  return ReadableStream.from(response) as ReadableStream<Uint8Array>;
}

describe("a WebSocket", () => {
  async function echo(socket: WebSocket): Promise<string> {
    await once(socket, "open");
    socket.send("over the tunnel");
    const [text] = (await once(socket, "message")) as [Buffer];
    socket.terminate();
    return text.toString();
  }

  test("passes through a forwarded port", async () => {
    await using forward = await sandbox.forward({ remote: 7002 });
    expect(await echo(new WebSocket(`ws://127.0.0.1:${forward.port}/`))).toBe("over the tunnel");
  });

  test("passes through the API server", async () => {
    const { token, path } = await sandbox.createPortToken(7002);
    const url = `ws+unix:${fleet.address.slice("unix:".length)}:${path}?dsec_token=${token}`;
    expect(await echo(new WebSocket(url))).toBe("over the tunnel");
  });
});

describe("dsec forward", () => {
  test("forwards several ports until it is interrupted", async () => {
    const command = fleet.spawn(["forward", sandbox.id, ":8080", ":7001"]);
    const lines = createInterface({ input: command.stdout ?? process.stdin })[Symbol.asyncIterator]();
    const ports: number[] = [];
    for (const remote of [8080, 7001]) {
      const { value } = await lines.next();
      const [, port, to] = /^127\.0\.0\.1:(\d+) -> (\d+)$/.exec(String(value)) ?? [];
      expect(to).toBe(String(remote));
      ports.push(Number(port));
    }
    const [http = 0, sum = 0] = ports;
    expect(await (await fetch(`http://127.0.0.1:${http}/index.html`)).text()).toBe("hello from inside\n");
    const socket = connectTcp({ port: sum, allowHalfOpen: true });
    socket.end("abc");
    expect(await textOf(socket)).toContain(createHash("sha256").update("abc").digest("hex"));
    command.kill("SIGINT");
    expect(await once(command, "exit")).toEqual([130, null]);
  });

  test("tells of a connection that fails, and goes on", async () => {
    const command = fleet.spawn(["forward", sandbox.id, ":9"]);
    const [line] = (await once(createInterface({ input: command.stdout ?? process.stdin }), "line")) as [
      string,
    ];
    const socket = connectTcp(Number(/:(\d+) /.exec(line)?.[1]));
    const [error] = (await once(socket, "error")) as [NodeJS.ErrnoException];
    expect(error.code).toBe("ECONNRESET");
    const [text] = (await once(command.stderr ?? process.stdin, "data")) as [Buffer];
    expect(text.toString()).toContain("(port_refused)");
    expect(command.exitCode).toBeNull();
    command.kill("SIGTERM");
    expect(await once(command, "exit")).toEqual([143, null]);
  });

  test.each([["http"], ["0"], ["1:2:3"], ["70000"], ["1:70000"], [""]])("%j is no port", async (port) => {
    expect(await fleet.dsec(["forward", sandbox.id, port])).toMatchObject({ code: 2, stdout: "" });
  });

  test("says so when a port here is taken", async () => {
    await using taken = await sandbox.forward({ remote: 8080 });
    const result = await fleet.dsec(["forward", sandbox.id, `${taken.port}:8080`]);
    expect(result.code).toBe(125);
    expect(result.stderr).toContain("(address_in_use)");
  });

  test("ends with the sandbox, which it says", async () => {
    const short = await client.runContainer({ image: "busybox", memoryMb: 64 });
    const command = fleet.spawn(["forward", short.id, ":80"]);
    const stderr = textOf(command.stderr ?? process.stdin);
    await once(createInterface({ input: command.stdout ?? process.stdin }), "line");
    await short.stop();
    expect(await once(command, "exit")).toEqual([125, null]);
    expect(await stderr).toContain("(sandbox_not_running)");
  });
});

describe("the end", () => {
  test("of a sandbox ends its connections at once, saying why, and refuses later ones", async () => {
    const short = await client.runContainer({ image: "busybox", memoryMb: 64 });
    await short.execDetached(["nc", "-ll", "-p", "7000", "-e", "cat"]);
    await listening(short, 7000);
    const stream = await short.connect(7000);
    const ended = once(stream, "error") as Promise<[DSecError]>;
    await short.stop();
    expect((await ended)[0]).toMatchObject({ code: "sandbox_not_running", details: { state: "stopping" } });
    await expect(short.connect(7000)).rejects.toMatchObject({ code: "sandbox_not_running" });
    await expect(short.fetch(7000, "/")).rejects.toMatchObject({ code: "sandbox_not_running" });
  });

  test("of an idle sandbox comes although connections are open; traffic puts it off", async () => {
    const idle = await client.runContainer({ image: "busybox", memoryMb: 64, ttlRunningStop: 2 });
    const { info } = idle;
    await idle.runShell("nc -ll -p 7000 -e cat >/dev/null 2>&1 &");
    await listening(idle, 7000);
    const stream = await idle.connect(7000);
    stream.on("error", () => undefined);
    const first = (await idle.refresh()).idleDeadline ?? 0;
    const renewed = async (): Promise<boolean> => {
      stream.write("tick");
      await once(stream, "data");
      return ((await idle.refresh()).idleDeadline ?? 0) > first + 2000;
    };
    await expect.poll(renewed, { timeout: 20_000 }).toBe(true);
    // from here on the connection is open and silent
    expect(await idle.wait({ timeoutMs: 30_000 })).toMatchObject({ id: info.id, endReason: "idle_ttl" });
    await expect.poll(() => stream.errored).toMatchObject({ code: "sandbox_not_running" });
  });

  test("of the daemon breaks connections by name; the next one leads to the same services", async () => {
    const stream = await sandbox.connect(7000);
    const ended = once(stream, "error") as Promise<[DSecError]>;
    await fleet.kill("SIGKILL");
    expect((await ended)[0]).toMatchObject({ code: "connection_lost" });
    await fleet.restart();
    const again = await sandbox.connect(7000);
    again.end("still here");
    expect(await textOf(again)).toBe("still here");
    expect(await (await sandbox.fetch(8080, "/index.html")).text()).toBe("hello from inside\n");
  });
});
