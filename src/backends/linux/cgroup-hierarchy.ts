import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { CgroupHierarchy } from "./cgroup.ts";
import { childNames } from "./cgroup-files.ts";
import { CgroupV1 } from "./cgroup-v1.ts";
import { CgroupV2 } from "./cgroup-v2.ts";
import { listMounts, type MountInfo } from "./mount.ts";

const limiting = ["cpu", "cpuacct", "memory", "pids", "devices", "freezer"];

/** What sandboxes may be limited by. */
const wanted = ["cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer", "blkio"];

/**
 * Whether sandboxes get a group of their own in a v1 hierarchy. In cpuset and the like they have no use for one, and it costs. A named
 * hierarchy is how a service manager tells whom to end together with the daemon.
 */
function isJoined({ superOptions }: MountInfo): boolean {
  return superOptions.split(",").some((option) => limiting.includes(option) || option.startsWith("name="));
}

/**
 * Which control groups this machine has.
 *
 * @throws Error when none are mounted
 */
export function detectCgroups(mounts: readonly MountInfo[] = listMounts()): CgroupHierarchy {
  const v1 = mounts.filter((mount) => mount.type === "cgroup");
  const v2 = mounts.find((mount) => mount.type === "cgroup2");
  const controllers = new Map<string, string>();
  for (const mount of v1)
    for (const option of mount.superOptions.split(","))
      if (wanted.includes(option)) controllers.set(option, mount.target);
  if (controllers.size > 0) {
    const targets = [...v1, ...(v2 === undefined ? [] : [v2])].map((mount) => mount.target);
    const joined = [...v1.filter(isJoined), ...(v2 === undefined ? [] : [v2])].map((mount) => mount.target);
    const cgroup = (path: string) => new CgroupV1(path, controllers, targets, joined);
    return {
      mode: v2 === undefined ? "legacy" : "hybrid",
      controllers: new Set(controllers.keys()),
      swapAccounting: existsSync(join(controllers.get("memory") ?? "", "memory.memsw.limit_in_bytes")),
      cgroup,
      create: (path, limits) => cgroup(path).create(limits),
      children: (path) => [...new Set(targets.flatMap((target) => childNames(join(target, path))))],
    };
  }
  if (v2 === undefined) throw new Error("no control groups are mounted");
  return {
    mode: "unified",
    // The root has no such file; kernels with swap have it in every other group.
    swapAccounting: existsSync("/proc/swaps"),
    controllers: new Set(readFileSync(join(v2.target, "cgroup.controllers"), "utf8").trim().split(" ")),
    cgroup: (path) => new CgroupV2(path, v2.target),
    children: (path) => childNames(join(v2.target, path)),
  };
}
