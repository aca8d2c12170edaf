import { expect, test } from "vitest";
import type { ExecSpecInput, ServerControl } from "../../../src/protocol/exec.ts";
import { execChannel } from "../../../src/protocol/exec-frames.ts";
import { TestDaemon, token } from "../daemon-fixture.ts";
import { ExecSocket } from "../exec-socket.ts";

async function withExec(
  argv: string[],
  spec: Partial<ExecSpecInput> = {},
  options: Parameters<typeof TestDaemon.start>[0] = {},
) {
  const daemon = await TestDaemon.start(options);
  const { id } = await daemon.place();
  const { status } = await daemon.run(id, argv, { detach: true, ...spec });
  if (status.type !== "detached") throw new Error("it was not detached");
  const { execId } = status;
  const open = async (exec = execId): Promise<ExecSocket> =>
    ExecSocket.open(daemon.running.address, token, id, `execs/${exec}/attach`);
  const attach = async (request: object = {}): Promise<ExecSocket> => {
    const socket = await open();
    socket.control({ type: "attach", ...request });
    return socket;
  };
  return { daemon, id, execId, open, attach };
}

function gaps({ controls }: ExecSocket): ServerControl[] {
  return controls.filter(({ type }) => type === "gap");
}

test("several clients see what a command writes from now on, and one of them writes to it", async () => {
  const { attach } = await withExec(["cat"], { stdin: true });
  const [writer, watcher] = [await attach({ stdin: true }), await attach()];
  await Promise.all([writer.started, watcher.started]);
  writer.frame(execChannel.stdin, "one\n");
  await expect.poll(() => watcher.stdout.toString()).toBe("one\n");
  const late = await attach();
  expect(await late.started).toMatchObject({ type: "attached", from: { stdout: 4, stderr: 0 } });
  writer.frame(execChannel.stdin, "two\n");
  await expect.poll(() => late.stdout.toString()).toBe("two\n");
  writer.frame(execChannel.stdin, "");
  for (const client of [writer, watcher, late])
    expect(await client.status).toMatchObject({ type: "exit", exitCode: 0, stdoutBytes: 8 });
  expect([writer.stdout.toString(), watcher.stdout.toString()]).toEqual(["one\ntwo\n", "one\ntwo\n"]);
});

test("what was written before is repeated from the start, or from where a client left off", async () => {
  const { attach } = await withExec(["cat"], { stdin: true });
  const writer = await attach({ stdin: true });
  writer.frame(execChannel.stdin, "0123456789");
  await expect.poll(() => writer.stdout.toString()).toBe("0123456789");
  const [whole, rest] = [await attach({ from: "start" }), await attach({ from: { stdout: 4, stderr: 0 } })];
  await expect
    .poll(() => [whole.stdout.toString(), rest.stdout.toString()])
    .toEqual(["0123456789", "456789"]);
  writer.frame(execChannel.stdin, "");
  expect(await rest.status).toMatchObject({ type: "exit", stdoutBytes: 10 });
});

test("leaving ends neither the command nor its stdin", async () => {
  const { daemon, id, attach } = await withExec(["cat"], { stdin: true });
  const first = await attach({ stdin: true });
  await first.started;
  first.socket.close();
  await first.closed;
  const second = await attach({ stdin: true });
  await second.started;
  expect((await daemon.get(id)).activeExecs).toBe(1);
  second.frame(execChannel.stdin, "still there");
  second.frame(execChannel.stdin, "");
  expect(await second.status).toMatchObject({ type: "exit", exitCode: 0, stdoutBytes: 11 });
});

test("a second client for stdin is refused by name, and may watch", async () => {
  const { attach } = await withExec(["cat"], { stdin: true });
  const first = await attach({ stdin: true });
  await first.started;
  const second = await attach({ stdin: true });
  expect(await second.status).toMatchObject({ type: "error", problem: { code: "stdin_taken" } });
  const watcher = await attach();
  first.frame(execChannel.stdin, "");
  expect(await watcher.status).toMatchObject({ type: "exit", exitCode: 0 });
});

test("a kept command's own client holds its stdin until it goes", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  const own = await daemon.exec(id, ["cat"], { stdin: true, onDisconnect: "keep" });
  const started = await own.started;
  const execId = "execId" in started ? started.execId : "";
  const attach = async (): Promise<ExecSocket> => {
    const socket = await ExecSocket.open(daemon.running.address, token, id, `execs/${execId}/attach`);
    socket.control({ type: "attach", stdin: true });
    return socket;
  };
  const tooEarly = await attach();
  expect(await tooEarly.status).toMatchObject({ problem: { code: "stdin_taken" } });
  own.socket.terminate();
  await own.closed;
  let next = await attach();
  // the daemon learns of the end of a connection a moment after its client does
  await expect
    .poll(async () => {
      const first = await Promise.race([next.started, next.status]);
      if (first.type !== "attached") next = await attach();
      return first.type;
    })
    .toBe("attached");
  next.frame(execChannel.stdin, "still there\n");
  await expect.poll(() => next.stdout.toString()).toBe("still there\n");
  next.frame(execChannel.stdin, "");
  expect(await next.status).toMatchObject({ type: "exit", exitCode: 0 });
  const late = await attach();
  expect(await late.status).toMatchObject({ type: "error", problem: { code: "conflict" } });
});

