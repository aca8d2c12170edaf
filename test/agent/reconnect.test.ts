import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { once } from "node:events";
import { PassThrough, Duplex } from "node:stream";
import { expect, test } from "vitest";
import { AgentConnection } from "../../src/agent/connection.ts";
import { Field, FieldWriter } from "../../src/agent/fields.ts";
import { encodeFrame, FrameType, PROTOCOL_VERSION } from "../../src/agent/frame.ts";
import { Collector, openOver, run, sh, start, startAgent, startStdioAgent } from "./agent-fixture.ts";

const counting = (lines: number): string =>
  `i=0; while [ $i -lt ${lines} ]; do echo line $i; i=$((i+1)); done; exit 3`;
const counted = (lines: number): string => Array.from({ length: lines }, (_, i) => `line ${i}\n`).join("");

function hello(): Buffer {
  const payload = Buffer.alloc(20, 7);
  payload.writeUInt32LE(PROTOCOL_VERSION);
  return encodeFrame(FrameType.hello, 0, payload);
}

test("an exec whose connection drops midway is taken up by the next one, and loses nothing", async () => {
  await using agent = await startAgent();
  const lines = 40_000;
  const received: Buffer[] = [];
  let offset = 0;
  let connection = await agent.connect();
  const take = (limit: number) => (_stream: string, at: number, chunk: Buffer) => {
    expect(at).toBe(offset);
    received.push(chunk);
    offset += chunk.length;
    // Beyond the limit nothing is consumed any more, as from a host that is about to die.
    if (offset > limit) {
      connection.close();
      return new Promise<void>(() => {});
    }
    return undefined;
  };
  const first = await connection.exec({ argv: sh(counting(lines)), env: {}, stdin: false }, take(1));
  await expect(first.exit).rejects.toMatchObject({ code: "agent_lost", ambiguous: true });
  for (const limit of [50_000, 100_000, 200_000]) {
    connection = await agent.connect();
    expect(connection.live).toMatchObject([{ channel: first.channel, pid: first.pid }]);
    const again = await connection.resume(first.channel, { stdout: offset, stderr: 0 }, take(limit));
    await expect(again.exit).rejects.toMatchObject({ code: "agent_lost" });
  }
  connection = await agent.connect();
  const last = await connection.resume(first.channel, { stdout: offset, stderr: 0 }, take(Infinity));
  expect(last.pid).toBe(first.pid);
  expect(await last.exit).toMatchObject({ code: 3, stdoutBytes: counted(lines).length });
  expect(Buffer.concat(received).toString()).toBe(counted(lines));
  last.release();
});

test("an exec that ended while nobody was connected is found with its output and code", async () => {
  await using agent = await startAgent();
  const first = await agent.connect();
  const { exec } = await start(first, sh("read x; echo late; exit 9"), { stdin: true });
  await exec.write(Buffer.from("go\n"));
  await first.ping();
  first.close();
  let connection = await agent.connect();
  while (connection.live[0]?.state !== "exited") {
    connection.close();
    connection = await agent.connect();
  }
  const output = new Collector();
  const resumed = await connection.resume(exec.channel, { stdout: 0, stderr: 0 }, output.sink);
  expect(await resumed.exit).toMatchObject({ code: 9 });
  expect(output.stdout.toString()).toBe("late\n");
  resumed.release();
  await connection.ping();
  const after = await agent.connect();
  expect(after.live).toEqual([]);
});

test("a resumed exec takes stdin from where the agent had got to", async () => {
  await using agent = await startAgent();
  const first = await agent.connect();
  const { exec, output } = await start(first, ["cat"], { stdin: true });
  await exec.write(Buffer.from("one "));
  await output.seen("one ");
  first.close();
  const second = await agent.connect();
  const rest = new Collector();
  const resumed = await second.resume(exec.channel, { stdout: 4, stderr: 0 }, rest.sink);
  await resumed.write(Buffer.alloc(200_000, "x"));
  resumed.end();
  expect(await resumed.exit).toMatchObject({ code: 0, stdoutBytes: 200_004 });
  expect(rest.stdout.toString()).toBe("x".repeat(200_000));
  resumed.release();
});

