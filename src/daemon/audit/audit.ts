import { statSync } from "node:fs";
import type { Running } from "../../backends/backend.ts";
import { isErrno } from "../../backends/linux/libc.ts";
import { isAlive } from "../../backends/linux/process.ts";
import type { AuditEvent } from "../../protocol/audit-event.ts";
import type { Clock } from "../clock.ts";
import { type LogEntry, type LogQuery, SandboxLog } from "../sandbox-log.ts";
import { type AuditPrograms, findAuditPrograms } from "./audit-programs.ts";
import { AuditReader } from "./audit-reader.ts";
import {
  type AuditedNamespace,
  decodeEvent,
  type EventKind,
  eventKindOf,
  headOf,
  lostOf,
  recordKinds,
  timeOf,
} from "./event-codec.ts";

export interface AuditParts {
  readonly clock: Clock;
  /** In [0, 1). */
  readonly random: () => number;
  /** The kernel tells nothing for a while; it is begun anew. */
  readonly interrupted: (reason: Error) => void;
}

/** Of all sandboxes since the daemon's start. */
export interface AuditTotals extends Readonly<Record<EventKind, number>> {
  /** Events that were not told, as far as they were counted. */
  readonly lost: number;
  /** How often nobody has listened to the kernel for a while. */
  readonly interruptions: number;
}

interface Watched extends AuditedNamespace {
  readonly sandbox: string;
  readonly token: number;
  /** Events that were lost, as was last told. */
  lost: number;
}

/** A record as the reader gave it, a character a byte; or how many events were lost, null where nobody knows. */
type Kept = { readonly record: string } | { readonly lost: number | null };

/** Kept in memory, undecoded: what is never asked for costs little. Weights are bytes. */
const most = { perLane: 2048, inAll: 64 << 20 } as const;
/** Of an entry beside its record. */
const entryWeight = 128;
const ofLost = { lane: "lost", weight: entryWeight } as const;
const restartMs = { least: 500, most: 60_000 } as const;

/** What processes in this node's sandboxes do, as the kernel tells it: nothing that they say of themselves. */
export class Audit {
  readonly #parts: AuditParts;
  readonly #programs: AuditPrograms;
  readonly #log = new SandboxLog<Kept>(most);
  readonly #watched = new Map<string, Watched>();
  /** Those that have ended too, until everything of them was told. */
  readonly #byToken = new Map<number, Watched>();
  readonly #counts = { exec: 0, connect: 0, exit: 0, lost: 0, interruptions: 0 };
  #reader: AuditReader | undefined;
  #lastToken = 0;
  #failures = 0;
  #disarm: () => void = () => undefined;
  #closed = false;

  private constructor(parts: AuditParts) {
    this.#parts = parts;
    this.#programs = findAuditPrograms();
  }

  /** Resolves when the kernel tells. @throws DSecError `audit_unavailable` */
  static async open(parts: AuditParts): Promise<Audit> {
    const audit = new Audit(parts);
    audit.#reader = await audit.#start();
    return audit;
  }

