import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { LogLine } from "../../protocol/exec.ts";
import { ExecRecorder, type RecorderOptions } from "./recorder.ts";
import { type PlacedFrame, readFrames, recordingPosition } from "./recording-reader.ts";

export interface RecordingsOptions {
  /** Holds a directory per sandbox, in it one per exec. */
  readonly dir: string;
  readonly headBytes: number;
  readonly tailBytes: number;
  readonly now: () => number;
  readonly failed: (error: unknown, sandbox: string, exec: string) => void;
}

export interface LogQuery {
  /** Lines from the end. */
  readonly tail: number | undefined;
  /** Milliseconds since the epoch. */
  readonly since: number | undefined;
}

const newline = 0x0a;

/** The recorded output of this node's execs. */
export class Recordings {
  readonly #options: RecordingsOptions;

  constructor(options: RecordingsOptions) {
    this.#options = options;
  }

  /** @throws DSecError `disk_full` */
  async create(sandbox: string, exec: string): Promise<ExecRecorder> {
    const options = this.#recorderOptions(sandbox, exec);
    try {
      await mkdir(options.dir, { recursive: true, mode: 0o700 });
      return await ExecRecorder.open(options);
    } catch (error) {
      if (!isErrno(error, "ENOSPC", "EDQUOT")) throw error;
      throw new DSecError("disk_full", "there is no room to record a command's output", { cause: error });
    }
  }

  /** Goes on with a recording of an earlier daemon. */
  async reopen(sandbox: string, exec: string): Promise<ExecRecorder> {
    const options = this.#recorderOptions(sandbox, exec);
    return ExecRecorder.open(options, await recordingPosition(options.dir));
  }

  async remove(sandbox: string, exec: string): Promise<void> {
    await rm(this.#dir(sandbox, exec), { recursive: true, force: true });
  }

  /** The output as it is on disk. With a recorder it follows until that is closed, or `signal` aborts. */
  frames(
    sandbox: string,
    exec: string,
    recorder: ExecRecorder | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<PlacedFrame, void, undefined> {
    return readFrames(this.#dir(sandbox, exec), recorder, signal);
  }

  /** Output and gaps. With a recorder it follows until that is closed, or `signal` aborts. */
  async *read(
    sandbox: string,
    exec: string,
    query: LogQuery,
    recorder: ExecRecorder | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<LogLine, void, undefined> {
    const dir = this.#dir(sandbox, exec);
    const from = query.tail === undefined ? 0 : await tailPosition(dir, query.tail);
    let expected = from;
    for await (const frame of readFrames(dir, recorder, signal)) {
      const end = frame.at + frame.data.length;
      if (end <= from) continue;
      if (frame.at > expected) yield { type: "gap", bytes: frame.at - expected };
      expected = end;
      if (query.since === undefined || frame.time >= query.since) yield outputLine(frame, from);
    }
  }

  #recorderOptions(sandbox: string, exec: string): RecorderOptions {
    const { headBytes, tailBytes, now } = this.#options;
    const failed = (error: unknown): void => this.#options.failed(error, sandbox, exec);
    return { dir: this.#dir(sandbox, exec), headBytes, tailBytes, now, failed };
  }

  #dir(sandbox: string, exec: string): string {
    return join(this.#options.dir, sandbox, exec);
  }
}

function outputLine(frame: PlacedFrame, from: number): LogLine {
  const data = frame.data.subarray(Math.max(0, from - frame.at)).toString("base64");
  return { type: "output", stream: frame.stream, time: frame.time, data };
}

/** Where the last `lines` lines begin; bytes after the last newline are a line too. */
async function tailPosition(dir: string, lines: number): Promise<number> {
  const newlines: number[] = [];
  let end = 0;
  for await (const { at, data } of readFrames(dir, undefined)) {
    for (let index = data.indexOf(newline); index !== -1; index = data.indexOf(newline, index + 1))
      newlines.push(at + index + 1);
    end = at + data.length;
    if (newlines.length > 2 * lines + 1024) newlines.splice(0, newlines.length - lines - 1);
  }
  if (lines === 0) return end;
  if (newlines.at(-1) === end) newlines.pop();
  return newlines.at(-lines) ?? 0;
}
