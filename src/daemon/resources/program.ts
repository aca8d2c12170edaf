import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { isErrno } from "../../backends/linux/libc.ts";
import { DSecError } from "../../protocol/errors.ts";

/** Where system programs are, also when PATH has no sbin. */
const directories = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];
/** Bytes of output kept of each stream. */
const keptOutput = 1_048_576;

/** The path of the first executable of that name, on PATH or where system programs are. */
export function findProgram(name: string): string | undefined {
  const path = (process.env["PATH"] ?? "").split(delimiter).filter((directory) => directory.startsWith("/"));
  return [...path, ...directories].map((directory) => join(directory, name)).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

export interface ProgramOptions {
  /** Given as stdin; nothing by default. */
  readonly input?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly signal?: AbortSignal;
  /** Ends the program when `signal` is aborted; SIGTERM by default. */
  readonly killSignal?: NodeJS.Signals;
  /** Called with each line of stderr as it comes. */
  readonly onErrorLine?: (line: string) => void;
  /** Called with each line of stdout as it comes; nothing is returned then. What it throws ends the program. */
  readonly onOutputLine?: (line: string) => void;
  /** Whether stdout is of no interest. */
  readonly discardOutput?: boolean;
  readonly cwd?: string;
}

/**
 * Runs a system program (a name or an absolute path) to its end and returns its stdout (at most 1 MiB of it). Not for hot paths: a spawn costs the event loop 1 to 2 ms.
 *
 * @throws DSecError `cancelled`; `backend_unavailable` when the program is not there; `disk_full`; `internal` when it fails otherwise, with the last lines of its stderr
 */
export async function runProgram(
  name: string,
  args: readonly string[],
  options: ProgramOptions = {},
): Promise<string> {
  throwIfCancelled(options.signal);
  const path = name.startsWith("/") ? name : findProgram(name);
  if (path === undefined) throw new DSecError("backend_unavailable", `${name} is not installed`);
  const child = spawn(path, args, {
    stdio: [
      options.input === undefined ? "ignore" : "pipe",
      options.discardOutput ? "ignore" : "pipe",
      "pipe",
    ],
    env: { ...(options.env ?? process.env), LC_ALL: "C" },
    ...(options.cwd !== undefined && { cwd: options.cwd }),
    ...(options.signal !== undefined && {
      signal: options.signal,
      killSignal: options.killSignal ?? ("SIGTERM" as const),
    }),
  });
  let output = "";
  let refusal: Error | undefined;
  const { onOutputLine } = options;
  if (child.stdout !== null && onOutputLine !== undefined) {
    createInterface({ input: child.stdout }).on("line", (line) => {
      if (refusal !== undefined) return;
      try {
        onOutputLine(line);
      } catch (error) {
        refusal = error instanceof Error ? error : new Error(String(error));
        child.kill();
      }
    });
  } else {
    child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
      if (output.length < keptOutput) output += chunk;
    });
  }
  const lastLines: string[] = [];
  if (child.stderr !== null) {
    createInterface({ input: child.stderr }).on("line", (line) => {
      lastLines.push(line.slice(0, 1000));
      if (lastLines.length > 10) lastLines.shift();
      options.onErrorLine?.(line);
    });
  }
  // A program that ends without reading its input must not bring the daemon down by EPIPE.
  child.stdin?.on("error", () => undefined).end(options.input);
  const exit = await new Promise<{ code: number | null; signal: string | null }>((resolve, reject) => {
    // An abort is reported as an error before the process is gone: 'close' says that it is.
    let failure: Error | undefined;
    child.on("error", (error) => {
      if (isErrno(error, "ABORT_ERR")) failure = error;
      else reject(new DSecError("backend_unavailable", `${name} could not be started`, { cause: error }));
    });
    child.on("close", (code, signal) => {
      if (failure === undefined) resolve({ code, signal });
      else reject(new DSecError("cancelled", `${name} was cancelled`, { cause: failure }));
    });
  });
  if (refusal !== undefined) throw refusal;
  if (exit.code !== 0) {
    const how = exit.code === null ? `was ended by ${exit.signal}` : `failed with exit code ${exit.code}`;
    const said = lastLines.join("\n") || "no message";
    const code = /No space left on device|Disk quota exceeded/i.test(said) ? "disk_full" : "internal";
    throw new DSecError(code, `${name} ${how}: ${said}`);
  }
  return output;
}

/** @throws DSecError `cancelled` */
export function throwIfCancelled(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new DSecError("cancelled", "cancelled", { cause: signal.reason });
}
