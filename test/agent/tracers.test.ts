/** Processes inside that trace others, and do not wait for them. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { expect, test, vi } from "vitest";
import type { AgentConnection } from "../../src/agent/connection.ts";
import { run, type RunningAgent, sh, shareAgent, start, startAgent, type Started } from "./agent-fixture.ts";
import { childrenOf, isAlive, processState } from "./process-state.ts";

const POLL = { timeout: 20_000, interval: 10 };
let agent: RunningAgent;
let connection: AgentConnection;

shareAgent((...made) => {
  [agent, connection] = made;
});

/** Seizes threads by their ids, with INTERRUPT if asked, and then only sleeps. */
function tracer(how: "seize" | "interrupt", ...threads: readonly number[]): string[] {
  const script = `
import ctypes, sys, time
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long] * 4
for pid in map(int, sys.argv[2:]):
    if ptrace(0x4206, pid, 0, 0) != 0 or (sys.argv[1] == "interrupt" and ptrace(0x4207, pid, 0, 0) != 0):
        sys.exit(f"ptrace: errno {ctypes.get_errno()}")
print("traced", flush=True)
time.sleep(1000)`;
  return ["python3", "-c", script, how, ...threads.map(String)];
}

async function traced(how: "seize" | "interrupt", ...threads: readonly number[]): Promise<Started> {
  const started = await start(connection, tracer(how, ...threads));
  await started.output.seen("traced");
  return started;
}

test("a command that is traced and ends yields its own status although its tracer does not wait", async () => {
  const { exec, output } = await start(connection, sh("read x; echo $x; exit 3"), { stdin: true });
  const other = await traced("seize", exec.pid);
  await exec.write(Buffer.from("bye\n"));
  expect(await exec.exit).toMatchObject({ code: 3, timedOut: false });
  expect(output.stdout.toString()).toBe("bye\n");
  expect(await other.exec.exit).toMatchObject({ code: 137 });
  expect(processState(exec.pid)).toBeUndefined();
  exec.release();
  other.exec.release();
});

test("a timeout ends a command that its tracer has stopped", async () => {
  const { exec } = await start(connection, ["sleep", "1000"], { timeoutMs: 3000 });
  const other = await traced("interrupt", exec.pid);
  expect(await exec.exit).toMatchObject({ code: 137, signal: 9, timedOut: true });
  expect(await other.exec.exit).toMatchObject({ code: 137 });
  expect(processState(exec.pid)).toBeUndefined();
  exec.release();
  other.exec.release();
});

test("a kill ends a command whose other threads are traced", async () => {
  const threads =
    "import threading, time; threading.Thread(target=time.sleep, args=[1000]).start(); print('up', flush=True)";
  const { exec, output } = await start(connection, ["python3", "-c", threads]);
  await output.seen("up");
  const ids = await vi.waitUntil(() => {
    const found = readdirSync(`/proc/${exec.pid}/task`).map(Number);
    return found.length === 2 && found;
  }, POLL);
  const other = await traced("seize", ...ids.filter((id) => id !== exec.pid));
  exec.signal(9, "tree");
  expect(await exec.exit).toMatchObject({ code: 137, timedOut: false });
  await other.exec.exit;
  exec.release();
  other.exec.release();
});

test("what a released command leaves traced is gone, too", async () => {
  const { exec } = await start(connection, ["sleep", "1000"]);
  const other = await traced("interrupt", exec.pid);
  exec.release();
  await other.exec.exit;
  await vi.waitFor(() => expect(processState(exec.pid)).toBeUndefined(), POLL);
  other.exec.release();
});

test("a tracer that waits is left alone", async () => {
  const { exec } = await start(connection, [
    "strace",
    "-f",
    "-o",
    "/dev/null",
    "sh",
    "-c",
    "(exit 1); exit 4",
  ]);
  expect(await exec.exit).toMatchObject({ code: 4 });
  exec.release();
  expect(childrenOf(agent.pid)).toEqual([]);
});

/** The process with this command line, as seen from outside. */
function findProcess(argv: readonly string[]): number | undefined {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .find((pid) => commandLine(pid) === argv.map((word) => `${word}\0`).join(""));
}

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "latin1");
  } catch {
    return "";
  }
}

test("a tracer outside of the sandbox is out of reach: the command ends as killed", async () => {
  await using inner = await startAgent({
    prefix: ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"],
  });
  const host = await inner.connect();
  const argv = ["sleep", String(1_000_000 + process.pid)];
  const { exec } = await start(host, argv);
  const pid = findProcess(argv) ?? 0;
  const [command = "", ...rest] = tracer("seize", pid);
  const outside: ChildProcess = spawn(command, rest, { stdio: ["ignore", "pipe", "inherit"] });
  try {
    if (outside.stdout) await once(outside.stdout, "data");
    exec.signal(9, "tree");
    expect(await exec.exit).toMatchObject({ code: 137, signal: 9, timedOut: false });
    expect(processState(pid)?.state).toBe("Z");
    expect(isAlive(outside.pid ?? 0)).toBe(true);
    exec.release();
    expect((await run(host, ["true"])).code).toBe(0);
  } finally {
    const ended = once(outside, "exit");
    outside.kill("SIGKILL");
    await ended;
  }
});
