import { readFileSync, writeFileSync } from "node:fs";

/** Resident memory of a process, MiB: now, or the most it had since the last {@link resetPeak}. */
export function memoryOf(pid: number, field: "VmHWM" | "VmRSS"): number {
  const match = new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Number(match?.[1]) / 1024;
}

/** The peak counts from here on. */
export function resetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, "5");
}

/** The most memory, in MiB, that `work` made a process take at a time beyond what it had. */
export async function growthOf(pid: number, work: () => Promise<void>): Promise<number> {
  resetPeak(pid);
  const before = memoryOf(pid, "VmRSS");
  await work();
  return memoryOf(pid, "VmHWM") - before;
}
