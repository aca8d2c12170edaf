import { mkdir, mkdtemp, readdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Fleet, startFleet } from "./fleet.ts";

let directory: string;
let store: string;
let fleet: Fleet;

beforeAll(async () => {
  directory = await mkdtemp("/tmp/dsec-layers-");
  store = join(directory, "store");
  await mkdir(join(store, "manifests"), { recursive: true });
  fleet = await startFleet({ flags: ["--layer-store", store] });
  await layer("build", "busybox:1", "--from", "busybox", "--tag", "latest");
});

afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
  await rm(directory, { recursive: true, force: true });
});

/** `dsec layer …` on the test's store; fails the test unless it succeeds. */
async function layer(...argv: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await fleet.dsec(["layer", ...argv, "--layer-store", store]);
  expect({ argv, code, stderr: code === 0 ? "" : stderr }).toEqual({ argv, code: 0, stderr: "" });
  return stdout;
}

async function json(...argv: readonly string[]): Promise<unknown> {
  return JSON.parse(await layer(...argv, "-o", "json"));
}

async function plant(name: string, files: Readonly<Record<string, string>>): Promise<string> {
  const tree = join(directory, name);
  await mkdir(tree);
  for (const [file, content] of Object.entries(files)) await writeFile(join(tree, file), content);
  return tree;
}

test("versions of a toolkit are listed, and what they take is told apart", async () => {
  const same = await plant("same", { a: "x".repeat(100_000) });
  const other = await plant("other", { a: "y".repeat(300_000) });
  for (const [version, tree] of [
    ["1", same],
    ["2", same],
    ["3", other],
  ])
    await layer("build", `tool:${version}`, "--kind", "toolkit", "--from", tree ?? "");
  expect(await json("history", "tool")).toMatchObject([
    { name: "tool:3", kind: "toolkit" },
    { name: "tool:2" },
    { name: "tool:1" },
  ]);
  const usage = (await json("du")) as { reference: string; bytes: number; uniqueBytes: number }[];
  const of = (reference: string) => usage.find((row) => row.reference === reference);
  // one layer of two names: neither's removal alone would free it, but it is stored once
  expect(of("tool:1")).toEqual({ ...of("tool:2"), reference: "tool:1" });
  expect(of("tool:3")?.uniqueBytes).toBe(of("tool:3")?.bytes);
  expect(await json("verify", "tool:1", "tool:3")).toMatchObject([{ status: "ok" }, { status: "ok" }]);
});

test("who uses a layer and how much of it was read is asked of the fleet; in use it is neither removed nor pruned", async () => {
  const run = await fleet.dsec(["run", "-d", "busybox"]);
  const id = run.stdout.trim();
  expect((await fleet.dsec(["exec", id, "--", "cat", "/bin/busybox"])).code).toBe(0);
  const [used] = (await json("heat", "busybox")) as {
    sandboxes: string[];
    mounted: boolean;
    heat: { bytes: number; peakBytes: number };
  }[];
  expect(used).toMatchObject({ mounted: true, sandboxes: [id], references: ["busybox:1", "busybox:latest"] });
  expect(used?.heat.peakBytes).toBeGreaterThan(500_000);
  expect(used?.heat.peakBytes).toBeLessThanOrEqual(used?.heat.bytes ?? 0);
  await layer("rm", "busybox:latest");
  const refused = await fleet.dsec(["layer", "rm", "busybox:1", "--layer-store", store]);
  expect(refused).toMatchObject({
    code: 125,
    stdout: "",
    stderr: expect.stringContaining("is in use by node"),
  });
  await layer("rm", "busybox:1", "--force");
  expect(await json("prune", "--grace", "0")).toEqual([]);
  expect((await fleet.dsec(["exec", id, "--", "echo", "still here"])).stdout).toBe("still here\n");
  expect((await fleet.dsec(["run", "busybox", "--", "true"])).stderr).toContain("image_not_found");
});

test("a store that is away is told as such, and its return is noticed", async () => {
  await layer("build", "again:1", "--from", "busybox");
  await rename(store, join(directory, "away"));
  const away = await fleet.dsec(["run", "again:1", "--", "true"]);
  expect(away).toMatchObject({ code: 125, stderr: expect.stringContaining("layer_store_unavailable") });
  await rename(join(directory, "away"), store);
  expect(await fleet.dsec(["run", "again:1", "--", "echo", "back"])).toMatchObject({
    code: 0,
    stdout: "back\n",
  });
});

test("of a layer that was damaged, verify tells which, and nothing is left of broken work", async () => {
  const [blob] = (await json("inspect", "tool:3")) as { data: { digest: string }[] }[];
  await writeFile(join(store, "blobs/sha256", (blob?.data[0]?.digest ?? "").slice(7)), "damaged");
  const verified = await fleet.dsec(["layer", "verify", "--layer-store", store, "-o", "json"]);
  expect(verified.code).toBe(125);
  expect(
    (JSON.parse(verified.stdout) as { reference: string; status: string }[]).filter(
      ({ status }) => status !== "ok",
    ),
  ).toMatchObject([{ reference: "tool:3", status: "corrupt" }]);
  expect(await readdir(join(store, "tmp"))).toEqual([]);
});
