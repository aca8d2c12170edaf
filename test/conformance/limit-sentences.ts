import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Guest } from "../../src/agent/guest.ts";
import { MIB, type Result, sh } from "./fixture.ts";
import { cgroupDirectory, firstProcessAround, processWith, uniqueMark } from "./host-processes.ts";
import type { Suite } from "./suite.ts";

export function limitSentences({ fixture, subject }: Suite): void {
  const { diskLimit, updates } = subject.capabilities;

  test("no more processes than the limit, and the sandbox survives the attempt", async () => {
    const { guest, running } = await fixture().start({ pids: 32 });
    const { exit, stderr } = await sh(guest, "for i in $(seq 100); do sleep 1000 & done");
    expect(exit.code).not.toBe(0);
    expect(stderr.toString()).toContain("fork");
    expect((await running.usage()).pids).toBeLessThanOrEqual(32);
    await guest.ping();
  });

  test("who needs more memory than the limit is killed and counted, and the sandbox survives", async () => {
    const { guest, running } = await fixture().start({ memoryBytes: 64 * MIB });
    expect((await needMemory(guest, 32)).exit.code).toBe(0);
    expect((await running.usage()).oomKills).toBe(0);
    expect((await needMemory(guest, 128)).exit).toMatchObject({ code: 137, signal: 9, timedOut: false });
    expect((await running.usage()).oomKills).toBeGreaterThan(0);
    expect((await sh(guest, "echo alive")).text).toBe("alive\n");
  });

  test("a sandbox whose agent the kernel kills for memory ends by it", async () => {
    const sandbox = await fixture().start({ memoryBytes: 32 * MIB });
    const mark = uniqueMark();
    // It must not be the first choice itself, and a file in memory, which counts for nobody, keeps it smaller than the limit.
    const script = `
      echo 0 > /proc/self/oom_score_adj
      dd if=/dev/zero of=/dev/shm/file bs=1M count=12
      read line
      dd if=/dev/zero of=/dev/null bs=64M count=1`;
    const exec = await sandbox.guest.exec(
      { argv: ["sh", "-c", script, mark], env: {}, stdin: true },
      () => {},
    );
    const agent = firstProcessAround(await processWith(mark));
    // The first to be chosen, so that the kernel chooses it.
    writeFileSync(`/proc/${agent}/oom_score_adj`, "1000");
    await exec.write(Buffer.from("go\n"));
    await expect(exec.exit).rejects.toMatchObject({ code: "agent_lost" });
    expect(await sandbox.running.ended).toMatchObject({ reason: "oom" });
    await fixture().destroy(sandbox);
  });

  test.runIf(updates.has("memoryBytes"))("a changed memory limit holds at once", async () => {
    const { guest, running } = await fixture().start({ memoryBytes: 64 * MIB });
    await running.update({ memoryBytes: 256 * MIB });
    expect((await needMemory(guest, 128)).exit.code).toBe(0);
    await running.update({ memoryBytes: 64 * MIB });
    expect((await needMemory(guest, 128)).exit).toMatchObject({ signal: 9 });
  });

  test.runIf(updates.has("cpuLimit"))("a CPU ceiling can be set and taken away", async () => {
    const { guest, running } = await fixture().start();
    const statistics = await cpuStatistics(guest);
    const throttledBy = async (): Promise<number> => {
      const before = throttledPeriods(statistics);
      await sh(guest, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done");
      return throttledPeriods(statistics) - before;
    };
    expect(await throttledBy()).toBe(0);
    await running.update({ cpuLimit: 0.1 });
    expect(await throttledBy()).toBeGreaterThan(0);
    await running.update({ cpuLimit: null });
    expect(await throttledBy()).toBe(0);
  });

  test.runIf(updates.has("pids"))("a changed process limit holds at once", async () => {
    const { guest, running } = await fixture().start({ pids: 16 });
    const script = "for i in $(seq 30); do sleep 1 & done; wait";
    expect((await sh(guest, script)).exit.code).not.toBe(0);
    await running.update({ pids: 128, cpus: 2 });
    expect((await sh(guest, script)).exit.code).toBe(0);
  });

  test.runIf(diskLimit)("no more bytes on disk than the limit, and room again after a removal", async () => {
    const { guest } = await fixture().start({ diskBytes: 32 * MIB });
    const filled = await sh(guest, "dd if=/dev/zero of=/big bs=1M count=64 conv=fsync");
    expect(filled.exit.code).not.toBe(0);
    expect(filled.stderr.toString()).toMatch(/quota exceeded|No space left/);
    const again = await sh(guest, "rm /big && sync && dd if=/dev/zero of=/small bs=1M count=4 conv=fsync");
    expect(again.exit.code).toBe(0);
  });

  test("a limit of one sandbox is none of another's", async () => {
    const small = await fixture().start({ memoryBytes: 32 * MIB, pids: 16 });
    const large = await fixture().start({ memoryBytes: 256 * MIB });
    await needMemory(small.guest, 64);
    expect((await needMemory(large.guest, 128)).exit.code).toBe(0);
    expect((await large.running.usage()).oomKills).toBe(0);
  });
}

/** Runs something that writes to `mib` MiB of its memory. */
function needMemory(guest: Guest, mib: number): Promise<Result> {
  return sh(guest, `exec dd if=/dev/zero of=/dev/null bs=${mib}M count=1`);
}

/** The file with the kernel's CPU statistics of a sandbox. */
async function cpuStatistics(guest: Guest): Promise<string> {
  const mark = uniqueMark();
  const exec = await guest.exec({ argv: ["sleep", mark], env: {}, stdin: false }, () => {});
  const file = join(cgroupDirectory(await processWith(mark), "cpu"), "cpu.stat");
  exec.release();
  return file;
}

function throttledPeriods(file: string): number {
  return Number(/^nr_throttled (\d+)$/m.exec(readFileSync(file, "utf8"))?.[1]);
}
