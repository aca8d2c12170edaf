import { link, open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";

/** Makes a file's content survive a crash of the machine. */
export async function syncFile(path: string): Promise<void> {
  const file = await open(path, "r");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Puts the synced file `from` at `to`, replacing what is there; atomic and durable. Both must be on one file system. */
export async function moveDurably(from: string, to: string): Promise<void> {
  await syncFile(from);
  await rename(from, to);
  await syncFile(dirname(to));
}

/**
 * Writes `content` at `to` unless a file is there, in one step that readers see whole or not at all.
 *
 * @param scratch a path of the same file system that is nobody else's
 * @returns whether this call made it
 */
export async function createDurably(
  to: string,
  content: string | Uint8Array,
  scratch: string,
): Promise<boolean> {
  await writeScratch(scratch, content);
  try {
    // link(2) fails where the name exists; rename(2) would replace it.
    await link(scratch, to);
  } catch (error) {
    if (isErrno(error, "EEXIST")) return false;
    throw error;
  } finally {
    await rm(scratch, { force: true });
  }
  await syncFile(dirname(to));
  return true;
}

/** Writes `content` at `to`, replacing what is there; atomic and durable. */
export async function replaceDurably(
  to: string,
  content: string | Uint8Array,
  scratch: string,
): Promise<void> {
  await writeScratch(scratch, content);
  try {
    await moveDurably(scratch, to);
  } catch (error) {
    await rm(scratch, { force: true });
    throw error;
  }
}

async function writeScratch(path: string, content: string | Uint8Array): Promise<void> {
  const file = await open(path, "wx", 0o644);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
}
