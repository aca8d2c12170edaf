import { existsSync, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { expect, test, vi } from "vitest";
import type { AgentConnection } from "../../src/agent/connection.ts";
import { run, type RunningAgent, sh, shareAgent, start, startAgent } from "./agent-fixture.ts";
import { childrenOf, isAlive, processState } from "./process-state.ts";

const POLL = { timeout: 20_000, interval: 10 };
let agent: RunningAgent;
let connection: AgentConnection;

shareAgent((...made) => {
  [agent, connection] = made;
});

function pids(output: Buffer): number[] {
  return output.toString().trim().split(/\s+/).map(Number);
}

test("a timeout kills the whole tree, sessions of its own included, and returns what was captured", async () => {
  const script =
    "echo captured; sleep 1000 & setsid sh -c 'sleep 1000 & echo $$ $! >&2; wait' & echo $! >&2; wait";
  const result = await run(connection, sh(script), { timeoutMs: 1500 });
  expect(result).toMatchObject({ code: 137, signal: 9, timedOut: true });
  expect(result.stdout.toString()).toBe("captured\n");
  expect(pids(result.stderr).length).toBe(3);
  for (const pid of pids(result.stderr)) expect(isAlive(pid)).toBe(false);
});

test("a timeout fires although the output is not taken, and although stdin is not read", async () => {
  const gate = Promise.withResolvers<void>();
  const argv = sh("trap '' TERM INT HUP; yes & sleep 1000");
  const exec = await connection.exec({ argv, env: {}, stdin: true, timeoutMs: 100 }, () => gate.promise);
  const written = exec.write(Buffer.alloc(1_000_000));
  await vi.waitFor(() => expect(isAlive(exec.pid)).toBe(false), POLL);
  gate.resolve();
  expect(await exec.exit).toMatchObject({ code: 137, timedOut: true });
  await written;
  exec.release();
});

test("a command that ends in time is not marked, whatever its code", async () => {
  const result = await run(connection, sh("exit 124"), { timeoutMs: 60_000 });
  expect(result).toMatchObject({ code: 124, timedOut: false });
});

test("signals reach the process, its group or its whole tree as asked", async () => {
  const script =
    "trap 'echo shell' USR1; (trap 'echo group' USR1; echo; while :; do sleep 0.01; done) & " +
    "setsid sh -c 'trap \"echo tree\" USR1; echo; while :; do sleep 0.01; done' & while :; do sleep 0.01; done";
  const { exec, output } = await start(connection, sh(script));
  await output.seen("\n\n");
  exec.signal(10, "process");
  await output.seen("shell");
  expect(output.stdout.toString()).not.toMatch(/group|tree/);
  exec.signal(10, "group");
  await output.seen("group");
  expect(output.stdout.toString()).not.toMatch(/tree/);
  exec.signal(10, "tree");
  await output.seen("tree");
  exec.signal(9, "tree");
  expect(await exec.exit).toMatchObject({ code: 137 });
  await vi.waitFor(() => expect(childrenOf(agent.pid)).toEqual([]), POLL);
  exec.release();
});

test("a tree that forks all the time is killed whole", async () => {
  const bomb = "bomb() { (bomb) & sleep 0.02; }; echo start; while :; do bomb; done";
  const { exec, output } = await start(connection, sh(`ulimit -u 60; ${bomb}`), { user: "nobody" });
  await output.seen("start");
  exec.signal(9, "tree");
  await exec.exit;
  await vi.waitFor(() => expect(childrenOf(agent.pid)).toEqual([]), POLL);
  exec.release();
});

test("releasing a running exec kills its tree", async () => {
  const { exec, output } = await start(connection, sh("sleep 1000 & echo $!; wait"));
  await output.seen("\n");
  const [sleeper = 0] = pids(output.stdout);
  exec.release();
  await expect(exec.exit).rejects.toMatchObject({ code: "cancelled" });
  await vi.waitFor(() => expect(isAlive(sleeper) || isAlive(exec.pid)).toBe(false), POLL);
});

test("orphans become the agent's and are reaped, thousands of them", async () => {
  const result = await run(
    connection,
    sh("i=0; while [ $i -lt 2000 ]; do (true & ) ; i=$((i+1)); done; exit 7"),
  );
  expect(result.code).toBe(7);
  await vi.waitFor(() => expect(childrenOf(agent.pid)).toEqual([]), POLL);
});

test("an orphan that runs on is the agent's child, and is not taken for an exec", async () => {
  const result = await run(connection, sh("(setsid sleep 1000 >/dev/null 2>&1 & echo $!)"));
  const [orphan = 0] = pids(result.stdout);
  expect(processState(orphan)?.parent).toBe(agent.pid);
  process.kill(orphan, "SIGKILL");
  await vi.waitFor(() => expect(processState(orphan)).toBeUndefined(), POLL);
});

test("an exec that is stopped and continued goes on", async () => {
  const { exec, output } = await start(connection, sh("echo ready; read x; echo $x"), { stdin: true });
  await output.seen("ready");
  exec.signal(19, "group");
  await vi.waitFor(() => expect(processState(exec.pid)?.state).toBe("T"), POLL);
  await exec.write(Buffer.from("again\n"));
  exec.signal(18, "group");
  expect((await exec.exit).code).toBe(0);
  expect(output.stdout.toString()).toBe("ready\nagain\n");
  exec.release();
});

test("where no process can be started the error says so, and the agent goes on", async () => {
  await using small = await startAgent({ prefix: ["prlimit", "--nofile=40:40"] });
  const host = await small.connect();
  const { exec, output } = await start(host, ["cat"], { stdin: true });
  const attempts = await Promise.allSettled(Array.from({ length: 20 }, () => run(host, ["sleep", "0.1"])));
  const refused = attempts.filter((attempt) => attempt.status === "rejected");
  expect(refused.length).toBeGreaterThan(0);
  for (const { reason } of refused) {
    expect(reason).toMatchObject({ code: "start_failed", details: { errno: "EMFILE" } });
  }
  await exec.write(Buffer.from("still here"));
  await output.seen("still here");
  exec.end();
  await exec.exit;
  exec.release();
  expect((await run(host, ["true"])).code).toBe(0);
});

/** A new group under the pids controller, where version 1 or 2 has it. */
function limitProcesses(pid: number, limit: number): Disposable {
  const isV1 = existsSync("/sys/fs/cgroup/pids");
  const root = isV1 ? "/sys/fs/cgroup/pids" : "/sys/fs/cgroup";
  if (!isV1) writeFileSync(`${root}/cgroup.subtree_control`, "+pids");
  const group = `${root}/dsec-agent-test-${pid}`;
  mkdirSync(group);
  writeFileSync(`${group}/pids.max`, String(limit));
  writeFileSync(`${group}/cgroup.procs`, String(pid));
  return { [Symbol.dispose]: () => rmdirSync(group) };
}

test("under a fork bomb that fills the limit execs fail by name, and the bomb can be ended", async () => {
  await using small = await startAgent();
  const limit = limitProcesses(small.pid, 40);
  const host = await small.connect();
  const bomb = await start(host, ["perl", "-e", '$| = 1; print "go\\n"; while (1) { fork() }']);
  await bomb.output.seen("go");
  const refusal = await vi.waitUntil(
    () =>
      run(host, ["true"]).then(
        () => undefined,
        (error: unknown) => error,
      ),
    POLL,
  );
  expect(refusal).toMatchObject({ code: "start_failed", details: { errno: "EAGAIN" } });
  await host.ping();
  bomb.exec.signal(9, "tree");
  expect(await bomb.exec.exit).toMatchObject({ code: 137 });
  await vi.waitFor(() => expect(childrenOf(small.pid)).toEqual([]), POLL);
  expect((await run(host, ["true"])).code).toBe(0);
  await small[Symbol.asyncDispose]();
  limit[Symbol.dispose]();
});
