/**
 * Frames of the agent's channel (PROTOCOL.md): the numbers, the encoder and an incremental, bounded parser.
 */

export const FrameType = {
  hello: 0x01,
  exec: 0x02,
  stdin: 0x03,
  stdinEof: 0x04,
  signal: 0x05,
  resize: 0x06,
  ack: 0x07,
  resume: 0x08,
  release: 0x09,
  ping: 0x0a,
  dial: 0x0b,
  file: 0x0c,
  helloAck: 0x81,
  started: 0x82,
  data: 0x83,
  stdinAck: 0x84,
  exit: 0x85,
  error: 0x86,
  pong: 0x87,
  fileResult: 0x88,
} as const;

export const PROTOCOL_VERSION = 1;
export const PAYLOAD_MAX = 262_144;
export const WINDOW_DEFAULT = 131_072;
export const STDIN_WINDOW = 65_536;
/** As {@link STDIN_WINDOW}, of a file's content. */
export const CONTENT_WINDOW = 1_048_576;
/** Bytes of a STDIN frame. */
export const STDIN_MAX = 65_536;
/** Zero bytes that complete any frame an earlier host left cut off. */
export const PADDING = PAYLOAD_MAX + 16;

const HEADER = 9;
const END = 0xa5;
const NONCE_AT = HEADER + 4;
const endMark = Buffer.from([END]);

/** A frame with room for `length` payload bytes, which begin at {@link PAYLOAD_AT}. */
export function allocFrame(type: number, channel: number, length: number): Buffer {
  const frame = Buffer.allocUnsafe(HEADER + length + 1);
  frame[0] = type;
  frame.writeUInt32LE(channel, 1);
  frame.writeUInt32LE(length, 5);
  frame[HEADER + length] = END;
  return frame;
}

export const PAYLOAD_AT = HEADER;

/** What goes before and after a payload that is not to be copied. */
export function frameAround(type: number, channel: number, length: number): { head: Buffer; tail: Buffer } {
  const head = Buffer.allocUnsafe(HEADER);
  head[0] = type;
  head.writeUInt32LE(channel, 1);
  head.writeUInt32LE(length, 5);
  return { head, tail: endMark };
}

export function encodeFrame(type: number, channel: number, payload?: Uint8Array): Buffer {
  const frame = allocFrame(type, channel, payload?.length ?? 0);
  if (payload) frame.set(payload, HEADER);
  return frame;
}

const HIGH = 2 ** 32;

/** Offsets are u64 on the wire, and safe integers here. */
export function readOffset(bytes: Buffer, at: number): number {
  return bytes.readUInt32LE(at) + bytes.readUInt32LE(at + 4) * HIGH;
}

export function writeOffset(bytes: Buffer, at: number, offset: number): void {
  bytes.writeUInt32LE(offset % HIGH, at);
  bytes.writeUInt32LE(Math.floor(offset / HIGH), at + 4);
}

export type FrameHandler = (type: number, channel: number, payload: Buffer) => void;

/** What the agent sent is not the protocol. The connection cannot be used any further. */
export class FrameError extends Error {
  override readonly name = "FrameError";
}

/**
 * Parses what the agent sends. It begins by discarding everything up to the HELLO_ACK with `nonce`. A payload that lies within
 * one chunk is passed on without a copy; memory beyond that is one frame's at most.
 */
export class FrameParser {
  #nonce: Buffer | undefined;
  #carry: Buffer = Buffer.alloc(0);
  readonly #header = Buffer.alloc(HEADER);
  #headerLength = 0;
  /** Payload and end mark of a frame that spans chunks. */
  #body: Buffer | undefined;
  #bodyLength = 0;
  readonly #handler: FrameHandler;

  constructor(nonce: Buffer, handler: FrameHandler) {
    this.#nonce = nonce;
    this.#handler = handler;
  }

  /** @throws FrameError */
  push(input: Buffer): void {
    let chunk = input;
    if (this.#nonce) {
      const found = this.#seek(input, this.#nonce);
      if (!found) return;
      chunk = found;
      this.#nonce = undefined;
    }
    let at = 0;
    while (at < chunk.length) {
      if (this.#body) {
        const taken = chunk.copy(this.#body, this.#bodyLength, at);
        at += taken;
        this.#bodyLength += taken;
        if (this.#bodyLength < this.#body.length) return;
        const body = this.#body;
        this.#body = undefined;
        this.#emit(this.#header, 0, body);
        continue;
      }
      if (this.#headerLength === 0 && chunk.length - at > HEADER) {
        const length = checkLength(chunk, at);
        const end = at + HEADER + length + 1;
        if (end <= chunk.length) {
          this.#emit(chunk, at, chunk.subarray(at + HEADER, end));
          at = end;
          continue;
        }
      }
      const taken = chunk.copy(this.#header, this.#headerLength, at, at + HEADER - this.#headerLength);
      at += taken;
      this.#headerLength += taken;
      if (this.#headerLength < HEADER) return;
      this.#headerLength = 0;
      this.#body = Buffer.allocUnsafe(checkLength(this.#header, 0) + 1);
      this.#bodyLength = 0;
    }
  }

  #emit(header: Buffer, at: number, body: Buffer): void {
    if (body[body.length - 1] !== END) throw new FrameError("a frame of the agent lacks its end mark");
    this.#handler(header[at] ?? 0, header.readUInt32LE(at + 1), body.subarray(0, body.length - 1));
  }

  /** What follows from the HELLO_ACK's first byte on, once its nonce has come. */
  #seek(input: Buffer, nonce: Buffer): Buffer | undefined {
    const bytes = this.#carry.length > 0 ? Buffer.concat([this.#carry, input]) : input;
    const at = bytes.indexOf(nonce) - NONCE_AT;
    if (at >= 0 && bytes[at] === FrameType.helloAck) return bytes.subarray(at);
    this.#carry = Buffer.from(bytes.subarray(Math.max(0, bytes.length - NONCE_AT - nonce.length + 1)));
    return undefined;
  }
}

function checkLength(bytes: Buffer, at: number): number {
  const length = bytes.readUInt32LE(at + 5);
  if (length > PAYLOAD_MAX) throw new FrameError(`a frame of the agent claims ${length} bytes`);
  return length;
}
