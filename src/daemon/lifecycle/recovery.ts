import type { Logger } from "pino";
import type { Backend, Running } from "../../backends/backend.ts";
import { DSecError } from "../../protocol/errors.ts";
import { toProblem } from "../../protocol/problem-codec.ts";
import type { EndReason } from "../../protocol/sandbox.ts";
import type { Audit } from "../audit/audit.ts";
import type { Activity } from "../deadlines/activity.ts";
import { mapBounded } from "../bounded.ts";
import type { ChangeFeed } from "../views/change-feed.ts";
import type { Clock } from "../clock.ts";
import type { Deadlines } from "../deadlines/deadlines.ts";
import type { Ending } from "./ending.ts";
import { adoptExecs, type ExecAdoptionParts } from "../exec/exec-adoption.ts";
import type { SandboxTrust } from "../network/authorities/sandbox-trust.ts";
import type { LeakSweep } from "./leak-sweep.ts";
import type { PolicyEnforcement } from "../network/policy/policy-enforcement.ts";
import type { Provisioner } from "../provisioner.ts";
import type { Retention } from "./retention.ts";
import type { SandboxEntry } from "./sandbox-entry.ts";
import type { Sandboxes } from "./sandboxes.ts";
import { watchEnd } from "./starting.ts";

export interface RecoveryParts extends ExecAdoptionParts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly feed: ChangeFeed;
  readonly sandboxes: Sandboxes;
  readonly activity: Activity;
  readonly ending: Ending;
  readonly retention: Retention;
  readonly sweep: LeakSweep;
  readonly deadlines: Deadlines;
  readonly enforcement: Pick<PolicyEnforcement, "resume">;
  readonly backends: readonly Backend[];
  /** Undefined where the node has no backend that needs it. */
  readonly provisioner: Provisioner | undefined;
  /** Undefined where sandboxes trust what their image does. */
  readonly trust: SandboxTrust | undefined;
  /** Undefined where what processes do is of no interest. */
  readonly audit: Audit | undefined;
}

const parallel = 16;
const adoptTimeoutMs = 30_000;

/**
 * Takes the sandboxes of the journal into memory, at once, and returns what takes them up: to be called when the daemon
 * listens. Requests to one of them wait for its own adoption only.
 */
export function loadSandboxes(parts: RecoveryParts): () => Promise<void> {
  const { journal, feed, sandboxes, retention } = parts;
  const pending: { entry: SandboxEntry; adopted: () => void }[] = [];
  const ended: SandboxEntry[] = [];
  for (const record of journal.sandboxes()) {
    feed.restore(record.revision);
    const entry = sandboxes.insert(record);
    if (entry.isEnded) {
      ended.push(entry);
      continue;
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    entry.adoption = promise;
    pending.push({ entry, adopted: resolve });
  }
  ended.sort((a, b) => (a.record.endedAt ?? 0) - (b.record.endedAt ?? 0));
  for (const entry of ended) retention.keep(entry);
  return async () => {
    await mapBounded(pending, parallel, async ({ entry, adopted }) => {
      await recover(parts, entry);
      entry.adoption = undefined;
      adopted();
    });
  };
}

/** Never rejects: what cannot be taken up has ended, with the reason. */
async function recover(parts: RecoveryParts, entry: SandboxEntry): Promise<void> {
  const { sandboxes, deadlines, activity, log } = parts;
  const { state } = entry.record;
  try {
    if (state === "pending" || state === "starting") {
      interrupted(parts, entry);
      return;
    }
    await adopt(parts, entry);
    sandboxes.event(entry, "adopted", "taken up after a restart of the daemon");
    if (state === "stopping") {
      await parts.ending.tearDown(entry);
      return;
    }
    if (entry.record.lifetimeDeadline !== undefined)
      deadlines.arm("lifetime", entry.id, entry.record.lifetimeDeadline);
    activity.begin(entry);
  } catch (error) {
    log.warn({ err: error, sandbox: entry.id }, "a sandbox could not be taken up");
    if (!entry.isEnded) lose(parts, entry, error);
  }
}

function interrupted({ sandboxes }: RecoveryParts, entry: SandboxEntry): void {
  const error = new DSecError("start_failed", "the daemon ended while this sandbox was starting");
  sandboxes.advance(entry, { type: "fail" }, { endReason: "start_failed", problem: toProblem(error) });
  sandboxes.event(entry, "failed", error.message);
}

async function adopt(parts: RecoveryParts, entry: SandboxEntry): Promise<void> {
  const { record } = entry;
  const backend = parts.backends.find(
    ({ kind, engine }) => kind === record.spec.backend && engine === record.engine,
  );
  if (backend === undefined)
    throw new DSecError(
      "agent_lost",
      `this daemon has no ${record.engine ?? record.spec.backend} backend any more`,
    );
  entry.backend = backend;
  await parts.enforcement.resume(entry, backend);
  if (record.provisionerRecord !== undefined)
    entry.prepared = await parts.provisioner?.adopt(entry.id, record.provisionerRecord);
  const signal = AbortSignal.timeout(adoptTimeoutMs);
  const running = await backend.adopt(entry.id, record.backendRecord ?? null, signal);
  entry.running = running;
  await watchAgain(parts, entry, running);
  // what was killed before is not the doing of a later command
  entry.oomKills = (await running.usage().catch(() => undefined))?.oomKills ?? 0;
  const found = running.guest.live.length > 0;
  await adoptExecs(parts, entry, running.guest);
  await trustAgain(parts, entry, running);
  // whatever was found inside was active until now
  if (found && record.state !== "stopping") parts.sandboxes.renewIdle(entry, parts.clock.now());
  watchEnd(entry, running, parts.ending);
}

/** What cannot be watched goes on all the same. */
async function watchAgain(
  { audit, log }: RecoveryParts,
  entry: SandboxEntry,
  running: Running,
): Promise<void> {
  await audit?.watch(entry.id, running).catch((error: unknown) => {
    log.warn({ err: error, sandbox: entry.id }, "a sandbox is not audited");
  });
}

/** An earlier daemon may have had other authorities. A sandbox that cannot take them (its disk is full) goes on without. */
async function trustAgain(
  { trust, log }: RecoveryParts,
  entry: SandboxEntry,
  running: Running,
): Promise<void> {
  if (entry.record.state !== "running" || entry.backend?.capabilities.realProcesses !== true) return;
  await trust?.install(running.guest).catch((error: unknown) => {
    log.warn({ err: error, sandbox: entry.id }, "a sandbox did not get the node's authorities");
  });
}

/** What is left of it is removed by the sweep, which no longer finds it among those to keep. */
function lose({ sandboxes, sweep, audit }: RecoveryParts, entry: SandboxEntry, error: unknown): void {
  const known =
    error instanceof DSecError
      ? error
      : new DSecError("agent_lost", "it could not be taken up", { cause: error });
  const reason = entry.record.endReason ?? reasonOf(known);
  // What its backend holds is not swept.
  entry.running?.guest.close();
  sweep.leaked(entry.prepared);
  audit?.end(entry.id);
  entry.running = undefined;
  entry.prepared = undefined;
  sandboxes.advance(entry, { type: "lose", reason }, { problem: toProblem(known) });
  sandboxes.event(entry, entry.record.state, `${reason}: ${known.message}`);
}

function reasonOf(error: DSecError): EndReason {
  return error.details?.["reason"] === "oom" ? "oom" : "agent_lost";
}
