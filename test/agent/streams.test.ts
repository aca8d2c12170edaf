import { createHash, randomBytes } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { readFileSync } from "node:fs";
import { expect, test, vi } from "vitest";
import type { AgentConnection } from "../../src/agent/connection.ts";
import { run, type RunningAgent, sh, shareAgent, start } from "./agent-fixture.ts";
import { isAlive, memoryOf } from "./process-state.ts";

const MIB = 1024 * 1024;
const POLL = { timeout: 20_000, interval: 10 };

let agent: RunningAgent;
let connection: AgentConnection;

shareAgent((...made) => {
  [agent, connection] = made;
});

function sha256(bytes: Buffer): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Takes a turn of the event loop for each chunk, and another one now and then. */
async function slowly(count: number): Promise<void> {
  for (let i = 0; i <= count % 4; i++) await setImmediate();
}

test("10 MB of random bytes go through pipes in both directions, byte-exact, with a slow reader", async () => {
  const sent = randomBytes(10 * MIB);
  const hash = createHash("sha256");
  let received = 0;
  let turn = 0;
  const exec = await connection.exec(
    { argv: ["cat"], env: {}, stdin: true },
    async (_stream, offset, chunk) => {
      expect(offset).toBe(received);
      await slowly(turn++);
      hash.update(chunk);
      received += chunk.length;
    },
  );
  for (let at = 0; at < sent.length; at += 100_000) await exec.write(sent.subarray(at, at + 100_000));
  exec.end();
  expect(await exec.exit).toMatchObject({ code: 0, stdoutBytes: sent.length });
  expect(received).toBe(sent.length);
  expect(hash.digest("hex")).toBe(sha256(sent));
  exec.release();
});

test("10 MB of random bytes go through a raw terminal in both directions, byte-exact, with a slow reader", async () => {
  const sent = randomBytes(10 * MIB);
  const ready = Promise.withResolvers<void>();
  const chunks: Buffer[] = [];
  let turn = 0;
  const argv = sh(`stty raw -echo; printf R; exec head -c ${sent.length}`);
  const tty = { rows: 24, cols: 80 };
  const exec = await connection.exec({ argv, env: {}, stdin: true, tty }, async (_stream, _offset, chunk) => {
    ready.resolve();
    await slowly(turn++);
    chunks.push(chunk);
  });
  await ready.promise;
  for (let at = 0; at < sent.length; at += 100_000) await exec.write(sent.subarray(at, at + 100_000));
  expect(await exec.exit).toMatchObject({ code: 0, stdoutBytes: sent.length + 1 });
  const received = Buffer.concat(chunks);
  expect(received.length).toBe(sent.length + 1);
  expect(sha256(received.subarray(1))).toBe(sha256(sent));
  exec.release();
});

test("every byte on both streams arrives before the exit does", async () => {
  const script = "head -c 3000000 /dev/zero & head -c 2000000 /dev/zero >&2; wait";
  const results = await Promise.all(Array.from({ length: 8 }, () => run(connection, sh(script))));
  for (const result of results) {
    expect([result.stdout.length, result.stderr.length]).toEqual([3_000_000, 2_000_000]);
    expect([result.stdoutBytes, result.stderrBytes]).toEqual([3_000_000, 2_000_000]);
  }
});

test("what a process left in its pipes when it ended arrives, however long the reader takes", async () => {
  const gate = Promise.withResolvers<void>();
  let received = 0;
  const argv = sh("head -c 190000 /dev/zero; exit 5");
  const exec = await connection.exec({ argv, env: {}, stdin: false }, async (_stream, _offset, chunk) => {
    await gate.promise;
    received += chunk.length;
  });
  // The window and the pipe together hold all of it: the process ends although nothing was consumed.
  await vi.waitFor(() => expect(isAlive(exec.pid)).toBe(false), POLL);
  let exited = false;
  void exec.exit.then(() => (exited = true));
  await connection.ping();
  expect(exited).toBe(false);
  gate.resolve();
  expect(await exec.exit).toMatchObject({ code: 5, stdoutBytes: 190_000 });
  expect(received).toBe(190_000);
  exec.release();
});

