import type { Logger } from "pino";
import type { Usage } from "../../protocol/sandbox.ts";
import { mapBounded } from "../bounded.ts";
import type { Clock } from "../clock.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";

const parallel = 16;

/** What a sandbox uses now; undefined when nothing runs, or it went away while it was asked. @throws what the backend or the disk says */
export async function usageOf(entry: SandboxEntry): Promise<Usage | undefined> {
  const { running, prepared } = entry;
  if (running === undefined) return undefined;
  try {
    const [usage, diskBytes] = await Promise.all([running.usage(), prepared?.diskUsage()]);
    return { ...usage, diskBytes: diskBytes ?? usage.diskBytes };
  } catch (error) {
    if (entry.running !== running || entry.record.state !== "running") return undefined;
    throw error;
  }
}

/** The same where many are asked: one that cannot be read has none, and does not hide the others'. Its own view tells why. */
export async function readableUsageOf(entry: SandboxEntry): Promise<Usage | undefined> {
  return usageOf(entry).catch(() => undefined);
}

/** In the order of the entries. */
export async function usagesOf(entries: readonly SandboxEntry[]): Promise<(Usage | undefined)[]> {
  return mapBounded(entries, parallel, readableUsageOf);
}

export interface UsedTotals {
  readonly memoryBytes: number;
  readonly diskBytes: number;
}

/** What all sandboxes use together, measured behind, at most every `intervalMs`: thousands of sandboxes take a while. */
export class UsedTotalsSampler {
  readonly #sandboxes: Sandboxes;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #intervalMs: number;
  #totals: UsedTotals = { memoryBytes: 0, diskBytes: 0 };
  #measuredAt = Number.NEGATIVE_INFINITY;
  #measuring = false;

  constructor(options: { sandboxes: Sandboxes; clock: Clock; log: Logger; intervalMs: number }) {
    this.#sandboxes = options.sandboxes;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#intervalMs = options.intervalMs;
  }

  /** The last measurement; begins another when that is old. */
  totals(): UsedTotals {
    if (!this.#measuring && this.#clock.now() - this.#measuredAt > this.#intervalMs) void this.#measure();
    return this.#totals;
  }

  async #measure(): Promise<void> {
    this.#measuring = true;
    try {
      const usages = await usagesOf(this.#sandboxes.live());
      this.#totals = {
        memoryBytes: usages.reduce((sum, usage) => sum + (usage?.memoryBytes ?? 0), 0),
        diskBytes: usages.reduce((sum, usage) => sum + (usage?.diskBytes ?? 0), 0),
      };
    } catch (error) {
      this.#log.warn({ err: error }, "the use of the sandboxes could not be measured");
    } finally {
      this.#measuring = false;
      this.#measuredAt = this.#clock.now();
    }
  }
}
