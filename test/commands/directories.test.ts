import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { makeDirectories } from "../../src/commands/directories.ts";

async function temporary(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "dsec-directories-"));
  onTestFinished(async () => rm(dir, { recursive: true, force: true }));
  return dir;
}

test("the directories are made, with those above them, for their owner alone", async () => {
  const dir = await temporary();
  const [dataDir, runDir] = [join(dir, "a/b/data"), join(dir, "run")];
  await makeDirectories({ dataDir, runDir });
  await makeDirectories({ dataDir, runDir });
  expect((await stat(dataDir)).mode & 0o777).toBe(0o700);
  expect((await stat(runDir)).mode & 0o777).toBe(0o700);
});

test.each(["/dev/null", "/dev/null/data", "/proc/dsec", "/proc/dsec/data"])(
  "%s can be no directory, and is named",
  async (dataDir) => {
    const runDir = join(await temporary(), "run");
    await expect(makeDirectories({ dataDir, runDir })).rejects.toMatchObject({
      code: "config_invalid",
      message: `the data directory ${dataDir} cannot be made`,
    });
  },
);

test("a run directory too long for sockets is refused, and nothing is made", async () => {
  const dir = await temporary();
  const settings = { dataDir: join(dir, "data"), runDir: join(dir, "x".repeat(100)) };
  await expect(makeDirectories(settings)).rejects.toMatchObject({ code: "invalid_argument" });
  expect(await readdir(dir)).toEqual([]);
});
