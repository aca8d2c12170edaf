import { readFileSync } from "node:fs";
import { posix } from "node:path";
import { CgroupV1 } from "../../linux/cgroup-v1.ts";
import { CgroupV2 } from "../../linux/cgroup-v2.ts";
import type { Cgroup } from "../../linux/cgroup.ts";
import { isErrno } from "../../linux/libc.ts";
import { listMounts, type MountInfo } from "../../linux/mount.ts";

/** One line of /proc/<pid>/cgroup: where a process is in one hierarchy. */
interface Membership {
  /** Empty for the unified hierarchy. */
  readonly controllers: readonly string[];
  readonly path: string;
}

/** The control group of a container, given its first process. Undefined when that process is gone or another's. */
export function containerCgroup(containerId: string, pid: number): Cgroup | undefined {
  const memberships = readMemberships(pid).filter(({ path }) => path.includes(containerId));
  const mounts = listMounts();
  if (memberships.some(({ controllers }) => controllers.includes("memory"))) {
    return versionOne(memberships, mounts);
  }
  const unified = memberships.find(({ controllers }) => controllers.length === 0);
  const mount = mounts.find(({ type }) => type === "cgroup2");
  return unified === undefined || mount === undefined ? undefined : new CgroupV2(unified.path, mount.target);
}

/** Whether a process is one of the container's. */
export function isInContainer(containerId: string, pid: number): boolean {
  return readMemberships(pid).some(({ path }) => path.includes(containerId));
}

/** Docker may put a container below its own group, which differs from hierarchy to hierarchy: only the last name is the same. */
function versionOne(memberships: readonly Membership[], mounts: readonly MountInfo[]): Cgroup | undefined {
  const controllers = new Map<string, string>();
  const parents: string[] = [];
  let name: string | undefined;
  for (const membership of memberships) {
    const [first] = membership.controllers;
    const mount = mounts.find(({ type, superOptions }) =>
      first === undefined ? type === "cgroup2" : type === "cgroup" && superOptions.split(",").includes(first),
    );
    if (mount === undefined) continue;
    const parent = posix.join(mount.target, posix.dirname(membership.path));
    parents.push(parent);
    for (const controller of membership.controllers) controllers.set(controller, parent);
    name = posix.basename(membership.path);
  }
  return name === undefined ? undefined : new CgroupV1(`/${name}`, controllers, parents, []);
}

function readMemberships(pid: number): Membership[] {
  try {
    return parseMemberships(readFileSync(`/proc/${pid}/cgroup`, "utf8"));
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH")) return [];
    throw error;
  }
}

function parseMemberships(text: string): Membership[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const [, controllers = "", ...path] = line.split(":");
      return { controllers: controllers.split(",").filter((name) => name !== ""), path: path.join(":") };
    });
}
