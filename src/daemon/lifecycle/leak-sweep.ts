import type { Logger } from "pino";
import type { Backend } from "../../backends/backend.ts";
import type { Clock } from "../clock.ts";
import type { PreparedSandbox, Provisioner } from "../provisioner.ts";
import type { Sandboxes } from "./sandboxes.ts";

export interface LeakSweepParts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly sandboxes: Sandboxes;
  readonly backends: readonly Backend[];
  /** Undefined where the node has no backend that needs it. */
  readonly provisioner: Provisioner | undefined;
}

/** Milliseconds until what could not be removed is tried again. */
const retryMs = 30_000;

/** Removes, in the background, what no live sandbox owns. One sweep at a time. */
export class LeakSweep {
  readonly #parts: LeakSweepParts;
  /** Prepared for sandboxes that are lost or could not be destroyed. */
  readonly #orphans = new Set<PreparedSandbox>();
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

  /** Sweeps in a while: something could not be removed at once. @param prepared what the provisioner holds for it */
  leaked(prepared: PreparedSandbox | undefined): void {
    if (prepared !== undefined) this.#orphans.add(prepared);
    this.#retryLater();
  }

  #retryLater(): void {
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
    let clear = true;
    for (const backend of backends) {
      const name = backend.engine ?? backend.kind;
      const swept = await this.#attempt(name, async () => {
        const removed = await backend.sweep(this.#keep(), this.#closing.signal);
        if (removed.length > 0) log.info({ backend: name, removed }, "leaks removed");
      });
      if (backend.capabilities.root === "prepared") clear &&= swept;
    }
    // else something may still run in what was prepared for it
    if (!clear) return;
    await this.#releaseOrphans();
    await this.#attempt("provisioner", async () => {
      const removed = (await provisioner?.sweep(this.#keep(), this.#closing.signal)) ?? [];
      if (removed.length > 0) log.info({ removed }, "leaks removed");
    });
  }

  /** Whether the step went well; if not, all are tried again later. */
  async #attempt(name: string, step: () => Promise<void>): Promise<boolean> {
    try {
      await step();
      return true;
    } catch (error) {
      if (this.#closing.signal.aborted) return false;
      this.#parts.log.warn({ err: error, name }, "leaks could not be removed");
      this.#retryLater();
      return false;
    }
  }

  /** Those that still cannot be released are tried again by the next sweep. */
  async #releaseOrphans(): Promise<void> {
    for (const orphan of this.#orphans) {
      try {
        await orphan.release();
        this.#orphans.delete(orphan);
      } catch (error) {
        this.#parts.log.warn({ err: error }, "what was prepared for a lost sandbox could not be released");
        this.#retryLater();
      }
    }
  }

  /** Asked for anew by each part: sandboxes come and go meanwhile. */
  #keep(): Set<string> {
    return new Set(this.#parts.sandboxes.live().map(({ id }) => id));
  }
}
