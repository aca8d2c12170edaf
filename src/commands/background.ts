import { spawn } from "node:child_process";
import { mkdir, open, rename, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { DSecError } from "../protocol/errors.ts";
import { fromProblem, toProblem } from "../protocol/problem-codec.ts";
import type { Problem } from "../protocol/problem.ts";
import { asDSecError } from "./report-error.ts";

/** Bytes above which a log is put aside at the next start. */
const maxLogBytes = 16_777_216;
/** Milliseconds a start may take; making a large scratch file is the longest of it. */
const startDeadlineMs = 120_000;

/** What a process in the background tells the one that started it: exactly once. */
type Report =
  | { readonly type: "ready"; readonly notes: readonly string[] }
  | { readonly type: "failed"; readonly problem: Problem };

export interface BackgroundStart {
  /** Of this program. */
  readonly argv: readonly string[];
  /** Gets stdout and stderr. */
  readonly logFile: string;
}

/**
 * Starts this program once more, detached from the terminal;
 * resolves when it says that it is ready.
 * @throws DSecError what it failed with, `start_failed` when it ended without a word, `start_timeout` when it says nothing:
 * it is then ended
 */
export async function startInBackground({
  argv,
  logFile,
}: BackgroundStart): Promise<{ readonly pid: number; readonly notes: readonly string[] }> {
  const log = await openLog(logFile);
  try {
    const [, program = ""] = process.argv;
    const child = spawn(process.execPath, [...process.execArgv, "--", program, ...argv], {
      detached: true,
      stdio: ["ignore", log.fd, log.fd, "ipc"],
    });
    let deadline: NodeJS.Timeout | undefined;
    const report = await new Promise<Report>((resolve, reject) => {
      deadline = setTimeout(() => {
        child.kill();
        const message = `it has not become ready within ${startDeadlineMs / 1000} s: see ${logFile}`;
        reject(new DSecError("start_timeout", message));
      }, startDeadlineMs);
      child.once("message", (message) => resolve(message as Report));
      child.once("error", reject);
      child.once("exit", (code, signal) =>
        reject(
          new DSecError(
            "start_failed",
            `it ended at once (${signal ?? `exit code ${code}`}): see ${logFile}`,
          ),
        ),
      );
    }).finally(() => clearTimeout(deadline));
    if (report.type === "failed") throw fromProblem(report.problem);
    child.disconnect();
    child.unref();
    return { pid: child.pid ?? 0, notes: report.notes };
  } finally {
    await log.close();
  }
}

/** Tells whoever started this process in the background, if somebody did. @param notes to be shown there */
export function reportReady(notes: readonly string[]): void {
  send({ type: "ready", notes });
}

export function reportFailure(error: unknown): void {
  send({ type: "failed", problem: toProblem(asDSecError(error)) });
}

function send(report: Report): void {
  // the other end may have been interrupted
  if (process.connected) process.send?.(report, () => undefined);
}

async function openLog(path: string) {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const size = await stat(path).then(
    (found) => found.size,
    () => 0,
  );
  if (size > maxLogBytes) await rename(path, `${path}.1`);
  return open(path, "a", 0o600);
}
