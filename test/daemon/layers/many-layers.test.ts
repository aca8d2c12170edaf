import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { isMounted, listMounts, unmountIfMounted } from "../../../src/backends/linux/mount.ts";
import { cachedBytes } from "../../../src/backends/linux/page-cache.ts";
import { mapBounded } from "../../../src/daemon/bounded.ts";
import { digestOf } from "../../../src/daemon/layers/digest.ts";
import { makeErofsImage } from "../../../src/daemon/layers/erofs-image.ts";
import { openLayerStore, type LayerStore } from "../../../src/daemon/layers/layer-store.ts";
import { encodeManifest } from "../../../src/daemon/layers/manifest.ts";
import { OverlayRoots } from "../../../src/daemon/layers/overlay-root.ts";
import { output, temporaryNode, tracesOf, type TemporaryNode } from "../temporary-node.ts";
import { openMounts } from "./mounts-fixture.ts";

let node: TemporaryNode;
let store: LayerStore;
let directory: string;

beforeEach(async () => {
  node = await temporaryNode();
  directory = join(node.directory, "mounts");
});

afterEach(async () => {
  for (const name of await readdir(directory).catch(() => [])) unmountIfMounted(join(directory, name));
  const traces = await tracesOf(node);
  await node[Symbol.asyncDispose]();
  if (traces.length > 0) throw new Error(`left behind: ${traces.join("\n")}`);
});

const many = 2000;

/** Layers of one file each, all of the same shape: one image, and data of their own for it. */
async function publishMany(): Promise<string[]> {
  const tree = join(node.directory, "tree");
  const made = join(node.directory, "image");
  for (const path of [tree, made]) await mkdir(path);
  await writeFile(join(tree, "number"), "0000");
  const image = await makeErofsImage(tree, made);
  const blob = readFileSync(image.data[0] ?? "");
  const metadata = put(readFileSync(image.metadata));
  return Array.from({ length: many }, (_, index) => {
    blob.write(String(index).padStart(4, "0"));
    const manifest = encodeManifest({
      schema: 1,
      kind: "toolkit",
      format: "erofs",
      metadata,
      data: [put(blob)],
    });
    writeFileSync(store.paths.manifest(digestOf(manifest)), manifest);
    return digestOf(manifest);
  });
}

function put(blob: Buffer): { digest: string; bytes: number } {
  writeFileSync(store.blobPath(digestOf(blob)), blob);
  return { digest: digestOf(blob), bytes: blob.length };
}

test("two thousand layers are in use at once, found again by the next daemon, and unmounted when unused", async () => {
  store = await openLayerStore(node.layerStore);
  const digests = await publishMany();
  expect(new Set(digests).size).toBe(many);
  const mounts = await openMounts(node, directory);
  const read = async (digest: string): Promise<string> =>
    readFile(join(await mounts.acquire(digest), "number"), "utf8");
  const numbers = await mapBounded(digests, 16, read);
  expect(numbers).toEqual(digests.map((_, index) => String(index).padStart(4, "0")));
  const mounted = () => listMounts().filter(({ target }) => target.startsWith(`${directory}/`)).length;
  expect(mounted()).toBe(many);
  const leases = () => readdir(join(store.paths.leases, "n1+test"));
  // and the sign of life
  expect(await leases()).toHaveLength(many + 1);
  const next = await openMounts(node, directory);
  // Nobody of an earlier daemon was adopted: but a few are kept for whoever comes.
  await expect.poll(mounted, { timeout: 60_000 }).toBe(32);
  await expect.poll(async () => (await leases()).length, { timeout: 60_000 }).toBe(33);
  await next.close();
  expect(mounted()).toBe(0);
}, 120_000);

test("what two sandboxes read of a layer is in memory once", async () => {
  const bytes = 64 * 1024 * 1024;
  store = await openLayerStore(node.layerStore);
  const tree = join(node.directory, "tree");
  await mkdir(tree);
  const content = randomBytes(bytes);
  await writeFile(join(tree, "big"), content);
  const { digest } = await store.build({ reference: "big:1", from: tree });
  const [blob] = (await store.manifest(digest)).data;
  const mounts = await openMounts(node, directory);
  const path = await mounts.acquire(digest);
  const roots = await OverlayRoots.open(node.directory);
  const sandboxes = ["n-one", "n-two"];
  for (const id of sandboxes) {
    await mkdir(join(node.directory, `scratch-${id}`));
    roots.mount(id, [path], join(node.directory, `scratch-${id}`));
  }
  try {
    const original = store.blobPath(blob?.digest ?? "");
    // What its publication left in memory is none of the readers' doing.
    await output("dd", `if=${original}`, "iflag=nocache", "count=0", "status=none");
    expect(cachedBytes(original)).toBe(0);
    expect(cachedBytes(join(path, "big"))).toBe(0);
    for (const id of sandboxes) {
      expect((await readFile(join(roots.rootOf(id), "big"))).equals(content)).toBe(true);
      expect(cachedBytes(join(path, "big"))).toBe(bytes);
    }
    // Kernels before 6.15 cache what is read a second time, in the data's own file.
    const direct = (await readFile("/proc/mounts", "utf8"))
      .split("\n")
      .some((line) => line.includes(` ${path} `) && line.includes(",directio"));
    expect(cachedBytes(original)).toBe(direct ? 0 : (blob?.bytes ?? 0));
  } finally {
    for (const id of sandboxes) roots.remove(id);
    roots.close();
    mounts.release(digest);
    await mounts.close();
  }
  expect(isMounted(path)).toBe(false);
});
