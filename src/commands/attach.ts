import type { Readable, Writable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { DSecError } from "../protocol/errors.ts";
import type { ExecExit } from "../protocol/exec.ts";
import type { ExecProcess } from "../sdk/exec-process.ts";
import { DetachKeys } from "./detach-keys.ts";
import { exitCodeOfSignal, onStopSignal } from "./interrupt.ts";
import type { StopSignal } from "./interrupt.ts";
import { note, write } from "./io.ts";
import type { Io } from "./io.ts";
import { TerminalModes } from "./terminal-modes.ts";
import { lendTerminal, onResize } from "./terminal.ts";

export interface AttachOptions {
  /** Whether our stdin goes to the command. */
  readonly stdin: boolean;
  /** Whether the command has a terminal. */
  readonly tty: boolean;
  /** Keys that leave it running; ask for `onDisconnect: "keep"`. None when empty. */
  readonly detachKeys: Uint8Array;
  /** Whether signals to this process go to the command, as they do by default; else they only end this process. */
  readonly signals?: boolean;
  /** Bytes that came before, or were dropped: they are not missed. */
  readonly missing?: () => Missing;
}

interface Missing {
  readonly stdout: number;
  readonly stderr: number;
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
/** Milliseconds that what was typed before the detach keys has to reach the command. */
const flushMs = 1000;
const noKeys = new Uint8Array(0);

/**
 * Joins this process's streams, signals and window size to a command's until it ends. Output is written no faster than it is
 * read here, and byte for byte.
 * @throws DSecError `connection_lost` when the outcome is unknown
 */
export async function attach(command: ExecProcess, io: Io, options: AttachOptions): Promise<Attached> {
  const { promise: left, resolve: leave, reject: fail } = Promise.withResolvers<Attached>();
  const { stdin, tty } = options;
  const modes = new TerminalModes();
  const signalled = options.signals === false ? leaveAtSignal(leave) : forwardSignals(command, tty, leave);
  const stopped = onStopSignal(signalled);
  const takeBack = tty ? lendTerminal(io, modes, stdin) : undefined;
  const resized = tty ? onResize(io, ({ rows, cols }) => command.resize(rows, cols)) : undefined;
  const readerGone = (): void => leave(brokenPipe);
  io.readerGone.addEventListener("abort", readerGone);
  try {
    if (stdin) {
      const unreadable = (cause: unknown): void =>
        fail(new DSecError("invalid_argument", "stdin cannot be read", { cause }));
      // a terminal that ends is gone: whether the signal or the end is seen first is chance
      const hungUp = tty ? (): void => signalled("SIGHUP") : undefined;
      io.stdin.once("error", hungUp ?? unreadable);
      const keys = new DetachKeys(tty ? options.detachKeys : noKeys);
      void feed(io.stdin, command.stdin, {
        keys,
        detached: () => leave({ type: "detached" }),
        ended: hungUp ?? (() => command.stdin.end()),
      });
    }
    const follow = tty ? modes : undefined;
    const copied = Promise.all([copy(command.stdout, io.stdout, follow), copy(command.stderr, io.stderr)]);
    const how = await Promise.race([left, endOf(command, copied, modes, io, options.missing)]);
    await command.leave();
    return how;
  } finally {
    io.readerGone.removeEventListener("abort", readerGone);
    takeBack?.();
    resized?.();
    stopped();
    command.disconnect();
  }
}

async function endOf(
  command: ExecProcess,
  copied: Promise<number[]>,
  modes: TerminalModes,
  io: Io,
  missing: () => Missing = () => ({ stdout: 0, stderr: 0 }),
): Promise<Attached> {
  // the output is worth showing also when the connection breaks after it
  const [[stdoutBytes = 0, stderrBytes = 0], exit] = await Promise.all([copied, command.exit]).catch(
    async (error: unknown) => {
      await copied;
      throw error;
    },
  );
  const { stdout, stderr } = missing();
  if (stdoutBytes + stdout !== exit.stdoutBytes || stderrBytes + stderr !== exit.stderrBytes)
    throw new DSecError("protocol_error", "not all of the command's output arrived", {
      ambiguous: true,
      details: { exitCode: exit.exitCode, stdoutBytes, stderrBytes },
    });
  // what a command that ended by itself did to the terminal is as it wants it, as it is without us
  if (exit.cause === "exited") modes.forget();
  explain(exit, io);
  return { type: "exit", exitCode: exit.exitCode };
}

/** What the exit code alone does not tell. */
function explain(exit: ExecExit, io: Io): void {
  if (exit.cause === "oom") note(io, "dsec: the command was killed: the sandbox's memory limit was reached");
  if (exit.timedOut) note(io, "dsec: the command was killed: its time was up");
  if (exit.diskFull) note(io, "dsec: the sandbox's disk limit is reached");
}

/** @returns the bytes that came */
async function copy(from: Readable, to: Writable, modes?: TerminalModes): Promise<number> {
  let bytes = 0;
  try {
    for await (const chunk of from as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      modes?.follow(chunk);
      await write(to, chunk);
    }
  } catch {
    // the exec's own promise says why its output ended early
  }
  return bytes;
}

interface Feed {
  readonly keys: DetachKeys;
  readonly detached: () => void;
  readonly ended: () => void;
}

/** Our stdin must stay open when the command ends: closing a terminal resets it, while output is still to be written. */
async function feed(from: Readable, to: Writable, { keys, detached, ended }: Feed): Promise<void> {
  // input that comes after the command's end goes nowhere
  to.on("error", () => undefined);
  try {
    for await (const chunk of from.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
      const { forward, detach } = keys.read(chunk);
      if (detach) {
        const written = new Promise((resolve) => to.write(forward, resolve));
        await Promise.race([written, delay(flushMs, undefined, { ref: false })]);
        detached();
        return;
      }
      await write(to, forward);
      if (to.destroyed) return;
    }
    ended();
  } catch {
    // told by the stream's own event
  }
}

type SignalHandler = (signal: StopSignal) => void;

/**
 * Hands SIGINT, SIGTERM and SIGHUP on to the command, which then ends as it likes; after some it is left to be killed. With a
 * terminal the latter two hang it up, as when its window is closed: an interactive shell would not mind SIGTERM.
 */
function forwardSignals(command: ExecProcess, tty: boolean, leave: (how: Attached) => void): SignalHandler {
  let received = 0;
  return (signal) => {
    received += 1;
    const hangUp = tty && signal !== "SIGINT";
    if (hangUp || received < patience) command.signal(hangUp ? "SIGHUP" : signal);
    if (hangUp || received >= patience) leave({ type: "exit", exitCode: exitCodeOfSignal(signal) });
  };
}

function leaveAtSignal(leave: (how: Attached) => void): SignalHandler {
  return (signal) => leave({ type: "exit", exitCode: exitCodeOfSignal(signal) });
}
