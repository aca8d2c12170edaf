import { readFileSync } from "node:fs";

/** Names of setrlimit(2)'s limits and how /proc calls them. */
const rows = {
  RLIMIT_CORE: "Max core file size",
  RLIMIT_NOFILE: "Max open files",
  RLIMIT_NPROC: "Max processes",
  RLIMIT_SIGPENDING: "Max pending signals",
} as const;

export type ResourceLimitName = keyof typeof rows;

/** This process's hard limits: what it may hand down without CAP_SYS_RESOURCE. Infinity for none. */
export function hardLimits(
  text: string = readFileSync("/proc/self/limits", "utf8"),
): Record<ResourceLimitName, number> {
  const read = (name: ResourceLimitName): number => {
    const hard = new RegExp(String.raw`^${rows[name]}\s+\S+\s+(\d+|unlimited)`, "m").exec(text)?.[1];
    if (hard === undefined) throw new Error(`/proc/self/limits has no '${rows[name]}'`);
    return hard === "unlimited" ? Infinity : Number(hard);
  };
  return {
    RLIMIT_CORE: read("RLIMIT_CORE"),
    RLIMIT_NOFILE: read("RLIMIT_NOFILE"),
    RLIMIT_NPROC: read("RLIMIT_NPROC"),
    RLIMIT_SIGPENDING: read("RLIMIT_SIGPENDING"),
  };
}
