import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  isMounted,
  listMounts,
  mountPrivateTmpfs,
  mount,
  mountErofs,
  parseMountInfo,
  unmountIfMounted,
} from "../../../src/backends/linux/mount.ts";
import { mountOverlay } from "../../../src/backends/linux/overlay-mount.ts";

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "dsec-mount-"));
});

afterEach(() => {
  const left = listMounts().filter((entry) => entry.target.startsWith(directory));
  for (const entry of left.reverse()) unmountIfMounted(entry.target);
  rmSync(directory, { recursive: true });
});

function folder(name: string): string {
  const path = join(directory, name);
  mkdirSync(path);
  return path;
}

test("a mount appears in and disappears from the list of mounts, also under a name with spaces", () => {
  const target = folder("with space");
  expect(isMounted(target)).toBe(false);
  mount({ source: "tmpfs", target, type: "tmpfs", data: "size=64k" });
  expect(isMounted(target)).toBe(true);
  expect(unmountIfMounted(target)).toBe(true);
  expect(isMounted(target)).toBe(false);
  expect(unmountIfMounted(target)).toBe(false);
});

test("a refused mount names its target", () => {
  const target = join(directory, "missing");
  expect(() => mount({ source: "tmpfs", target, type: "tmpfs" })).toThrow(
    expect.objectContaining({ code: "ENOENT", message: expect.stringContaining(target) }),
  );
});

test("options that the kernel would cut are refused", () => {
  expect(() => mount({ target: folder("t"), type: "tmpfs", data: "x".repeat(4096) })).toThrow(RangeError);
});

test("an EROFS image with a data file of its own is mounted without a loop device, and an overlay on it takes writes", () => {
  const source = folder("source");
  writeFileSync(join(source, "file"), "from the layer");
  const [image, data] = [join(directory, "image"), join(directory, "data")];
  execFileSync("mkfs.erofs", ["--chunksize=65536", `--blobdev=${data}`, image, source], { stdio: "pipe" });
  const lower = folder("lower");
  mountErofs(image, lower, [data]);
  expect(readFileSync(join(lower, "file"), "utf8")).toBe("from the layer");
  expect(listMounts().find((entry) => entry.target === lower)).toMatchObject({
    type: "erofs",
    source: image,
  });

  const root = folder("root");
  const upper = folder("upper");
  mountOverlay({ lower: [lower], upper, work: folder("work") }, root);
  writeFileSync(join(root, "file"), "changed");
  expect(readFileSync(join(upper, "file"), "utf8")).toBe("changed");
  expect(readFileSync(join(lower, "file"), "utf8")).toBe("from the layer");
});

test("a path that would be read as several options is refused", () => {
  expect(() => mountErofs("/image", folder("t"), ["/a,device=/b"])).toThrow(RangeError);
});

test("making a mount private is repeatable and mounts the directory once", () => {
  const target = folder("t");
  mountPrivateTmpfs(target);
  mountPrivateTmpfs(target);
  expect(listMounts().filter((entry) => entry.target === target)).toHaveLength(1);
  const line = readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .find((text) => text.includes(` ${target} `));
  expect(line).not.toContain("shared:");
});

test("mountinfo with optional fields and escapes is parsed", () => {
  const text = "36 35 98:0 /mnt1 /a\\040b rw,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue\n";
  expect(parseMountInfo(text)).toEqual([
    { root: "/mnt1", target: "/a b", type: "ext3", source: "/dev/root", superOptions: "rw,errors=continue" },
  ]);
});
