/** For `dsec doctor` where no daemon runs: what a node finds out by trying. */
import { realpathSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { btrfsMagic, type Finding } from "./open-scratch.ts";
import { findProgram } from "./program.ts";

/** A finding for each program that containers need here, whatever their runtime, and that is missing. */
export async function missingPrograms(dataDir: string): Promise<Finding[]> {
  const needed = (await isOnBtrfs(dataDir)) ? ["nft"] : ["nft", "mkfs.btrfs", "losetup"];
  return needed.flatMap((name) => {
    const path = findProgram(name);
    if (path !== undefined && !isBusybox(path)) return [];
    const message =
      path === undefined ? `${name} is not installed` : `${path} is busybox's, which lacks much`;
    return [{ level: "error", message, fix: "npm run setup" }];
  });
}

/** A directory that is yet to be made will be on the file system of the one that it will be in. */
async function isOnBtrfs(directory: string): Promise<boolean> {
  try {
    return (await statfs(directory)).type === btrfsMagic;
  } catch (error) {
    if (isErrno(error, "ENOENT") && dirname(directory) !== directory) return isOnBtrfs(dirname(directory));
    return false;
  }
}

function isBusybox(path: string): boolean {
  return basename(realpathSync(path)).startsWith("busybox");
}
