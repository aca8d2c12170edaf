import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Running } from "../../../src/backends/backend.ts";
import { detectCgroups } from "../../../src/backends/linux/cgroup-hierarchy.ts";
import { preferredRuntimes } from "../../../src/backends/container/runc/runtime.ts";
import { mebibyte, runInside, SandboxFixture, shell } from "./sandbox-fixture.ts";

describe.for(preferredRuntimes)("started by %s", (runtime) => {
  let fixture: SandboxFixture;

  beforeAll(() => {
    fixture = new SandboxFixture(runtime);
  });

  afterAll(async () => {
    await fixture[Symbol.asyncDispose]();
  });

  /** A file of the sandbox's control group, wherever the machine has it. */
  function setting(id: string, v1: string, v2: string): string {
    const directories = detectCgroups().cgroup(`/${fixture.instance}/${id}`).directories();
    for (const directory of directories)
      for (const name of [v1, v2]) {
        try {
          return readFileSync(join(directory, name), "utf8").trim();
        } catch {
          // another controller's directory
        }
      }
    throw new Error(`no ${v1} and no ${v2}`);
  }

  async function startWith(
    limits: Parameters<SandboxFixture["start"]>[0],
  ): Promise<{ id: string; sandbox: Running }> {
    const id = fixture.nextId();
    return { id, sandbox: await fixture.start({ ...limits, id }) };
  }

  test("a fork bomb stops at the limit, and the agent still answers and cleans up", async () => {
    const { sandbox } = await startWith({ limits: { pids: 40 } });
    const bomb = await sandbox.guest.exec(
      { argv: ["/bin/attempt", "bomb"], env: {}, stdin: false, timeoutMs: 2000 },
      () => undefined,
    );
    await expect.poll(async () => (await sandbox.usage()).pids).toBe(40);
    await sandbox.guest.ping();
    expect(await bomb.exit).toMatchObject({ timedOut: true });
    bomb.release();
    await expect.poll(() => shell(sandbox, "echo alive").catch(() => "not yet")).toBe("alive");
  });

  test("a program that takes too much memory is killed and counted, and the agent goes on", async () => {
    const { sandbox } = await startWith({ limits: { memoryBytes: 32 * mebibyte } });
    const hog = await runInside(sandbox, ["/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=512M", "count=1"]);
    expect(hog).toMatchObject({ code: 137, signal: 9 });
    expect(await sandbox.usage()).toMatchObject({ oomKills: 1 });
    expect(await shell(sandbox, "echo alive")).toBe("alive");
  });

  test("many hogs at once do not take the agent with them", async () => {
    const { sandbox } = await startWith({ limits: { memoryBytes: 32 * mebibyte } });
    const hogs = Array.from({ length: 6 }, () =>
      runInside(sandbox, ["/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=512M", "count=1"]),
    );
    expect((await Promise.all(hogs)).map(({ signal }) => signal)).toEqual(hogs.map(() => 9));
    expect(await shell(sandbox, "echo alive")).toBe("alive");
  });

  test("what the agent starts goes before it when memory runs out", async () => {
    const { sandbox } = await startWith({});
    const [command, agent] = (
      await shell(sandbox, "cat /proc/self/oom_score_adj /proc/1/oom_score_adj")
    ).split("\n");
    expect(Number(command)).toBeGreaterThan(Number(agent));
  });

  test("files in memory count, too", async () => {
    const { sandbox } = await startWith({ limits: { memoryBytes: 32 * mebibyte } });
    const outcome = await shell(
      sandbox,
      "dd if=/dev/zero of=/dev/shm/a bs=1M count=64 2>&1 | tail -n 1; df -m /dev/shm | tail -n 1",
    );
    expect(outcome).toMatch(/shm\s+16\s/);
    expect(
      await shell(sandbox, "dd if=/dev/zero of=/dev/a bs=1M count=60 2>/dev/null; echo alive"),
    ).toContain("alive");
  });

  test("limits are those that were asked for", async () => {
    const { id } = await startWith({
      limits: { memoryBytes: 48 * mebibyte, cpus: 2, cpuLimit: 1.5, pids: 33, class: "latency-sensitive" },
    });
    expect(setting(id, "memory.limit_in_bytes", "memory.max")).toBe(String(48 * mebibyte));
    // v1: socket buffers have a limit of their own, without which they do not count at all
    expect(setting(id, "memory.kmem.tcp.limit_in_bytes", "memory.max")).toBe(String(48 * mebibyte));
    expect(["2048", "79"]).toContain(setting(id, "cpu.shares", "cpu.weight"));
    expect(setting(id, "cpu.cfs_quota_us", "cpu.max")).toContain("150000");
    expect(setting(id, "pids.max", "pids.max")).toBe("33");
  });

  test("a best-effort sandbox weighs as little as can be", async () => {
    const { id } = await startWith({ limits: { cpus: 8, class: "best-effort" } });
    expect(["2", "1"]).toContain(setting(id, "cpu.shares", "cpu.idle"));
  });

  test("limits change while the sandbox runs", async () => {
    const { id, sandbox } = await startWith({ limits: { memoryBytes: 32 * mebibyte, pids: 20 } });
    await sandbox.update({ memoryBytes: 128 * mebibyte, cpus: 4, cpuLimit: 0.5, pids: 50 });
    expect(setting(id, "memory.limit_in_bytes", "memory.max")).toBe(String(128 * mebibyte));
    expect(setting(id, "cpu.cfs_quota_us", "cpu.max")).toContain("50000");
    expect(setting(id, "pids.max", "pids.max")).toBe("50");
    const roomy = await runInside(sandbox, ["/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1"]);
    expect(roomy.code).toBe(0);
    await sandbox.update({ memoryBytes: 32 * mebibyte, cpuLimit: null });
    const tight = await runInside(sandbox, ["/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1"]);
    expect(tight.signal).toBe(9);
  });

  test("memory that is in use cannot be taken back, and the other limits stay as they were", async () => {
    const { id, sandbox } = await startWith({ limits: { memoryBytes: 128 * mebibyte, pids: 50 } });
    await shell(sandbox, "dd if=/dev/zero of=/dev/shm/a bs=1M count=48 2>/dev/null");
    const update = sandbox.update({ memoryBytes: 16 * mebibyte, pids: 20 });
    await expect(update).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringContaining("16 MiB"),
    });
    expect(setting(id, "memory.limit_in_bytes", "memory.max")).toBe(String(128 * mebibyte));
    expect(setting(id, "pids.max", "pids.max")).toBe("50");
    expect(await shell(sandbox, "echo alive")).toBe("alive");
  });

  test("a sandbox that is gone can neither be changed nor measured", async () => {
    const { sandbox } = await startWith({});
    await sandbox.destroy();
    await expect(sandbox.update({ pids: 20 })).rejects.toMatchObject({ code: "sandbox_not_running" });
    await expect(sandbox.usage()).rejects.toMatchObject({ code: "sandbox_not_running" });
  });
});
