import type { Timers } from "../../../src/backends/simulated/timers.ts";

/** Time that moves only when told to. */
export class ManualTimers implements Timers {
  #now = 1_000_000;
  readonly #pending = new Set<{ readonly at: number; readonly run: () => void }>();

  get pending(): number {
    return this.#pending.size;
  }

  now(): number {
    return this.#now;
  }

  after(ms: number, run: () => void): () => void {
    const timer = { at: this.#now + ms, run };
    this.#pending.add(timer);
    return () => this.#pending.delete(timer);
  }

  advance(ms: number): void {
    this.#now += ms;
    for (const timer of [...this.#pending].sort((a, b) => a.at - b.at)) {
      if (timer.at > this.#now) continue;
      this.#pending.delete(timer);
      timer.run();
    }
  }
}