test("resuming what is not there is an error", async () => {
  await using agent = await startAgent();
  const connection = await agent.connect();
  const resumed = connection.resume(77, { stdout: 0, stderr: 0 }, () => {});
  await expect(resumed).rejects.toMatchObject({ code: "not_found" });
});

test("the newest connection wins; what was in flight on the earlier one is ambiguous", async () => {
  await using agent = await startAgent();
  const first = await agent.connect();
  const { exec } = await start(first, ["sleep", "1000"]);
  const second = await agent.connect();
  await first.closed;
  await expect(exec.exit).rejects.toMatchObject({ code: "agent_lost", ambiguous: true });
  await expect(first.ping()).rejects.toMatchObject({ code: "agent_lost" });
  await expect(start(first, ["true"])).rejects.toMatchObject({ code: "agent_lost", ambiguous: false });
  expect((await run(second, ["true"])).code).toBe(0);
});

test("an exec that was asked for when the connection dropped is ambiguous, never a success", async () => {
  await using agent = await startAgent();
  const connection = await agent.connect();
  const starting = start(connection, ["true"]);
  connection.close();
  await expect(starting).rejects.toMatchObject({ code: "agent_lost", ambiguous: true, exitCode: 125 });
});

test("when the agent is killed, everything in flight fails as lost", async () => {
  await using agent = await startAgent();
  const connection = await agent.connect();
  const { exec } = await start(connection, ["sleep", "5"]);
  process.kill(agent.pid, "SIGKILL");
  await expect(exec.exit).rejects.toMatchObject({ code: "agent_lost", ambiguous: true });
  await connection.closed;
  await expect(connection.files.stat("/", { followSymlink: true })).rejects.toMatchObject({
    code: "agent_lost",
  });
});

test("over standard streams a new host finds its feet in whatever an earlier one left", async () => {
  await using agent = await startStdioAgent();
  const { stdin } = agent.process;
  stdin?.write(randomBytes(100_000));
  const first = await openOver(agent.borrow());
  const { exec, output } = await start(first, ["cat"], { stdin: true });
  await exec.write(Buffer.from("before "));
  await output.seen("before ");
  // The earlier host dies in the middle of each kind of frame.
  const cuts = [1, 4, 5, 8, 9, 10, 500];
  for (const cut of cuts) {
    first.close();
    const frame = encodeFrame(FrameType.stdin, exec.channel, Buffer.alloc(1000, "!"));
    stdin?.write(frame.subarray(0, cut));
    const next = await openOver(agent.borrow());
    expect(next.live).toMatchObject([{ channel: exec.channel, state: "running" }]);
    next.close();
    stdin?.write(randomBytes(10_000));
  }
  const last = await openOver(agent.borrow());
  const rest = new Collector();
  const resumed = await last.resume(exec.channel, { stdout: 7, stderr: 0 }, rest.sink);
  await resumed.write(Buffer.from("after"));
  resumed.end();
  expect(await resumed.exit).toMatchObject({ code: 0, stdoutBytes: 12 });
  expect(rest.stdout.toString()).toBe("after");
  last.close();
});

test("bytes that look like a greeting and a command inside a cut-off frame are not obeyed", async () => {
  await using agent = await startStdioAgent();
  const first = await openOver(agent.borrow());
  const { exec } = await start(first, ["cat"], { stdin: true });
  first.close();
  const marker = `/tmp/dsec-agent-marker-${agent.pid}`;
  const command = new FieldWriter().string(Field.argv, "touch").string(Field.argv, marker);
  const forged = Buffer.concat([Buffer.alloc(64), hello(), command.toFrame(FrameType.exec, 4000)]);
  const frame = encodeFrame(FrameType.stdin, exec.channel, Buffer.concat([forged, Buffer.alloc(20_000, 1)]));
  agent.process.stdin?.write(frame.subarray(0, 10_000));
  const second = await openOver(agent.borrow());
  expect(second.live.map(({ channel }) => channel)).toEqual([exec.channel]);
  expect((await run(second, ["true"])).code).toBe(0);
  expect(existsSync(marker)).toBe(false);
  second.close();
});

