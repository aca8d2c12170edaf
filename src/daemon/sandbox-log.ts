export interface LogEntry<T> {
  /** Rises by one with each entry of the sandbox. */
  readonly sequence: number;
  /** Milliseconds since the epoch. */
  readonly time: number;
  readonly value: T;
  /** What counts for itself in {@link LogLimits.perLane}. */
  readonly lane: string;
  readonly weight: number;
}

export interface LogLimits {
  /** Entries of a sandbox and a lane: many of one kind do not push out the others. */
  readonly perLane: number;
  /** Sum of the weights of all entries. */
  readonly inAll: number;
}

export interface LogQuery {
  /** Milliseconds since the epoch. */
  readonly since: number | undefined;
  /** Whether to go on with those that come. */
  readonly follow: boolean;
}

interface Kept<T> {
  readonly entries: LogEntry<T>[];
  readonly lanes: Map<string, number>;
  sequence: number;
  ended: boolean;
  /** Wake those who wait for more. */
  readonly waiting: Set<() => void>;
}

/** The last entries about each sandbox, oldest first, in memory. */
export class SandboxLog<T> {
  readonly #limits: LogLimits;
  readonly #kept = new Map<string, Kept<T>>();
  /** Sandboxes that have ended and are still kept, the longest ended first. */
  readonly #ended = new Set<string>();
  #weight = 0;

  constructor(limits: LogLimits) {
    this.#limits = limits;
  }

  /** @param time milliseconds since the epoch */
  add(sandbox: string, time: number, value: T, { lane = "", weight = 1 } = {}): void {
    const kept = this.#keep(sandbox);
    kept.sequence += 1;
    kept.entries.push({ sequence: kept.sequence, time, value, lane, weight });
    this.#weight += weight;
    const inLane = (kept.lanes.get(lane) ?? 0) + 1;
    kept.lanes.set(lane, inLane);
    if (inLane > this.#limits.perLane)
      this.#drop(
        kept,
        kept.entries.findIndex((entry) => entry.lane === lane),
      );
    while (this.#weight > this.#limits.inAll) this.#drop(this.#leastWanted() ?? kept, 0);
    for (const wake of kept.waiting) wake();
  }

  /** Nothing more will come of a sandbox: whoever follows it has reached the end. What there is stays, until room is needed. */
  end(sandbox: string): void {
    const kept = this.#kept.get(sandbox);
    if (kept === undefined) return;
    kept.ended = true;
    this.#ended.add(sandbox);
    for (const wake of kept.waiting) wake();
  }

  /** Forgets a sandbox; whoever follows it has reached the end. */
  remove(sandbox: string): void {
    const kept = this.#kept.get(sandbox);
    if (kept === undefined) return;
    this.#kept.delete(sandbox);
    this.#ended.delete(sandbox);
    for (const { weight } of kept.entries) this.#weight -= weight;
    for (const wake of kept.waiting) wake();
  }

  /** Until `signal` aborts or the sandbox is ended or removed, where it is followed. */
  async *read(
    sandbox: string,
    { since = 0, follow }: LogQuery,
    signal: AbortSignal,
  ): AsyncGenerator<LogEntry<T>, void, undefined> {
    let seen = 0;
    for (;;) {
      const kept = this.#kept.get(sandbox);
      if (kept !== undefined) {
        const fresh = kept.entries.filter(({ sequence, time }) => sequence > seen && time >= since);
        seen = kept.sequence;
        yield* fresh;
      }
      if (!follow || signal.aborted || (kept !== undefined && !this.#kept.has(sandbox))) return;
      const now = this.#keep(sandbox);
      if (now.sequence > seen) continue;
      if (now.ended) return;
      await this.#more(now, signal);
      if (!this.#kept.has(sandbox)) return;
    }
  }

  #keep(sandbox: string): Kept<T> {
    const known = this.#kept.get(sandbox);
    if (known !== undefined) return known;
    const kept: Kept<T> = { entries: [], lanes: new Map(), sequence: 0, ended: false, waiting: new Set() };
    this.#kept.set(sandbox, kept);
    return kept;
  }

  #leastWanted(): Kept<T> | undefined {
    for (const sandbox of this.#ended) {
      const kept = this.#kept.get(sandbox);
      if (kept !== undefined && kept.entries.length > 0) return kept;
      this.#ended.delete(sandbox);
    }
    return undefined;
  }

  #drop({ entries, lanes }: Kept<T>, index: number): void {
    for (const { lane, weight } of entries.splice(index, 1)) {
      lanes.set(lane, (lanes.get(lane) ?? 0) - 1);
      this.#weight -= weight;
    }
  }

  async #more({ waiting }: Kept<T>, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const wake = () => resolve();
    waiting.add(wake);
    signal.addEventListener("abort", wake);
    try {
      await promise;
    } finally {
      waiting.delete(wake);
      signal.removeEventListener("abort", wake);
    }
  }
}
