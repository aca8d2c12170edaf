import type { DSecError } from "./errors.ts";

/** The bytes of an archive, in the pieces in which its reader wants them. */
export class TarBytes {
  readonly #source: AsyncIterator<Uint8Array>;
  readonly #cutOff: () => DSecError;
  #rest: Buffer = Buffer.alloc(0);

  /** @param cutOff what an archive that ends too early is refused with */
  constructor(source: AsyncIterable<Uint8Array>, cutOff: () => DSecError) {
    this.#cutOff = cutOff;
    this.#source = source[Symbol.asyncIterator]();
  }

  /** At least one byte and at most so many, without a copy; none at the end of the archive. */
  async some(most: number): Promise<Buffer> {
    while (this.#rest.length === 0) {
      const next = await this.#source.next();
      if (next.done === true) return this.#rest;
      this.#rest = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
    }
    const part = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(part.length);
    return part;
  }

  /** Exactly so many; undefined where the archive ends before the first. */
  async takeOrEnd(length: number): Promise<Buffer | undefined> {
    const first = await this.some(length);
    if (first.length === length) return first;
    if (first.length === 0) return undefined;
    const whole = Buffer.allocUnsafe(length);
    let have = first.copy(whole);
    while (have < length) {
      const part = await this.some(length - have);
      if (part.length === 0) throw this.#cutOff();
      have += part.copy(whole, have);
    }
    return whole;
  }

  async take(length: number): Promise<Buffer> {
    if (length === 0) return Buffer.alloc(0);
    const taken = await this.takeOrEnd(length);
    if (taken === undefined) throw this.#cutOff();
    return taken;
  }

  async skip(length: number): Promise<void> {
    for (let left = length; left > 0;) {
      const part = await this.some(left);
      if (part.length === 0) throw this.#cutOff();
      left -= part.length;
    }
  }

  /** Reads to the end of the stream, which says that it was whole. */
  async drain(): Promise<void> {
    while ((await this.#source.next()).done !== true);
  }
}
