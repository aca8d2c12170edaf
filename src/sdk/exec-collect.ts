import { DSecError } from "../protocol/errors.ts";
import type { ExecExit } from "../protocol/exec.ts";
import { ExecConnection, type ExecEvents } from "./exec-connection.ts";
import { type Command, type ExecOptions, execSpec, refuseUnknown, spawnOptions } from "./exec-options.ts";
import { type ExecSocket, openExecSocket } from "./exec-socket.ts";
import type { Connection } from "./open-connection.ts";

/** Bytes of stdout and stderr together that an exec collects unless told otherwise: 64 MiB. */
const defaultMaxOutputBytes = 67_108_864;
/** Milliseconds past its own timeout after which a command's connection is given up. */
const timeoutGraceMs = 30_000;

/** Receives output as it comes; a promise makes the process wait. */
export type OutputCallback = (bytes: Buffer) => void | Promise<void>;

export interface OutputOptions {
  /** Receives stdout instead of the result. */
  readonly onStdout?: OutputCallback;
  /** Receives stderr instead of the result. */
  readonly onStderr?: OutputCallback;
  /** Most bytes of output to collect, default 64 MiB. Beyond, the command is killed and the call rejects with `output_too_large`. */
  readonly maxOutputBytes?: number;
}

export interface CollectOptions extends ExecOptions, OutputOptions {
  /** Given to the command as its standard input, then ended. Null stdin without it. */
  readonly stdin?: string | Uint8Array | AsyncIterable<Uint8Array>;
}

export interface ShellOptions extends OutputOptions {
  /** Default `main`. */
  readonly session?: string;
  /** Set for this command alone, exported. */
  readonly env?: Readonly<Record<string, string>>;
  /** Absolute path in the sandbox, for this command alone. */
  readonly cwd?: string;
  /** Whose shell it is; asked for when the session begins, later it must agree. */
  readonly user?: string;
  /** Milliseconds, from when the command's turn has come. Kills what the command started and leaves the session. */
  readonly timeoutMs?: number;
  /** Ends the command as a timeout does. */
  readonly signal?: AbortSignal;
}

const outputOptions = ["onStdout", "onStderr", "maxOutputBytes"] as const satisfies (keyof OutputOptions)[];
const collectOptions = [...spawnOptions.filter((name) => name !== "tty"), ...outputOptions];
const shellOptions = [
  "session",
  "env",
  "cwd",
  "user",
  "timeoutMs",
  "signal",
  ...outputOptions,
] as const satisfies readonly (keyof ShellOptions)[];

/** What a command did. */
export interface ExecResult extends Omit<ExecExit, "type" | "stdoutBytes" | "stderrBytes"> {
  /** Decoded as UTF-8; {@link stdoutBytes} is exact. */
  readonly stdout: string;
  readonly stderr: string;
  readonly stdoutBytes: Buffer;
  readonly stderrBytes: Buffer;
}

/** Runs a command to its end and collects its output: all of it, or an error. */
export async function collectExec(
  connection: Connection,
  ref: string,
  command: Command,
  options: CollectOptions,
): Promise<ExecResult> {
  refuseUnknown(options, collectOptions);
  const { stdin, signal } = options;
  const spec = execSpec(command, { ...options, stdin: stdin !== undefined });
  return collect(connection, ref, options, (socket, events) => {
    const exec = ExecConnection.start(socket, spec, events, signal);
    if (stdin !== undefined) feed(exec, stdin);
    return { exec, guard: armGuard(exec, spec.timeoutMs ?? 0) };
  });
}

/** Runs a command in a session to its end and collects its output: all of it, or an error. */
export async function collectShell(
  connection: Connection,
  ref: string,
  command: string,
  options: ShellOptions,
): Promise<ExecResult> {
  refuseUnknown(options, shellOptions);
  const { session, env, cwd, user, timeoutMs, signal } = options;
  const spec = {
    command,
    ...(session === undefined ? {} : { session }),
    ...(env === undefined ? {} : { env }),
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
  };
  return collect(connection, ref, options, (socket, events) => {
    const begun: Begun = {
      // its time does not run while it waits for its turn
      exec: ExecConnection.startShell(
        socket,
        spec,
        { ...events, started: () => (begun.guard = armGuard(begun.exec, timeoutMs ?? 0)) },
        signal,
      ),
      guard: undefined,
    };
    return begun;
  });
}

