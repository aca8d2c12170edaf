import { spawn } from "node:child_process";
import { accessSync, closeSync, constants, openSync, readSync } from "node:fs";
import { delimiter, join } from "node:path";
import { isErrno } from "../../linux/libc.ts";
import type { RunDirectory, SandboxPaths } from "./sandbox-paths.ts";

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

/** crun is smaller and faster, but does not work on v1 hierarchies. */
export function preferredRuntimes(cgroupMode: "unified" | "hybrid" | "legacy"): readonly RuntimeName[] {
  return cgroupMode === "unified" ? ["crun", "runc"] : ["runc"];
}

export interface RuntimeExit {
  /** Undefined when a signal ended it. */
  readonly code: number | undefined;
  readonly signal: NodeJS.Signals | undefined;
}

export interface RuntimeProcess {
  /** Rejects when the program cannot be started at all. */
  readonly exited: Promise<RuntimeExit>;
  /** Ends the runtime and the helpers that it has started but not yet put into the sandbox's control group. */
  kill(): void;
}

/**
 * Starts `run -d`: returns when the program is started, not when the container is.
 *
 * @param socketFd becomes the container's descriptor 3
 * @throws Error of open(2)
 */
export function spawnRuntime(
  program: string,
  run: RunDirectory,
  id: string,
  paths: SandboxPaths,
  socketFd: number,
): RuntimeProcess {
  // The container keeps these for its life: a file, never a pipe that someone would have to read.
  const log = openSync(paths.log, "w", 0o600);
  try {
    const args = ["--root", run.states, "run", "--detach", "--preserve-fds", "1"];
    const child = spawn(program, [...args, "--bundle", paths.bundle, "--pid-file", paths.pidFile, id], {
      stdio: ["ignore", "ignore", log, socketFd],
      // A process group of its own, so that its helpers can be ended with it.
      detached: true,
      env: { PATH: process.env["PATH"] },
    });
    const exited = new Promise<RuntimeExit>((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", (code, signal) => resolve({ code: code ?? undefined, signal: signal ?? undefined }));
    });
    return { exited, kill: () => killGroup(child.pid) };
  } finally {
    closeSync(log);
  }
}

function killGroup(leader: number | undefined): void {
  if (leader === undefined) return;
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
