import { allocFrame, encodeFrame, frameAround, FrameType } from "./frame.ts";
import { PAYLOAD_AT, STDIN_MAX, STDIN_WINDOW } from "./frame.ts";
import type { Link } from "./link.ts";

interface Waiting {
  chunk: Uint8Array;
  readonly done: () => void;
}

/** Payloads from this size on are sent from where they are: copying costs more than two writes. */
const COPIED_BELOW = 16_384;

/** The host's side of one channel's incoming bytes: at most a window of them beyond what the agent has handed on. */
export class StdinWindow {
  readonly #link: Link;
  readonly #channel: number;
  readonly #window: number;
  readonly #keeps: boolean;
  readonly #waiting: Waiting[] = [];
  #sent = 0;
  #acknowledged = 0;
  #ended = false;
  #trailer: Buffer | undefined;
  #dropping = false;
  #onDrained: (() => void) | undefined;

  /** @param options.keeps whether what is written stays unchanged for good, so that it need not be copied */
  constructor(link: Link, channel: number, options: { window?: number; keeps?: boolean } = {}) {
    this.#link = link;
    this.#channel = channel;
    this.#window = options.window ?? STDIN_WINDOW;
    this.#keeps = options.keeps ?? false;
  }

  /** Takes up where an earlier connection stood. Nothing is sent until the agent says how much it has handed on. */
  resumeAt(received: number): void {
    this.#sent = received;
    this.#acknowledged = received - this.#window;
  }

  write(chunk: Uint8Array): Promise<void> {
    return new Promise((resolve) => this.push(chunk, resolve));
  }

  /** Calls `done` when all of the chunk has been sent, or will never be. The bytes are the caller's again then. */
  push(chunk: Uint8Array, done: () => void): void {
    if (this.#ended || this.#dropping) {
      done();
      return;
    }
    const rest = this.#waiting.length === 0 ? this.#send(chunk) : chunk;
    if (rest.length === 0) done();
    else this.#waiting.push({ chunk: rest, done });
  }

  /** @param trailer goes with the end, e.g. a hash of everything */
  end(trailer?: Buffer): void {
    if (this.#ended || this.#dropping) return;
    this.#ended = true;
    this.#trailer = trailer;
    if (this.#waiting.length === 0) this.#sendEnd();
  }

  acknowledge(offset: number): void {
    this.#acknowledged = offset;
    for (let first = this.#waiting[0]; first; first = this.#waiting[0]) {
      first.chunk = this.#send(first.chunk);
      if (first.chunk.length > 0) return;
      this.#waiting.shift();
      first.done();
      if (this.#ended && this.#waiting.length === 0) this.#sendEnd();
    }
    if (this.#acknowledged === this.#sent) this.#drained();
  }

  /** The other side is gone: what waits and what comes is dropped. */
  drop(): void {
    this.#dropping = true;
    for (const { done } of this.#waiting.splice(0)) done();
    this.#drained();
  }

  /** Calls `done` once when everything that was written has been handed on. */
  whenDrained(done: () => void): void {
    this.#onDrained = done;
    if (this.#dropping || (this.#acknowledged === this.#sent && this.#waiting.length === 0)) this.#drained();
  }

  #drained(): void {
    const done = this.#onDrained;
    this.#onDrained = undefined;
    done?.();
  }

  #sendEnd(): void {
    this.#link.send(encodeFrame(FrameType.stdinEof, this.#channel, this.#trailer));
  }

  /** Sends what fits and returns the rest. */
  #send(chunk: Uint8Array): Uint8Array {
    let at = 0;
    while (at < chunk.length) {
      const room = this.#window - (this.#sent - this.#acknowledged);
      const length = Math.min(room, STDIN_MAX, this.#window / 2, chunk.length - at);
      if (length <= 0) break;
      this.#sendPart(chunk.subarray(at, at + length));
      this.#sent += length;
      at += length;
    }
    return chunk.subarray(at);
  }

  #sendPart(bytes: Uint8Array): void {
    if (this.#keeps && bytes.length >= COPIED_BELOW) {
      const { head, tail } = frameAround(FrameType.stdin, this.#channel, bytes.length);
      for (const part of [head, bytes, tail]) this.#link.send(part);
      return;
    }
    const frame = allocFrame(FrameType.stdin, this.#channel, bytes.length);
    frame.set(bytes, PAYLOAD_AT);
    this.#link.send(frame);
  }
}
