import type { Readable, Writable } from "node:stream";
import { printable } from "./printable.ts";

/** What a command may touch of the process it runs in. */
export interface Io {
  readonly stdin: Readable;
  readonly stdout: Writable;
  readonly stderr: Writable;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Aborts when whoever read stdout has gone (`| head`): nothing is worth writing any more. */
  readonly readerGone: AbortSignal;
}

/** Whether `stream` is a terminal. */
export function isTerminal(stream: Readable | Writable): boolean {
  return "isTTY" in stream && stream.isTTY === true;
}

/** Writes and waits until the stream wants more, or is broken. */
export function write(stream: Writable, chunk: string | Uint8Array): Promise<void> {
  if (stream.write(chunk)) return Promise.resolve();
  return new Promise((resolve) => {
    const done = (): void => {
      stream.off("drain", done).off("close", done).off("error", done);
      resolve();
    };
    stream.on("drain", done).on("close", done).on("error", done);
  });
}

/** A line of progress or a remark for people: never on stdout. */
export function note(io: Io, text: string): void {
  io.stderr.write(`${printable(text)}\n`);
}
