import type { Sandbox } from "../../protocol/sandbox.ts";

/** What a change feed reads sandboxes from. */
export interface SandboxSource {
  view(id: string): Sandbox | undefined;
  views(): Iterable<Sandbox>;
}

export interface Change {
  readonly id: string;
  readonly revision: number;
}

/** Told of every change; must not throw. */
export type ChangeListener = (change: Change) => void;

/** Removed sandboxes that a resuming watch can still be told of. */
const maxTombstones = 10_000;

/**
 * Counts the changes of the node and tells watchers of them. The feed keeps no history: what changed since a revision are the
 * sandboxes whose own revision is higher, and the tombstones.
 */
export class ChangeFeed {
  /** Revisions of another run of the daemon mean nothing here. */
  readonly boot: string;
  #revision = 0;
  #tombstones: Change[] = [];
  /** Changes up to this one can no longer be told completely. */
  #forgotten = 0;
  readonly #listeners = new Set<ChangeListener>();

  constructor(boot: string) {
    this.boot = boot;
  }

  /** Goes on counting after the revisions of an earlier run. */
  restore(revision: number): void {
    this.#revision = Math.max(this.#revision, revision);
    this.#forgotten = this.#revision;
  }

  get revision(): number {
    return this.#revision;
  }

  get watchers(): number {
    return this.#listeners.size;
  }

  /** The revision of the change that is about to happen; {@link changed} must follow. */
  next(): number {
    this.#revision += 1;
    return this.#revision;
  }

  changed(change: Change): void {
    for (const listener of this.#listeners) listener(change);
  }

  removed(id: string): void {
    const change = { id, revision: this.next() };
    this.#tombstones.push(change);
    if (this.#tombstones.length > maxTombstones) {
      const dropped = this.#tombstones.splice(0, maxTombstones / 2);
      this.#forgotten = dropped.at(-1)?.revision ?? this.#forgotten;
    }
    this.changed(change);
  }

  /** Returns its dispose. */
  listen(listener: ChangeListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  cursor(revision = this.#revision): string {
    return `${this.boot}.${revision}`;
  }

  /** The revision a cursor stands for; undefined when what happened since can no longer be told. */
  revisionOf(cursor: string): number | undefined {
    const [boot, text = ""] = cursor.split(".");
    const revision = /^\d{1,15}$/.test(text) ? Number(text) : undefined;
    if (boot !== this.boot || revision === undefined || revision > this.#revision) return undefined;
    return revision < this.#forgotten ? undefined : revision;
  }

  /** What was removed after `revision`, in order. */
  removedSince(revision: number): Change[] {
    return this.#tombstones.filter((tombstone) => tombstone.revision > revision);
  }
}
