/** Lets at most `permits` holders in at a time, first come first served. */
export class Semaphore {
  #free: number;
  readonly #waiting = new Set<() => void>();

  constructor(permits: number) {
    this.#free = permits;
  }

  /** Resolves to the release, to be called once. @throws the signal's reason */
  async acquire(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#free > 0) this.#free -= 1;
    else await this.#wait(signal);
    return () => this.#release();
  }

  async #wait(signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#waiting.add(resolve);
    const giveUp = (): void => {
      if (this.#waiting.delete(resolve)) reject(signal.reason as Error);
    };
    signal.addEventListener("abort", giveUp, { once: true });
    try {
      await promise;
    } finally {
      signal.removeEventListener("abort", giveUp);
    }
  }

  #release(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free += 1;
      return;
    }
    // the permit passes on without becoming free
    this.#waiting.delete(next);
    next();
  }
}
