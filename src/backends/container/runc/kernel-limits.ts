import { readFileSync } from "node:fs";
import type { BackendReport } from "../../../protocol/node.ts";

type Finding = BackendReport["findings"][number];

/**
 * Counted by user, and all sandboxes are root of this machine: one of them could take them all. What is asked for is what a
 * fleet's programs (editors, test watchers, `tail -f`) use with room to spare; the kernel's memory is charged to the sandbox.
 */
const limits = [
  { name: "fs.inotify.max_user_instances", needed: 8192, advised: 65_536 },
  { name: "fs.inotify.max_user_watches", needed: 131_072, advised: 4_194_304 },
] as const;

/** A warning for each limit of the kernel that is too low for a fleet. @param read the value of a sysctl */
export function kernelLimitFindings(read: (name: string) => number | undefined = readSysctl): Finding[] {
  return limits.flatMap(({ name, needed, advised }) => {
    const value = read(name);
    if (value === undefined || value >= needed) return [];
    const message = `${name} is ${value} for all sandboxes together: one can take them all`;
    return [{ level: "warning", message, fix: `sysctl -w ${name}=${advised}` }];
  });
}

function readSysctl(name: string): number | undefined {
  try {
    return Number(readFileSync(`/proc/sys/${name.replaceAll(".", "/")}`, "utf8"));
  } catch {
    return undefined;
  }
}
