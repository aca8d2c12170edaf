import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdir, readdir, readFile, rename, rm, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { unmountIfMounted } from "../../../src/backends/linux/mount.ts";
import { systemClock } from "../../../src/daemon/clock.ts";
import { NodeImports } from "../../../src/daemon/layers/images/node-imports.ts";
import { LayerMounts } from "../../../src/daemon/layers/layer-mounts.ts";
import { openLayerStore, type LayerStore } from "../../../src/daemon/layers/layer-store.ts";
import { RcloneMount } from "../../../src/daemon/layers/rclone-mount.ts";
import type { StoreProcess } from "../../../src/daemon/layers/store-process.ts";
import { ManualClock } from "../manual-clock.ts";
import { temporaryNode, tracesOf, type TemporaryNode } from "../temporary-node.ts";
import { openStoreProcess } from "./mounts-fixture.ts";

let node: TemporaryNode;
let store: LayerStore;
let directory: string;
let remote: string;
let digest: string;
let rclone: RcloneMount | undefined;
let renewals: number;
const content = randomBytes(3_000_000);

beforeEach(async () => {
  node = await temporaryNode();
  store = await openLayerStore(node.layerStore);
  directory = join(node.directory, "mounts");
  remote = join(node.directory, "remote");
  renewals = 0;
  const tree = join(node.directory, "tree");
  await mkdir(tree);
  await writeFile(join(tree, "big"), content);
  await writeFile(join(tree, "small"), "small");
  ({ digest } = await store.build({ reference: "tree:1", from: tree }));
});

afterEach(async () => {
  for (const name of await readdir(directory).catch(() => [])) unmountIfMounted(join(directory, name));
  await rclone?.stop();
  rclone = undefined;
  const traces = await tracesOf(node);
  await node[Symbol.asyncDispose]();
  if (traces.length > 0) throw new Error(`left behind: ${traces.join("\n")}`);
});

/** The store's directory through rclone, so that it can be made to hang and to vanish. */
function supervise(): RcloneMount {
  return new RcloneMount({
    remote: node.layerStore,
    directory: remote,
    cache: join(node.directory, "cache"),
    clock: systemClock,
    random: () => 0,
    onRenewed: () => {
      renewals += 1;
    },
  });
}

async function viaRclone(): Promise<StoreProcess> {
  rclone = supervise();
  await rclone.start();
  return openStoreProcess(node, directory, { directory: remote, patienceMs: 1500 });
}

async function rclonePid(): Promise<number> {
  return (JSON.parse(await readFile(`${remote}.json`, "utf8")) as { pid: number }).pid;
}

/** Reads a file as a sandbox does, in a process of its own. */
function reader(path: string) {
  const child = spawn("cat", ["--", path], { stdio: ["ignore", "pipe", "pipe"] });
  const chunks: Buffer[] = [];
  let stderr = "";
  child.stdout.on("data", (chunk: Buffer) => chunks.push(chunk));
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  const ended = once(child, "close").then(([code]) => ({
    code: code as number,
    stderr,
    bytes: Buffer.concat(chunks),
  }));
  return { child, ended };
}

async function untilResolved(process: StoreProcess): Promise<unknown> {
  return expect
    .poll(async () => process.call("resolve", "tree:1").catch(() => undefined), { timeout: 30_000 })
    .toMatchObject({ digest });
}

test("a store that hangs holds up sandboxes, but neither the daemon nor its files; all goes on when it is back", async () => {
  const process = await viaRclone();
  const mounts = await LayerMounts.open(process, directory);
  const path = await mounts.acquire(digest);
  expect(await readFile(join(path, "small"), "utf8")).toBe("small");
  const pid = await rclonePid();
  globalThis.process.kill(pid, "SIGSTOP");
  try {
    const reading = reader(join(path, "big"));
    const unavailable = { code: "layer_store_unavailable", retryable: true };
    const answers = Array.from({ length: 12 }, async () => process.call("resolve", "tree:1"));
    // The threads of this process are free, however many wait.
    expect(await readFile(join(node.directory, "tree", "small"), "utf8")).toBe("small");
    for (const answer of await Promise.allSettled(answers))
      expect(answer).toMatchObject({ status: "rejected", reason: unavailable });
    // Not asked again at once.
    await expect(process.call("resolve", "tree:1")).rejects.toMatchObject({
      ...unavailable,
      retryAfterMs: expect.any(Number),
    });
    expect(reading.child.exitCode).toBeNull();
    globalThis.process.kill(pid, "SIGCONT");
    expect(await reading.ended).toMatchObject({ code: 0, bytes: content });
  } finally {
    globalThis.process.kill(pid, "SIGCONT");
  }
  await untilResolved(process);
  expect(renewals).toBe(1);
  mounts.release(digest);
  await mounts.close();
});

/** Whether a thread of a child of this process waits for a FUSE file system. */
async function childWaits(): Promise<boolean> {
  for (const task of await readdir("/proc/self/task")) {
    const children = await readFile(`/proc/self/task/${task}/children`, "utf8").catch(() => "");
    for (const child of children.split(" ").filter((pid) => pid !== ""))
      for (const thread of await readdir(`/proc/${child}/task`).catch(() => [])) {
        const place = await readFile(`/proc/${child}/task/${thread}/wchan`, "utf8").catch(() => "");
        if (/fuse|request_wait/.test(place)) return true;
      }
  }
  return false;
}

