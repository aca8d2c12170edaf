import { truncate, writeFile, mkdir, readFile, stat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { isMounted, unmountIfMounted } from "../../../src/backends/linux/mount.ts";
import { openLayerStore, type LayerStore } from "../../../src/daemon/layers/layer-store.ts";
import { temporaryNode, tracesOf, type TemporaryNode } from "../temporary-node.ts";
import { openMounts } from "./mounts-fixture.ts";

let node: TemporaryNode;
let store: LayerStore;
let directory: string;
let digest: string;

beforeEach(async () => {
  node = await temporaryNode();
  store = await openLayerStore(node.layerStore);
  directory = join(node.directory, "mounts");
  await mkdir(join(node.directory, "tree"));
  await writeFile(join(node.directory, "tree", "file"), "content".repeat(10_000));
  ({ digest } = await store.build({ reference: "tree:1", from: join(node.directory, "tree") }));
});

afterEach(async () => {
  for (const name of await readdir(directory).catch(() => [])) unmountIfMounted(join(directory, name));
  await node[Symbol.asyncDispose]();
});

test("all users of a layer share one mount, straight from the store's files", async () => {
  const mounts = await openMounts(node, directory);
  const paths = await Promise.all(Array.from({ length: 10 }, () => mounts.acquire(digest)));
  expect(new Set(paths).size).toBe(1);
  expect((await tracesOf(node)).filter((trace) => trace.includes(" erofs "))).toHaveLength(1);
  expect(await readFile(join(paths[0] ?? "", "file"), "utf8")).toHaveLength(70_000);
  for (const _ of paths) mounts.release(digest);
  await mounts.close();
  expect(await tracesOf(node)).toEqual([]);
});

test("a mount that a killed daemon left is found again and used", async () => {
  const first = await openMounts(node, directory);
  const path = await first.acquire(digest);
  const { dev } = await stat(path);
  const second = await openMounts(node, directory);
  expect(second.adopt(digest)).toBe(true);
  expect((await stat(await second.acquire(digest))).dev).toBe(dev);
  second.release(digest);
  second.release(digest);
  await second.close();
  expect(isMounted(path)).toBe(false);
});

test("a layer in use is not unmounted to make room", async () => {
  const mounts = await openMounts(node, directory);
  const path = await mounts.acquire(digest);
  const others: string[] = [];
  for (let index = 0; index < 40; index += 1) {
    await writeFile(join(node.directory, "tree", "file"), `other ${index}`);
    const built = await store.build({ reference: `other:${index}`, from: join(node.directory, "tree") });
    others.push(built.digest);
    await mounts.acquire(built.digest);
  }
  for (const other of others) mounts.release(other);
  expect(isMounted(path)).toBe(true);
  await expect.poll(async () => readdir(directory)).toHaveLength(33);
  mounts.release(digest);
  await mounts.close();
});

test.each([
  [
    "a changed image",
    "metadata",
    async (path: string) => writeFile(path, Buffer.alloc((await stat(path)).size)),
  ],
  ["a shortened image", "metadata", (path: string) => truncate(path, 100)],
  ["shortened data", "data", (path: string) => truncate(path, 100)],
])("%s is an error that names the layer, and can be mended", async (_, part, damage) => {
  const manifest = await store.manifest(digest);
  const blob = store.blobPath(
    part === "metadata" ? manifest.metadata.digest : (manifest.data[0]?.digest ?? ""),
  );
  const before = await readFile(blob);
  await damage(blob);
  const mounts = await openMounts(node, directory);
  await expect(mounts.acquire(digest)).rejects.toMatchObject({
    code: "layer_corrupt",
    message: expect.stringContaining(digest),
  });
  expect(await readdir(directory)).toEqual([]);
  await writeFile(blob, before);
  expect(isMounted(await mounts.acquire(digest))).toBe(true);
  mounts.release(digest);
  await mounts.close();
});
