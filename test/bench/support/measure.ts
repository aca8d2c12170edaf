/** Percentiles, a bounded-concurrency runner and a machine reading, shared by the benchmarks. Times are milliseconds. */
import { readFileSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";

export interface Sample {
  readonly count: number;
  readonly failed: number;
  readonly perSecond: number;
  readonly p50: number;
  readonly p99: number;
}

/** The value below which the fraction `q` of the sorted `values` lies. */
export function quantile(values: readonly number[], q: number): number {
  if (values.length === 0) return Number.NaN;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
}

/** Runs `task` `count` times, `concurrency` at once. A task that throws counts as failed; the first error is passed to `onError`. */
export async function sample(
  count: number,
  concurrency: number,
  task: (index: number) => Promise<void>,
  onError: (error: unknown) => void = () => {},
): Promise<Sample> {
  const times: number[] = [];
  let failed = 0;
  let next = 0;
  const began = performance.now();
  const worker = async (): Promise<void> => {
    while (next < count) {
      const index = next++;
      const start = performance.now();
      try {
        await task(index);
        times.push(performance.now() - start);
      } catch (error) {
        if (failed++ === 0) onError(error);
      }
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  const seconds = (performance.now() - began) / 1000;
  return {
    count,
    failed,
    perSecond: times.length / seconds,
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
  };
}

/** Memory the whole machine could still hand out, bytes. */
export function availableMemory(): number {
  const match = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync("/proc/meminfo", "utf8"));
  if (match?.[1] === undefined) throw new Error("no MemAvailable in /proc/meminfo");
  return Number(match[1]) * 1024;
}

/** One line that names the machine a result was measured on. */
export function machine(): string {
  return `${cpus().length} × ${cpus()[0]?.model ?? "unknown CPU"}, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release()}, Node ${process.version}`;
}
