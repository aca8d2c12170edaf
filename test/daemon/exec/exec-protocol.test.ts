import { expect, test } from "vitest";
import { execChannel, maxExecFrame, stdinWindow } from "../../../src/protocol/exec-frames.ts";
import type { ExecList } from "../../../src/protocol/exec.ts";
import { TestDaemon, token } from "../daemon-fixture.ts";
import { ExecSocket } from "../exec-socket.ts";

async function withSandbox(options: Parameters<typeof TestDaemon.start>[0] = {}) {
  const daemon = await TestDaemon.start(options);
  const { id } = await daemon.place({ env: { COLOR: "blue" } });
  const open = async (): Promise<ExecSocket> => ExecSocket.open(daemon.running.address, token, id);
  return { daemon, id, open };
}

test("argv arrives as it was given", async () => {
  const { daemon, id } = await withSandbox();
  const { stdout } = await daemon.run(id, ["printf", "%s\\0", "a b", "", "'c'", "$HOME", "ü"]);
  expect(stdout.split("\0")).toEqual(["a b", "", "'c'", "$HOME", "ü", ""]);
});

test("the connection ends with one status, after the output, and is closed normally", async () => {
  const { daemon, id } = await withSandbox();
  const exec = await daemon.exec(id, ["sh", "-c", "echo out; echo err >&2; exit 3"]);
  expect(await exec.status).toMatchObject({ exitCode: 3, cause: "exited", stdoutBytes: 4, stderrBytes: 4 });
  expect([exec.stdout.toString(), exec.stderr.toString()]).toEqual(["out\n", "err\n"]);
  expect(await exec.closed).toBe(1000);
});

test("the start is told before the output, and the status after it, however fast the command is", async () => {
  const { daemon, id } = await withSandbox();
  const orders = new Set<string>();
  for (let round = 0; round < 50; round += 1) {
    const exec = await daemon.exec(id, ["echo", "quick"]);
    await exec.status;
    orders.add(exec.channels.join(" "));
  }
  const { control, stdout, status } = execChannel;
  expect([...orders]).toEqual([`${control} ${stdout} ${status}`]);
});

test("variables of the sandbox reach a command, and its own come on top", async () => {
  const { daemon, id } = await withSandbox();
  const { stdout } = await daemon.run(id, ["env"], { env: { SHAPE: "round", HOME: "/tmp" } });
  expect(stdout.split("\n")).toEqual(expect.arrayContaining(["COLOR=blue", "SHAPE=round", "HOME=/tmp"]));
});

test("stdin arrives whole within its window, and its end is passed on", async () => {
  const { daemon, id } = await withSandbox();
  const exec = await daemon.exec(id, ["cat"], { stdin: true });
  const bytes = Buffer.from(Array.from({ length: 3_000_000 }, (_, index) => (index * 31) % 256));
  let sent = 0;
  let granted = 0;
  while (sent < bytes.length) {
    await expect
      .poll(
        () => {
          granted = exec.controls.reduce(
            (sum, control) => sum + (control.type === "credit" ? control.bytes : 0),
            0,
          );
          return stdinWindow + granted - sent;
        },
        { interval: 1 },
      )
      .toBeGreaterThan(0);
    const chunk = bytes.subarray(sent, sent + Math.min(maxExecFrame, stdinWindow + granted - sent));
    exec.frame(execChannel.stdin, chunk);
    sent += chunk.length;
  }
  exec.frame(execChannel.stdin, "");
  expect(await exec.status).toMatchObject({ exitCode: 0, stdoutBytes: bytes.length });
  expect(exec.stdout.equals(bytes)).toBe(true);
});

test("a signal reaches the command by its name", async () => {
  const { daemon, id } = await withSandbox();
  const exec = await daemon.exec(id, ["sleep", "1000"]);
  await exec.started;
  exec.control({ type: "signal", signal: "INT" });
  expect(await exec.status).toMatchObject({ exitCode: 130, cause: "signaled", signal: "SIGINT" });
});

test("a timeout is marked and has its own exit code", async () => {
  const { daemon, id } = await withSandbox();
  const { status, stdout } = await daemon.run(id, ["sh", "-c", "echo before; sleep 1000"], { timeoutMs: 50 });
  expect(status).toMatchObject({ exitCode: 124, cause: "timeout", timedOut: true });
  expect(stdout).toBe("before\n");
});