test("yes keeps the agent's memory bounded while the sink takes nothing", async () => {
  let received = 0;
  const execs = await Promise.all(
    Array.from({ length: 4 }, () =>
      connection.exec({ argv: ["yes"], env: {}, stdin: false }, (_stream, _offset, chunk) => {
        received += chunk.length;
        return new Promise(() => {});
      }),
    ),
  );
  const blocked = (pid: number): boolean => readFileSync(`/proc/${pid}/wchan`, "utf8").includes("pipe_write");
  await vi.waitFor(() => expect(execs.every(({ pid }) => blocked(pid))).toBe(true), POLL);
  await connection.ping();
  expect(memoryOf(agent.pid, "Rss")).toBeLessThan(4 * 131_072 + 700_000);
  expect(received).toBeLessThanOrEqual(4 * 131_072);
  // Others are not held up.
  expect((await run(connection, ["echo", "x"])).stdout.toString()).toBe("x\n");
  for (const exec of execs) exec.release();
});

test("a host that reads nothing at all does not hold up what runs, nor grow the agent", async () => {
  const { exec } = await start(connection, sh(`while :; do echo x >> ${agent.directory}/progress; done`));
  const yes = await Promise.all(Array.from({ length: 20 }, () => start(connection, ["yes"])));
  connection.close();
  const silent = await agent.dialSocket();
  silent.pause();
  const size = (): number => readFileSync(`${agent.directory}/progress`).length;
  const before = size();
  await vi.waitFor(() => expect(size()).toBeGreaterThan(before + 100), POLL);
  expect(memoryOf(agent.pid, "Rss")).toBeLessThan(21 * 131_072 + 700_000);
  silent.destroy();
  connection = await agent.connect();
  expect(connection.live.length).toBe(21);
  for (const channel of [exec.channel, ...yes.map((one) => one.exec.channel)]) {
    const resumed = await connection.resume(channel, { stdout: 0, stderr: 0 }, () => {});
    resumed.release();
  }
});

test("a background process that holds the pipes does not delay the exit, and is not broken by it", async () => {
  const script = "(i=0; while :; do i=$((i+1)); echo background || exit 9; done) & echo $! >&2; echo main";
  const { exec, output } = await start(connection, sh(script));
  expect(await exec.exit).toMatchObject({ code: 0 });
  expect(output.stdout.toString()).toContain("main\n");
  const background = Number(output.stderr.toString());
  const cpu = (): number => Number(readFileSync(`/proc/${background}/stat`, "utf8").split(" ")[13]);
  const before = cpu();
  await vi.waitFor(() => expect(cpu()).toBeGreaterThan(before + 3), POLL);
  exec.signal(9, "tree");
  await vi.waitFor(() => expect(isAlive(background)).toBe(false), POLL);
  exec.release();
});

test("a background process outlives the release of its exec", async () => {
  const { exec, output } = await start(connection, sh("(while sleep 0.01; do echo x; done) & echo $!"));
  await exec.exit;
  const background = Number(output.stdout.toString().split("\n")[0]);
  exec.release();
  await run(connection, ["sleep", "0.1"]);
  expect(isAlive(background)).toBe(true);
  process.kill(background, "SIGKILL");
});

test("a process that closes its output and runs on is not taken for ended", async () => {
  const { exec } = await start(connection, sh("exec >&- 2>&-; read line; exit 3"), { stdin: true });
  await connection.ping();
  await exec.write(Buffer.from("go\n"));
  expect(await exec.exit).toMatchObject({ code: 3 });
  exec.release();
});

test("a sink that fails ends the exec with its error, and no other", async () => {
  const exec = await connection.exec({ argv: ["yes"], env: {}, stdin: false }, () => {
    throw new Error("disk full");
  });
  await expect(exec.exit).rejects.toThrow("disk full");
  exec.release();
  expect((await run(connection, ["true"])).code).toBe(0);
});