test("imports into a store that hangs hold up neither the daemon's files nor who waits, and are killed when given up", async () => {
  rclone = supervise();
  await rclone.start();
  const clock = new ManualClock();
  const imports = new NodeImports({
    clock,
    layerStore: remote,
    create: false,
    directory: join(node.directory, "imports"),
  });
  const pid = await rclonePid();
  globalThis.process.kill(pid, "SIGSTOP");
  try {
    const giveUp = new AbortController();
    const waiting = Array.from({ length: 6 }, async (_, index) =>
      imports.import(`docker://127.0.0.1:1/none:${index}`, giveUp.signal, () => undefined),
    );
    const settled = Promise.allSettled(waiting);
    await expect.poll(childWaits).toBe(true);
    expect(await readFile(join(node.directory, "tree", "small"), "utf8")).toBe("small");
    // whoever waited is free at once
    giveUp.abort(new Error("no longer"));
    for (const outcome of await settled)
      expect(outcome).toMatchObject({ status: "rejected", reason: { message: "no longer" } });
    // what cannot even tidy up
    clock.advance(10_000);
    await expect.poll(childWaits).toBe(false);
    await imports.close();
  } finally {
    globalThis.process.kill(pid, "SIGCONT");
  }
});

test("a store whose mount dies is mounted again; what was open is EIO, and new sandboxes get it anew", async () => {
  const process = await viaRclone();
  const mounts = await LayerMounts.open(process, directory);
  const path = await mounts.acquire(digest);
  const running = await reader(join(path, "small")).ended;
  expect(running.bytes.toString()).toBe("small");
  globalThis.process.kill(await rclonePid(), "SIGKILL");
  await expect.poll(() => renewals, { timeout: 20_000 }).toBe(2);
  // A sandbox that has the old mount.
  expect(await reader(join(path, "big")).ended).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("Input/output error"),
  });
  mounts.renew();
  await untilResolved(process);
  const again = await mounts.acquire(digest);
  expect(await reader(join(again, "big")).ended).toMatchObject({ code: 0, bytes: content });
  mounts.release(digest);
  mounts.release(digest);
  await mounts.close();
});

test("the mount outlives the daemon, and the next one takes it up", async () => {
  const process = await viaRclone();
  await process.call("mount", digest);
  const pid = await rclonePid();
  rclone?.leave();
  rclone = supervise();
  await rclone.start();
  expect(await rclonePid()).toBe(pid);
  expect(renewals).toBe(1);
  expect(await readFile(join(directory, digest.slice(7), "big"))).toEqual(content);
  await process.call("unmount", digest);
});

test("a remote that cannot be mounted is a typed error", async () => {
  rclone = new RcloneMount({
    remote: "no-such-remote:path",
    directory: remote,
    cache: join(node.directory, "cache"),
    clock: systemClock,
    random: () => 0,
    onRenewed: () => undefined,
  });
  await expect(rclone.start()).rejects.toMatchObject({
    code: "layer_store_unavailable",
    cause: { message: expect.stringContaining("no-such-remote") },
  });
});

test("a store that is not there is not made, and is used once it is", async () => {
  const away = `${node.layerStore}-away`;
  await rename(node.layerStore, away);
  const process = openStoreProcess(node, directory);
  await expect(process.call("resolve", "tree:1")).rejects.toMatchObject({
    code: "layer_store_unavailable",
    message: expect.stringContaining(node.layerStore),
  });
  await expect(stat(node.layerStore)).rejects.toMatchObject({ code: "ENOENT" });
  await rename(away, node.layerStore);
  expect(await process.call("resolve", "tree:1")).toMatchObject({ digest });
  await process.call("mount", digest);
  await rename(node.layerStore, away);
  await expect(process.call("resolve", "tree:1")).rejects.toMatchObject({ code: "layer_store_unavailable" });
  // Files that are open stay readable.
  expect(await readFile(join(directory, digest.slice(7), "small"), "utf8")).toBe("small");
  await process.call("unmount", digest);
});

test("data that is cut short under a running sandbox is EIO there, and an error by name for the next mount", async () => {
  const process = openStoreProcess(node, directory);
  await process.call("mount", digest);
  const [blob] = (await store.manifest(digest)).data;
  await truncate(store.blobPath(blob?.digest ?? ""), 65_536);
  expect(await reader(join(directory, digest.slice(7), "big")).ended).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("Input/output error"),
  });
  await process.call("unmount", digest);
  await expect(process.call("mount", digest)).rejects.toMatchObject({
    code: "layer_corrupt",
    message: expect.stringContaining(digest),
  });
});

test("metadata is copied to the node once, mended when damaged, and read without the store", async () => {
  const process = openStoreProcess(node, directory);
  const { metadata } = await store.manifest(digest);
  const copy = join(node.dataDir, "layer-metadata", metadata.digest.slice(7));
  await process.call("mount", digest);
  await process.call("unmount", digest);
  const { ino } = await stat(copy);
  await process.call("mount", digest);
  expect((await stat(copy)).ino).toBe(ino);
  const away = `${node.layerStore}-away`;
  await rename(node.layerStore, away);
  expect((await readdir(join(directory, digest.slice(7)))).toSorted()).toEqual(["big", "small"]);
  await rename(away, node.layerStore);
  await process.call("unmount", digest);
  await writeFile(copy, "damaged");
  await process.call("mount", digest);
  expect((await stat(copy)).size).toBe(metadata.bytes);
  await process.call("unmount", digest);
  await rm(copy);
  await writeFile(store.blobPath(metadata.digest), Buffer.alloc(metadata.bytes));
  await expect(process.call("mount", digest)).rejects.toMatchObject({
    code: "layer_corrupt",
    message: expect.stringContaining(digest),
  });
  expect(await readdir(join(node.dataDir, "layer-metadata"))).toEqual([]);
  expect(await readdir(directory)).toEqual([]);
});
