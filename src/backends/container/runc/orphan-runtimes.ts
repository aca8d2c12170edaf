import { readdirSync, readFileSync } from "node:fs";
import { isErrno } from "../../linux/libc.ts";
import { readProcessStat } from "../../linux/process.ts";
import { killGroup } from "./runtime.ts";

const atOnce = 256;

/**
 * Ends runtimes that a daemon which was killed has left at work: they would go on making what is being removed. Yields to
 * the event loop every few hundred processes.
 *
 * @param sandboxes where their directories are
 * @throws the signal's reason
 */
export async function endOrphanRuntimes(sandboxes: string, signal: AbortSignal): Promise<void> {
  const pids = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
  for (const [index, pid] of pids.entries()) {
    if (index % atOnce === 0) await new Promise((resolve) => setImmediate(resolve));
    signal.throwIfAborted();
    if (isRuntime(commandLine(pid), sandboxes) && readProcessStat(pid)?.parent !== process.pid)
      killGroup(pid);
  }
}

function isRuntime(args: readonly string[], sandboxes: string): boolean {
  return args.includes("--bundle") && args[args.indexOf("--root") + 1]?.startsWith(`${sandboxes}/`) === true;
}

function commandLine(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH")) return [];
    throw error;
  }
}
