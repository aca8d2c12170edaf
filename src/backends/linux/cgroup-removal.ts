import { rmdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { Cgroup } from "./cgroup.ts";
import { isErrno } from "./libc.ts";

const firstWaitMs = 1;
const longestWaitMs = 50;
const deadlineMs = 10_000;

/**
 * Kills whatever is in the group until it is empty in every hierarchy, then removes it. Idempotent.
 *
 * @throws Error when processes remain after ten seconds, e.g. stuck in the kernel
 */
export async function removeCgroup(cgroup: Cgroup): Promise<void> {
  let waitMs = firstWaitMs;
  let waitedMs = 0;
  while (!tryRemove(cgroup)) {
    if (waitedMs >= deadlineMs) {
      const left = cgroup.processes().slice(0, 8).join(", ");
      throw new Error(
        `control group ${cgroup.path} cannot be removed; it holds processes: ${left || "none"}`,
      );
    }
    await sleep(waitMs);
    waitedMs += waitMs;
    waitMs = Math.min(longestWaitMs, waitMs * 2);
  }
}

/** The kernel removes empty groups only, so each removal confirms that nothing is left in it. */
function tryRemove(cgroup: Cgroup): boolean {
  try {
    for (const directory of cgroup.directories()) rmdirSync(directory);
    return true;
  } catch (error) {
    // Gone: someone else removes it, too.
    if (!isErrno(error, "EBUSY", "ENOTEMPTY", "ENOENT")) throw error;
  }
  cgroup.kill();
  return false;
}
