import { execFile } from "node:child_process";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import type { SandboxList } from "../../src/protocol/sandbox.ts";
import { temporaryDir, TestDaemon } from "./daemon-fixture.ts";

const run = promisify(execFile);

/** A small file system for the daemon's data, with a way to fill it. */
async function smallDisk() {
  const dir = await temporaryDir();
  const dataDir = join(dir, "small");
  await mkdir(dataDir);
  await run("mount", ["-t", "tmpfs", "-o", "size=2m", "tmpfs", dataDir]);
  onTestFinished(async () => void (await run("umount", [dataDir])));
  const ballast = join(dataDir, "ballast");
  return {
    dir,
    dataDir,
    fill: async (): Promise<void> => writeFile(ballast, Buffer.alloc(4_194_304)).catch(() => undefined),
    empty: async (): Promise<void> => rm(ballast),
  };
}

/** Writes to the journal until it has no room left in its pages. @returns the refusal */
async function untilRefused(daemon: TestDaemon): Promise<unknown> {
  for (let attempt = 0; attempt < 200; attempt += 1)
    try {
      await daemon.place({ env: { BIG: "x".repeat(20_000) } });
    } catch (error) {
      return error;
    }
  throw new Error("the disk took everything");
}

test("a full disk refuses new sandboxes by name; those that run can be used and stopped", async () => {
  const disk = await smallDisk();
  const daemon = await TestDaemon.start({ dir: disk.dir, dataDir: disk.dataDir });
  const { id } = await daemon.place();
  await disk.fill();
  expect(await untilRefused(daemon)).toMatchObject({ code: "disk_full" });
  const { items } = await daemon.http.json<SandboxList>("listSandboxes");
  expect(items.every(({ state }) => state === "running")).toBe(true);

  expect((await daemon.run(id, ["echo", "still here"])).stdout).toBe("still here\n");
  expect(await daemon.stop(id)).toMatchObject({ state: "stopped", endReason: "stopped" });
  await disk.empty();
  expect(await daemon.place()).toMatchObject({ state: "running" });
});

test("a full disk keeps no sandbox from ending: what cannot be forgotten is so later", async () => {
  const disk = await smallDisk();
  const daemon = await TestDaemon.start({ dir: disk.dir, dataDir: disk.dataDir, maxEnded: 0 });
  const { id } = await daemon.place({ name: "mine" });
  await disk.fill();
  await untilRefused(daemon);
  expect(await daemon.stop(id)).toMatchObject({ state: "stopped", endReason: "stopped" });
  await expect(daemon.remove(id)).rejects.toMatchObject({ code: "disk_full" });
  // its name is still its own, so that the journal never has two of it
  await expect(daemon.place({ name: "mine" })).rejects.toMatchObject({ code: "name_taken" });
  await disk.empty();
  await daemon.stop((await daemon.place()).id);
  await expect(daemon.get(id)).rejects.toMatchObject({ code: "not_found" });
});

test("a command that a full disk cannot write down is refused, and does not run on unseen", async () => {
  const disk = await smallDisk();
  const daemon = await TestDaemon.start({ dir: disk.dir, dataDir: disk.dataDir });
  const { id } = await daemon.place();
  await disk.fill();
  await untilRefused(daemon);
  for (const spec of [{ detach: true }, { endsSandbox: true }]) {
    const { status } = await daemon.run(id, ["sleep", "1000"], { ...spec, env: { BIG: "x".repeat(60_000) } });
    expect(status).toMatchObject({ type: "error", problem: { code: "disk_full" } });
  }
  await expect.poll(async () => (await daemon.get(id)).activeExecs).toBe(0);
  expect(await daemon.get(id)).toMatchObject({ state: "running" });
});
