import { readdirSync, readFileSync } from "node:fs";

export interface ProcessState {
  readonly pid: number;
  readonly state: string;
  readonly parent: number;
}

/** Undefined when there is no such process. */
export function processState(pid: number): ProcessState | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const [state = "", parent = ""] = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return { pid, state, parent: Number(parent) };
  } catch {
    return undefined;
  }
}

export function isAlive(pid: number): boolean {
  const state = processState(pid)?.state;
  return state !== undefined && state !== "Z" && state !== "X";
}

export function childrenOf(parent: number): ProcessState[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => processState(Number(name)))
    .filter((process) => process !== undefined)
    .filter((process) => process.parent === parent);
}

/** A line of /proc/PID/smaps_rollup, in bytes. */
export function memoryOf(pid: number, line: "Rss" | "Private_Dirty"): number {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  return Number(new RegExp(`^${line}: +(\\d+) kB`, "m").exec(text)?.[1]) * 1024;
}