test("signals reach the command", async () => {
  const { attach } = await withExec(["sleep", "1000"]);
  const client = await attach();
  client.control({ type: "signal", signal: "TERM" });
  expect(await client.status).toMatchObject({ cause: "signaled", signal: "SIGTERM" });
});

test("a command that has ended gives its record and its status", async () => {
  const { daemon, id, attach } = await withExec(["sh", "-c", "echo out; echo err >&2; exit 3"]);
  await expect.poll(async () => (await daemon.get(id)).activeExecs).toBe(0);
  const whole = await attach({ from: "start" });
  expect(await whole.status).toMatchObject({ type: "exit", exitCode: 3 });
  expect([whole.stdout.toString(), whole.stderr.toString()]).toEqual(["out\n", "err\n"]);
  const now = await attach();
  expect(await now.status).toMatchObject({ type: "exit", exitCode: 3 });
  expect(now.stdout).toHaveLength(0);
  expect(await now.closed).toBe(1000);
});

test("a client that does not read stops nobody, and is told what it has missed", async () => {
  const { daemon, id, attach } = await withExec(["yes"], {}, { logHeadBytes: 4096, logTailBytes: 65_536 });
  const slow = await attach();
  await slow.started;
  slow.socket.pause();
  const quick = await attach();
  await expect.poll(() => quick.stdout.length, { timeout: 20_000 }).toBeGreaterThan(8_000_000);
  quick.control({ type: "signal", signal: "KILL" });
  const end = await quick.status;
  if (end.type !== "exit") throw new Error("it did not end");
  slow.socket.resume();
  expect(await slow.status).toMatchObject({ type: "exit", stdoutBytes: end.stdoutBytes });
  const missed = gaps(slow).reduce((sum, control) => sum + (control.type === "gap" ? control.bytes : 0), 0);
  const [first] = slow.controls;
  const from = first?.type === "attached" ? first.from.stdout : 0;
  expect(missed).toBeGreaterThan(0);
  expect(from + slow.stdout.length + missed).toBe(end.stdoutBytes);
  expect((await daemon.get(id)).activeExecs).toBe(0);
});

test.each<[string, (client: ExecSocket) => void, string]>([
  ["a frame before the attach", (client) => client.frame(execChannel.stdin, "x"), "protocol_error"],
  ["a start", (client) => client.control({ type: "start", spec: { argv: ["true"] } }), "invalid_argument"],
  [
    "a resize of nothing",
    (client) => client.frame(execChannel.resize, '{"rows":0,"cols":0}'),
    "invalid_argument",
  ],
  ["an attach from nowhere", (client) => client.control({ type: "attach", from: -1 }), "invalid_argument"],
  [
    "a second attach",
    (client) => (client.control({ type: "attach" }), client.control({ type: "attach" })),
    "protocol_error",
  ],
  [
    "stdin that was not asked for",
    (client) => (client.control({ type: "attach" }), client.frame(execChannel.stdin, "x")),
    "protocol_error",
  ],
  ["stdin where there is none", (client) => client.control({ type: "attach", stdin: true }), "conflict"],
  [
    "an unknown signal",
    (client) => (client.control({ type: "attach" }), client.control({ type: "signal", signal: "NOTHING" })),
    "invalid_argument",
  ],
])("%s ends the attachment, not the command", async (_what, act, code) => {
  const { daemon, id, open } = await withExec(["sleep", "1000"]);
  const client = await open();
  act(client);
  expect(await client.status).toMatchObject({ type: "error", problem: { code } });
  expect((await daemon.get(id)).activeExecs).toBe(1);
});

test("attachments of one command are limited", async () => {
  const { attach } = await withExec(["sleep", "1000"]);
  const clients = await Promise.all(Array.from({ length: 64 }, async () => attach()));
  await Promise.all(clients.map(async ({ started }) => started));
  const one = await attach();
  expect(await one.status).toMatchObject({ problem: { code: "connection_limit" } });
  clients[0]?.socket.terminate();
  await clients[0]?.closed;
  await expect.poll(async () => (await (await attach()).started).type).toBe("attached");
});

test("what is not there, or not recorded, is refused before the upgrade", async () => {
  const { daemon, id, open } = await withExec(["sleep", "1000"]);
  await expect(open("abc")).rejects.toMatchObject({ problem: { code: "not_found" } });
  const plain = await daemon.exec(id, ["sleep", "1000"]);
  const started = await plain.started;
  await expect(open("execId" in started ? started.execId : "")).rejects.toMatchObject({
    problem: { code: "unsupported" },
  });
});

test("a daemon that ends tells its attached clients", async () => {
  const { daemon, attach } = await withExec(["sleep", "1000"]);
  const client = await attach();
  await client.started;
  await daemon.leave();
  expect(await client.status).toMatchObject({ type: "error", problem: { code: "connection_lost" } });
});
