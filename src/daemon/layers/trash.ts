import { link, mkdir, rename, rm, utimes } from "node:fs/promises";
import { dirname } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import type { StorePaths } from "./store-paths.ts";

/** Takes a blob or manifest out of use, in one step; it can be had back until it is removed. Returns whether it was there. */
export async function setAside(paths: StorePaths, path: string, now: number): Promise<boolean> {
  const aside = paths.aside(path);
  await mkdir(dirname(aside), { recursive: true });
  try {
    await rename(path, aside);
    // Its age from now on is the time it has been waiting.
    await utimes(aside, now / 1000, now / 1000);
    return true;
  } catch (error) {
    // Another prune was faster, or somebody has it back already.
    if (isErrno(error, "ENOENT")) return false;
    throw error;
  }
}

/**
 * Puts back what a prune set aside. Readers do so when they miss a file: a prune that is killed half-way may leave one aside
 * that is needed. Returns whether the file is in its place.
 */
export async function bringBack(paths: StorePaths, path: string): Promise<boolean> {
  const aside = paths.aside(path);
  try {
    // A link, so that a removal at the same time takes one of two names, or nothing was brought back.
    await link(aside, path);
  } catch (error) {
    if (isErrno(error, "ENOENT", "EROFS", "EACCES", "EPERM", "ENOSYS")) return false;
    if (!isErrno(error, "EEXIST")) throw error;
  }
  await rm(aside, { force: true });
  return true;
}
