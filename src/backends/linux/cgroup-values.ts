/** What cores mean in the units of the two interfaces. */
import type { CgroupLimits } from "./cgroup.ts";

const sharesPerCore = 1024;
const leastShares = 2;
const mostShares = 262_144;
const mostWeight = 10_000;
const leastQuotaMicros = 1000;

/** Microseconds over which a CPU ceiling holds; the kernel's default. */
export const cpuPeriodMicros = 100_000;

/** cpu.shares of v1: 1,024 a core; the least possible for best-effort. */
export function cpuShares(limits: Pick<CgroupLimits, "cpus" | "class">): number {
  if (limits.class === "best-effort") return leastShares;
  return Math.min(mostShares, Math.max(leastShares, Math.round(limits.cpus * sharesPerCore)));
}

/** cpu.weight of v2, by the mapping that OCI runtimes use for shares. */
export function cpuWeight(limits: Pick<CgroupLimits, "cpus" | "class">): number {
  const span = (cpuShares(limits) - leastShares) * (mostWeight - 1);
  return 1 + Math.floor(span / (mostShares - leastShares));
}

/** Microseconds per {@link cpuPeriodMicros}; undefined for no ceiling. */
export function cpuQuotaMicros(cpuLimit: number | null): number | undefined {
  return cpuLimit === null ? undefined : Math.max(leastQuotaMicros, Math.round(cpuLimit * cpuPeriodMicros));
}
