import { DSecError } from "../../protocol/errors.ts";
import type { AddressRange } from "./address-range.ts";

/**
 * Hands out the numbers of a range's addresses, going round, so that an address rests as long as possible before it serves again.
 * A number that was given back is used again only when nothing holds it any more.
 */
export class AddressAllocator {
  readonly #range: AddressRange;
  readonly #isHeld: (number: number) => boolean;
  readonly #used = new Set<number>();
  readonly #leaving = new Set<number>();
  #next = 2;

  /** @param isHeld whether something on the node still has the address */
  constructor(range: AddressRange, isHeld: (number: number) => boolean) {
    this.#range = range;
    this.#isHeld = isHeld;
  }

  /** @throws DSecError `no_capacity` */
  take(): number {
    const last = this.#range.size - 2;
    for (let tried = 2; tried <= last; tried += 1) {
      const number = this.#next;
      this.#next = number >= last ? 2 : number + 1;
      if (this.#used.has(number) || (this.#leaving.has(number) && this.#isHeld(number))) continue;
      this.#leaving.delete(number);
      this.#used.add(number);
      return number;
    }
    throw new DSecError("no_capacity", `all addresses of ${this.#range.toString()} are in use`);
  }

  /** Marks the address of a sandbox that an earlier daemon made. */
  hold(number: number): void {
    this.#used.add(number);
    this.#leaving.delete(number);
  }

  /** Gives a number back; it serves again when nothing holds it. */
  release(number: number): void {
    if (this.#used.delete(number)) this.#leaving.add(number);
  }

  /** Whether it is handed out. */
  isUsed(number: number): boolean {
    return this.#used.has(number);
  }
}
