import { readFile, statfs } from "node:fs/promises";
import { availableParallelism, freemem, totalmem } from "node:os";

/** The machine at one moment. Bytes and percent. */
export interface MachineSample {
  readonly cpus: number;
  readonly memoryBytes: number;
  readonly memoryAvailableBytes: number;
  readonly diskBytes: number;
  readonly diskAvailableBytes: number;
  /** PSI some avg10; undefined where the kernel has no PSI. */
  readonly pressure: { readonly cpu: number; readonly memory: number; readonly io: number } | undefined;
}

interface Disk {
  readonly totalBytes: number;
  readonly availableBytes: number;
}

/** @param disk measures the file system that sandboxes write to */
export async function sampleMachine(disk: () => Promise<Disk>): Promise<MachineSample> {
  const [meminfo, cpu, memory, io, { totalBytes, availableBytes }] = await Promise.all([
    readFile("/proc/meminfo", "utf8").catch(() => ""),
    pressureOf("cpu"),
    pressureOf("memory"),
    pressureOf("io"),
    disk(),
  ]);
  const hasPressure = cpu !== undefined && memory !== undefined && io !== undefined;
  return {
    cpus: availableParallelism(),
    memoryBytes: kibField(meminfo, "MemTotal") ?? totalmem(),
    memoryAvailableBytes: kibField(meminfo, "MemAvailable") ?? freemem(),
    diskBytes: totalBytes,
    diskAvailableBytes: availableBytes,
    pressure: hasPressure ? { cpu, memory, io } : undefined,
  };
}

/** The file system that holds `path`. */
export async function diskOf(path: string): Promise<Disk> {
  const { bsize, blocks, bavail } = await statfs(path);
  return { totalBytes: blocks * bsize, availableBytes: bavail * bsize };
}

async function pressureOf(resource: "cpu" | "memory" | "io"): Promise<number | undefined> {
  const text = await readFile(`/proc/pressure/${resource}`, "utf8").catch(() => "");
  const value = /^some avg10=([\d.]+)/m.exec(text)?.[1];
  return value === undefined ? undefined : Number(value);
}

function kibField(meminfo: string, name: string): number | undefined {
  const value = new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(meminfo)?.[1];
  return value === undefined ? undefined : Number(value) * 1024;
}

/** A sample that is at most `maxAgeMs` old; concurrent callers share one measurement. */
export class MachineSampler {
  readonly #disk: () => Promise<Disk>;
  readonly #now: () => number;
  readonly #maxAgeMs: number;
  #sample: { readonly at: number; readonly value: Promise<MachineSample> } | undefined;

  constructor(options: { disk: () => Promise<Disk>; now: () => number; maxAgeMs: number }) {
    this.#disk = options.disk;
    this.#now = options.now;
    this.#maxAgeMs = options.maxAgeMs;
  }

  async sample(): Promise<MachineSample> {
    const at = this.#now();
    if (this.#sample === undefined || at - this.#sample.at > this.#maxAgeMs || at < this.#sample.at)
      this.#sample = { at, value: sampleMachine(this.#disk) };
    return this.#sample.value;
  }
}
