import { readdirSync, readFileSync } from "node:fs";

/** Hundredths of seconds, as /proc counts. */
const ticksPerSecond = 100;

interface ProcessTimes {
  readonly parent: number;
  readonly command: string;
  /** Own, and of children that were waited for; seconds. */
  readonly seconds: number;
}

function timesOf(pid: string): ProcessTimes | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = text
      .slice(text.lastIndexOf(")") + 2)
      .split(" ")
      .map(Number);
    const [, parent = 0] = fields;
    const ticks = fields.slice(11, 15).reduce((sum, value) => sum + value, 0);
    const command = text.slice(text.indexOf("(") + 1, text.lastIndexOf(")"));
    return { parent, command, seconds: ticks / ticksPerSecond };
  } catch {
    // it has ended meanwhile
    return undefined;
  }
}

/** CPU seconds that the processes chosen by `chosen` have used so far, with their ended children. */
export function cpuSeconds(chosen: (pid: number, command: string) => boolean): number {
  let total = 0;
  for (const entry of readdirSync("/proc")) {
    if (!/^\d+$/.test(entry)) continue;
    const times = timesOf(entry);
    if (times !== undefined && chosen(Number(entry), times.command)) total += times.seconds;
  }
  return total;
}
