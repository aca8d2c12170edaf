/** So many at once, and so many more with each second. */
export class TokenBucket {
  readonly #perMs: number;
  readonly #burst: number;
  #left: number;
  #at: number;

  /** @param now milliseconds, as given to {@link take} */
  constructor({ perSecond, burst }: { readonly perSecond: number; readonly burst: number }, now: number) {
    this.#perMs = perSecond / 1000;
    this.#burst = burst;
    this.#left = burst;
    this.#at = now;
  }

  /** Takes one, if there is one. */
  take(now: number): boolean {
    this.#left = Math.min(this.#burst, this.#left + Math.max(0, now - this.#at) * this.#perMs);
    this.#at = now;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}
