import type { Logger } from "pino";
import { DSecError } from "../../protocol/errors.ts";
import type { Sandbox, SandboxSpec } from "../../protocol/sandbox.ts";
import { endedStates } from "../../protocol/states.ts";
import type { ChangeFeed, SandboxSource } from "../views/change-feed.ts";
import type { Clock } from "../clock.ts";
import type { Journal } from "../journal/journal.ts";
import { type LifecycleEffect, type LifecycleEvent, transition } from "./lifecycle.ts";
import { SandboxEntry } from "./sandbox-entry.ts";
import { type SandboxRecord, toSandbox } from "./sandbox-record.ts";

export interface SandboxesParts {
  readonly node: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly journal: Journal;
  /** Milliseconds that the records of ended sandboxes are kept. */
  readonly keepMs: number;
  readonly feed: ChangeFeed;
  /** Carries out what a transition asks for. */
  readonly effect: (effect: LifecycleEffect, entry: SandboxEntry) => void;
}

type RecordChanges = Partial<Omit<SandboxRecord, "id" | "owner" | "createdAt" | "state" | "revision">>;

/** Candidates that an ambiguous reference names. */
const maxCandidates = 10;

/** Every sandbox of this node. The only place where their records change: on disk first, then in memory, then told to watchers. */
export class Sandboxes implements SandboxSource {
  readonly #parts: SandboxesParts;
  readonly #entries = new Map<string, SandboxEntry>();
  readonly #names = new Map<string, string>();

  constructor(parts: SandboxesParts) {
    this.#parts = parts;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(id: string): SandboxEntry | undefined {
    return this.#entries.get(id);
  }

  values(): IterableIterator<SandboxEntry> {
    return this.#entries.values();
  }

