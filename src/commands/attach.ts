import { Transform } from "node:stream";
import type { Readable, Writable } from "node:stream";
import { DSecError } from "../protocol/errors.ts";
import type { ExecExit } from "../protocol/exec.ts";
import type { ExecProcess } from "../sdk/exec-process.ts";
import { DetachKeys } from "./detach-keys.ts";
import { exitCodeOfSignal, onStopSignal } from "./interrupt.ts";
import { note, write } from "./io.ts";
import type { Io } from "./io.ts";
import { enterRawMode, onResize } from "./terminal.ts";

export interface AttachOptions {
  /** Whether our stdin goes to the command. */
  readonly stdin: boolean;
  /** Whether the command has a terminal. */
  readonly tty: boolean;
  /** Whether ctrl-p ctrl-q leaves it running; asks for `onDisconnect: "keep"`. */
  readonly detachKeys: boolean;
}

/** How an attached command was left. */
export type Attached =
  | { readonly type: "exit"; readonly exitCode: number }
  /** By the detach keys: it goes on. */
  | { readonly type: "detached" };

/** As a process that writes to a pipe which nobody reads. */
const brokenPipe: Attached = { type: "exit", exitCode: exitCodeOfSignal("SIGPIPE") };
/** Signals to end after which the connection is cut, as docker does. */
const patience = 3;

/**
 * Joins this process's streams, signals and window size to a command's until it ends. Output is written no faster than it is
 * read here, and byte for byte.
 * @throws DSecError `connection_lost` when the outcome is unknown
 */
export async function attach(command: ExecProcess, io: Io, options: AttachOptions): Promise<Attached> {
  const { promise: left, resolve: leave, reject: fail } = Promise.withResolvers<Attached>();
  const stopped = forwardSignals(command, leave);
  const resized = options.tty ? onResize(io, ({ rows, cols }) => command.resize(rows, cols)) : undefined;
  const restore = options.tty && options.stdin ? enterRawMode(io) : undefined;
  const readerGone = (): void => leave(brokenPipe);
  io.readerGone.addEventListener("abort", readerGone);
  try {
    if (options.stdin) {
      const detached = (): void => leave({ type: "detached" });
      feed(io.stdin, command.stdin, options.detachKeys ? detached : undefined, fail);
    }
    const copied = Promise.all([copy(command.stdout, io.stdout), copy(command.stderr, io.stderr)]);
    const ended = endOf(command, copied, io);
    return await Promise.race([left, ended]);
  } finally {
    io.readerGone.removeEventListener("abort", readerGone);
    restore?.();
    resized?.();
    stopped();
    command.disconnect();
  }
}

async function endOf(command: ExecProcess, copied: Promise<number[]>, io: Io): Promise<Attached> {
  // the output is worth showing also when the connection breaks after it
  const [[stdoutBytes = 0, stderrBytes = 0], exit] = await Promise.all([copied, command.exit]).catch(
    async (error: unknown) => {
      await copied;
      throw error;
    },
  );
  if (stdoutBytes !== exit.stdoutBytes || stderrBytes !== exit.stderrBytes)
    throw new DSecError("protocol_error", "not all of the command's output arrived", {
      ambiguous: true,
      details: { exitCode: exit.exitCode, stdoutBytes, stderrBytes },
    });
  explain(exit, io);
  return { type: "exit", exitCode: exit.exitCode };
}

/** What the exit code alone does not tell. */
function explain(exit: ExecExit, io: Io): void {
  if (exit.cause === "oom")
    note(io, "dsec: the command was killed: the sandbox's memory limit was reached (oom)");
  if (exit.timedOut) note(io, "dsec: the command was killed: its time was up (timeout)");
  if (exit.diskFull) note(io, "dsec: the sandbox's disk limit is reached (disk_full)");
}

/** @returns the bytes that came */
async function copy(from: Readable, to: Writable): Promise<number> {
  let bytes = 0;
  try {
    for await (const chunk of from as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      await write(to, chunk);
    }
  } catch {
    // the exec's own promise says why its output ended early
  }
  return bytes;
}

/**
 * Joined by pipe and not by pipeline, which would close our stdin when the command ends: closing a terminal resets it, while
 * output is still to be written.
 */
function feed(
  from: Readable,
  to: Writable,
  detach: (() => void) | undefined,
  fail: (error: DSecError) => void,
): void {
  // input that comes after the command's end goes nowhere
  to.on("error", () => undefined);
  from.once("error", (cause) => fail(new DSecError("invalid_argument", "stdin cannot be read", { cause })));
  if (detach === undefined) from.pipe(to);
  else from.pipe(detachable(detach)).pipe(to);
}

function detachable(detach: () => void): Transform {
  const keys = new DetachKeys();
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const { forward, detach: detached } = keys.read(chunk);
      if (detached) detach();
      done(null, forward);
    },
  });
}

/** Hands SIGINT, SIGTERM and SIGHUP on to the command, which then ends as it likes; after some it is left to be killed. */
function forwardSignals(command: ExecProcess, leave: (how: Attached) => void): () => void {
  let received = 0;
  return onStopSignal((signal) => {
    received += 1;
    if (received < patience) command.signal(signal);
    else leave({ type: "exit", exitCode: exitCodeOfSignal(signal) });
  });
}
