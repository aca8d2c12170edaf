import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, readFile, rename, rm, stat, truncate, utimes, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openLayerStore, type LayerStore } from "../../../src/daemon/layers/layer-store.ts";
import { NodeLeases } from "../../../src/daemon/layers/leases.ts";
import { pruneStore } from "../../../src/daemon/layers/prune.ts";
import { LayerVerifier } from "../../../src/daemon/layers/verify.ts";
import { withWorkDirectory } from "../../../src/daemon/layers/work-directory.ts";
import { noConfig } from "../../../src/daemon/layers/images/image-manifest.ts";
import { temporaryNode, type TemporaryNode } from "../temporary-node.ts";

let node: TemporaryNode;
let store: LayerStore;

beforeEach(async () => {
  node = await temporaryNode();
  store = await openLayerStore(node.layerStore);
});

afterEach(async () => {
  await node[Symbol.asyncDispose]();
});

/** A layer whose content is `content`. @returns its digest */
async function build(reference: string, content: string): Promise<string> {
  const tree = join(node.directory, `tree-${reference}`);
  await mkdir(tree, { recursive: true });
  await writeFile(join(tree, "file"), content);
  for (const path of [join(tree, "file"), tree]) await utimes(path, 1, 1);
  return (await store.build({ reference, from: tree })).digest;
}

async function blobs(): Promise<string[]> {
  return readdir(store.paths.blobs);
}

async function statusOf(reference: string): Promise<string | undefined> {
  const published = (await store.references.list()).find((known) => known.reference === reference);
  return published && (await new LayerVerifier(store).verify(published)).status;
}

const atOnce = { graceMs: 0 };

test("a prune frees what no name leads to, and nothing else", async () => {
  await build("kept:1", "kept");
  const aliased = await build("aliased:1", "aliased");
  const leased = await build("leased:1", "leased");
  const gone = await build("gone:1", "gone for good");
  await store.tag("aliased:1", "also:latest");
  const leases = await NodeLeases.open(store.paths, "n1+test");
  await leases.add(leased);
  for (const reference of ["aliased:1", "leased:1", "gone:1"]) await store.remove(reference, true);
  const { metadata, data } = await store.manifest(gone);
  expect((await pruneStore(store.paths, { ...atOnce, dryRun: true })).map(({ digest }) => digest)).toContain(
    gone,
  );
  const pruned = await pruneStore(store.paths, atOnce);
  expect(new Set(pruned.map(({ digest }) => digest))).toEqual(
    new Set([gone, metadata.digest, ...data.map(({ digest }) => digest)]),
  );
  expect(pruned.map(({ action }) => action)).toEqual(Array(3).fill("freed"));
  expect(await statusOf("kept:1")).toBe("ok");
  expect((await store.resolve("also"))?.digest).toBe(aliased);
  expect(await statusOf("also:latest")).toBe("ok");
  expect(await readdir(store.paths.manifests)).toHaveLength(3);
  await leases.drop(leased);
  await pruneStore(store.paths, atOnce);
  expect(await readdir(store.paths.manifests)).toHaveLength(2);
});

test("an image keeps its layers, and a layer that two have goes with the second", async () => {
  await withWorkDirectory(store.paths.temporary, async (work) => {
    const layers = [await build("a:1", "a"), await build("b:1", "longer")];
    const image = (list: string[], reference: string) =>
      store.publishImage(
        {
          schema: 1,
          kind: "image",
          layers: list,
          config: noConfig,
          source: { reference, digest: `sha256:${"0".repeat(64)}` },
        },
        { registry: { name: `registry.example/${reference}`, version: "1" } },
        work,
      );
    await image(layers, "one");
    await image(layers.slice(0, 1), "two");
  });
  for (const reference of ["a:1", "b:1"]) await store.remove(reference);
  expect(await pruneStore(store.paths, atOnce)).toEqual([]);
  await store.remove("registry.example/one:1");
  expect((await pruneStore(store.paths, atOnce)).map(({ kind }) => kind).sort()).toEqual([
    "blob",
    "blob",
    "manifest",
    "manifest",
  ]);
  expect(await statusOf("registry.example/two:1")).toBe("ok");
});

test("what is set aside comes back when it is needed, and is freed when it was not for the grace time", async () => {
  const digest = await build("back:1", "back");
  await store.remove("back:1");
  const hour = { graceMs: 3_600_000 };
  expect(await pruneStore(store.paths, hour)).toEqual([]);
  for (const folder of [store.paths.blobs, store.paths.manifests])
    for (const name of await readdir(folder)) await utimes(join(folder, name), 1, 1);
  expect((await pruneStore(store.paths, hour)).map(({ action }) => action)).toEqual(
    Array(3).fill("set_aside"),
  );
  expect(await blobs()).toEqual([]);
  // the same content again
  expect(await build("back:2", "back")).toBe(digest);
  expect(await statusOf("back:2")).toBe("ok");
  expect(await pruneStore(store.paths, hour)).toEqual([]);
  await store.remove("back:2");
  await pruneStore(store.paths, atOnce);
  expect(await blobs()).toEqual([]);
  expect(await readdir(store.paths.aside(store.paths.blobs))).toEqual([]);
});

