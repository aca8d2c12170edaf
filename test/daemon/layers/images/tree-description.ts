import { createHash } from "node:crypto";
import { lstatSync, readdirSync, readFileSync, readlinkSync, type Stats } from "node:fs";
import { libcFunction } from "../../../../src/backends/linux/libc.ts";

const listXattrs = libcFunction<[Uint8Array, Uint8Array, number]>("llistxattr", [
  "const void *path",
  "void *list",
  "size_t size",
]);
const getXattr = libcFunction<[Uint8Array, string, Uint8Array, number]>("lgetxattr", [
  "const void *path",
  "const char *name",
  "void *value",
  "size_t size",
]);

/**
 * Everything that can be seen of a tree but times: a line for each path with type, mode, owner, target, device, size, content,
 * other names and extended attributes. Names are bytes, one character each.
 */
export function describeTree(root: string): Record<string, string> {
  const lines: Record<string, string> = {};
  const firstNames = new Map<number, string>();
  const visit = (path: string): void => {
    const full = Buffer.from(`${Buffer.from(root).toString("latin1")}/${path}`, "latin1");
    const found = lstatSync(full);
    lines[path] = describe(full, found);
    if (!found.isDirectory() && found.nlink > 1) {
      const first = firstNames.get(found.ino) ?? path;
      firstNames.set(found.ino, first);
      // names that are hidden count among a file's links, too
      if (first !== path) lines[path] += ` same-as=${first}`;
    }
    if (!found.isDirectory()) return;
    const names = readdirSync(full, { encoding: "buffer" }).map((name) => name.toString("latin1"));
    for (const name of names.sort()) visit(path === "" ? name : `${path}/${name}`);
  };
  visit("");
  return lines;
}

function describe(path: Buffer, found: Stats): string {
  const parts = [(found.mode >>> 0).toString(8), `${found.uid}:${found.gid}`];
  if (found.isSymbolicLink())
    parts.push(`-> ${readlinkSync(path, { encoding: "buffer" }).toString("latin1")}`);
  if (found.isCharacterDevice() || found.isBlockDevice()) parts.push(`device ${found.rdev}`);
  if (found.isFile()) {
    const hash =
      found.size > 1e9 ? "big" : createHash("sha256").update(readFileSync(path)).digest("hex").slice(0, 16);
    parts.push(`${found.size} bytes ${hash}`);
  }
  return [...parts, ...xattrsOf(path)].join(" ");
}

function xattrsOf(path: Buffer): string[] {
  const terminated = Buffer.concat([path, Buffer.alloc(1)]);
  const list = Buffer.alloc(65_536);
  const names = list.toString("latin1", 0, listXattrs(terminated, list, list.length)).split("\0");
  return names
    .filter((name) => name !== "" && !name.startsWith("trusted.overlay."))
    .sort()
    .map((name) => {
      const value = Buffer.alloc(65_536);
      const length = getXattr(terminated, name, value, value.length);
      return `${name}=${value.toString("hex", 0, length)}`;
    });
}
