import { execFileSync } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { RootedDirectory } from "../../../src/backends/linux/rooted-directory.ts";

let base: string;
let root: string;
let outside: string;

beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), "dsec-rooted-"));
  root = join(base, "root");
  outside = join(base, "outside");
  mkdirSync(join(root, "etc"), { recursive: true });
  mkdirSync(outside);
});

afterEach(() => {
  rmSync(base, { recursive: true });
});

test("a file is put below the root", () => {
  using directory = new RootedDirectory(root, "etc");
  directory.replaceFile("hosts", "content");
  expect(readdirSync(join(root, "etc"))).toEqual(["hosts"]);
  expect(readFileSync(join(root, "etc/hosts"), "utf8")).toBe("content");
});

test("whoever lives in the root may read it, whatever this process's umask", () => {
  const before = process.umask(0o077);
  try {
    using directory = new RootedDirectory(root, "etc");
    directory.replaceFile("hosts", "content");
  } finally {
    process.umask(before);
  }
  expect(statSync(join(root, "etc/hosts")).mode & 0o7777).toBe(0o644);
});

test("a directory that is a symlink leads nowhere but into the root", () => {
  rmSync(join(root, "etc"), { recursive: true });
  symlinkSync(outside, join(root, "etc"));
  expect(() => new RootedDirectory(root, "etc")).toThrow(
    expect.objectContaining({ code: "ENOENT", syscall: "openat2" }),
  );
  mkdirSync(join(root, outside), { recursive: true });
  using directory = new RootedDirectory(root, "etc");
  directory.replaceFile("hosts", "content");
  expect(readdirSync(outside)).toEqual([]);
  expect(readFileSync(join(root, outside, "hosts"), "utf8")).toBe("content");
});

test("a climbing path ends at the root", () => {
  symlinkSync("../../../../outside", join(root, "up"));
  expect(() => new RootedDirectory(root, "up")).toThrow(expect.objectContaining({ code: "ENOENT" }));
  expect(() => new RootedDirectory(root, "../../outside")).toThrow(
    expect.objectContaining({ code: "ENOENT" }),
  );
});

test("a symlink, a FIFO or a device in the file's place is replaced, not followed", () => {
  const target = join(outside, "target");
  writeFileSync(target, "untouched");
  symlinkSync(target, join(root, "etc/hosts"));
  execFileSync("mkfifo", [join(root, "etc/hostname")]);
  using directory = new RootedDirectory(root, "etc");
  for (const name of ["hosts", "hostname"]) {
    directory.replaceFile(name, "new");
    expect(readFileSync(join(root, "etc", name), "utf8")).toBe("new");
  }
  expect(readFileSync(target, "utf8")).toBe("untouched");
});

test("a directory in the file's place is an error and nothing is left", () => {
  mkdirSync(join(root, "etc/hosts"));
  using directory = new RootedDirectory(root, "etc");
  expect(() => directory.replaceFile("hosts", "new")).toThrow(expect.objectContaining({ code: "EISDIR" }));
  expect(() => directory.replaceFile("../hosts", "new")).toThrow(RangeError);
  expect(readdirSync(join(root, "etc"))).toEqual(["hosts"]);
});