  /** Before anything untrusted runs in the sandbox. One whose processes are not this kernel's is left alone. */
  async watch(sandbox: string, running: Running): Promise<void> {
    const namespace = await namespaceOf(running);
    if (namespace === undefined) return;
    this.end(sandbox);
    const watched = { ...namespace, sandbox, token: this.#nextToken(), lost: 0 };
    this.#watched.set(sandbox, watched);
    this.#byToken.set(watched.token, watched);
    await this.#reader?.add(watched, watched.token);
  }

  /** When nothing of the sandbox runs any more. What there is can still be read. Idempotent. */
  end(sandbox: string): void {
    const watched = this.#watched.get(sandbox);
    if (watched === undefined) return;
    this.#watched.delete(sandbox);
    const told = this.#reader?.remove(watched, watched.token) ?? Promise.resolve();
    void told.then(() => {
      if (this.#byToken.delete(watched.token) && !this.#watched.has(sandbox)) this.#log.end(sandbox);
    });
  }

  /** With the sandbox's record. */
  forget(sandbox: string): void {
    this.end(sandbox);
    for (const [token, watched] of this.#byToken)
      if (watched.sandbox === sandbox) this.#byToken.delete(token);
    this.#log.remove(sandbox);
  }

  /** Whether what its processes do is seen. */
  watches(sandbox: string): boolean {
    return this.#watched.has(sandbox);
  }

  /** Oldest first; bounded, so the oldest may be gone. */
  async *read(
    sandbox: string,
    query: LogQuery,
    signal: AbortSignal,
  ): AsyncGenerator<AuditEvent, void, undefined> {
    const follow = query.follow && this.#watched.has(sandbox);
    for await (const entry of this.#log.read(sandbox, { ...query, follow }, signal))
      yield eventOf(sandbox, entry);
  }

  totals(): AuditTotals {
    return { ...this.#counts };
  }

  /** Nothing of it is left in the kernel. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#disarm();
    await this.#reader?.close();
  }

  #start(): Promise<AuditReader> {
    return AuditReader.start({
      programs: this.#programs,
      record: (record) => this.#take(record),
      ended: (reason) => this.#ended(reason),
    });
  }

  #take(record: Buffer): void {
    const { kind, token } = headOf(record);
    const watched = this.#byToken.get(token);
    const name = eventKindOf(kind);
    if (name !== undefined) {
      this.#counts[name] += 1;
      if (watched === undefined) return;
      const kept = { record: record.toString("latin1") };
      const weight = record.length + entryWeight;
      this.#log.add(watched.sandbox, timeOf(record), kept, { lane: name, weight });
    } else if (kind === recordKinds.lost && watched !== undefined) this.#lost(watched, lostOf(record));
  }

  #lost(watched: Watched, count: number): void {
    const more = count - watched.lost;
    if (more <= 0) return;
    watched.lost = count;
    this.#counts.lost += more;
    this.#log.add(watched.sandbox, this.#parts.clock.now(), { lost: more }, ofLost);
  }

  #ended(reason: Error): void {
    this.#reader = undefined;
    if (this.#closed) return;
    this.#counts.interruptions += 1;
    this.#parts.interrupted(reason);
    this.#restart();
  }

  #restart(): void {
    const waits = Math.min(restartMs.most, restartMs.least * 2 ** this.#failures);
    this.#failures += 1;
    const ms = waits * (0.5 + this.#parts.random() / 2);
    this.#disarm = this.#parts.clock.after(ms, () => void this.#again());
  }

  async #again(): Promise<void> {
    try {
      const reader = await this.#start();
      if (this.#closed) {
        await reader.close();
        return;
      }
      this.#reader = reader;
      this.#failures = 0;
      for (const [sandbox, watched] of this.#watched) {
        watched.lost = 0;
        this.#log.add(sandbox, this.#parts.clock.now(), { lost: null }, ofLost);
        void reader.add(watched, watched.token);
      }
    } catch (error) {
      if (this.#closed) return;
      this.#parts.interrupted(error instanceof Error ? error : new Error(String(error)));
      this.#restart();
    }
  }

  #nextToken(): number {
    this.#lastToken = (this.#lastToken + 1) % 2 ** 32;
    return this.#lastToken;
  }
}

function eventOf(sandbox: string, { sequence, time, value }: LogEntry<Kept>): AuditEvent {
  const origin = { sandbox, sequence, time };
  if ("record" in value) return decodeEvent(Buffer.from(value.record, "latin1"), origin);
  return { ...origin, kind: "lost", ...(value.lost !== null && { count: value.lost }) };
}

/** Undefined where the sandbox's processes are none of this kernel's, or it is gone. */
async function namespaceOf(running: Running): Promise<AuditedNamespace | undefined> {
  const first = await running.firstProcess?.();
  if (first === undefined) return undefined;
  try {
    const { ino } = statSync(`/proc/${first.pid}/ns/pid`);
    // looked at only now: what is still that process was so when its namespace was read
    return isAlive(first) ? { namespace: ino, startTime: first.startTime } : undefined;
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
}