test.each([
  ["a command that is not there", { argv: ["no-such-thing"] }, "command_not_found"],
  ["a directory that is not there", { argv: ["true"], cwd: "/no/such" }, "no_such_cwd"],
  ["a user that is not there", { argv: ["true"], user: "nobody-here" }, "no_such_user"],
] as const)("%s is a status with its own code", async (_what, { argv, ...spec }, code) => {
  const { daemon, id } = await withSandbox();
  const { status } = await daemon.run(id, [...argv], spec);
  expect(status).toMatchObject({ type: "error", problem: { code } });
  expect(await daemon.get(id)).toMatchObject({ state: "running", activeExecs: 0 });
});

const start = JSON.stringify({ type: "start", spec: { argv: ["sleep", "1000"] } });
test.each<[string, (exec: ExecSocket) => void, string]>([
  ["a text frame", (exec) => exec.socket.send("hello"), "protocol_error"],
  ["an empty frame", (exec) => exec.socket.send(Buffer.alloc(0)), "protocol_error"],
  ["a control frame that is not JSON", (exec) => exec.frame(execChannel.control, "{"), "protocol_error"],
  ["an unknown control", (exec) => exec.control({ type: "dance" }), "invalid_argument"],
  ["a start without argv", (exec) => exec.control({ type: "start", spec: { argv: [] } }), "invalid_argument"],
  [
    "a start with an unknown field",
    (exec) => exec.control({ type: "start", spec: { argv: ["true"], x: 1 } }),
    "invalid_argument",
  ],
  ["stdin before the start", (exec) => exec.frame(execChannel.stdin, "x"), "protocol_error"],
  [
    "a resize before the start",
    (exec) => exec.frame(execChannel.resize, '{"rows":1,"cols":1}'),
    "protocol_error",
  ],
  ["an output channel", (exec) => exec.frame(execChannel.stdout, "x"), "protocol_error"],
  ["an unknown channel", (exec) => exec.frame(99, "x"), "protocol_error"],
  [
    "a frame that is too long",
    (exec) => exec.frame(execChannel.stdin, Buffer.alloc(maxExecFrame + 1)),
    "protocol_error",
  ],
  [
    "a second start",
    (exec) => (exec.frame(execChannel.control, start), exec.frame(execChannel.control, start)),
    "protocol_error",
  ],
  [
    "an unknown signal",
    (exec) => (
      exec.frame(execChannel.control, start),
      exec.control({ type: "signal", signal: "SIGNOTHING" })
    ),
    "invalid_argument",
  ],
  [
    "stdin that was not asked for",
    (exec) => (exec.frame(execChannel.control, start), exec.frame(execChannel.stdin, "x")),
    "protocol_error",
  ],
  [
    "a terminal of no size",
    (exec) => (
      exec.frame(execChannel.control, start),
      exec.frame(execChannel.resize, '{"rows":0,"cols":80}')
    ),
    "invalid_argument",
  ],
])("%s ends the connection and its command with a status", async (_what, act, code) => {
  const { daemon, id, open } = await withSandbox();
  const exec = await open();
  act(exec);
  expect(await exec.status).toMatchObject({ type: "error", problem: { code } });
  expect(await exec.closed).toBe(1000);
  await expect.poll(async () => (await daemon.get(id)).activeExecs).toBe(0);
});

test("stdin beyond the window ends the command", async () => {
  const { daemon, id, open } = await withSandbox();
  const exec = await open();
  exec.start({ argv: ["sleep", "1000"], stdin: true });
  await exec.started;
  for (let sent = 0; sent <= stdinWindow; sent += maxExecFrame)
    exec.frame(execChannel.stdin, Buffer.alloc(maxExecFrame));
  expect(await exec.status).toMatchObject({ type: "error", problem: { code: "protocol_error" } });
  await expect.poll(async () => (await daemon.get(id)).activeExecs).toBe(0);
});

test("a frame far beyond any limit cuts the connection", async () => {
  const { open } = await withSandbox();
  const exec = await open();
  exec.frame(execChannel.stdin, Buffer.alloc(4 * maxExecFrame));
  expect(await exec.closed).toBe(1009);
});

test("a client that starts nothing is not waited for for ever", async () => {
  const { open } = await withSandbox({ clientTimeoutMs: 100 });
  const exec = await open();
  expect(await exec.status).toMatchObject({ type: "error", problem: { code: "protocol_error" } });
});

