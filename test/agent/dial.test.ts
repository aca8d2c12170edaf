import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { constants } from "node:os";
import { duplexPair } from "node:stream";
import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { AgentConnection } from "../../src/agent/connection.ts";
import { encodeFrame, FrameType } from "../../src/agent/frame.ts";
import { type RunningAgent, shareAgent } from "./agent-fixture.ts";

let agent: RunningAgent;
let connection: AgentConnection;

shareAgent((...made) => {
  [agent, connection] = made;
});

interface Listening {
  [Symbol.asyncDispose](): Promise<void>;
  readonly port: number;
}

async function listen(onSocket: (socket: Socket) => void, host = "127.0.0.1"): Promise<Listening> {
  const server: Server = createServer({ allowHalfOpen: true }, onSocket);
  server.listen(0, host);
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return {
    port: address.port,
    async [Symbol.asyncDispose]() {
      server.close();
      await once(server, "close");
    },
  };
}

test("10 MB of random bytes come back from an echo, byte-exact, with a slow reader", async () => {
  await using echo = await listen((socket) => void socket.pipe(socket));
  const sent = randomBytes(10 * 1024 * 1024);
  const stream = await connection.dial(echo.port);
  const writing = (async () => {
    for (let at = 0; at < sent.length; at += 70_000) {
      if (!stream.write(sent.subarray(at, at + 70_000))) await once(stream, "drain");
    }
    stream.end();
  })();
  const hash = createHash("sha256");
  for await (const chunk of stream) {
    await setImmediate();
    hash.update(chunk as Buffer);
  }
  await writing;
  expect(hash.digest("hex")).toBe(createHash("sha256").update(sent).digest("hex"));
});

test("each direction ends on its own", async () => {
  const question = Promise.withResolvers<string>();
  await using server = await listen((socket) => {
    let text = "";
    socket.on("data", (chunk) => (text += String(chunk)));
    socket.on("end", () => {
      question.resolve(text);
      socket.end(`answer to ${text}`);
    });
  });
  const stream = await connection.dial(server.port);
  stream.end("question");
  let answer = "";
  for await (const chunk of stream) answer += String(chunk);
  expect(await question.promise).toBe("question");
  expect(answer).toBe("answer to question");
});

test("the other end may finish first and still take what is sent", async () => {
  const all = Promise.withResolvers<number>();
  await using server = await listen((socket) => {
    let length = 0;
    socket.end("bye");
    socket.on("data", (chunk) => (length += chunk.length));
    socket.on("end", () => all.resolve(length));
  });
  const stream = await connection.dial(server.port);
  let said = "";
  stream.on("data", (chunk) => (said += String(chunk)));
  await once(stream, "end");
  expect(said).toBe("bye");
  stream.end(Buffer.alloc(3_000_000));
  expect(await all.promise).toBe(3_000_000);
});

test("::1 is tried when nothing listens on 127.0.0.1", async () => {
  await using server = await listen((socket) => void socket.end("six"), "::1");
  const stream = await connection.dial(server.port);
  stream.end();
  let said = "";
  for await (const chunk of stream) said += String(chunk);
  expect(said).toBe("six");
});

test("a port on which nothing listens is refused by name", async () => {
  const closed = await listen(() => {});
  await closed[Symbol.asyncDispose]();
  await expect(connection.dial(closed.port)).rejects.toMatchObject({
    code: "port_refused",
    message: expect.stringContaining(String(closed.port)),
    details: { errno: "ECONNREFUSED" },
  });
});

test.for([0, 65_536, -1, 1.5])("port %d is none", async (port) => {
  await expect(connection.dial(port)).rejects.toMatchObject({ code: "invalid_argument" });
});

test("only numeric addresses are dialled", async () => {
  await expect(connection.dial(80, "example.org")).rejects.toMatchObject({ code: "invalid_argument" });
});

