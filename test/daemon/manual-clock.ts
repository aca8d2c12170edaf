import type { Clock } from "../../src/daemon/clock.ts";

interface Timer {
  readonly at: number;
  readonly run: () => void;
}

/** A clock that a test moves. Timers fire in order, at their own time. */
export class ManualClock implements Clock {
  #now: number;
  readonly #timers = new Set<Timer>();

  constructor(now = 1_000_000) {
    this.#now = now;
  }

  /** Timers that are armed. */
  get pending(): number {
    return this.#timers.size;
  }

  now(): number {
    return this.#now;
  }

  after(ms: number, run: () => void): () => void {
    const timer = { at: this.#now + ms, run };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  advance(ms: number): void {
    const end = this.#now + ms;
    for (let next = this.#next(end); next !== undefined; next = this.#next(end)) {
      this.#timers.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.run();
    }
    this.#now = end;
  }

  #next(end: number): Timer | undefined {
    const due = [...this.#timers].filter(({ at }) => at <= end);
    return due.sort((a, b) => a.at - b.at)[0];
  }
}
