/** Text hardly ever has this byte, and a nonce never. */
const lead = 0x1e;
const maxStatusDigits = 6;

/** What a piece of a stream held. */
export interface Scanned {
  /** The command's own bytes. */
  readonly output: Buffer;
  /** Where the marker was in it: the number it carried. */
  readonly status: number | undefined;
}

/** A `printf` format for the marker, with one `%s` for the number; its source text does not contain the marker. */
export function markerFormat(nonce: string): string {
  return `\\036${nonce}%s\\036`;
}

/**
 * Finds the end of one command's output in a stream: the marker that its shell prints after it. Everything before it is
 * passed on exactly; at most a marker's length is held back.
 */
export class EndMarkerScanner {
  readonly #prefix: Buffer;
  #held: Buffer = Buffer.alloc(0);

  /** @param nonce of the command; must not contain the byte 0x1e */
  constructor(nonce: string) {
    this.#prefix = Buffer.concat([Buffer.from([lead]), Buffer.from(nonce)]);
  }

  /** What comes after the marker in the same piece is dropped. */
  push(chunk: Buffer): Scanned {
    const data = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    this.#held = Buffer.alloc(0);
    for (let at = data.indexOf(this.#prefix); at >= 0; at = data.indexOf(this.#prefix, at + 1)) {
      const from = at + this.#prefix.length;
      const end = data.indexOf(lead, from);
      if (end < 0 && data.length - from <= maxStatusDigits) return this.#hold(data, at);
      const digits = data.toString("latin1", from, end);
      if (end >= 0 && /^\d{1,6}$/.test(digits))
        return { output: data.subarray(0, at), status: Number(digits) };
    }
    const last = data.lastIndexOf(lead);
    const isBeginning =
      last > data.length - this.#prefix.length &&
      this.#prefix.subarray(0, data.length - last).equals(data.subarray(last));
    return isBeginning ? this.#hold(data, last) : { output: data, status: undefined };
  }

  /** What was held back, when no more comes. */
  rest(): Buffer {
    const rest = this.#held;
    this.#held = Buffer.alloc(0);
    return rest;
  }

  #hold(data: Buffer, at: number): Scanned {
    // a copy: what carried it is not to be kept alive
    this.#held = Buffer.from(data.subarray(at));
    return { output: data.subarray(0, at), status: undefined };
  }
}