test("a connection that is reset ends in an error", async () => {
  await using server = await listen((socket) => {
    socket.once("data", () => void socket.resetAndDestroy());
  });
  const stream = await connection.dial(server.port);
  stream.write("x");
  stream.resume();
  const [error] = await once(stream, "error").then(
    (args) => args,
    (reason: unknown) => [reason],
  );
  expect(error).toMatchObject({ code: "connection_lost", details: { errno: "ECONNRESET" } });
});

test("destroying it closes the connection inside", async () => {
  const ended = Promise.withResolvers<void>();
  await using server = await listen((socket) => {
    socket.on("error", () => {});
    socket.on("close", () => ended.resolve());
    socket.on("end", () => void socket.end());
    socket.resume();
  });
  const stream = await connection.dial(server.port);
  stream.destroy();
  await expect(ended.promise).resolves.toBeUndefined();
});

test("it ends with the connection to the agent", async () => {
  const ended = Promise.withResolvers<string | undefined>();
  await using server = await listen((socket) => {
    socket.on("error", ({ code }: NodeJS.ErrnoException) => ended.resolve(code));
    socket.resume();
  });
  const stream = await connection.dial(server.port);
  const failed = once(stream, "error").then(
    (args) => args,
    (reason: unknown) => [reason],
  );
  connection = await agent.connect();
  expect((await failed)[0]).toMatchObject({ code: "agent_lost", ambiguous: true });
  expect(await ended.promise).toBe("ECONNRESET");
});

test("100 connections at once do not mix", async () => {
  await using echo = await listen((socket) => void socket.pipe(socket));
  const texts = await Promise.all(
    Array.from({ length: 100 }, async (_, i) => {
      const stream = await connection.dial(echo.port, "127.0.0.1");
      stream.end(`${i} `.repeat(5000));
      let text = "";
      for await (const chunk of stream) text += String(chunk);
      return text;
    }),
  );
  expect(texts).toEqual(Array.from({ length: 100 }, (_, i) => `${i} `.repeat(5000)));
});

test("a connection that is dropped before its end was sent is reset, one that was ended is not", async () => {
  for (const [end, expected] of [
    [false, "ECONNRESET"],
    [true, "ended"],
  ] as const) {
    const seen = Promise.withResolvers<string | undefined>();
    await using server = await listen((socket) => {
      socket.on("error", ({ code }: NodeJS.ErrnoException) => seen.resolve(code));
      socket.on("end", () => {
        seen.resolve("ended");
        socket.end();
      });
      socket.once("data", () => socket.write("got it"));
      socket.resume();
    });
    const stream = await connection.dial(server.port);
    stream.write("half of it");
    await once(stream, "data");
    if (end) {
      stream.end();
      await once(stream.resume(), "close");
    } else stream.destroy();
    expect(await seen.promise).toBe(expected);
  }
});

test("a connection that is reset as soon as it is made breaks after its caller has it", async () => {
  const [host, inside] = duplexPair();
  const nonceAt = 13;
  inside.once("data", (hello: Buffer) => {
    const answer = Buffer.alloc(24);
    answer.writeUInt32LE(1);
    answer.set(hello.subarray(nonceAt, nonceAt + 16), 4);
    inside.write(encodeFrame(FrameType.helloAck, 0, answer));
    // both in one piece, as the agent sends what has happened by the time it writes
    inside.once("data", () => {
      const exit = Buffer.alloc(22);
      exit[0] = 1;
      exit.writeUInt32LE(constants.errno.ECONNRESET, 1);
      const started = encodeFrame(FrameType.started, 1, Buffer.alloc(12));
      inside.write(Buffer.concat([started, encodeFrame(FrameType.exit, 1, exit)]));
    });
  });
  const options = { resync: false, signal: AbortSignal.timeout(20_000) };
  const scripted = await AgentConnection.open(host, options);
  const stream = await scripted.dial(80);
  const [error] = (await once(stream, "error")) as [Error];
  expect(error).toMatchObject({ code: "connection_lost", details: { errno: "ECONNRESET" } });
  scripted.close();
});
