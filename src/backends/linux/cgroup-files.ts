import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { closeDescriptor, isErrno } from "./libc.ts";
import { openPidfd, signalPidfd } from "./process.ts";

const SIGKILL = 9;

/** Process ids listed in a cgroup.procs file; none when it is gone. */
export function readProcesses(directory: string): number[] {
  try {
    return readFileSync(join(directory, "cgroup.procs"), "utf8").split("\n").filter(Boolean).map(Number);
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENODEV")) return [];
    throw error;
  }
}

/** The number after `key` in a file of `key value` lines; 0 when there is none. */
export function keyedValue(text: string, key: string): number {
  for (const line of text.split("\n"))
    if (line.startsWith(`${key} `)) return Number(line.slice(key.length + 1));
  return 0;
}

/** Out-of-memory kills by a file that counts them; 0 when the group is gone. */
export function oomKillsIn(read: () => string): number {
  try {
    return keyedValue(read(), "oom_kill");
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENODEV")) return 0;
    throw error;
  }
}

/** `directory` and every group below it, deepest first; empty when it does not exist. */
export function descendants(directory: string): string[] {
  const status = statSync(directory, { throwIfNoEntry: false });
  if (status === undefined) return [];
  // Two links: its own name and its `.`, so there is no group below that would have a `..`.
  const names = status.nlink === 2 ? [] : childNames(directory);
  return [...names.flatMap((name) => descendants(join(directory, name))), directory];
}

/** Names of the directories in `directory`; none when it does not exist. */
export function childNames(directory: string): string[] {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name);
  } catch (error) {
    if (isErrno(error, "ENOENT")) return [];
    throw error;
  }
}

/**
 * Writes the files in order. When one is refused, those before it get their old content back and the refusal is thrown.
 */
export function writeAll(files: readonly { readonly path: string; readonly value: string }[]): void {
  const done: { path: string; value: string }[] = [];
  for (const { path, value } of files) {
    try {
      const before = readFileSync(path, "utf8").trim();
      writeFileSync(path, value);
      done.push({ path, value: before });
    } catch (error) {
      for (const old of done.reverse()) writeFileSync(old.path, old.value);
      throw error;
    }
  }
}

/**
 * Kills members of a group one by one. Each is held by a pidfd before the group is read again, so that a process id that
 * was reused in between is not hit.
 */
export function killMembers(list: () => number[]): number {
  const held = new Map<number, number>();
  try {
    for (const pid of list()) {
      const pidfd = openPidfd(pid);
      if (pidfd !== undefined) held.set(pid, pidfd);
    }
    if (held.size === 0) return 0;
    for (const pid of list()) {
      const pidfd = held.get(pid);
      if (pidfd !== undefined) signalPidfd(pidfd, SIGKILL);
    }
    return held.size;
  } finally {
    for (const pidfd of held.values()) closeDescriptor(pidfd);
  }
}
