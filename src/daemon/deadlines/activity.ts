import { DSecError } from "../../protocol/errors.ts";
import type { Clock } from "../clock.ts";
import type { Deadlines } from "./deadlines.ts";
import type { Journal } from "../journal/journal.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";

export interface ActivityParts {
  readonly clock: Clock;
  readonly journal: Journal;
  readonly sandboxes: Sandboxes;
  readonly deadlines: Pick<Deadlines, "arm">;
  /** Called once the expiry is on disk. */
  readonly expired: (entry: SandboxEntry) => void;
}

/** Milliseconds between two renewals by traffic: each is a write to the journal. */
const usedMs = 5000;

/**
 * Idleness. The deadline on disk has a version; a renewal is acknowledged after it was written, and an expiry ends the sandbox
 * only if the version it read is still the one on disk. While an exec runs the deadline is suspended.
 */
export class Activity {
  readonly #parts: ActivityParts;

  constructor(parts: ActivityParts) {
    this.#parts = parts;
  }

  /** The idle clock starts: the sandbox is ready, or was taken up again. */
  begin(entry: SandboxEntry): void {
    this.#arm(entry);
  }

  /**
   * Renews the deadline, with another idle time from now on if one is given.
   * @param ttlRunningStop seconds; 0 means never
   * @throws DSecError `sandbox_not_running` when it had begun to end
   */
  touch(entry: SandboxEntry, ttlRunningStop?: number): void {
    const { record } = entry;
    const spec = ttlRunningStop === undefined ? record.spec : { ...record.spec, ttlRunningStop };
    const changes = spec === record.spec ? {} : { spec };
    if (!this.#parts.sandboxes.renewIdle(entry, this.#parts.clock.now(), changes))
      throw new DSecError("sandbox_not_running", `sandbox ${entry.id} is ${record.state}`, {
        details: { state: record.state },
      });
    this.#arm(entry);
  }

  /** A command ends or starts: told to watchers; the end of the last one renews the deadline. */
  execsChanged(entry: SandboxEntry): void {
    const { sandboxes, clock } = this.#parts;
    if (entry.activeExecs > 0) sandboxes.touch(entry);
    else {
      sandboxes.becomeIdle(entry, clock.now());
      this.#arm(entry);
    }
  }

  /** Bytes went to or came from one of its ports: renews the deadline, now and then. Open connections without bytes do not. */
  used(entry: SandboxEntry): void {
    const { sandboxes, clock } = this.#parts;
    const { record } = entry;
    const { ttlRunningStop } = record.spec;
    const now = clock.now();
    const pauseMs = ttlRunningStop === 0 ? usedMs : Math.min(usedMs, ttlRunningStop * 250);
    if (now - record.lastActiveAt < pauseMs || record.state !== "running" || entry.activeExecs > 0) return;
    sandboxes.becomeIdle(entry, now);
    this.#arm(entry);
  }

  /** An idle deadline is due. Returns when to look again. */
  due(entry: SandboxEntry, now: number): number | undefined {
    const { record } = entry;
    const isWaiting = record.state === "running" || record.state === "paused";
    if (!isWaiting || entry.activeExecs > 0 || record.idleDeadline === undefined) return undefined;
    if (record.idleDeadline > now) return record.idleDeadline;
    if (this.#parts.journal.expireIdle(record.id, record.deadlineVersion, now)) this.#parts.expired(entry);
    return undefined;
  }

  #arm(entry: SandboxEntry): void {
    const { idleDeadline } = entry.record;
    if (idleDeadline !== undefined && entry.activeExecs === 0)
      this.#parts.deadlines.arm("idle", entry.id, idleDeadline);
  }
}
