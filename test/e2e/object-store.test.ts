import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { startFleet } from "./fleet.ts";

const run = promisify(execFile);

test("what rclone copy published is run from; what only a registry has is refused, with the reason, and nothing is written", async () => {
  const directory = await mkdtemp("/tmp/dsec-published-");
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const origin = join(directory, "origin");
  const published = join(directory, "published");
  await mkdir(join(published, "manifests"), { recursive: true });
  await using fleet = await startFleet({ layerStore: `rclone::local:${published}` });

  const build = ["layer", "build", "os:1", "--from", "busybox", "--tag", "latest", "--layer-store", origin];
  expect((await fleet.dsec(build)).code).toBe(0);
  for (const folder of ["blobs", "manifests", "tags", "aliases"])
    await run("rclone", ["copy", join(origin, folder), join(published, folder)]);
  for (const image of ["os:1", "os"])
    expect(await fleet.dsec(["run", image, "--", "echo", "from afar"], { cwd: directory })).toMatchObject({
      code: 0,
      stdout: "from afar\n",
    });

  const refused = await fleet.dsec(["run", "--engine", "runc", "127.0.0.1:1/app:1", "--", "true"]);
  expect(refused).toMatchObject({ code: 125, stderr: expect.stringContaining("can only be read") as string });
  expect((await readdir(published)).toSorted()).toEqual(["aliases", "blobs", "manifests", "tags"]);
}, 120_000);
