import type { FastifyBaseLogger } from "fastify";
import { DSecError } from "../../protocol/errors.ts";
import type { FleetNode } from "./fleet-node.ts";

/** Milliseconds a client whose connection broke has to come back with its idempotency key. */
const graceMs = 30_000;

/**
 * Sandboxes whose client went away before it learned of them. Without a key nobody can find them again: they are removed at once; with
 * one, unless the client comes back in time. Should the coordinator end first, their idle limit ends them.
 */
export class Orphans {
  readonly #log: FastifyBaseLogger;
  readonly #timers = new Map<string, NodeJS.Timeout>();

  constructor(log: FastifyBaseLogger) {
    this.#log = log;
  }

  /** @param forget called before a sandbox with a key is removed */
  left(node: FleetNode, id: string, forget: (() => void) | undefined): void {
    if (forget === undefined) {
      void this.#remove(node, id);
      return;
    }
    this.claimed(id);
    const timer = setTimeout(() => {
      this.#timers.delete(id);
      void this.#remove(node, id, forget);
    }, graceMs);
    this.#timers.set(id, timer.unref());
  }

  /** Its client is back. */
  claimed(id: string): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
  }

  close(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }

  async #remove(node: FleetNode, id: string, forget?: () => void): Promise<void> {
    try {
      forget?.();
      await node.client.json("removeSandbox", { params: { ref: id }, timeoutMs: 60_000 });
    } catch (error) {
      if (error instanceof DSecError && error.code === "not_found") return;
      this.#log.warn({ err: error, sandbox: id }, "a sandbox without a client could not be removed");
    }
  }
}
