/**
 * How recorded output lies on disk: numbered segments, each a header and whole frames. A frame that was cut off by the
 * death of the daemon is not there.
 *
 *     header  magic u32 · stdout bytes before this segment f64 · stderr bytes before it f64
 *     frame   stream u8 (1 stdout, 2 stderr) · time f64 (ms) · length u32 · bytes
 */
import type { OutputStream } from "../../agent/guest.ts";

export const headerBytes = 20;
export const frameHeaderBytes = 13;
/** Longer chunks are split, so that a reader's buffer always holds a whole frame. */
export const maxFrameData = 65_536;
const magic = 0x64_73_65_31;

/** Bytes of each stream since the exec's start, whether kept or dropped. */
export interface StreamTotals {
  stdout: number;
  stderr: number;
}

export interface RecordFrame {
  readonly stream: OutputStream;
  /** Milliseconds since the epoch. */
  readonly time: number;
  readonly data: Buffer;
}

export function encodeHeader(totals: StreamTotals): Buffer {
  const header = Buffer.alloc(headerBytes);
  header.writeUInt32LE(magic, 0);
  header.writeDoubleLE(totals.stdout, 4);
  header.writeDoubleLE(totals.stderr, 12);
  return header;
}

/** Undefined when this is no header, e.g. one that was cut off. */
export function decodeHeader(bytes: Buffer): StreamTotals | undefined {
  if (bytes.length < headerBytes || bytes.readUInt32LE(0) !== magic) return undefined;
  return { stdout: bytes.readDoubleLE(4), stderr: bytes.readDoubleLE(12) };
}

/** The header of a frame; its data follows. */
export function encodeFrameHeader(stream: OutputStream, time: number, length: number): Buffer {
  const header = Buffer.allocUnsafe(frameHeaderBytes);
  header.writeUInt8(stream === "stdout" ? 1 : 2, 0);
  header.writeDoubleLE(time, 1);
  header.writeUInt32LE(length, 9);
  return header;
}

/** The whole frames at the beginning of `bytes`, and how long they are together. */
export function decodeFrames(bytes: Buffer): { frames: RecordFrame[]; consumed: number } {
  const frames: RecordFrame[] = [];
  let consumed = 0;
  while (consumed + frameHeaderBytes <= bytes.length) {
    const length = bytes.readUInt32LE(consumed + 9);
    const end = consumed + frameHeaderBytes + length;
    if (length > maxFrameData || end > bytes.length) break;
    frames.push({
      stream: bytes.readUInt8(consumed) === 1 ? "stdout" : "stderr",
      time: bytes.readDoubleLE(consumed + 1),
      data: Buffer.from(bytes.subarray(consumed + frameHeaderBytes, end)),
    });
    consumed = end;
  }
  return { frames, consumed };
}
