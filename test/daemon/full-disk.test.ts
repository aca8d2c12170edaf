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

test("a full disk refuses new sandboxes by name; those that run can be used and stopped", async () => {
  const disk = await smallDisk();
  const daemon = await TestDaemon.start({ dir: disk.dir, dataDir: disk.dataDir });
  const { id } = await daemon.place();
  await disk.fill();
  const refusals: unknown[] = [];
  // the journal has a little room left in its pages
  for (let attempt = 0; attempt < 200 && refusals.length === 0; attempt += 1)
    await daemon.place({ env: { BIG: "x".repeat(20_000) } }).catch((error: unknown) => refusals.push(error));
  expect(refusals).toMatchObject([{ code: "disk_full" }]);
  const { items } = await daemon.http.json<SandboxList>("listSandboxes");
  expect(items.every(({ state }) => state === "running")).toBe(true);

  expect((await daemon.run(id, ["echo", "still here"])).stdout).toBe("still here\n");
  expect(await daemon.stop(id)).toMatchObject({ state: "stopped", endReason: "stopped" });
  await disk.empty();
  expect(await daemon.place()).toMatchObject({ state: "running" });
});