  live(): SandboxEntry[] {
    return [...this.#entries.values()].filter((entry) => !entry.isEnded);
  }

  /**
   * By id, name or unique prefix of an id, in this order.
   * @throws DSecError `not_found`, `ambiguous_reference` with details.candidates
   */
  find(ref: string): SandboxEntry {
    const exact = this.#entries.get(ref) ?? this.#entries.get(this.#names.get(ref) ?? "");
    if (exact !== undefined) return exact;
    const found = [...this.#entries.keys()].filter((id) => id.startsWith(ref));
    const [only] = found;
    const entry = only === undefined ? undefined : this.#entries.get(only);
    if (entry === undefined)
      throw new DSecError("not_found", `no sandbox has the id, name or id prefix ${ref}`);
    if (found.length > 1)
      throw new DSecError(
        "ambiguous_reference",
        `${ref} could be ${found.length} sandboxes: ${found.slice(0, 3).join(", ")}${found.length > 3 ? ", …" : ""}`,
        { details: { candidates: found.slice(0, maxCandidates), count: found.length } },
      );
    return entry;
  }

  /** Takes in a new sandbox, or one from the journal. @throws DSecError `name_taken` */
  insert(record: SandboxRecord): SandboxEntry {
    const { name } = record.spec;
    const holder = name === undefined ? undefined : this.#names.get(name);
    if (name !== undefined && holder !== undefined)
      throw new DSecError("name_taken", `the name ${name} belongs to sandbox ${holder}`, {
        details: { name, holder },
      });
    const entry = new SandboxEntry(record);
    this.#entries.set(record.id, entry);
    if (name !== undefined) this.#names.set(name, record.id);
    return entry;
  }

  /** Forgets a sandbox and all that the journal has of it. @throws DSecError `disk_full`; nothing has changed then */
  forget(entry: SandboxEntry): void {
    if (!this.#entries.has(entry.id)) return;
    if (entry.record.state !== "pending") this.#parts.journal.removeSandbox(entry.id);
    this.#entries.delete(entry.id);
    if (entry.record.spec.name !== undefined) this.#names.delete(entry.record.spec.name);
    this.#parts.feed.removed(entry.id);
    entry.markEnded();
  }

  /**
   * One step of its life. The effects are carried out before this returns.
   * @throws DSecError `conflict` for an illegal step, `disk_full` when the journal cannot be written: nothing has changed then,
   *   unless the step leads towards the end, which a full disk must not hinder
   */
  advance(entry: SandboxEntry, event: LifecycleEvent, changes: RecordChanges = {}): void {
    const { state, effects } = transition(entry.record.state, event, entry.record.endReason);
    const isEnd = endedStates.includes(state);
    const next: SandboxRecord = {
      ...entry.record,
      ...("reason" in event ? { endReason: event.reason } : {}),
      ...(isEnd ? this.#endOf() : {}),
      ...changes,
      state,
      revision: this.#parts.feed.next(),
    };
    this.#write(next, isEnd || state === "stopping");
    Object.assign(entry.record, next);
    this.#parts.feed.changed(entry.record);
    for (const effect of effects) this.#parts.effect(effect, entry);
    if (isEnd) entry.markEnded();
  }

  /** Changes what is no step of its life. */
  change(entry: SandboxEntry, changes: RecordChanges): void {
    const next: SandboxRecord = { ...entry.record, ...changes, revision: this.#parts.feed.next() };
    if (entry.record.state !== "pending") this.#write(next, false);
    Object.assign(entry.record, next);
    this.#parts.feed.changed(entry.record);
  }

  /** Tells watchers of a change that only memory has, e.g. the number of execs. */
  touch(entry: SandboxEntry): void {
    entry.record.revision = this.#parts.feed.next();
    this.#parts.feed.changed(entry.record);
  }

  /**
   * Moves the idle deadline, compared and set: what this returns is on disk.
   * @returns false when it had begun to end
   * @throws DSecError `disk_full`; nothing has changed then
   */
  renewIdle(entry: SandboxEntry, now: number, changes: RecordChanges = {}): boolean {
    const { record } = entry;
    const idleDeadline = idleDeadlineOf(changes.spec ?? record.spec, now);
    const revision = this.#parts.feed.next();
    const renewed = this.#parts.journal.renewIdle({
      id: record.id,
      expectedVersion: record.deadlineVersion,
      idleDeadline,
      lastActiveAt: now,
      revision,
    });
    if (!renewed) return false;
    const deadlineVersion = record.deadlineVersion + 1;
    Object.assign(record, changes, { idleDeadline, lastActiveAt: now, revision, deadlineVersion });
    if (changes.spec !== undefined) this.#parts.journal.saveSandbox(record);
    this.#parts.feed.changed(record);
    return true;
  }

  /** The last exec has ended: as {@link renewIdle}, but a journal that cannot be written must not end a sandbox early. */
  becomeIdle(entry: SandboxEntry, now: number): void {
    try {
      if (this.renewIdle(entry, now)) return;
    } catch (error) {
      this.#parts.log.error({ err: error, sandbox: entry.id }, "an idle deadline could not be journaled");
      entry.record.idleDeadline = idleDeadlineOf(entry.record.spec, now);
    }
    this.touch(entry);
  }

  event(entry: SandboxEntry, type: string, message: string): void {
    this.#parts.log.debug({ sandbox: entry.id, event: type }, message);
    // a sandbox that is forgotten as soon as it has ended takes its history along
    if (!this.#entries.has(entry.id)) return;
    try {
      this.#parts.journal.addEvent({ time: this.#parts.clock.now(), sandbox: entry.id, type, message });
    } catch (error) {
      this.#parts.log.error({ err: error, sandbox: entry.id }, "an event could not be written");
    }
  }

  view(id: string): Sandbox | undefined {
    const entry = this.#entries.get(id);
    return entry === undefined ? undefined : this.viewOf(entry);
  }

  viewOf(entry: SandboxEntry): Sandbox {
    return toSandbox(entry.record, this.#parts.node, entry.activeExecs);
  }

  *views(): Generator<Sandbox> {
    for (const entry of this.#entries.values()) yield this.viewOf(entry);
  }

  #endOf(): Pick<SandboxRecord, "endedAt" | "keptUntil"> {
    const now = this.#parts.clock.now();
    return { endedAt: now, keptUntil: now + this.#parts.keepMs };
  }

  #write(record: SandboxRecord, mayFail: boolean): void {
    try {
      this.#parts.journal.saveSandbox(record);
    } catch (error) {
      if (!mayFail) throw error;
      this.#parts.log.error(
        { err: error, sandbox: record.id },
        "the end of a sandbox could not be journaled",
      );
    }
  }
}

function idleDeadlineOf({ ttlRunningStop }: SandboxSpec, now: number): number | undefined {
  return ttlRunningStop === 0 ? undefined : now + ttlRunningStop * 1000;
}
