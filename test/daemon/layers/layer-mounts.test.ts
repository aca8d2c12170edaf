import { truncate, writeFile, mkdir, readFile, rm, stat, readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { isMounted, unmountIfMounted } from "../../../src/backends/linux/mount.ts";
import { openLayerStore, type LayerStore } from "../../../src/daemon/layers/layer-store.ts";
import { LayerMounts } from "../../../src/daemon/layers/layer-mounts.ts";
import { ManualClock } from "../manual-clock.ts";
import { temporaryNode, tracesOf, type TemporaryNode } from "../temporary-node.ts";
import { openMounts, openStoreProcess } from "./mounts-fixture.ts";

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

test("a blob that was mended is what new sandboxes get, though the layer was still mounted", async () => {
  const clock = new ManualClock();
  const mounts = await LayerMounts.open(openStoreProcess(node, directory), directory, clock);
  mounts.counted();
  const text = async () => readFile(join(await mounts.acquire(digest), "file"), "utf8");
  const original = "content".repeat(10_000);
  expect(await text()).toBe(original);
  const [data] = (await store.manifest(digest)).data;
  const blob = store.blobPath(data?.digest ?? "");
  // of the same size, so that the two can be told apart
  const other = (await readFile(blob, "utf8")).replaceAll("content", "mended!");
  await rm(blob);
  await writeFile(blob, other);
  // looked at a moment ago
  expect(await text()).toBe(original);
  clock.advance(10_000);
  expect(await text()).toBe("mended!".repeat(10_000));
  // a blob that is gone is an error, and those who have the layer stay counted
  await rm(blob);
  clock.advance(10_000);
  await expect(text()).rejects.toMatchObject({ code: "layer_corrupt" });
  expect(mounts.all).toEqual([{ digest, references: 3 }]);
  await writeFile(blob, other);
  expect(await text()).toBe("mended!".repeat(10_000));
  for (let users = 0; users < 4; users += 1) mounts.release(digest);
  await mounts.close();
});

test("what nobody uses is unmounted on request, with its lease; what is in use stays, and both can be had again", async () => {
  await writeFile(join(node.directory, "tree", "file"), "other");
  const other = await store.build({ reference: "other:1", from: join(node.directory, "tree") });
  const mounts = await openMounts(node, directory);
  const used = await mounts.acquire(digest);
  const idle = await mounts.acquire(other.digest);
  mounts.release(other.digest);
  await expect(store.remove("other:1")).rejects.toMatchObject({ details: { layers: [other.digest] } });
  await mounts.drop(new Set([digest, other.digest, `sha256:${"0".repeat(64)}`]));
  expect([isMounted(used), isMounted(idle)]).toEqual([true, false]);
  expect(mounts.all).toEqual([{ digest, references: 1 }]);
  await store.remove("other:1");
  expect(await readFile(join(await mounts.acquire(other.digest), "file"), "utf8")).toBe("other");
  for (const layer of [digest, other.digest]) mounts.release(layer);
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
