import { type FileHandle, open, rm } from "node:fs/promises";
import { join } from "node:path";
import type { OutputStream } from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import {
  encodeFrameHeader,
  encodeHeader,
  headerBytes,
  maxFrameData,
  type StreamTotals,
} from "./record-format.ts";

export interface RecorderOptions {
  readonly dir: string;
  /** Bytes on disk of the beginning that is kept. */
  readonly headBytes: number;
  /** Bytes on disk of the end that is kept at least; at most half as much again. */
  readonly tailBytes: number;
  readonly now: () => number;
  /** Told once, when recording had to stop. */
  readonly failed: (error: unknown) => void;
}

/** Where a recording was left off. */
export interface RecorderPosition {
  readonly segment: number;
  /** Bytes of the segment's file that are whole frames. */
  readonly segmentBytes: number;
  readonly totals: StreamTotals;
}

interface Pending {
  readonly chunks: readonly Buffer[];
  /** Of the streams, before this one. */
  readonly before: StreamTotals;
  readonly done: () => void;
}

/** Segments of the tail that are kept beside the one being written. */
const keptSegments = 2;

/**
 * Writes the output of one exec to disk: segment 0 is the head and stays, later ones are the tail and replace each other. What is appended
 * is acknowledged when it was written, so that the writer's memory is bounded by what its callers hold.
 */
export class ExecRecorder {
  readonly #options: RecorderOptions;
  readonly #totals: StreamTotals;
  #segment: number;
  #segmentBytes: number;
  #file: FileHandle | undefined;
  #queue: Pending[] = [];
  #writing: Promise<void> | undefined;
  #broken = false;
  #closed = false;
  #version = 0;
  readonly #followers = new Set<() => void>();

  private constructor(options: RecorderOptions, file: FileHandle, position: RecorderPosition) {
    this.#options = options;
    this.#file = file;
    this.#segment = position.segment;
    this.#segmentBytes = position.segmentBytes;
    this.#totals = { ...position.totals };
  }

  /** Begins a recording, or goes on with one at `position`. The directory must exist. */
  static async open(options: RecorderOptions, position?: RecorderPosition): Promise<ExecRecorder> {
    const file = await open(
      join(options.dir, String(position?.segment ?? 0)),
      position === undefined ? "w" : "r+",
    );
    try {
      if (position !== undefined) {
        await file.truncate(position.segmentBytes);
        return new ExecRecorder(options, file, position);
      }
      const totals = { stdout: 0, stderr: 0 };
      await file.write(encodeHeader(totals), 0, headerBytes, 0);
      return new ExecRecorder(options, file, { segment: 0, segmentBytes: headerBytes, totals });
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** Bytes of each stream that were taken so far. */
  get totals(): Readonly<StreamTotals> {
    return this.#totals;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Rises with every change of the files. */
  get version(): number {
    return this.#version;
  }

  /** Resolves when the chunk is on its way to the disk, or recording has failed. Bytes that were taken before are skipped. */
  append(stream: OutputStream, offset: number, chunk: Buffer): Promise<void> | undefined {
    const fresh = chunk.subarray(Math.max(0, this.#totals[stream] - offset));
    if (fresh.length === 0 || this.#closed) return undefined;
    this.#totals[stream] += fresh.length;
    if (this.#broken) return undefined;
    const time = this.#options.now();
    const chunks: Buffer[] = [];
    for (let at = 0; at < fresh.length; at += maxFrameData) {
      const data = fresh.subarray(at, at + maxFrameData);
      chunks.push(encodeFrameHeader(stream, time, data.length), data);
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    const before = { ...this.#totals };
    before[stream] -= fresh.length;
    this.#queue.push({ chunks, before, done: resolve });
    this.#writing ??= this.#drain();
    return promise;
  }

  async #drain(): Promise<void> {
    for (let first = this.#queue[0]; first !== undefined; first = this.#queue[0]) {
      const batch = this.#queue;
      this.#queue = [];
      try {
        await this.#write(
          batch.flatMap(({ chunks }) => chunks),
          first.before,
        );
      } catch (error) {
        if (!this.#broken) this.#options.failed(error);
        this.#broken = true;
      }
      this.#changed();
      for (const { done } of batch) done();
    }
    this.#writing = undefined;
  }

  async #write(chunks: readonly Buffer[], totalsBefore: StreamTotals): Promise<void> {
    if (this.#broken) return;
    const { headBytes, tailBytes } = this.#options;
    const limit = this.#segment === 0 ? headBytes : tailBytes / keptSegments;
    if (this.#segmentBytes >= limit) await this.#rotate(totalsBefore);
    const length = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    const written = await this.#file?.writev([...chunks], this.#segmentBytes);
    // on a disk that is nearly full; the next frame must not lie behind a hole
    if (written?.bytesWritten !== length)
      throw new DSecError("disk_full", `a part of ${length} bytes could not be recorded`);
    this.#segmentBytes += length;
  }

  async #rotate(totals: StreamTotals): Promise<void> {
    await this.#file?.close();
    this.#segment += 1;
    this.#file = await open(join(this.#options.dir, String(this.#segment)), "w");
    await this.#file.write(encodeHeader(totals), 0, headerBytes, 0);
    this.#segmentBytes = headerBytes;
    const oldest = this.#segment - keptSegments - 1;
    if (oldest > 0) await rm(join(this.#options.dir, String(oldest)), { force: true });
  }

  #changed(): void {
    this.#version += 1;
    for (const wake of this.#followers) wake();
  }

  /** Resolves when the files are newer than `version`, the recording is closed, or `signal` aborts. */
  async newer(version: number, signal: AbortSignal | undefined): Promise<void> {
    if (this.#closed || this.#version > version || signal?.aborted === true) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const wake = (): void => resolve();
    this.#followers.add(wake);
    signal?.addEventListener("abort", wake, { once: true });
    await promise;
    this.#followers.delete(wake);
    signal?.removeEventListener("abort", wake);
  }

  /** Ends the recording; resolves when everything is written. */
  async close(): Promise<void> {
    await this.#writing;
    this.#closed = true;
    const file = this.#file;
    this.#file = undefined;
    this.#changed();
    await file?.close();
  }
}
