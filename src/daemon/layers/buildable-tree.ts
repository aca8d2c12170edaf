/** What a tree may have that a layer must not, or cannot, be made from. */
import { readdir } from "node:fs/promises";
import { isErrno, libcFunction } from "../../backends/linux/libc.ts";
import { DSecError } from "../../protocol/errors.ts";
import { throwIfCancelled } from "../resources/program.ts";
import { printable } from "./images/tar-header.ts";

const listXattr = libcFunction<[Uint8Array, Uint8Array, number]>("llistxattr", [
  "const void *path",
  "void *list",
  "size_t size",
]);
/** All that one file can have. */
const longestList = 65_536;
/** The others of an overlay, as its upper directory has them, lead nowhere. */
const following = new Set(["trusted.overlay.metacopy", "trusted.overlay.redirect"]);

/** Bytes of a name that mkfs.erofs of version 1.5 cuts off, to look for a file of that name. */
const nameCutOff = 255;
const slash = Buffer.from("/");

/**
 * Refuses attributes by which an overlay follows from a file to the content of another one: a layer would show other files than it has.
 *
 * @throws DSecError `invalid_argument` naming the file; `cancelled`
 */
export async function refuseOverlayAttributes(root: string, signal?: AbortSignal): Promise<void> {
  const list = Buffer.alloc(longestList);
  for await (const path of treePaths(Buffer.from(root))) {
    throwIfCancelled(signal);
    const found = attributesOf(path, list).find((name) => following.has(name));
    if (found === undefined) continue;
    const shown = printable(path.subarray(Buffer.byteLength(root) + 1).toString("latin1"));
    throw new DSecError(
      "invalid_argument",
      `'${shown}' has the attribute ${found}, by which a mount would show another file in its place; remove it (setfattr -x)`,
    );
  }
}

/** A name that mkfs.erofs may not have stored, if there is one. */
export async function findCutOffName(root: string): Promise<string | undefined> {
  for await (const path of treePaths(Buffer.from(root))) {
    const name = path.subarray(path.lastIndexOf("/") + 1);
    if (name.length === nameCutOff) return printable(name.toString("latin1"));
  }
  return undefined;
}

function attributesOf(path: Buffer, list: Buffer): string[] {
  try {
    const length = listXattr(Buffer.concat([path, Buffer.alloc(1)]), list, list.length);
    return list.toString("latin1", 0, length).split("\0").slice(0, -1);
  } catch (error) {
    // A file system without attributes.
    if (isErrno(error, "ENOTSUP", "EOPNOTSUPP")) return [];
    throw error;
  }
}

/** Everything below a directory, and itself. No symlink is followed. */
async function* treePaths(root: Buffer): AsyncGenerator<Buffer> {
  yield root;
  const pending = [root];
  for (let at = pending.pop(); at !== undefined; at = pending.pop())
    for (const entry of await readdir(at, { encoding: "buffer", withFileTypes: true })) {
      const path = Buffer.concat([at, slash, entry.name]);
      yield path;
      if (entry.isDirectory()) pending.push(path);
    }
}
