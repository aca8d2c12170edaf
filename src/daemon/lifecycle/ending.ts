import type { Logger } from "pino";
import type { Running } from "../../backends/backend.ts";
import { DSecError } from "../../protocol/errors.ts";
import { toProblem } from "../../protocol/problem-codec.ts";
import type { EndReason } from "../../protocol/sandbox.ts";
import type { Audit } from "../audit/audit.ts";
import type { Clock } from "../clock.ts";
import type { Execs } from "../exec/execs.ts";
import type { PolicyEnforcement } from "../network/policy/policy-enforcement.ts";
import type { LeakSweep } from "./leak-sweep.ts";
import type { Retention } from "./retention.ts";
import type { SandboxEntry } from "./sandbox-entry.ts";
import type { Sandboxes } from "./sandboxes.ts";
import { within } from "../within.ts";

export interface EndingParts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly sandboxes: Sandboxes;
  readonly execs: Pick<Execs, "endAll">;
  readonly retention: Pick<Retention, "remove">;
  readonly sweep: Pick<LeakSweep, "leaked">;
  readonly enforcement: Pick<PolicyEnforcement, "end">;
  /** Undefined where there is none. */
  readonly audit: Audit | undefined;
}

/** Milliseconds each attempt to destroy a sandbox gets, one after the other. */
const destroyAttemptsMs = [10_000, 20_000, 40_000];
/** Milliseconds between two attempts. */
const retryMs = 250;
/** Milliseconds that a start gets to give up once it was told to. */
const abortGraceMs = 20_000;

/** The end of sandboxes: legal in every state, idempotent, one tear-down per sandbox, and never for ever. */
export class Ending {
  readonly #parts: EndingParts;

  constructor(parts: EndingParts) {
    this.#parts = parts;
  }

  /**
   * Ends a sandbox; resolves when it has ended, for whatever reason that was first.
   * @param exitCode of the command it ends with
   */
  async stop(entry: SandboxEntry, reason: EndReason, message: string, exitCode?: number): Promise<void> {
    await entry.adoption;
    this.begin(entry, reason, message, exitCode);
    await entry.ended;
  }

  /** Begins the end, unless it has begun. */
  begin(entry: SandboxEntry, reason: EndReason, message: string, exitCode?: number): void {
    if (entry.isEnded || entry.record.state === "stopping") return;
    const problem = platformProblem(reason, message);
    this.#parts.sandboxes.advance(entry, { type: "end", reason }, { exitCode, problem });
    this.#parts.sandboxes.event(entry, "stopping", message);
  }

  /** Ends it if need be, then forgets record and logs. */
  async remove(entry: SandboxEntry): Promise<void> {
    await this.stop(entry, "stopped", "removed by request");
    await this.#parts.retention.remove(entry);
  }

  /** The effect of `end`; the one place where a sandbox is torn down. Never rejects. */
  async tearDown(entry: SandboxEntry): Promise<void> {
    try {
      await this.#dismantle(entry);
      this.#parts.sandboxes.advance(entry, { type: "finish" });
      this.#parts.sandboxes.event(entry, entry.record.state, `ended: ${entry.record.endReason}`);
    } catch (error) {
      this.#parts.log.error({ err: error, sandbox: entry.id }, "a sandbox could not be destroyed");
      if (!entry.isEnded)
        this.#parts.sandboxes.advance(entry, { type: "fail" }, { problem: toProblem(error) });
      this.#parts.sandboxes.event(entry, "failed", "could not be destroyed; the leak sweep goes on trying");
      this.#parts.sweep.leaked(entry.prepared);
      entry.running = undefined;
      entry.prepared = undefined;
    }
  }

  async #dismantle(entry: SandboxEntry): Promise<void> {
    const { clock } = this.#parts;
    // a start that was aborted cleans up after itself, or hands over what it had started
    if (entry.start !== undefined)
      await within(
        clock,
        abortGraceMs,
        entry.start.done.catch(() => undefined),
      );
    if (entry.running !== undefined) {
      await this.#parts.execs.endAll(entry);
      await this.#insist(entry, "its processes", () => destroy(entry.running));
      entry.running = undefined;
    }
    this.#parts.audit?.end(entry.id);
    if (entry.prepared !== undefined) {
      await this.#insist(entry, "its root and network", async () => entry.prepared?.release());
      entry.prepared = undefined;
    }
    await this.#insist(entry, "its network policy", async () => this.#parts.enforcement.end(entry));
  }

  async #insist(entry: SandboxEntry, what: string, attempt: () => Promise<void>): Promise<void> {
    let cause: unknown;
    for (const ms of destroyAttemptsMs) {
      const work = attempt();
      work.catch(() => undefined);
      try {
        if ((await within(this.#parts.clock, ms, work)) !== "late") return;
        cause = new Error(`not done after ${ms} ms`);
      } catch (error) {
        cause = error;
      }
      this.#parts.log.warn({ err: cause, sandbox: entry.id }, `an attempt to remove ${what} failed`);
      await new Promise<void>((resolve) => this.#parts.clock.after(retryMs, resolve));
    }
    throw new DSecError("internal", `sandbox ${entry.id} has ended, but ${what} could not be removed`, {
      cause,
    });
  }
}

async function destroy(running: Running | undefined): Promise<void> {
  await running?.destroy();
}

/** Ends that are the platform's doing say why; task outcomes need no problem. */
function platformProblem(reason: EndReason, message: string): ReturnType<typeof toProblem> | undefined {
  if (reason !== "agent_lost" && reason !== "node_lost") return undefined;
  return toProblem(new DSecError("agent_lost", message));
}
