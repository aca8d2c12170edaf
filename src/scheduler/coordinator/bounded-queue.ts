/** Passes items from several writers to one reader; writers wait while it is full. */
export class BoundedQueue<T> {
  readonly #capacity: number;
  readonly #items: T[] = [];
  readonly #writers: (() => void)[] = [];
  #reader: (() => void) | undefined;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** Resolves when the item is in the queue; also when `signal` aborts, the item then being dropped. */
  async put(item: T, signal: AbortSignal): Promise<void> {
    while (this.#items.length >= this.#capacity && !signal.aborted) await this.#room(signal);
    if (signal.aborted) return;
    this.#items.push(item);
    this.#reader?.();
  }

  /** The next item; undefined when none came within `timeoutMs`, or `signal` aborted. For one reader at a time. */
  async take(timeoutMs: number, signal: AbortSignal): Promise<T | undefined> {
    if (this.#items.length === 0 && !signal.aborted) await this.#arrival(timeoutMs, signal);
    const item = this.#items.shift();
    this.#writers.shift()?.();
    return item;
  }

  #room(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const settle = (): void => {
        signal.removeEventListener("abort", settle);
        resolve();
      };
      this.#writers.push(settle);
      signal.addEventListener("abort", settle, { once: true });
    });
  }

  #arrival(timeoutMs: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const settle = (): void => {
        clearTimeout(timer);
        signal.removeEventListener("abort", settle);
        this.#reader = undefined;
        resolve();
      };
      const timer = setTimeout(settle, timeoutMs);
      signal.addEventListener("abort", settle, { once: true });
      this.#reader = settle;
    });
  }
}
