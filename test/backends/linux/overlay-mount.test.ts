import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { isMounted, listMounts, mount, unmountIfMounted } from "../../../src/backends/linux/mount.ts";
import { maxLowerLayers, mountOverlay } from "../../../src/backends/linux/overlay-mount.ts";

let directory: string;
let scratch: { upper: string; work: string };
let target: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "dsec-overlay-"));
  // the test's own: on an overlay, as in many containers, nothing can be laid over
  mount({ source: "tmpfs", target: directory, type: "tmpfs" });
  scratch = { upper: folder("upper"), work: folder("work") };
  target = folder("root");
});

afterEach(() => {
  const left = listMounts().filter((entry) => entry.target.startsWith(directory));
  for (const entry of left.reverse()) unmountIfMounted(entry.target);
  rmSync(directory, { recursive: true });
});

function folder(name: string): string {
  const path = join(directory, name);
  mkdirSync(path, { recursive: true });
  return path;
}

/** Directories from the uppermost down, each with a file of its own and one that all have. */
function layers(count: number): string[] {
  return Array.from({ length: count }, (_, index) => {
    const path = folder(`lower/${index}`);
    writeFileSync(join(path, `file-${index}`), "");
    writeFileSync(join(path, "shared"), `of layer ${index}`);
    return path;
  });
}

const openDescriptors = (): number => readdirSync("/proc/self/fd").length;

test("as many layers as the kernel can lay over each other are mounted, far more than a page of options holds", () => {
  const lower = layers(maxLowerLayers);
  mountOverlay({ lower, ...scratch, options: ["metacopy=on", "volatile"] }, target);
  expect(readFileSync(join(target, "shared"), "utf8")).toBe("of layer 0");
  expect(readdirSync(target)).toHaveLength(maxLowerLayers + 1);
  writeFileSync(join(target, "shared"), "changed");
  expect(readFileSync(join(lower[0] ?? "", "shared"), "utf8")).toBe("of layer 0");
  expect(readFileSync(join(scratch.upper, "shared"), "utf8")).toBe("changed");
});

test("one layer more is refused by its number, before anything is mounted", () => {
  const lower = Array.from({ length: maxLowerLayers + 1 }, (_, index) => `/none/${index}`);
  expect(() => mountOverlay({ lower, ...scratch }, target)).toThrow(
    new RangeError("501 layers are more than an overlay can have: 500"),
  );
  expect(isMounted(target)).toBe(false);
});

test("paths are taken as they are, whatever their length, and are not told to those who see the mount", () => {
  const lower = folder(`a:b,c/${"long".repeat(50)}/${"long".repeat(50)}`);
  writeFileSync(join(lower, "file"), "seen");
  mountOverlay({ lower: [lower], ...scratch }, target);
  expect(readFileSync(join(target, "file"), "utf8")).toBe("seen");
  const mounts = readFileSync("/proc/self/mountinfo", "utf8").split("\n");
  const options = mounts.find((line) => line.includes(` ${target} `))?.split(" - ")[1];
  expect(options).toMatch(/^overlay overlay .*upperdir=/);
  expect(options).not.toContain(directory);
});

test("what the kernel refuses is named, and no descriptor stays open", () => {
  const before = openDescriptors();
  const [lower = ""] = layers(1);
  for (const [wrong, reason] of [
    [{ lower: [`${directory}/none`] }, /ENOENT.*none/],
    [{ lower: [lower, lower] }, /ELOOP.*root'$/],
    [{ lower: [lower], options: ["nonsense=1"] }, /EINVAL.*root: nonsense=1/],
    [{ lower: [lower], upper: `${directory}/none` }, /ENOENT.*none/],
  ] as const)
    expect(() => mountOverlay({ ...scratch, ...wrong }, target)).toThrow(reason);
  expect(isMounted(target)).toBe(false);
  expect(openDescriptors()).toBe(before);
});
