/** `purge` forgets the record of an ended sandbox. */
export type DeadlineKind = "idle" | "lifetime" | "purge";

export interface DeadlineEntry {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly kind: DeadlineKind;
  readonly id: string;
}

/** A binary heap, earliest first. */
export class DeadlineHeap {
  readonly #entries: DeadlineEntry[] = [];

  get size(): number {
    return this.#entries.length;
  }

  peek(): DeadlineEntry | undefined {
    return this.#entries[0];
  }

  push(entry: DeadlineEntry): void {
    let index = this.#entries.push(entry) - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const above = this.#entries[parent];
      if (above === undefined || above.at <= entry.at) break;
      this.#entries[index] = above;
      index = parent;
    }
    this.#entries[index] = entry;
  }

  pop(): DeadlineEntry | undefined {
    const first = this.#entries[0];
    const last = this.#entries.pop();
    if (last !== undefined && this.#entries.length > 0) this.#sink(last);
    return first;
  }

  #sink(entry: DeadlineEntry): void {
    let index = 0;
    for (;;) {
      const left = this.#entries[2 * index + 1];
      const right = this.#entries[2 * index + 2];
      const below = left !== undefined && right !== undefined && right.at < left.at ? right : left;
      if (below === undefined || below.at >= entry.at) break;
      const child = below === left ? 2 * index + 1 : 2 * index + 2;
      this.#entries[index] = below;
      index = child;
    }
    this.#entries[index] = entry;
  }
}
