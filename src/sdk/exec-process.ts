import { Readable, Writable } from "node:stream";
import { DSecError } from "../protocol/errors.ts";
import type { AttachRequestInput, ExecExit, ExecSpecInput, StreamOffsets } from "../protocol/exec.ts";
import { ExecConnection, type ExecEvents } from "./exec-connection.ts";
import { openAttachSocket, openExecSocket } from "./exec-socket.ts";
import type { Connection } from "./open-connection.ts";

export interface AttachOptions {
  /** Where the output begins: `now` (the default), `start` of what is recorded, or after what is known already. */
  readonly from?: Exclude<AttachRequestInput["from"], undefined>;
  /** To write to its stdin; one client can at a time. Leaving does not end it. */
  readonly stdin?: boolean;
  /** Told of bytes that the recording's cap has dropped. Without it they make the attachment fail with `output_lost`. */
  readonly onGap?: (stream: "stdout" | "stderr", bytes: number) => void;
  readonly signal?: AbortSignal;
}

/** Bytes each output stream holds before the connection stops reading. */
const highWaterMark = 262_144;

/** A running process with streams. A stream that nobody reads slows the process down; it loses nothing. */
export class ExecProcess implements AsyncDisposable {
  readonly execId: string;
  /** Inside the sandbox. */
  readonly pid: number;
  /** Bytes of each stream that came before what is read here: of an exec that was attached to. */
  readonly from: StreamOffsets;
  /** With `stdin: true`; otherwise already ended. */
  readonly stdin: Writable;
  readonly stdout: Readable;
  /** Empty with a terminal. */
  readonly stderr: Readable;
  /**
   * How the process ended, known once all its output has arrived.
   * Rejects with `connection_lost` (ambiguous) when the connection ends without a status.
   */
  readonly exit: Promise<ExecExit>;
  readonly #connection: ExecConnection;

  constructor(
    connection: ExecConnection,
    streams: Pick<ExecProcess, "stdin" | "stdout" | "stderr" | "exit">,
    started: Pick<ExecProcess, "execId" | "pid" | "from">,
  ) {
    this.#connection = connection;
    this.execId = started.execId;
    this.pid = started.pid;
    this.from = started.from;
    this.stdin = streams.stdin;
    this.stdout = streams.stdout;
    this.stderr = streams.stderr;
    this.exit = streams.exit;
  }

  /** Of the terminal. */
  resize(rows: number, cols: number): void {
    this.#connection.resize(rows, cols);
  }

  /** @param signal e.g. `SIGTERM`; goes to the foreground process group */
  signal(signal: string): void {
    this.#connection.signal(signal);
  }

  /** Cuts the connection: the process is killed, unless its spec says `onDisconnect: "keep"`. */
  disconnect(): void {
    this.#connection.fail(new DSecError("cancelled", "the exec was disconnected", { ambiguous: true }));
  }

  /** As {@link disconnect}, but signals, sizes and stdin sent before still reach the node. Does nothing after the end. */
  async leave(): Promise<void> {
    await this.#connection.leave(
      new DSecError("cancelled", "the exec was left by its client", { ambiguous: true }),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.disconnect();
    await this.exit.catch(() => undefined);
  }
}

/** Starts a process; resolves when it runs. @throws DSecError `command_not_found`, `no_such_user`, `no_such_cwd`, … */
export async function spawnExec(
  connection: Connection,
  ref: string,
  spec: ExecSpecInput,
  signal: AbortSignal | undefined,
): Promise<ExecProcess> {
  const socket = await openExecSocket(connection, ref, signal);
  return openProcess(spec.stdin === true, (events) => ExecConnection.start(socket, spec, events, signal));
}

/** Follows a recorded exec; leaving it does not end it. @throws DSecError `not_found`, `unsupported`, `stdin_taken`, `conflict` */
export async function attachExec(
  connection: Connection,
  ref: string,
  exec: string,
  options: AttachOptions,
): Promise<ExecProcess> {
  const { stdin = false, from = "now", onGap, signal } = options;
  const socket = await openAttachSocket(connection, ref, exec, signal);
  return openProcess(stdin, (events) =>
    ExecConnection.attach(
      socket,
      { stdin, from },
      onGap === undefined ? events : { ...events, gap: onGap },
      signal,
    ),
  );
}

async function openProcess(
  hasStdin: boolean,
  begin: (events: ExecEvents) => ExecConnection,
): Promise<ExecProcess> {
  const exit = Promise.withResolvers<ExecExit>();
  const started = Promise.withResolvers<Pick<ExecProcess, "execId" | "pid" | "from">>();
  // callers who only read the streams learn of a failure there
  exit.promise.catch(() => undefined);
  const outputs = { stdout: new OutputStream(), stderr: new OutputStream() };
  const exec = begin({
    started: (execId, pid, from) => started.resolve({ execId, pid, from }),
    output: (stream, bytes) => outputs[stream].receive(bytes),
    ended(outcome) {
      const error =
        outcome instanceof DSecError
          ? outcome
          : outcome.type === "detached"
            ? new DSecError("protocol_error", "a detached exec has no streams")
            : undefined;
      outputs.stdout.finish(error);
      outputs.stderr.finish(error);
      stdin.destroy();
      if (error !== undefined) {
        started.reject(error);
        exit.reject(error);
      } else if (!(outcome instanceof DSecError) && outcome.type === "exit") {
        started.resolve({ execId: outcome.execId, pid: 0, from: { stdout: 0, stderr: 0 } });
        exit.resolve(outcome);
      }
    },
  });
  const stdin = stdinOf(exec, hasStdin);
  return new ExecProcess(exec, { ...outputs, stdin, exit: exit.promise }, await started.promise);
}

/** A Readable that can make its source wait. */
class OutputStream extends Readable {
  #resume: (() => void) | undefined;

  constructor() {
    super({ highWaterMark });
  }

  receive(bytes: Buffer): void | Promise<void> {
    if (this.destroyed || this.push(bytes)) return undefined;
    return new Promise((resolve) => (this.#resume = resolve));
  }

  /** Without a listener an error would end the caller's program; `exit` tells of it too. */
  finish(error: DSecError | undefined): void {
    if (error === undefined) this.push(null);
    else if (this.listenerCount("error") > 0) this.destroy(error);
    else this.destroy();
  }

  override _read(): void {
    this.#release();
  }

  /** A reader that went away wants no more: the rest is let through and dropped, so that the process can end. */
  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#release();
    done(error);
  }

  #release(): void {
    const resume = this.#resume;
    this.#resume = undefined;
    resume?.();
  }
}

function stdinOf(exec: ExecConnection, open: boolean): Writable {
  const stdin = new Writable({
    highWaterMark: 65_536,
    write(chunk: Buffer, _encoding, written) {
      exec.write(chunk).then(() => written(), written);
    },
    final(done) {
      exec.end();
      done();
    },
  });
  if (!open) stdin.destroy();
  return stdin;
}
