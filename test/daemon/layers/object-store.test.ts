import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { LayerMounts } from "../../../src/daemon/layers/layer-mounts.ts";
import { openLayerStore, type LayerStore } from "../../../src/daemon/layers/layer-store.ts";
import { NodeLayers } from "../../../src/daemon/layers/node-layers.ts";
import { temporaryNode, tracesOf, type TemporaryNode } from "../temporary-node.ts";

let node: TemporaryNode;
let origin: LayerStore;
let server: ChildProcess;
let port: number;
let layers: NodeLayers | undefined;

beforeEach(async () => {
  node = await temporaryNode();
  await mkdir(node.runDir);
  origin = await openLayerStore(node.layerStore);
  port = await freePort();
  const serve = ["serve", "http", "--dir-cache-time=0", "--addr", `127.0.0.1:${port}`, node.layerStore];
  server = spawn("rclone", serve, { stdio: "ignore" });
  await vi.waitFor(async () => connectTo(port), { timeout: 20_000 });
});

afterEach(async () => {
  await layers?.close(true);
  layers = undefined;
  server.kill();
  await once(server, "exit");
  const traces = await tracesOf(node);
  await node[Symbol.asyncDispose]();
  if (traces.length > 0) throw new Error(`left behind: ${traces.join("\n")}`);
});

async function freePort(): Promise<number> {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const address = listener.address();
  listener.close();
  return typeof address === "object" && address !== null ? address.port : 0;
}

async function connectTo(at: number): Promise<void> {
  const socket = connect(at, "127.0.0.1");
  try {
    await once(socket, "connect");
  } finally {
    socket.destroy();
  }
}

async function build(reference: string, content: Buffer): Promise<string> {
  const tree = join(node.directory, `tree-${reference}`);
  await mkdir(tree);
  await writeFile(join(tree, "file"), content);
  await writeFile(join(tree, "other"), randomBytes(4_000_000));
  return (await origin.build({ reference, from: tree })).digest;
}

test("layers in object storage are read on demand, a new one is found at once, and nothing is left in the end", async () => {
  const content = randomBytes(300_000);
  const digest = await build("first:1", content);
  const opened = new NodeLayers({
    name: "n1",
    dataDir: node.dataDir,
    runDir: node.runDir,
    layerStore: `rclone::http,url="http://127.0.0.1:${port}":`,
  });
  layers = opened;
  await opened.start();
  const mounts = await LayerMounts.open(opened.store, join(node.runDir, "layers"));
  mounts.counted();
  await expect
    .poll(async () => opened.resolve("first:1").catch(() => undefined), { timeout: 30_000 })
    .toMatchObject({ digest });
  const path = await mounts.acquire(digest);
  expect(await readFile(join(path, "file"))).toEqual(content);
  // What was fetched of the blob is kept on the node: not all of it.
  const [blob] = (await origin.manifest(digest)).data;
  const cached = (await readdir(join(node.dataDir, "layer-cache", "vfs"), { recursive: true })).find((name) =>
    name.endsWith((blob?.digest ?? "").slice(7)),
  );
  const { blocks } = await stat(join(node.dataDir, "layer-cache", "vfs", cached ?? ""));
  expect(blocks * 512).toBeGreaterThanOrEqual(content.length);
  expect(blocks * 512).toBeLessThan(blob?.bytes ?? 0);
  const second = await build("second:1", randomBytes(1000));
  await expect
    .poll(async () => opened.resolve("second:1"), { timeout: 30_000, interval: 500 })
    .toMatchObject({ digest: second });
  mounts.release(digest);
  await mounts.close();
  await opened.close(true);
  expect(await readdir(node.runDir)).toEqual([]);
});
