import { existsSync } from "node:fs";
import { agentBinaryPath } from "../../../agent/agent-binary.ts";
import { DSecError } from "../../../protocol/errors.ts";
import { Capability, hasCapability } from "../../linux/capability.ts";
import type { CgroupHierarchy } from "../../linux/cgroup.ts";
import { detectCgroups } from "../../linux/cgroup-hierarchy.ts";
import { hardLimits, type ResourceLimitName } from "../../linux/resource-limits.ts";
import type { HostTraits } from "./oci-config.ts";
import { launcherPath } from "./launcher-path.ts";
import { findProgram, preferredRuntimes, type Runtime } from "./runtime.ts";

/** What this machine starts sandboxes with. */
export interface Host {
  readonly runtime: Runtime;
  readonly agentBinary: string;
  readonly cgroups: CgroupHierarchy;
  readonly traits: HostTraits;
}

const noLimits: Record<ResourceLimitName, number> = {
  RLIMIT_CORE: Infinity,
  RLIMIT_NOFILE: Infinity,
  RLIMIT_NPROC: Infinity,
  RLIMIT_SIGPENDING: Infinity,
};

/** Finds what a start needs. @throws DSecError `backend_unavailable` */
export function inspectHost(names = preferredRuntimes): Host {
  const cgroups = requireCgroups();
  const runtime = findRuntime(cgroups.mode, names);
  if (runtime === undefined)
    throw new DSecError("backend_unavailable", `${names.join(" or ")} is not installed`);
  const agentBinary = agentBinaryPath();
  if (!existsSync(agentBinary))
    throw new DSecError("backend_unavailable", `the agent has not been built: there is no ${agentBinary}`);
  const mayExceedLimits = hasCapability(Capability.sysResource);
  return {
    runtime,
    agentBinary,
    cgroups,
    traits: {
      cgroupMode: cgroups.mode,
      swapAccounting: cgroups.swapAccounting,
      canProtectFromOom: mayExceedLimits,
      highestLimits: mayExceedLimits ? noLimits : hardLimits(),
    },
  };
}

/** The first of `names` that is installed and works with the machine's control groups. */
export function findRuntime(
  cgroupMode: CgroupHierarchy["mode"],
  names = preferredRuntimes,
): Runtime | undefined {
  for (const name of names) {
    const program = findProgram(name);
    if (program === undefined) continue;
    // crun makes groups on the unified hierarchy only.
    const launcher = name === "crun" && cgroupMode !== "unified" ? launcherPath() : undefined;
    if (launcher === undefined || existsSync(launcher)) return { name, program, launcher };
  }
  return undefined;
}

function requireCgroups(): CgroupHierarchy {
  try {
    return detectCgroups();
  } catch (error) {
    throw new DSecError("backend_unavailable", "control groups cannot be used", { cause: error });
  }
}
