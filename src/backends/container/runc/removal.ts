import { rmdirSync, rmSync } from "node:fs";
import type { Cgroup } from "../../linux/cgroup.ts";
import { removeCgroup } from "../../linux/cgroup-removal.ts";
import { isErrno } from "../../linux/libc.ts";
import { listMounts, unmountIfMounted } from "../../linux/mount.ts";
import { type ProcessIdentity, signalProcess } from "../../linux/process.ts";
import type { SandboxPaths } from "./sandbox-paths.ts";

const SIGKILL = 9;

/**
 * Kills every process of a sandbox, confirms that none is left, and removes what this engine made for it. Idempotent, for a
 * sandbox in any state, half-made ones included.
 *
 * @param init the agent's process; with it go all others of its process namespace
 * @throws Error when processes cannot be killed
 */
export async function removeSandbox(
  paths: SandboxPaths,
  cgroup: Cgroup,
  init?: ProcessIdentity,
): Promise<void> {
  if (init !== undefined) signalProcess(init, SIGKILL);
  await removeCgroup(cgroup);
  removeTree(paths.state);
  removeTree(paths.bundle);
  rmSync(paths.socket, { force: true });
  try {
    rmdirSync(paths.directory);
  } catch (error) {
    // The daemon's part of the directory may still be there.
    if (!isErrno(error, "ENOENT", "ENOTEMPTY", "EBUSY")) throw error;
  }
}

/** A runtime that was killed at the wrong moment leaves a mount of its own binary below its state. */
function removeTree(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true });
  } catch (error) {
    if (!isErrno(error, "EBUSY")) throw error;
    for (const { target } of listMounts()) if (target.startsWith(`${path}/`)) unmountIfMounted(target);
    rmSync(path, { recursive: true, force: true });
  }
}
