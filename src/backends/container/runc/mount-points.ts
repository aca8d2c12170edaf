import { lstatSync } from "node:fs";
import { join } from "node:path";

/** Top-level directories that file systems of the sandbox's own are mounted on. */
export const mountPoints = ["dev", "proc", "sys"] as const;

/**
 * Refuses a root in which something else than a directory stands where file systems of the sandbox's own are mounted. Runtimes
 * write device links below /dev by its path on the host: an image with a symlink there would have them write outside of the
 * root.
 *
 * @throws Error that names the entry
 */
export function checkMountPoints(root: string): void {
  for (const name of mountPoints) {
    const status = lstatSync(join(root, name), { throwIfNoEntry: false });
    if (status !== undefined && !status.isDirectory())
      throw new Error(`/${name} of the image is not a directory`);
  }
}
