import type { NetworkDecision } from "../../protocol/network-decision.ts";
import type { ReportedDecision } from "./gate/decision-batch.ts";

/** Decisions kept of a sandbox, and of all of them. */
const most = { perSandbox: 512, inAll: 200_000 } as const;

interface Kept {
  readonly decisions: NetworkDecision[];
  sequence: number;
  /** Wake those who wait for more. */
  readonly waiting: Set<() => void>;
}

/** The last decisions about each sandbox, oldest first. */
export class DecisionLog {
  readonly #kept = new Map<string, Kept>();
  #size = 0;

  add({ sandbox, decision, time, count }: ReportedDecision): void {
    const kept = this.#kept.get(sandbox) ?? { decisions: [], sequence: 0, waiting: new Set() };
    this.#kept.set(sandbox, kept);
    kept.sequence += 1;
    kept.decisions.push({ ...decision, sandbox, time, count, sequence: kept.sequence });
    this.#size += 1;
    if (kept.decisions.length > most.perSandbox || this.#size > most.inAll) {
      kept.decisions.shift();
      this.#size -= 1;
    }
    for (const wake of kept.waiting) wake();
  }

  /** Forgets a sandbox; whoever follows it has reached the end. */
  remove(sandbox: string): void {
    const kept = this.#kept.get(sandbox);
    if (kept === undefined) return;
    this.#kept.delete(sandbox);
    this.#size -= kept.decisions.length;
    for (const wake of kept.waiting) wake();
  }

  /**
   * @param since milliseconds since the epoch
   * @param follow whether to go on with those that come, until `signal` aborts or the sandbox is removed
   */
  async *read(
    sandbox: string,
    { since = 0, follow }: { since: number | undefined; follow: boolean },
    signal: AbortSignal,
  ): AsyncGenerator<NetworkDecision, void, undefined> {
    let told = 0;
    for (;;) {
      const kept = this.#kept.get(sandbox);
      for (const decision of kept?.decisions.filter(
        ({ sequence, time }) => sequence > told && time >= since,
      ) ?? []) {
        yield decision;
        told = decision.sequence;
      }
      if (!follow || signal.aborted || (told > 0 && !this.#kept.has(sandbox))) return;
      await this.#more(sandbox, told, signal);
      if (!this.#kept.has(sandbox)) return;
    }
  }

  async #more(sandbox: string, told: number, signal: AbortSignal): Promise<void> {
    const kept = this.#kept.get(sandbox) ?? { decisions: [], sequence: 0, waiting: new Set() };
    this.#kept.set(sandbox, kept);
    if (kept.sequence > told || signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    kept.waiting.add(resolve);
    signal.addEventListener("abort", () => resolve(), { once: true });
    try {
      await promise;
    } finally {
      kept.waiting.delete(resolve);
    }
  }
}
