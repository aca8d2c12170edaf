import type { Logger } from "pino";
import type { ExecExit, ExecRecord } from "../../protocol/exec.ts";
import type { Clock } from "../clock.ts";
import type { JournaledExec } from "../journal/exec-row.ts";
import type { Journal } from "../journal/journal.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import { isJournaled, isRecorded } from "./exec-policy.ts";
import type { LiveExec } from "./live-exec.ts";
import type { Recordings } from "./recordings.ts";

export interface ExecHistoryParts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly journal: Journal;
  readonly recordings: Recordings;
}

/** Ended execs without a record that are remembered per sandbox, until the daemon ends. */
const maxRemembered = 32;
/** Ended execs with a record that are kept per sandbox. */
const maxJournaled = 256;

/** What is known of execs: in the journal where it has to last, else in memory for a while. */
export class ExecHistory {
  readonly #parts: ExecHistoryParts;

  constructor(parts: ExecHistoryParts) {
    this.#parts = parts;
  }

  /** Writes down how an exec ended; without `exit` it is lost. */
  ended(entry: SandboxEntry, exec: LiveExec, exit: ExecExit | undefined): void {
    const { clock, journal, log } = this.#parts;
    const end = { state: exit === undefined ? "lost" : "exited", endedAt: clock.now(), exit } as const;
    if (!isJournaled(exec.spec)) {
      entry.recentExecs.push(toRecord({ ...this.#base(entry, exec), ...end }));
      if (entry.recentExecs.length > maxRemembered) entry.recentExecs.shift();
      return;
    }
    try {
      journal.saveExec({ ...this.#base(entry, exec), ...end });
    } catch (error) {
      log.error(
        { err: error, sandbox: entry.id, exec: exec.id },
        "the end of an exec could not be journaled",
      );
    }
  }

  started(entry: SandboxEntry, exec: LiveExec): void {
    this.#parts.journal.saveExec(this.#base(entry, exec));
    for (const id of this.#parts.journal.surplusExecs(entry.id, maxJournaled)) this.#forget(entry.id, id);
  }

  /** Running ones and what is known of ended ones, oldest first. */
  list(entry: SandboxEntry): ExecRecord[] {
    const journaled = this.#parts.journal.execs(entry.id).map(toRecord);
    const running = [...entry.execs.values()]
      .filter(({ spec }) => !isJournaled(spec))
      .map((exec) => toRecord(this.#base(entry, exec)));
    return [...journaled, ...entry.recentExecs, ...running].sort((a, b) => a.startedAt - b.startedAt);
  }

  #base(entry: SandboxEntry, exec: LiveExec): JournaledExec {
    return {
      id: exec.id,
      sandbox: entry.id,
      channel: exec.guest?.channel ?? 0,
      spec: exec.spec,
      state: "running",
      startedAt: exec.startedAt,
      endedAt: undefined,
      exit: undefined,
    };
  }

  #forget(sandbox: string, exec: string): void {
    this.#parts.journal.removeExec(exec);
    this.#parts.recordings.remove(sandbox, exec).catch((error: unknown) => {
      this.#parts.log.warn({ err: error, sandbox, exec }, "a recording could not be deleted");
    });
  }
}

function toRecord(exec: JournaledExec): ExecRecord {
  return {
    id: exec.id,
    sandbox: exec.sandbox,
    argv: exec.spec.argv,
    state: exec.state,
    recorded: isRecorded(exec.spec),
    endsSandbox: exec.spec.endsSandbox,
    stdin: exec.spec.stdin,
    tty: exec.spec.tty !== undefined,
    startedAt: exec.startedAt,
    ...(exec.endedAt === undefined ? {} : { endedAt: exec.endedAt }),
    ...(exec.exit === undefined ? {} : { exit: exec.exit }),
  };
}
