/** Chance that a seed decides: the same seed gives the same sequence, whatever runs beside it. */
export class Random {
  #state: number;

  /** @param seed any whole number */
  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** A whole number of 0 … `below` - 1. */
  int(below: number): number {
    return Math.floor(this.#next() * below);
  }

  /** A whole number of `from` … `to`. */
  between(from: number, to: number): number {
    return from + this.int(to - from + 1);
  }

  chance(probability: number): boolean {
    return this.#next() < probability;
  }

  /** @throws Error when there is nothing to pick from */
  pick<T>(items: readonly T[]): T {
    const index = this.int(items.length);
    for (const item of items.slice(index, index + 1)) return item;
    throw new Error("nothing to pick from");
  }

  weighted<T extends { readonly weight: number }>(items: readonly T[]): T {
    let left = this.#next() * items.reduce((sum, { weight }) => sum + weight, 0);
    for (const item of items) {
      left -= item.weight;
      if (left < 0) return item;
    }
    return this.pick(items);
  }

  bytes(length: number): Buffer {
    const bytes = Buffer.alloc(length);
    let at = 0;
    for (; at + 4 <= length; at += 4) bytes.writeUInt32LE(this.#step(), at);
    for (; at < length; at++) bytes[at] = this.#step() & 0xff;
    return bytes;
  }

  /** Text that quoting must survive; no NUL, no line feed. */
  text(): string {
    return Array.from({ length: this.between(0, 6) }, () => this.pick(pieces)).join("");
  }

  /** mulberry32 */
  #step(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  #next(): number {
    return this.#step() / 4_294_967_296;
  }
}

const pieces = [
  "a",
  "Zz9",
  " ",
  "  ",
  "'",
  '"',
  "$HOME",
  "`id`",
  "\\",
  "\\n",
  "*",
  "-n",
  "ü",
  "日本",
  "👋",
  ";",
  "&&",
  "#",
  "%s",
  "~",
  "\t",
  "!",
] as const;
