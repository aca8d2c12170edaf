import type { Backend, Running } from "../../backends/backend.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { ExecRecord } from "../../protocol/exec.ts";
import { endedStates } from "../../protocol/states.ts";
import type { LiveExec } from "../exec/live-exec.ts";
import type { PreparedSandbox } from "../provisioner.ts";
import type { SandboxRecord } from "./sandbox-record.ts";

/** A start that is under way or over. */
export interface StartTask {
  /** Rejects with why it did not start. */
  readonly done: Promise<void>;
  abort(reason: DSecError): void;
}

/** A sandbox in the daemon's memory: its record, and what only this process holds of it. */
export class SandboxEntry {
  readonly record: SandboxRecord;
  backend: Backend | undefined;
  running: Running | undefined;
  prepared: PreparedSandbox | undefined;
  start: StartTask | undefined;
  /** Pending after a restart until the sandbox was taken up again or found lost; never rejects. */
  adoption: Promise<void> | undefined;
  /** Execs that run, or whose output has not drained. */
  readonly execs = new Map<string, LiveExec>();
  /** Ended execs that the journal does not have, oldest first. */
  readonly recentExecs: ExecRecord[] = [];
  /** Starts of execs that have not been answered yet. */
  execsStarting = 0;
  /** Of the cgroup, when it was last looked at. */
  oomKills = 0;
  readonly #ended = Promise.withResolvers<void>();

  constructor(record: SandboxRecord) {
    this.record = record;
    if (this.isEnded) this.markEnded();
  }

  get id(): string {
    return this.record.id;
  }

  get isEnded(): boolean {
    return endedStates.includes(this.record.state);
  }

  get activeExecs(): number {
    return this.execs.size + this.execsStarting;
  }

  /** Resolves when it has ended; never rejects. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  markEnded(): void {
    this.#ended.resolve();
  }

  /** What runs, for requests that need it. @throws DSecError `sandbox_not_running` */
  requireRunning(): Running {
    if (this.record.state !== "running" || this.running === undefined)
      throw new DSecError("sandbox_not_running", `sandbox ${this.id} is ${this.record.state}`, {
        details: {
          state: this.record.state,
          ...(this.record.endReason && { endReason: this.record.endReason }),
        },
      });
    return this.running;
  }
}
