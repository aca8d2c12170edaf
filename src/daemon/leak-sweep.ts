import type { Logger } from "pino";
import type { Backend } from "../backends/backend.ts";
import type { Clock } from "./clock.ts";
import type { Provisioner } from "./provisioner.ts";
import type { Sandboxes } from "./sandboxes.ts";

export interface LeakSweepParts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly sandboxes: Sandboxes;
  readonly backends: readonly Backend[];
  readonly provisioner: Provisioner | undefined;
}

/** Milliseconds until what could not be removed is tried again. */
const retryMs = 30_000;

/** Removes, in the background, what no live sandbox owns. One sweep at a time. */
export class LeakSweep {
  readonly #parts: LeakSweepParts;
  readonly #closing = new AbortController();
  #running: Promise<void> | undefined;
  #disposeRetry: (() => void) | undefined;

  constructor(parts: LeakSweepParts) {
    this.#parts = parts;
  }

  /** Sweeps now, and again later if that fails. Resolves when this sweep is over. */
  async run(): Promise<void> {
    this.#running ??= this.#sweep().finally(() => {
      this.#running = undefined;
    });
    await this.#running;
  }

  /** Sweeps in a while: something could not be removed at once. */
  retryLater(): void {
    if (this.#disposeRetry !== undefined || this.#closing.signal.aborted) return;
    this.#disposeRetry = this.#parts.clock.after(retryMs, () => {
      this.#disposeRetry = undefined;
      void this.run();
    });
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#disposeRetry?.();
    await this.#running;
  }

  async #sweep(): Promise<void> {
    const { log, backends, provisioner } = this.#parts;
    try {
      for (const backend of backends) {
        const removed = await backend.sweep(this.#keep(), this.#closing.signal);
        if (removed.length > 0)
          log.info({ backend: backend.engine ?? backend.kind, removed }, "leaks removed");
      }
      const removed = (await provisioner?.sweep(this.#keep(), this.#closing.signal)) ?? [];
      if (removed.length > 0) log.info({ removed }, "leaks removed");
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      log.warn({ err: error }, "leaks could not be removed");
      this.retryLater();
    }
  }

  /** Asked for anew by each part: sandboxes come and go meanwhile. */
  #keep(): Set<string> {
    return new Set(this.#parts.sandboxes.live().map(({ id }) => id));
  }
}
