/** The fields of requests: `tag u8, length u32, bytes` (PROTOCOL.md). */
import { allocFrame, PAYLOAD_AT, writeOffset } from "./frame.ts";

export const Field = {
  argv: 1,
  env: 2,
  cwd: 3,
  user: 4,
  flags: 5,
  timeout: 6,
  size: 7,
  window: 8,
  host: 9,
  port: 10,
  operation: 16,
  path: 17,
  secondPath: 18,
  mode: 19,
  uid: 20,
  gid: 21,
  offset: 22,
  length: 23,
  sha256: 24,
  fileFlags: 25,
  archiveName: 26,
  mtime: 27,
  record: 32,
  skipped: 33,
  entry: 34,
  totals: 35,
} as const;

const PREFIX = 5;

/** Collects fields and writes them into one buffer. */
export class FieldWriter {
  readonly #parts: { tag: number; value: string | Uint8Array; length: number }[] = [];
  /** Bytes of everything added so far. */
  length = 0;

  bytes(tag: number, value: Uint8Array): this {
    return this.#add(tag, value, value.length);
  }

  string(tag: number, value: string): this {
    return this.#add(tag, value, Buffer.byteLength(value));
  }

  u8(tag: number, value: number): this {
    return this.bytes(tag, Uint8Array.of(value));
  }

  u16(tag: number, value: number): this {
    return this.bytes(tag, Uint8Array.of(value & 0xff, value >>> 8));
  }

  u32(tag: number, value: number): this {
    const bytes = Buffer.allocUnsafe(4);
    bytes.writeUInt32LE(value);
    return this.bytes(tag, bytes);
  }

  u64(tag: number, value: number): this {
    const bytes = Buffer.allocUnsafe(8);
    writeOffset(bytes, 0, value);
    return this.bytes(tag, bytes);
  }

  i64(tag: number, value: bigint): this {
    const bytes = Buffer.allocUnsafe(8);
    bytes.writeBigInt64LE(value);
    return this.bytes(tag, bytes);
  }

  #add(tag: number, value: string | Uint8Array, length: number): this {
    this.#parts.push({ tag, value, length });
    this.length += PREFIX + length;
    return this;
  }

  /** A frame with all fields as its payload. */
  toFrame(type: number, channel: number): Buffer {
    const target = allocFrame(type, channel, this.length);
    let position = PAYLOAD_AT;
    for (const { tag, value, length } of this.#parts) {
      target[position] = tag;
      target.writeUInt32LE(length, position + 1);
      if (typeof value === "string") target.write(value, position + PREFIX, length);
      else target.set(value, position + PREFIX);
      position += PREFIX + length;
    }
    return target;
  }
}

/** Each field of `bytes` in order. @throws RangeError when they are cut short. */
export function* readFields(bytes: Buffer): Generator<{ tag: number; value: Buffer }> {
  let at = 0;
  while (at < bytes.length) {
    const length = bytes.readUInt32LE(at + 1);
    const end = at + PREFIX + length;
    if (end > bytes.length) throw new RangeError("a field is cut short");
    yield { tag: bytes.readUInt8(at), value: bytes.subarray(at + PREFIX, end) };
    at = end;
  }
}