test("a prune that was killed half-way costs nobody a layer", async () => {
  const digest = await build("half:1", "half");
  const { metadata, data } = await store.manifest(digest);
  for (const path of [
    store.paths.manifest(digest),
    ...[metadata, ...data].map((blob) => store.blobPath(blob.digest)),
  ]) {
    await mkdir(dirname(store.paths.aside(path)), { recursive: true });
    await rename(path, store.paths.aside(path));
  }
  const reader = await openLayerStore(node.layerStore);
  await reader.tag("half:1", "half:latest");
  expect(await statusOf("half:1")).toBe("ok");
});

test("the last name of a layer in use is not removed unless forced, and the layer stays until the node lets go", async () => {
  const digest = await build("used:1", "used");
  const leases = await NodeLeases.open(store.paths, "n7+test");
  await leases.add(digest);
  await expect(store.remove("used:1")).rejects.toMatchObject({
    code: "conflict",
    message: "used:1 is in use by node n7",
  });
  await store.tag("used:1", "used:latest");
  await store.remove("used:latest");
  await store.remove("used:1", true);
  expect(await pruneStore(store.paths, atOnce)).toEqual([]);
  expect(await blobs()).toHaveLength(2);
  // a day without a sign of life
  const alive = join(store.paths.leases, "n7+test", "alive");
  await utimes(alive, 1, 1);
  expect(await pruneStore(store.paths, atOnce)).toHaveLength(3);
  expect(await readdir(store.paths.leases)).toEqual([]);
});

test("where it cannot be told what must stay, nothing is removed", async () => {
  const digest = await build("damaged:1", "damaged");
  await build("other:1", "other");
  await store.remove("other:1");
  await writeFile(store.paths.manifest(digest), "{}");
  await expect(pruneStore(store.paths, atOnce)).rejects.toMatchObject({
    code: "layer_corrupt",
    message: expect.stringContaining(digest),
  });
  expect(await blobs()).toHaveLength(4);
});

test.each([
  ["changed", "corrupt", async (path: string) => writeFile(path, Buffer.alloc((await stat(path)).size))],
  ["truncated", "corrupt", async (path: string) => truncate(path, 1)],
  ["missing", "missing", async (path: string) => rm(path)],
])("verifying names the layers of a %s blob, and no others", async (_, status, damage) => {
  const digest = await build("hurt:1", "hurt");
  await build("sound:1", "sound");
  const [blob] = (await store.manifest(digest)).data;
  await damage(store.blobPath(blob?.digest ?? ""));
  const verifier = new LayerVerifier(store);
  const found = [];
  for (const published of await store.references.list()) found.push(await verifier.verify(published));
  expect(found).toMatchObject([
    { reference: "hurt:1", status, message: expect.stringContaining(blob?.digest ?? "") },
    { reference: "sound:1", status: "ok" },
  ]);
});

const modules = Object.fromEntries(
  ["layer-store", "prune", "verify"].map((name) => [
    name,
    fileURLToPath(new URL(`../../../src/daemon/layers/${name}.ts`, import.meta.url)),
  ]),
);

/** Publishes, moves and removes names in the store, of contents that its like publish, too. */
const publisher = `
  const { openLayerStore } = await import(${JSON.stringify(modules["layer-store"])});
  const { mkdir, utimes, writeFile } = await import("node:fs/promises");
  const [directory, trees, name] = process.argv.slice(1);
  const store = await openLayerStore(directory);
  for (let turn = 0; turn < 12; turn += 1) {
    const tree = trees + "/" + name + turn;
    await mkdir(tree);
    await writeFile(tree + "/file", "content " + turn % 3);
    for (const path of [tree + "/file", tree]) await utimes(path, 1, 1);
    await store.build({ reference: name + ":" + turn, from: tree, tags: ["latest"] });
    if (turn % 3 !== 0) await store.remove(name + ":" + turn, true);
  }`;

const pruner = `
  const { pruneStore } = await import(${JSON.stringify(modules["prune"])});
  const { openLayerStore } = await import(${JSON.stringify(modules["layer-store"])});
  const store = await openLayerStore(process.argv[1]);
  process.on("SIGTERM", () => { store.over = true; });
  do { await pruneStore(store.paths, { graceMs: 0 }); } while (!store.over);`;

function start(script: string, ...args: readonly string[]) {
  const child = spawn(process.execPath, ["--input-type=module", "-e", script, ...args], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const ended = once(child, "close").then(([code]) => ({ code: code as number | null, stderr }));
  return { child, ended };
}

test("builds, prunes and removals of several processes at once leave every named layer whole", async () => {
  const pruners = [1, 2].map(() => start(pruner, node.layerStore));
  const publishers = ["one", "two", "three"].map((name) =>
    start(publisher, node.layerStore, node.directory, name),
  );
  const published = await Promise.all(publishers.map(async ({ ended }) => ended));
  for (const { child } of pruners) child.kill();
  const pruned = await Promise.all(pruners.map(async ({ ended }) => ended));
  for (const end of [...published, ...pruned]) expect(end).toEqual({ code: 0, stderr: "" });
  const references = await store.references.list();
  expect(references).toHaveLength(3 * 5);
  const verifier = new LayerVerifier(store);
  for (const reference of references)
    expect(await verifier.verify(reference)).toMatchObject({ status: "ok" });
  for (const { reference } of references) await store.remove(reference);
  await pruneStore(store.paths, atOnce);
  expect([await blobs(), await readdir(store.paths.manifests)]).toEqual([[], []]);
  expect(await readdir(store.paths.temporary)).toEqual([]);
  expect((await readFile("/proc/self/mountinfo", "utf8")).includes(node.directory)).toBe(false);
});
