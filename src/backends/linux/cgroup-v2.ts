import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Cgroup, CgroupLimits, CgroupUsage } from "./cgroup.ts";
import { descendants, keyedValue, killMembers, oomKillsIn, readProcesses, writeAll } from "./cgroup-files.ts";
import { cpuPeriodMicros, cpuQuotaMicros, cpuWeight } from "./cgroup-values.ts";
import { isErrno, LinuxError } from "./libc.ts";

const microsPerSecond = 1e6;
const EBUSY = 16;

/** A group of the unified hierarchy. */
export class CgroupV2 implements Cgroup {
  readonly path: string;
  readonly #directory: string;

  /** @param mount where the hierarchy is mounted */
  constructor(path: string, mount: string) {
    this.path = path;
    this.#directory = join(mount, path);
  }

  usage(): CgroupUsage {
    const inactive = keyedValue(this.#read("memory.stat"), "inactive_file");
    return {
      memoryBytes: Math.max(0, Number(this.#read("memory.current")) - inactive),
      cpuSeconds: keyedValue(this.#read("cpu.stat"), "usage_usec") / microsPerSecond,
      pids: Number(this.#read("pids.current")),
      oomKills: keyedValue(this.#read("memory.events"), "oom_kill"),
    };
  }

  oomKills(): number {
    return oomKillsIn(() => this.#read("memory.events"));
  }

  processes(): number[] {
    return [...new Set(this.directories().flatMap(readProcesses))];
  }

  setLimits(limits: Partial<CgroupLimits>): void {
    const files: { path: string; value: string }[] = [];
    if (limits.memoryBytes !== undefined) {
      this.#makeRoom(limits.memoryBytes);
      files.push({ path: this.#file("memory.max"), value: String(limits.memoryBytes) });
      if (existsSync(this.#file("memory.swap.max")))
        files.push({ path: this.#file("memory.swap.max"), value: "0" });
    }
    if (limits.cpus !== undefined)
      files.push(...this.#cpuFiles(limits.cpus, limits.class ?? "latency-sensitive"));
    if (limits.cpuLimit !== undefined) {
      const quota = cpuQuotaMicros(limits.cpuLimit) ?? "max";
      files.push({ path: this.#file("cpu.max"), value: `${quota} ${cpuPeriodMicros}` });
    }
    if (limits.pids !== undefined) files.push({ path: this.#file("pids.max"), value: String(limits.pids) });
    writeAll(files);
  }

  kill(): number {
    const found = this.processes().length;
    if (found === 0) return 0;
    try {
      writeFileSync(this.#file("cgroup.kill"), "1");
      return found;
    } catch (error) {
      // Linux before 5.14 has no cgroup.kill.
      if (isErrno(error, "ENOENT", "EACCES")) return killMembers(() => this.processes());
      throw error;
    }
  }

  directories(): string[] {
    return descendants(this.#directory);
  }

  /** An idle group has no weight to set. */
  #cpuFiles(cpus: number, resourceClass: CgroupLimits["class"]): { path: string; value: string }[] {
    const idle = this.#file("cpu.idle");
    const weight = {
      path: this.#file("cpu.weight"),
      value: String(cpuWeight({ cpus, class: resourceClass })),
    };
    if (!existsSync(idle)) return [weight];
    if (resourceClass === "best-effort") return [{ path: idle, value: "1" }];
    return [{ path: idle, value: "0" }, weight];
  }

  /** A limit below what is in use would have the kernel kill; v1 refuses it, and so does this. */
  #makeRoom(memoryBytes: number): void {
    const excess = Number(this.#read("memory.current")) - memoryBytes;
    if (excess <= 0) return;
    try {
      writeFileSync(this.#file("memory.reclaim"), String(excess));
    } catch (error) {
      // EAGAIN: less could be reclaimed. ENOENT, EACCES: Linux before 5.19.
      if (!isErrno(error, "EAGAIN", "ENOENT", "EACCES")) throw error;
    }
    if (Number(this.#read("memory.current")) > memoryBytes)
      throw new LinuxError("memory.max", EBUSY, this.path);
  }

  #file(name: string): string {
    return join(this.#directory, name);
  }

  #read(name: string): string {
    return readFileSync(this.#file(name), "utf8");
  }
}