test("a client that gives no sign of life is gone, and its command with it", async () => {
  const { daemon, id } = await withSandbox({ clientTimeoutMs: 200 });
  const exec = await daemon.exec(id, ["sleep", "1000"]);
  await exec.started;
  exec.socket.pause();
  await expect.poll(async () => (await daemon.get(id)).activeExecs, { timeout: 10_000 }).toBe(0);
  exec.socket.resume();
  expect(await exec.closed).toBe(1006);
});

test("a client that only listens stays", async () => {
  const { daemon, id } = await withSandbox({ clientTimeoutMs: 100 });
  const exec = await daemon.exec(id, ["sh", "-c", "sleep 0.5; echo done"]);
  expect(await exec.status).toMatchObject({ exitCode: 0, stdoutBytes: 5 });
});

test("a command ends with its client", async () => {
  const { daemon, id } = await withSandbox();
  const exec = await daemon.exec(id, ["sleep", "1000"]);
  await exec.started;
  exec.socket.terminate();
  await expect.poll(async () => (await daemon.get(id)).activeExecs).toBe(0);
  const { items } = await daemon.http.json<ExecList>("listExecs", { params: { ref: id } });
  expect(items).toMatchObject([{ state: "exited", exit: { cause: "killed", exitCode: 137 } }]);
});

test("a sandbox that was to end with a command whose client went away is stopped, without an exit code", async () => {
  const { daemon, id } = await withSandbox();
  const exec = await daemon.exec(id, ["sleep", "1000"], { endsSandbox: true });
  await exec.started;
  exec.socket.terminate();
  const ended = await daemon.wait(id);
  expect(ended).toMatchObject({ state: "stopped", endReason: "stopped" });
  expect(ended.exitCode).toBeUndefined();
});

test("a slow reader slows the command: what waits in the daemon stays bounded", async () => {
  const { daemon, id } = await withSandbox();
  const exec = await daemon.exec(id, ["yes"]);
  await exec.started;
  exec.socket.pause();
  const settled = async (): Promise<number> => {
    let last = -1;
    await expect
      .poll(
        () => {
          const now = process.memoryUsage().arrayBuffers;
          const isSteady = Math.abs(now - last) < 65_536;
          last = now;
          return isSteady;
        },
        { interval: 50, timeout: 10_000 },
      )
      .toBe(true);
    return last;
  };
  const before = await settled();
  // many turns in which an unbounded queue would grow
  for (let turn = 0; turn < 2000; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(4 * 1_048_576);
  exec.socket.resume();
  const received = exec.stdout.length;
  await expect.poll(() => exec.stdout.length).toBeGreaterThan(received);
  exec.control({ type: "signal", signal: "KILL" });
  const status = await exec.status;
  expect(status).toMatchObject({ cause: "signaled", stdoutBytes: exec.stdout.length });
});

test("a stop gives the commands a chance, then their output and status still arrive", async () => {
  const { daemon, id } = await withSandbox();
  const exec = await daemon.exec(id, ["sh", "-c", "echo hello; sleep 1000"]);
  await expect.poll(() => exec.stdout.toString()).toBe("hello\n");
  await daemon.stop(id);
  expect(await exec.status).toMatchObject({ type: "exit", cause: "killed", signal: "SIGTERM" });
});

test("a command in a sandbox that has ended, or is not there, is refused before the upgrade", async () => {
  const { daemon, id, open } = await withSandbox();
  await daemon.stop(id);
  await expect(open()).rejects.toMatchObject({ problem: { code: "sandbox_not_running", status: 409 } });
  await expect(ExecSocket.open(daemon.running.address, token, "n1-zz")).rejects.toMatchObject({
    problem: { code: "not_found" },
  });
  await expect(ExecSocket.open(daemon.running.address, "wrong-token-wrong-token", id)).rejects.toMatchObject({
    problem: { code: "unauthenticated", status: 401 },
  });
});

test("a daemon that ends tells the clients of its commands that the outcome is unknown", async () => {
  const { daemon, id } = await withSandbox();
  const exec = await daemon.exec(id, ["sleep", "1000"]);
  await exec.started;
  await daemon.leave();
  expect(await exec.status).toMatchObject({
    type: "error",
    problem: { code: "connection_lost", ambiguous: true },
  });
});
