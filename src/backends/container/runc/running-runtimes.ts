import { readdirSync, readFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { isErrno } from "../../linux/libc.ts";
import { identifyProcess, signalProcess } from "../../linux/process.ts";
import { killGroup } from "./runtime.ts";

const atOnce = 256;
const SIGKILL = 9;

/**
 * Ends runtimes at work that nobody waits for: they would go on making what is being removed. Yields to the event loop every
 * few hundred processes.
 *
 * @param sandboxes where their directories are
 * @param isMeant whether that sandbox's are to end
 * @throws the signal's reason
 */
export async function endRuntimes(
  sandboxes: string,
  isMeant: (id: string) => boolean,
  signal?: AbortSignal,
): Promise<void> {
  const pids = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
  for (const [index, pid] of pids.entries()) {
    if (index % atOnce === 0) await new Promise((resolve) => setImmediate(resolve));
    signal?.throwIfAborted();
    const id = sandboxOf(commandLine(pid), sandboxes);
    if (id === undefined || !isMeant(id)) continue;
    const runtime = identifyProcess(pid);
    killGroup(pid);
    // crun works in processes that do not lead their group.
    if (runtime !== undefined) signalProcess(runtime, SIGKILL);
  }
}

/** Whose runtime it is; undefined for any other process. */
function sandboxOf(args: readonly string[], sandboxes: string): string | undefined {
  const directory = dirname(args[args.indexOf("--root") + 1] ?? "");
  return args.includes("--bundle") && dirname(directory) === sandboxes ? basename(directory) : undefined;
}

function commandLine(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH")) return [];
    throw error;
  }
}
