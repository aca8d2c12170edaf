import { execFileSync } from "node:child_process";
import { chmod, mkdir, open, readdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { isMounted, mount, unmountIfMounted } from "../../src/backends/linux/mount.ts";
import { openScratch } from "../../src/daemon/resources/open-scratch.ts";
import type { Scratch } from "../../src/daemon/resources/scratch.ts";
import { output, temporaryNode, tracesOf, type TemporaryNode } from "./temporary-node.ts";

const mebibyte = 1_048_576;

let node: TemporaryNode;
let scratch: Scratch;

async function reopen(): Promise<Scratch> {
  const { scratch: opened, findings } = await openScratch({ ...node, allowUnlimited: false });
  expect(findings).toEqual([]);
  return opened;
}

beforeEach(async () => {
  node = await temporaryNode();
  scratch = await reopen();
});

afterEach(async () => {
  for (const id of await scratch.list().catch(() => [])) await (await scratch.find(id))?.destroy();
  await scratch.close().catch(() => undefined);
  unmountIfMounted(join(node.runDir, "scratch"));
  await node[Symbol.asyncDispose]();
});

/** Writes until it is refused; returns how many bytes were taken. */
async function fill(path: string, chunkBytes: number): Promise<{ written: number; errno: number }> {
  const file = await open(path, "w");
  const chunk = Buffer.alloc(chunkBytes, 1);
  let written = 0;
  try {
    for (;;) written += (await file.write(chunk)).bytesWritten;
  } catch (error) {
    return { written, errno: error instanceof Error && "errno" in error ? Number(error.errno) : 0 };
  } finally {
    await file.close();
  }
}

const quotaExceeded = -122;

test("a sandbox can write what it was given, and no more", async () => {
  const directory = await scratch.create("n-one", 64 * mebibyte);
  const other = await scratch.create("n-two", 8 * mebibyte);
  expect(await directory.full()).toBe(false);
  const { written, errno } = await fill(join(directory.path, "big"), 65_536);
  expect(errno).toBe(quotaExceeded);
  expect(written).toBeGreaterThan(62 * mebibyte);
  expect(written).toBeLessThanOrEqual(64 * mebibyte);
  expect(await directory.full()).toBe(true);
  expect(await directory.usage()).toBeGreaterThan(62 * mebibyte);
  expect(await other.full()).toBe(false);
  expect(await other.usage()).toBeLessThan(mebibyte);
  await writeFile(join(other.path, "file"), "room here");
});

test("a program is told that the disk is full, and can go on after it has removed something", async () => {
  const directory = await scratch.create("n-one", 16 * mebibyte);
  const script = `dd if=/dev/zero of=${directory.path}/a bs=65536 2>&1; rm ${directory.path}/a; echo again > ${directory.path}/b; cat ${directory.path}/b`;
  const said = execFileSync("sh", ["-c", script], { encoding: "utf8", env: { ...process.env, LC_ALL: "C" } });
  expect(said).toContain("Disk quota exceeded");
  expect(said.trimEnd().endsWith("again")).toBe(true);
});

test("many small files count too", async () => {
  const directory = await scratch.create("n-one", 16 * mebibyte);
  const script = `cd ${directory.path}; i=0; while echo x > f$i; do i=$((i+1)); done 2>/dev/null; echo $i`;
  const files = Number(execFileSync("sh", ["-c", script], { encoding: "utf8" }));
  expect(files).toBeGreaterThan(1000);
  expect(files).toBeLessThan(100_000);
  expect(await directory.full()).toBe(true);
});

test("usage is right before anything has reached the disk", async () => {
  const directory = await scratch.create("n-one", 64 * mebibyte);
  await writeFile(join(directory.path, "file"), Buffer.alloc(10 * mebibyte, 1));
  expect(await directory.usage()).toBeGreaterThanOrEqual(10 * mebibyte);
  expect(await directory.usage()).toBeLessThan(12 * mebibyte);
});

test("destroying gives the room back, whatever is in it, and again is no error", async () => {
  const directory = await scratch.create("n-one", 512 * mebibyte);
  const before = (await scratch.disk()).availableBytes;
  await writeFile(join(directory.path, "file"), Buffer.alloc(300 * mebibyte, 1));
  await output("sync", "-f", directory.path);
  await chmod(join(directory.path, "file"), 0);
  expect((await scratch.disk()).availableBytes).toBeLessThan(before - 200 * mebibyte);
  await directory.destroy();
  await directory.destroy();
  expect(await scratch.list()).toEqual([]);
  await vi.waitFor(async () => expect(await directory.usage()).toBe(0), { timeout: 30_000 });
  await vi.waitFor(
    async () => expect((await scratch.disk()).availableBytes).toBeGreaterThan(before - 100 * mebibyte),
    { timeout: 30_000, interval: 200 },
  );
});

test("what an earlier attempt left is not seen by the next", async () => {
  const directory = await scratch.create("n-one", 16 * mebibyte);
  await writeFile(join(directory.path, "secret"), "x");
  const again = await scratch.create("n-one", 16 * mebibyte);
  expect(await readdir(again.path)).toEqual([]);
});

test("a restarted daemon finds the mount, the directories and their limits", async () => {
  const directory = await scratch.create("n-one", 16 * mebibyte);
  await writeFile(join(directory.path, "file"), "kept");
  scratch = await reopen();
  expect((await tracesOf(node)).filter((trace) => trace.startsWith("loop "))).toHaveLength(1);
  const found = await scratch.find("n-one");
  expect(await scratch.find("n-none")).toBeUndefined();
  expect((await fill(join(found?.path ?? "", "big"), 65_536)).errno).toBe(quotaExceeded);
  expect(await found?.full()).toBe(true);
});

test("closing keeps what sandboxes have, and leaves nothing once they are gone", async () => {
  const directory = await scratch.create("n-one", 16 * mebibyte);
  await scratch.close();
  expect(isMounted(join(node.runDir, "scratch"))).toBe(true);
  await directory.destroy();
  await scratch.close();
  expect(await tracesOf(node)).toEqual([]);
  expect(await readdir(node.dataDir)).toEqual([]);
});

test("a file of an earlier boot is made anew, also when it is damaged", async () => {
  await scratch.close();
  await writeFile(join(node.dataDir, "scratch.btrfs"), "not a file system");
  scratch = await reopen();
  expect(await scratch.list()).toEqual([]);
  expect((await stat(join(node.dataDir, "scratch.btrfs"))).size).toBeGreaterThan(256 * mebibyte);
});

test("data on btrfs needs no file", async () => {
  const inner: TemporaryNode = {
    ...node,
    dataDir: join(node.runDir, "scratch", "data"),
    runDir: join(node.directory, "run2"),
  };
  const { scratch: direct } = await openScratch({ ...inner, allowUnlimited: false });
  const directory = await direct.create("n-one", 16 * mebibyte);
  expect(directory.path).toBe(join(inner.dataDir, "scratch", "n-one"));
  expect((await fill(join(directory.path, "big"), 65_536)).errno).toBe(quotaExceeded);
  await directory.destroy();
  await direct.close();
  await rm(inner.dataDir, { recursive: true });
});

test("where no limit can be enforced nothing is prepared, unless that was asked for", async () => {
  const small = join(node.directory, "small");
  await mkdir(small);
  mount({ source: "tmpfs", target: small, type: "tmpfs", data: "size=8m" });
  try {
    const options = { dataDir: join(small, "data"), runDir: join(node.directory, "run2") };
    await expect(openScratch({ ...options, allowUnlimited: false })).rejects.toMatchObject({
      code: "disk_full",
    });
    const { scratch: plain, findings } = await openScratch({ ...options, allowUnlimited: true });
    expect(findings).toMatchObject([
      { level: "warning", message: expect.stringContaining("disk limits are off") },
    ]);
    expect(plain.limited).toBe(false);
    const directory = await plain.create("n-one", mebibyte);
    await writeFile(join(directory.path, "file"), "x");
    expect(await plain.list()).toEqual(["n-one"]);
    await directory.destroy();
    expect(await plain.list()).toEqual([]);
  } finally {
    unmountIfMounted(small);
  }
});
