import type { Logger } from "pino";
import type { Guest, OutputSink } from "../../agent/guest.ts";
import type { JournaledExec } from "../journal/exec-row.ts";
import type { Journal } from "../journal/journal.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import { isKept, isRecorded } from "./exec-policy.ts";
import type { Execs } from "./execs.ts";
import { LiveExec } from "./live-exec.ts";
import type { ExecRecorder } from "./recorder.ts";
import type { Recordings } from "./recordings.ts";

export interface ExecAdoptionParts {
  readonly log: Logger;
  readonly journal: Journal;
  readonly execs: Execs;
  readonly recordings: Recordings;
}

const discard: OutputSink = () => undefined;
const fromTheStart = { stdout: 0, stderr: 0 };

/**
 * Settles the execs that an earlier daemon left in a sandbox: those that are kept go on, recorded from where that was left
 * off; those whose client went away with the daemon are killed; those that are not there any more are lost.
 * @throws DSecError `agent_lost`
 */
export async function adoptExecs(parts: ExecAdoptionParts, entry: SandboxEntry, guest: Guest): Promise<void> {
  const { journal, execs } = parts;
  const known = journal.execs(entry.id).filter(({ state }) => state === "running");
  for (const exec of known) {
    const recorder = await reopen(parts, exec);
    const live = new LiveExec({ ...exec, recorder, target: undefined });
    if (guest.live.some(({ channel }) => channel === exec.channel)) {
      execs.adopt(entry, live, await guest.resume(exec.channel, recorder?.totals ?? fromTheStart, live.sink));
      if (!isKept(exec.spec)) live.kill("disconnect");
    } else await execs.vanished(entry, live);
  }
  for (const { channel } of guest.live)
    if (!known.some((exec) => exec.channel === channel)) await killUnknown(guest, channel);
}

async function reopen(
  { log, recordings }: ExecAdoptionParts,
  exec: JournaledExec,
): Promise<ExecRecorder | undefined> {
  if (!isRecorded(exec.spec)) return undefined;
  return recordings.reopen(exec.sandbox, exec.id).catch((error: unknown) => {
    log.warn({ err: error, sandbox: exec.sandbox, exec: exec.id }, "a recording cannot be continued");
    return undefined;
  });
}

/** An exec that was not written down was attached, and its client is gone. */
async function killUnknown(guest: Guest, channel: number): Promise<void> {
  const exec = await guest.resume(channel, fromTheStart, discard);
  exec.exit.catch(() => undefined);
  exec.signal(9, "tree");
  exec.release();
}
