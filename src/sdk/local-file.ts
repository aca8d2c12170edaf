/** Making files of this machine, by descriptor: a FileHandle is watched for being forgotten, which costs more than writing a small file. */
import { close, fchmod, fchown, futimes, open, write } from "node:fs";
import { link, rename, unlink } from "node:fs/promises";
import { randomBytes } from "node:crypto";
import { promisify } from "node:util";
import type { TarMember } from "../protocol/tar-member.ts";

/** What a file or a directory is to be. */
export type Description = Pick<TarMember, "mode" | "uid" | "gid" | "mtimeMs">;

const openFile = promisify(open);
const writeFile = promisify(write);
const changeOwner = promisify(fchown);
const changeMode = promisify(fchmod);
const changeTimes = promisify(futimes);
const closeFile = promisify(close);

const unique = randomBytes(8).toString("hex");
let drafts = 0;

/** Makes something under a name of its own beside `path`, then renames it. Nothing stays when that fails. */
export async function replaceBy(path: Buffer, make: (draft: Buffer) => Promise<void>): Promise<void> {
  const draft = draftOf(path);
  try {
    await make(draft);
    await rename(draft, path);
  } catch (error) {
    await unlink(draft).catch(() => undefined);
    throw error;
  }
}

/** Makes `path` another name of a file. */
export async function linkAs(from: Buffer, path: Buffer): Promise<void> {
  const draft = draftOf(path);
  try {
    await link(from, draft);
    await rename(draft, path);
  } finally {
    // also after a rename, which does nothing between two names of one file
    await unlink(draft).catch(() => undefined);
  }
}

function draftOf(path: Buffer): Buffer {
  drafts += 1;
  const directory = path.subarray(0, path.lastIndexOf(0x2f) + 1);
  return Buffer.concat([directory, Buffer.from(`.dsec-${unique}-${drafts}.tmp`)]);
}

/** A new file of a content that is there already. @param owners whether owner and set-id bits are kept */
export async function writeNew(
  path: Buffer,
  content: Buffer,
  description: Description,
  owners: boolean,
): Promise<void> {
  const fd = await openFile(path, "wx", 0o600);
  try {
    for (let at = 0; at < content.length;)
      at += (await writeFile(fd, content, at, content.length - at, at)).bytesWritten;
    await describe(fd, description, owners);
  } finally {
    await closeFile(fd);
  }
}

export async function describe(
  fd: number,
  { mode, uid, gid, mtimeMs }: Description,
  owners: boolean,
): Promise<void> {
  if (owners) await changeOwner(fd, uid, gid);
  // after the owner, as changing that takes set-id bits away
  await changeMode(fd, mode & (owners ? 0o7777 : 0o1777));
  await changeTimes(fd, mtimeMs / 1000, mtimeMs / 1000);
}
