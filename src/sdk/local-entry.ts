/** What is at a path of this machine, as far as an archive wants to know. */
import { closeSync, constants, fstatSync, open, read, type Stats } from "node:fs";
import { lstat, readlink } from "node:fs/promises";
import { promisify } from "node:util";
import { DSecError } from "../protocol/errors.ts";

/** Files of at most so many bytes are read with their description. */
const smallBytes = 65_536;

export type LocalEntry =
  | { readonly type: "directory"; readonly stats: Stats }
  | { readonly type: "symlink"; readonly stats: Stats; readonly link: Buffer }
  /** Without its content where that is large. */
  | { readonly type: "file"; readonly stats: Stats; readonly content: Buffer | undefined }
  /** A device, a FIFO, a socket. */
  | { readonly type: "other" };

export const readFlags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

// By descriptor: a FileHandle is watched for being forgotten. What no disk is asked for is not worth a thread. Together that is two
// thirds of what a small file costs.
const openFile = promisify(open);
const readFile = promisify(read);

/** @param seenAsFile whether it was one a moment ago; else that is found out */
export async function lookAt(path: Buffer, seenAsFile: boolean): Promise<LocalEntry> {
  if (seenAsFile) return lookAtFile(path);
  const stats = await lstat(path);
  if (stats.isFile()) return lookAtFile(path);
  if (stats.isDirectory()) return { type: "directory", stats };
  if (!stats.isSymbolicLink()) return { type: "other" };
  return { type: "symlink", stats, link: await readlink(path, { encoding: "buffer" }) };
}

async function lookAtFile(path: Buffer): Promise<LocalEntry> {
  const fd = await openFile(path, readFlags);
  try {
    const stats = fstatSync(fd);
    // something else has taken its place
    if (!stats.isFile()) return { type: "other" };
    const content = stats.size > smallBytes ? undefined : await readWhole(fd, stats.size, path);
    return { type: "file", stats, content };
  } finally {
    closeSync(fd);
  }
}

async function readWhole(fd: number, size: number, path: Buffer): Promise<Buffer> {
  const content = Buffer.allocUnsafe(size);
  for (let have = 0; have < size;) {
    const { bytesRead } = await readFile(fd, content, have, size - have, have);
    if (bytesRead === 0) throw becameShorter(path);
    have += bytesRead;
  }
  return content;
}

/** Its size was promised already. */
export function becameShorter(path: Buffer): DSecError {
  return new DSecError("file_error", `${path.toString()} became shorter while it was read`);
}
