import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { type Duplex, duplexPair } from "node:stream";
import { describe, expect, test } from "vitest";
import { DSecError } from "../../src/protocol/errors.ts";
import { maxTunnelData, maxTunnelProblem, tunnelFrame } from "../../src/protocol/tunnel.ts";
import { TunnelStream } from "../../src/wire/tunnel-stream.ts";

const none = Buffer.alloc(0);

function frame(kind: number, payload: string | Buffer = none, length = payload.length): Buffer {
  const header = Buffer.alloc(5);
  header.writeUInt8(kind, 0);
  header.writeUInt32LE(length, 1);
  return Buffer.concat([header, Buffer.from(payload)]);
}

/** A tunnel and the raw other end of its connection. */
function open(side: "client" | "server", head = none): { tunnel: TunnelStream; raw: Duplex } {
  const [socket, raw] = duplexPair();
  return { tunnel: new TunnelStream(socket, side, head), raw };
}

async function failureOf(tunnel: TunnelStream): Promise<unknown> {
  const [error] = (await once(tunnel.resume(), "error")) as [unknown];
  return error;
}

async function textOf(stream: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

describe("what arrives", () => {
  test("may be cut anywhere, and may have come with the upgrade", async () => {
    const bytes = Buffer.concat([
      frame(tunnelFrame.data, "hello "),
      frame(tunnelFrame.ping),
      frame(tunnelFrame.data, "world"),
      frame(tunnelFrame.end),
    ]);
    for (const size of [1, 3, 7, bytes.length]) {
      const { tunnel, raw } = open("client", bytes.subarray(0, 4));
      for (let at = 4; at < bytes.length; at += size) raw.write(bytes.subarray(at, at + size));
      expect(await textOf(tunnel)).toBe("hello world");
    }
  });

  test.each<[string, "client" | "server", Buffer]>([
    ["a frame that claims four gigabytes", "server", frame(tunnelFrame.data, "x", 0xff_ff_ff_ff)],
    ["a frame that is too long", "server", frame(tunnelFrame.data, "x", maxTunnelData + 1)],
    ["a problem that is too long", "client", frame(tunnelFrame.problem, "x", maxTunnelProblem + 1)],
    ["an empty data frame", "server", frame(tunnelFrame.data)],
    ["an end with a payload", "server", frame(tunnelFrame.end, "x")],
    ["data after the end", "server", Buffer.concat([frame(tunnelFrame.end), frame(tunnelFrame.data, "x")])],
    ["a second end", "client", Buffer.concat([frame(tunnelFrame.end), frame(tunnelFrame.end)])],
    ["an unknown kind", "client", frame(9)],
    ["a problem from a client", "server", frame(tunnelFrame.problem, "{}")],
    ["a ping from a client", "server", frame(tunnelFrame.ping)],
    ["a problem that is no JSON", "client", frame(tunnelFrame.problem, "{")],
    ["HTTP", "server", Buffer.from("GET / HTTP/1.1\r\n\r\n")],
  ])("%s is a protocol error", async (_what, side, bytes) => {
    const { tunnel, raw } = open(side);
    raw.on("error", () => undefined).resume();
    raw.write(bytes);
    expect(await failureOf(tunnel)).toMatchObject({ code: "protocol_error" });
  });

  test.each([
    ["before anything", none],
    ["in a header", frame(tunnelFrame.data, "hello").subarray(0, 3)],
    ["in a payload", frame(tunnelFrame.data, "hello").subarray(0, 7)],
    ["between frames", frame(tunnelFrame.data, "hello")],
    ["after one direction's end", frame(tunnelFrame.end)],
  ])("a connection that ends %s is lost, not ended", async (_where, bytes) => {
    const { tunnel, raw } = open("client");
    raw.end(bytes);
    expect(await failureOf(tunnel)).toMatchObject({ code: "connection_lost" });
  });

  test("waits for its reader", async () => {
    const { tunnel, raw } = open("server");
    let isTaken = true;
    let sent = 0;
    while (isTaken || sent < 100) {
      isTaken = raw.write(frame(tunnelFrame.data, Buffer.alloc(16_384)));
      sent += 1;
      if (sent > 1000) break;
      await new Promise(setImmediate);
    }
    expect(tunnel.readableLength).toBeLessThan(1_000_000);
    let received = 0;
    tunnel.on("data", (chunk: Buffer) => (received += chunk.length));
    await expect.poll(() => received).toBe(sent * 16_384);
  });
});

describe("a failure", () => {
  test("of the server's end tells the client why", async () => {
    const [near, far] = duplexPair();
    const client = new TunnelStream(near, "client", none);
    const server = new TunnelStream(far, "server", none);
    server.on("error", () => undefined);
    const details = { state: "stopped" };
    server.destroy(new DSecError("sandbox_not_running", "it is stopped", { details }));
    expect(await failureOf(client)).toMatchObject({ code: "sandbox_not_running", details });
  });

  test("with more particulars than a frame holds loses the particulars only", async () => {
    const [near, far] = duplexPair();
    const client = new TunnelStream(near, "client", none);
    const server = new TunnelStream(far, "server", none);
    server.on("error", () => undefined);
    server.destroy(new DSecError("port_refused", "no", { details: { long: "x".repeat(100_000) } }));
    expect(await failureOf(client)).toMatchObject({
      code: "port_refused",
      message: "no",
      details: undefined,
    });
  });

  test("of the client's end is a lost connection to the server", async () => {
    const [near, far] = duplexPair();
    const client = new TunnelStream(near, "client", none);
    const server = new TunnelStream(far, "server", none);
    client.on("error", () => undefined).destroy(new Error("mine"));
    expect(await failureOf(server)).toMatchObject({ code: "connection_lost" });
  });
});

test("large writes arrive whole, and all is closed when both directions have ended", async () => {
  const listener = createServer({ allowHalfOpen: true }).listen(0, "127.0.0.1");
  await once(listener, "listening");
  const near = connect({ port: (listener.address() as AddressInfo).port, allowHalfOpen: true });
  const [far] = (await once(listener, "connection")) as [Socket];
  listener.close();
  const client = new TunnelStream(near, "client", none);
  const server = new TunnelStream(far, "server", none);
  server.pipe(server);
  const sent = Buffer.alloc(3 * maxTunnelData + 17, "abc");
  client.end(sent);
  expect(await textOf(client)).toBe(sent.toString());
  const all = [client, server, near, far];
  await expect.poll(() => all.map(({ closed }) => closed)).toEqual([true, true, true, true]);
});
