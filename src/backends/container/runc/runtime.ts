import { accessSync, closeSync, constants, openSync, readSync } from "node:fs";
import { delimiter, join } from "node:path";
import { isErrno } from "../../linux/libc.ts";
import { type ProgramExit, spawnProgram } from "../../linux/spawn.ts";
import type { SandboxPaths } from "./sandbox-paths.ts";

/** An OCI runtime; both take the same command line. */
export type RuntimeName = "runc" | "crun";

/** Full path of a program; undefined when PATH has none. */
export function findProgram(name: string, path = process.env["PATH"] ?? ""): string | undefined {
  for (const directory of path.split(delimiter).filter(Boolean)) {
    const candidate = join(directory, name);
    try {
      accessSync(candidate, constants.X_OK);
      return candidate;
    } catch (error) {
      if (!isErrno(error, "ENOENT", "EACCES", "ENOTDIR")) throw error;
    }
  }
  return undefined;
}

/** crun takes a third of runc's CPU time for a start. */
export const preferredRuntimes: readonly RuntimeName[] = ["crun", "runc"];

/** A runtime of this machine. */
export interface Runtime {
  readonly name: RuntimeName;
  readonly program: string;
  /** The launcher, where it puts the runtime into control groups that are made already; without it the runtime makes them. */
  readonly launcher: string | undefined;
}

export interface RuntimeProcess {
  readonly exited: Promise<ProgramExit>;
  /** Ends the runtime and the helpers that it has started but not yet put into the sandbox's control group. */
  kill(): void;
}

/** For runc, a Go program that lives for milliseconds: no garbage collection and no second thread to run it; a third of its CPU time. */
const lean = { GOMAXPROCS: "1", GOGC: "off" };

/**
 * Starts `run -d`: resolves when the program is started, not when the container is.
 *
 * @param joins of the sandbox's control groups, where the runtime does not make them
 * @param socketFd becomes the container's descriptor 3
 * @throws Error of open(2), LinuxError when the program cannot be started
 */
export async function spawnRuntime(
  runtime: Runtime,
  id: string,
  paths: SandboxPaths,
  joins: readonly string[],
  socketFd: number,
): Promise<RuntimeProcess> {
  // The container keeps these for its life: files, never a pipe that someone would have to read.
  const nothing = openSync("/dev/null", "r+");
  try {
    const log = openSync(paths.log, "w", 0o600);
    try {
      const argv = commandLine(runtime, id, paths, joins);
      const { pid, exited } = await spawnProgram(
        argv[0],
        argv,
        { PATH: process.env["PATH"] ?? "", ...lean },
        [nothing, nothing, log, socketFd],
      );
      return { exited, kill: () => killGroup(pid) };
    } finally {
      closeSync(log);
    }
  } finally {
    closeSync(nothing);
  }
}

function commandLine(
  { program, launcher }: Runtime,
  id: string,
  paths: SandboxPaths,
  joins: readonly string[],
): [string, ...string[]] {
  const where = ["--root", paths.state, "run", "--bundle", paths.bundle, "--pid-file", paths.pidFile];
  const run = [...where, "--detach", "--preserve-fds", "1", id];
  if (launcher === undefined) return [program, ...run];
  return [launcher, ...joins, "--", program, "--cgroup-manager=disabled", ...run];
}

/** Kills a runtime with the helpers it has started. It leads a process group. */
export function killGroup(leader: number): void {
  try {
    process.kill(-leader, "SIGKILL");
  } catch (error) {
    if (!isErrno(error, "ESRCH")) throw error;
  }
}

const longestMessage = 2048;

/** What a failed runtime or agent wrote last, at most 2 KiB. */
export function readFailure(paths: SandboxPaths): string {
  const buffer = Buffer.alloc(longestMessage);
  const fd = openSync(paths.log, "r");
  try {
    return failureMessage(buffer.toString("utf8", 0, readSync(fd, buffer, 0, longestMessage, 0)));
  } finally {
    closeSync(fd);
  }
}

/** The message of the last log line in logfmt; the text itself where there is none. */
export function failureMessage(text: string): string {
  const messages = [...text.matchAll(/msg=("(?:[^"\\]|\\.)*")/g)].map((match) => match[1] ?? "");
  const last = messages.at(-1);
  if (last === undefined) return text.trim();
  try {
    return String(JSON.parse(last));
  } catch {
    return last;
  }
}
