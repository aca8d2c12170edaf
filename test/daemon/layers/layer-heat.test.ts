import { link, mkdir, open, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openLayerStore } from "../../../src/daemon/layers/layer-store.ts";
import { temporaryNode, type TemporaryNode } from "../temporary-node.ts";
import { openStoreProcess } from "./mounts-fixture.ts";

let node: TemporaryNode;
let digest: string;
let directory: string;
const mebibyte = 1_048_576;

beforeEach(async () => {
  node = await temporaryNode();
  directory = join(node.directory, "mounts");
  await mkdir(node.dataDir);
  const tree = join(node.directory, "tree");
  await mkdir(join(tree, "folder"), { recursive: true });
  await writeFile(join(tree, "folder", "read"), Buffer.alloc(4 * mebibyte, "read"));
  await link(join(tree, "folder", "read"), join(tree, "same"));
  await writeFile(join(tree, "unread"), Buffer.alloc(12 * mebibyte, "unread"));
  await writeFile(join(tree, "empty"), "");
  ({ digest } = await (await openLayerStore(node.layerStore)).build({ reference: "tree:1", from: tree }));
});

afterEach(async () => {
  await node[Symbol.asyncDispose]();
});

test("a layer's heat is what was read of its files, and is remembered when it is unmounted", async () => {
  const store = openStoreProcess(node, directory);
  await store.call("mount", digest);
  const files = { files: 3, bytes: 16 * mebibyte };
  expect(await store.call("heat", digest)).toMatchObject({
    ...files,
    filesRead: 0,
    cachedBytes: 0,
    peakBytes: 0,
  });
  const file = await open(join(directory, digest.slice(7), "folder", "read"));
  await file.read(Buffer.alloc(4 * mebibyte), 0, 4 * mebibyte, 0);
  await file.close();
  const read = { ...files, filesRead: 1, cachedBytes: 4 * mebibyte, peakBytes: 4 * mebibyte };
  expect(await store.call("heat", digest)).toMatchObject(read);
  await store.call("unmount", digest);
  const later = openStoreProcess(node, directory);
  expect(await later.call("heats")).toMatchObject({ [digest]: read });
  await later.call("mount", digest);
  expect(await later.call("heat", digest)).toMatchObject({ cachedBytes: 0, peakBytes: 4 * mebibyte });
  await later.call("unmount", digest);
});

test("a look at a layer reads nothing of it, and needs no store", async () => {
  const store = openStoreProcess(node, directory);
  await store.call("mount", digest);
  await rename(node.layerStore, `${node.layerStore}-away`);
  expect(await store.call("heat", digest)).toMatchObject({ files: 3, cachedBytes: 0 });
  await rename(`${node.layerStore}-away`, node.layerStore);
  await store.call("unmount", digest);
});
