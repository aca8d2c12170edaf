/** A sandbox's control group, the same on both versions of the interface. Reads and writes are synchronous: some 20 µs a file. */
import type { ResourceClass } from "../../protocol/sandbox.ts";

export interface CgroupLimits {
  /** Bytes, page cache included. Swap beyond it is not usable. */
  readonly memoryBytes: number;
  /** Cores asked for: a weight, not a ceiling. */
  readonly cpus: number;
  /** Ceiling in cores; null for none. */
  readonly cpuLimit: number | null;
  readonly pids: number;
  readonly class: ResourceClass;
}

export interface CgroupUsage {
  /** Bytes that cannot be had back for the asking: without inactive page cache. */
  readonly memoryBytes: number;
  /** Seconds, since the group was made. */
  readonly cpuSeconds: number;
  readonly pids: number;
  /** Processes that the kernel killed for memory in this group. */
  readonly oomKills: number;
}

export interface Cgroup {
  /** Below the hierarchies' roots, e.g. `/dsec/node-abc`. */
  readonly path: string;
  /** @throws Error ENOENT when the group is gone */
  usage(): CgroupUsage;
  /** As {@link usage}; 0 when the group is gone. */
  oomKills(): number;
  /** Of every hierarchy, without duplicates; empty when the group is gone. */
  processes(): number[];
  /**
   * All or nothing.
   *
   * @throws LinuxError or Error with code EBUSY when memory in use exceeds the limit asked for
   */
  setLimits(limits: Partial<CgroupLimits>): void;
  /** Kills what is in it now; see {@link removeCgroup} for certainty. Returns how many processes were found. */
  kill(): number;
  /** The group's directories that exist, deepest first in each hierarchy. */
  directories(): string[];
}

export interface CgroupHierarchy {
  /** `unified`: v2 only. `hybrid`: v1 controllers with a v2 hierarchy beside them. `legacy`: v1 only. */
  readonly mode: "unified" | "hybrid" | "legacy";
  /** Controllers that sandboxes can be limited by. */
  readonly controllers: ReadonlySet<string>;
  /** Whether swap can be limited: without it what a sandbox swaps out does not count. */
  readonly swapAccounting: boolean;
  /** @param path absolute, below the hierarchies' roots */
  cgroup(path: string): Cgroup;
  /**
   * Makes the group at `path` with its limits; only there where it takes files alone. On the unified hierarchy rules about
   * devices are programs, which runtimes bring.
   *
   * @returns files that a process writes `0` to, each once, to live in the group
   */
  readonly create?: (path: string, limits: CgroupLimits) => readonly string[];
  /** Names of the groups directly below `path`, in any hierarchy. */
  children(path: string): string[];
}
