import { setTimeout as sleep } from "node:timers/promises";
import type { Cgroup } from "../../linux/cgroup.ts";
import { isAlive, type ProcessIdentity } from "../../linux/process.ts";
import type { BackendEnd } from "../../backend.ts";

const pollsMs = [1, 4, 15, 50, 200, 500] as const;

/**
 * Why a sandbox's agent is gone, once its connection has closed. Processes are still exiting when their connections close, so this
 * waits up to a second for the agent to be dead.
 *
 * @param knownOomKills kills that the sandbox is known to have survived
 */
export async function explainEnd(
  init: ProcessIdentity,
  cgroup: Cgroup,
  knownOomKills: number,
): Promise<BackendEnd> {
  for (const pause of pollsMs) {
    if (!isAlive(init)) return explainDeath(cgroup, knownOomKills);
    await sleep(pause);
  }
  return {
    reason: "agent_lost",
    message: "the sandbox's agent closed its connection although it still runs",
  };
}

/** The same for an agent that is known to be dead. */
export function explainDeath(cgroup: Cgroup, knownOomKills: number): BackendEnd {
  const kills = cgroup.oomKills() - knownOomKills;
  if (kills > 0) return { reason: "oom", message: "the kernel killed the sandbox: it was out of memory" };
  return { reason: "agent_lost", message: "the sandbox's agent is dead" };
}
