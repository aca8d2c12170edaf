import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Cgroup, CgroupLimits, CgroupUsage } from "./cgroup.ts";
import { descendants, keyedValue, killMembers, oomKillsIn, readProcesses, writeAll } from "./cgroup-files.ts";
import { cpuPeriodMicros, cpuQuotaMicros, cpuShares } from "./cgroup-values.ts";

const nanosPerSecond = 1e9;
/** Of buffers of sockets; runtimes no longer write it. */
const socketLimit = "memory.kmem.tcp.limit_in_bytes";

/** What every container may use and make: null, zero, full, random, urandom, tty, ptmx, terminals; any node may be made by those who may. */
const devices = [
  ...["1:3", "1:5", "1:7", "1:8", "1:9", "5:0", "5:2", "136:*"].map((device) => `c ${device} rwm`),
  "c *:* m",
  "b *:* m",
];

/** A group of the v1 interface: one directory per mounted hierarchy, an empty v2 hierarchy included. */
export class CgroupV1 implements Cgroup {
  readonly path: string;
  readonly #controllers: ReadonlyMap<string, string>;
  readonly #mounts: readonly string[];
  readonly #joined: readonly string[];

  /**
   * @param controllers mount point by controller
   * @param mounts every hierarchy's mount point
   * @param joined those of the hierarchies that {@link create} makes the group in
   */
  constructor(
    path: string,
    controllers: ReadonlyMap<string, string>,
    mounts: readonly string[],
    joined: readonly string[],
  ) {
    this.path = path;
    this.#controllers = controllers;
    this.#mounts = mounts;
    this.#joined = joined;
  }

  /**
   * Makes the group in the hierarchies that sandboxes are limited or told apart by, and the one above it.
   *
   * @returns its cgroup.procs files: who is to live in it writes itself into each
   */
  create(limits: CgroupLimits): readonly string[] {
    for (const mount of this.#joined) mkdirSync(join(mount, this.path), { recursive: true });
    if (this.#controllers.has("devices")) {
      writeFileSync(this.#file("devices", "devices.deny"), "a");
      for (const device of devices) writeFileSync(this.#file("devices", "devices.allow"), device);
    }
    for (const { path, value } of [...this.#memoryFiles(limits), ...this.#otherFiles(limits)])
      writeFileSync(path, value);
    return this.#joined.map((mount) => join(mount, this.path, "cgroup.procs"));
  }

  usage(): CgroupUsage {
    const inactive = keyedValue(this.#read("memory", "memory.stat"), "total_inactive_file");
    return {
      memoryBytes:
        Math.max(0, Number(this.#read("memory", "memory.usage_in_bytes")) - inactive) + this.#socketBytes(),
      cpuSeconds: Number(this.#read("cpuacct", "cpuacct.usage")) / nanosPerSecond,
      pids: Number(this.#read("pids", "pids.current")),
      oomKills: keyedValue(this.#read("memory", "memory.oom_control"), "oom_kill"),
    };
  }

  oomKills(): number {
    return oomKillsIn(() => this.#read("memory", "memory.oom_control"));
  }

  processes(): number[] {
    return [...new Set(this.directories().flatMap(readProcesses))];
  }

  setLimits(limits: Partial<CgroupLimits>): void {
    writeAll([...this.#memoryFiles(limits), ...this.#otherFiles(limits)]);
  }

  kill(): number {
    return killMembers(() => this.processes());
  }

  directories(): string[] {
    return this.#mounts.flatMap((mount) => descendants(join(mount, this.path)));
  }

  /** The limit with swap may never be below the one without: the order follows from whether the limit rises. */
  #memoryFiles({ memoryBytes }: Partial<CgroupLimits>): { path: string; value: string }[] {
    if (memoryBytes === undefined) return [];
    const memory = this.#file("memory", "memory.limit_in_bytes");
    const withSwap = this.#file("memory", "memory.memsw.limit_in_bytes");
    const paths = existsSync(withSwap) ? [memory, withSwap] : [memory];
    if (Number(readFileSync(memory, "utf8")) < memoryBytes) paths.reverse();
    // What lies in the buffers of TCP and UDP sockets counts nowhere until it has a limit, which is a separate one here.
    const sockets = this.#file("memory", socketLimit);
    if (existsSync(sockets)) paths.push(sockets);
    return paths.map((path) => ({ path, value: String(memoryBytes) }));
  }

  #otherFiles(limits: Partial<CgroupLimits>): { path: string; value: string }[] {
    const files: { path: string; value: string }[] = [];
    if (limits.cpus !== undefined) {
      const shares = cpuShares({ cpus: limits.cpus, class: limits.class ?? "latency-sensitive" });
      files.push({ path: this.#file("cpu", "cpu.shares"), value: String(shares) });
    }
    if (limits.cpuLimit !== undefined) {
      files.push({ path: this.#file("cpu", "cpu.cfs_period_us"), value: String(cpuPeriodMicros) });
      files.push({
        path: this.#file("cpu", "cpu.cfs_quota_us"),
        value: String(cpuQuotaMicros(limits.cpuLimit) ?? -1),
      });
    }
    if (limits.pids !== undefined)
      files.push({ path: this.#file("pids", "pids.max"), value: String(limits.pids) });
    return files;
  }

  #socketBytes(): number {
    const path = this.#file("memory", "memory.kmem.tcp.usage_in_bytes");
    return existsSync(path) ? Number(readFileSync(path, "utf8")) : 0;
  }

  #file(controller: string, name: string): string {
    const mount = this.#controllers.get(controller);
    if (mount === undefined) throw new Error(`the ${controller} controller is not mounted`);
    return join(mount, this.path, name);
  }

  #read(controller: string, name: string): string {
    return readFileSync(this.#file(controller, name), "utf8");
  }
}