test("output that an earlier host never read does not confuse the next one", async () => {
  await using agent = await startStdioAgent();
  const first = await openOver(agent.borrow());
  const flood = await start(first, ["yes"]);
  await flood.output.seen("y");
  first.close();
  const second = await openOver(agent.borrow());
  const { exec: resumed } = {
    exec: await second.resume(flood.exec.channel, { stdout: 0, stderr: 0 }, () => {}),
  };
  resumed.release();
  expect((await run(second, ["echo", "x"])).stdout.toString()).toBe("x\n");
  second.close();
});

test("the agent on pipes ends when the host's end is closed", async () => {
  await using agent = await startStdioAgent();
  const exited = once(agent.process, "exit");
  agent.process.stdin?.end();
  expect(await exited).toEqual([0, null]);
});

test("who does not greet, or breaks the protocol, is dropped; others are served", async () => {
  await using agent = await startAgent();
  const greeting = hello();
  const bad = [
    encodeFrame(FrameType.ping, 0, Buffer.alloc(8)),
    Buffer.from("GET / HTTP/1.1\r\n\r\n"),
    Buffer.concat([greeting, Buffer.from([0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0xa5])]),
    Buffer.concat([greeting, encodeFrame(FrameType.ping, 0, Buffer.alloc(9))]),
    Buffer.concat([greeting, encodeFrame(FrameType.ping, 0, Buffer.alloc(8)).fill(0, 17)]),
    Buffer.concat([greeting, Buffer.from([2, 1, 0, 0, 0, 1, 0, 4, 0])]),
    Buffer.concat([greeting, Buffer.from([3, 1, 0, 0, 0, 1, 0, 1, 0])]),
  ];
  for (const bytes of bad) {
    const socket = await agent.dialSocket();
    socket.resume();
    socket.on("error", () => {});
    const closed = once(socket, "close");
    socket.write(bytes);
    await closed;
  }
  const connection = await agent.connect();
  expect((await run(connection, ["true"])).code).toBe(0);
});

test("malformed requests are refused one by one", async () => {
  await using agent = await startAgent();
  const socket = await agent.dialSocket();
  const bad = [
    Buffer.alloc(0),
    Buffer.from([1, 255, 255, 255, 255]),
    Buffer.from([1, 1, 0, 0]),
    Buffer.from([1, 1, 0, 0, 0, 0]),
    Buffer.from([99, 0, 0, 0, 0]),
  ];
  const types = [FrameType.exec, FrameType.dial, FrameType.file];
  const frames = types.flatMap((type) => bad.map((payload) => ({ type, payload })));
  socket.write(hello());
  for (const [i, { type, payload }] of frames.entries()) socket.write(encodeFrame(type, i + 1, payload));
  socket.write(encodeFrame(FrameType.exec, 1, Buffer.alloc(0)));
  socket.write(encodeFrame(FrameType.ping, 0, Buffer.alloc(8, "p")));
  let answer = Buffer.alloc(0);
  for await (const chunk of socket) {
    answer = Buffer.concat([answer, chunk as Buffer]);
    if (answer.includes("pppppppp")) break;
  }
  expect(answer.toString("latin1").split("malformed request").length - 1).toBe(frames.length);
  expect(answer.toString("latin1").split("used before").length - 1).toBe(1);
});

test("a host that waits for an agent that never answers stops when told to", async () => {
  const stream = Duplex.from({ readable: new PassThrough(), writable: new PassThrough() });
  const opening = AgentConnection.open(stream, { resync: false, signal: AbortSignal.abort() });
  await expect(opening).rejects.toMatchObject({ code: "cancelled" });
  expect(stream.destroyed).toBe(true);
});

test("a stream that has closed before anybody listened is a lost agent, at once", async () => {
  const stream = new PassThrough();
  stream.destroy();
  await once(stream, "close");
  const opening = AgentConnection.open(stream, { resync: false, signal: new AbortController().signal });
  await expect(opening).rejects.toMatchObject({ code: "agent_lost" });
});