interface Begun {
  readonly exec: ExecConnection;
  guard: NodeJS.Timeout | undefined;
}

async function collect(
  connection: Connection,
  ref: string,
  options: OutputOptions & Pick<ExecOptions, "signal">,
  begin: (socket: ExecSocket, events: ExecEvents) => Begun,
): Promise<ExecResult> {
  const { signal, maxOutputBytes = defaultMaxOutputBytes } = options;
  const socket = await openExecSocket(connection, ref, signal);
  const collected = { stdout: new Collected(options.onStdout), stderr: new Collected(options.onStderr) };
  let room = maxOutputBytes;
  const { promise, resolve, reject } = Promise.withResolvers<ExecExit>();
  const begun = begin(socket, {
    output(stream, bytes) {
      const target = collected[stream];
      if (target.callback === undefined) room -= bytes.length;
      if (room < 0) throw tooLarge(maxOutputBytes);
      return target.receive(bytes);
    },
    ended(outcome) {
      if (outcome instanceof DSecError) reject(outcome);
      else if (outcome.type === "exit") resolve(outcome);
      else reject(new DSecError("protocol_error", "the server detached an exec that was not to be"));
    },
  });
  try {
    const exit = await promise;
    collected.stdout.check("stdout", exit.stdoutBytes);
    collected.stderr.check("stderr", exit.stderrBytes);
    return resultOf(exit, collected.stdout.bytes(), collected.stderr.bytes());
  } finally {
    clearTimeout(begun.guard);
  }
}

class Collected {
  readonly callback: OutputCallback | undefined;
  readonly #chunks: Buffer[] = [];
  #received = 0;

  constructor(callback: OutputCallback | undefined) {
    this.callback = callback;
  }

  receive(bytes: Buffer): void | Promise<void> {
    this.#received += bytes.length;
    if (this.callback !== undefined) return this.callback(bytes);
    this.#chunks.push(bytes);
    return undefined;
  }

  /** The node counts what the process wrote: fewer bytes here mean that some were lost on the way. */
  check(stream: string, sent: number): void {
    if (this.#received !== sent)
      throw new DSecError(
        "protocol_error",
        `${this.#received} of ${sent} bytes of the command's ${stream} arrived`,
        { ambiguous: true },
      );
  }

  bytes(): Buffer {
    const [only] = this.#chunks;
    return this.#chunks.length === 1 && only !== undefined ? only : Buffer.concat(this.#chunks);
  }
}

function resultOf(exit: ExecExit, stdoutBytes: Buffer, stderrBytes: Buffer): ExecResult {
  const { type: _, ...ending } = exit;
  return {
    ...ending,
    stdoutBytes,
    stderrBytes,
    get stdout() {
      return stdoutBytes.toString();
    },
    get stderr() {
      return stderrBytes.toString();
    },
  };
}

/** The node enforces the timeout; should its answer stay away, the link is as good as lost. */
function armGuard(exec: ExecConnection, timeoutMs: number): NodeJS.Timeout | undefined {
  if (timeoutMs === 0) return undefined;
  const total = Math.min(timeoutMs + timeoutGraceMs, 2_147_483_647);
  return setTimeout(() => {
    const message = `no status came within ${total} ms though the command's time was ${timeoutMs} ms`;
    exec.fail(new DSecError("connection_lost", message, { ambiguous: true }));
  }, total);
}

function feed(exec: ExecConnection, stdin: string | Uint8Array | AsyncIterable<Uint8Array>): void {
  const send = async (): Promise<void> => {
    if (typeof stdin === "string") await exec.write(Buffer.from(stdin));
    else if (stdin instanceof Uint8Array) await exec.write(stdin);
    else
      for await (const chunk of stdin) {
        await exec.write(chunk);
        // who asks on would not come to an end with a source that has none
        if (exec.hasEnded) return;
      }
    exec.end();
  };
  send().catch((cause: unknown) =>
    exec.fail(new DSecError("cancelled", "the source of stdin failed", { cause, ambiguous: true })),
  );
}

function tooLarge(limit: number): DSecError {
  return new DSecError(
    "output_too_large",
    `the command wrote more than the ${limit} bytes that may be collected; it was killed`,
    { ambiguous: true, details: { limit } },
  );
}
