import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "pino";
import type { Audit } from "../audit/audit.ts";
import type { Deadlines } from "../deadlines/deadlines.ts";
import type { SandboxEntry } from "./sandbox-entry.ts";
import type { Sandboxes } from "./sandboxes.ts";

export interface RetentionParts {
  readonly log: Logger;
  readonly sandboxes: Sandboxes;
  readonly deadlines: Pick<Deadlines, "arm">;
  readonly logsDir: string;
  readonly maxEnded: number;
  /** Undefined where there is none. */
  readonly audit: Audit | undefined;
}

/** What is left of ended sandboxes: record, events, exit codes and logs, for a stated time and up to a number. */
export class Retention {
  readonly #parts: RetentionParts;
  /** Ended sandboxes, the longest ended first. */
  readonly #ended = new Set<SandboxEntry>();

  constructor(parts: RetentionParts) {
    this.#parts = parts;
  }

  keep(entry: SandboxEntry): void {
    this.#ended.add(entry);
    if (entry.record.keptUntil !== undefined)
      this.#parts.deadlines.arm("purge", entry.id, entry.record.keptUntil);
    try {
      this.#purgeSurplus();
    } catch (error) {
      // one sandbox's end must not fail for the record of another: the next end tries again
      this.#parts.log.warn({ err: error }, "records of ended sandboxes could not be forgotten");
    }
  }

  #purgeSurplus(): void {
    for (const oldest of this.#ended) {
      if (this.#ended.size <= this.#parts.maxEnded) return;
      this.#purge(oldest);
    }
  }

  /** Forgets an ended sandbox. Its logs are deleted behind. @throws DSecError `disk_full` */
  #purge(entry: SandboxEntry): void {
    this.#parts.sandboxes.forget(entry);
    this.#ended.delete(entry);
    this.#parts.audit?.forget(entry.id);
    this.#removeLogs(entry.id).catch((error: unknown) => {
      this.#parts.log.warn({ err: error, sandbox: entry.id }, "logs could not be deleted");
    });
  }

  /** Forgets an ended sandbox; resolves when its logs are gone too. @throws DSecError `disk_full` */
  async remove(entry: SandboxEntry): Promise<void> {
    this.#parts.sandboxes.forget(entry);
    this.#ended.delete(entry);
    this.#parts.audit?.forget(entry.id);
    await this.#removeLogs(entry.id);
  }

  /** Whether a deadline to purge still stands. Returns when to look again. @throws DSecError `disk_full` */
  due(entry: SandboxEntry, now: number): number | undefined {
    const { keptUntil } = entry.record;
    if (keptUntil !== undefined && keptUntil > now) return keptUntil;
    this.#purge(entry);
    return undefined;
  }

  async #removeLogs(id: string): Promise<void> {
    await rm(join(this.#parts.logsDir, id), { recursive: true, force: true });
  }
}
