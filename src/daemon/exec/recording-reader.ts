import { type FileHandle, open, readdir } from "node:fs/promises";
import { join } from "node:path";
import { DSecError } from "../../protocol/errors.ts";
import {
  decodeFrames,
  decodeHeader,
  headerBytes,
  type RecordFrame,
  type StreamTotals,
} from "./record-format.ts";
import type { ExecRecorder, RecorderPosition } from "./recorder.ts";

/** A frame with what was before it since the exec's start. */
export interface PlacedFrame extends RecordFrame {
  /** Bytes of both streams. */
  readonly at: number;
  /** Bytes of its own stream. */
  readonly offset: number;
}

const readBytes = 262_144;

interface OpenSegment {
  readonly number: number;
  readonly file: FileHandle;
  readonly totals: StreamTotals;
}

/**
 * The frames of a recording, in order; what lies between them was dropped. With a recorder that still writes they go on
 * until it is closed, or `signal` aborts.
 */
export async function* readFrames(
  dir: string,
  recorder: ExecRecorder | undefined,
  signal?: AbortSignal,
): AsyncGenerator<PlacedFrame, void, undefined> {
  let segment = await openSegment(dir, -1);
  const buffer = Buffer.allocUnsafe(readBytes);
  try {
    while (segment !== undefined) {
      let position = headerBytes;
      const totals = { ...segment.totals };
      let isComplete = false;
      for (;;) {
        const version = recorder?.version ?? 0;
        const isClosed = recorder?.closed ?? true;
        const { bytesRead } = await segment.file.read(buffer, 0, readBytes, position);
        const { frames, consumed } = decodeFrames(buffer.subarray(0, bytesRead));
        for (const frame of frames) {
          yield { ...frame, at: totals.stdout + totals.stderr, offset: totals[frame.stream] };
          totals[frame.stream] += frame.data.length;
        }
        position += consumed;
        if (consumed > 0) continue;
        // read once more after a newer segment was seen: this one may have grown until then
        if (isComplete) break;
        isComplete = (await segmentsAfter(dir, segment.number)).length > 0;
        if (isComplete) continue;
        if (isClosed || recorder === undefined || signal?.aborted === true) return;
        await recorder.newer(version, signal);
      }
      await segment.file.close();
      const { number } = segment;
      segment = undefined;
      segment = await openSegment(dir, number);
    }
  } finally {
    await segment?.file.close();
  }
}

/** Where a recording ends, as far as its frames are whole. */
export async function recordingPosition(dir: string): Promise<RecorderPosition> {
  const numbers = await segmentsAfter(dir, -1);
  const segment = await openSegment(dir, (numbers.at(-1) ?? 0) - 1);
  if (segment === undefined) throw new DSecError("internal", `there is no recording in ${dir}`);
  try {
    const totals = { ...segment.totals };
    let position = headerBytes;
    const buffer = Buffer.allocUnsafe(readBytes);
    for (;;) {
      const { bytesRead } = await segment.file.read(buffer, 0, readBytes, position);
      const { frames, consumed } = decodeFrames(buffer.subarray(0, bytesRead));
      if (consumed === 0) return { segment: segment.number, segmentBytes: position, totals };
      for (const { stream, data } of frames) totals[stream] += data.length;
      position += consumed;
    }
  } finally {
    await segment.file.close();
  }
}

/** The next segment whose header is whole. */
async function openSegment(dir: string, after: number): Promise<OpenSegment | undefined> {
  for (const number of await segmentsAfter(dir, after)) {
    let file: FileHandle;
    try {
      file = await open(join(dir, String(number)), "r");
    } catch (error) {
      // replaced since it was listed
      if (error instanceof Error && "code" in error && error.code === "ENOENT") continue;
      throw error;
    }
    const header = Buffer.alloc(headerBytes);
    await file.read(header, 0, headerBytes, 0);
    const totals = decodeHeader(header);
    if (totals !== undefined) return { number, file, totals };
    await file.close();
  }
  return undefined;
}

async function segmentsAfter(dir: string, after: number): Promise<number[]> {
  const names = await readdir(dir);
  return names
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((number) => number > after)
    .sort((a, b) => a - b);
}
