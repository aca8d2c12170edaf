import { randomBytes } from "node:crypto";
import { mkdir, readdir, readFile, realpath, rm, stat } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { listMounts, unmountIfMounted } from "../../backends/linux/mount.ts";

/** Milliseconds after which another host's work directory is taken for abandoned. */
const abandonedAfterMs = 7 * 24 * 3_600_000;

/**
 * Runs `work` with a directory of its own below `directory` and removes it afterwards, whatever happens. Directories that
 * killed processes left behind are removed on the way: the name says whose it is, so no lock can dangle.
 */
export async function withWorkDirectory<T>(
  directory: string,
  work: (path: string) => Promise<T>,
): Promise<T> {
  await makeDirectory(directory);
  // The kernel lists mounts by their real paths.
  const parent = await realpath(directory);
  await removeAbandoned(parent);
  const owner = `${hostname()}+${process.pid}+${(await startTimeOf(process.pid)) ?? "0"}`;
  const path = join(parent, `${owner}+${randomBytes(6).toString("hex")}`);
  await mkdir(path, { mode: 0o700 });
  try {
    return await work(path);
  } finally {
    await removeTree(path);
  }
}

/** Node's own recursion says ENOENT of a file system that can only be read. */
async function makeDirectory(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (error) {
    if (isErrno(error, "EEXIST")) return;
    if (!isErrno(error, "ENOENT")) throw error;
    await mkdir(path, { recursive: true });
  }
}

async function removeAbandoned(parent: string): Promise<void> {
  for (const entry of await readdir(parent)) {
    const [host, pid, startTime] = entry.split("+");
    const abandoned =
      host === hostname()
        ? (await startTimeOf(Number(pid))) !== startTime
        : Date.now() - ((await stat(join(parent, entry)).catch(() => undefined))?.mtimeMs ?? 0) >
          abandonedAfterMs;
    if (abandoned) await removeTree(join(parent, entry));
  }
}

/** Removes a tree, but nothing that is mounted in it. */
async function removeTree(path: string): Promise<void> {
  const mounted = listMounts().filter(({ target }) => target.startsWith(`${path}/`));
  for (const { target } of mounted.toReversed()) unmountIfMounted(target);
  await rm(path, { recursive: true, force: true, maxRetries: 3 });
}

/** When the process started, in ticks since boot: with the pid it names a process for good. Undefined when there is none. */
async function startTimeOf(pid: number): Promise<string | undefined> {
  try {
    const line = await readFile(`/proc/${pid}/stat`, "latin1");
    // The command's name may hold spaces and brackets; the start time is field 22, the 20th after it.
    return line.slice(line.lastIndexOf(")") + 2).split(" ")[19];
  } catch {
    return undefined;
  }
}
