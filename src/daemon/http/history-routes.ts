import { DSecError } from "../../protocol/errors.ts";
import type { LogLine } from "../../protocol/exec.ts";
import type { WireServer } from "../../wire/server/server.ts";
import type { ExecGate } from "../exec/exec-gate.ts";
import { isRecorded } from "../exec/exec-policy.ts";
import type { Execs } from "../exec/execs.ts";
import type { LogQuery, Recordings } from "../exec/recordings.ts";
import type { JournaledExec } from "../journal/exec-row.ts";
import type { Journal } from "../journal/journal.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";

export interface HistoryRouteParts {
  readonly journal: Journal;
  readonly sandboxes: Sandboxes;
  readonly execs: Execs;
  readonly gate: ExecGate;
  readonly recordings: Recordings;
}

/** The routes that run commands, and show what ran and happened. */
export function serveHistory(server: WireServer, parts: HistoryRouteParts): void {
  const { journal, sandboxes, execs, gate } = parts;
  server.handleUpgrade("exec", async (upgrade) => gate.upgrade(upgrade));
  server.handleUpgrade("attach", async (upgrade) => gate.attach(upgrade));
  server.handle("listEvents", async ({ params }) => ({
    items: journal.events(sandboxes.find(params.ref).id),
  }));
  server.handle("listExecs", async ({ params }) => ({ items: execs.list(sandboxes.find(params.ref)) }));
  server.handle("logs", async ({ params, query, signal }) => {
    const entry = sandboxes.find(params.ref);
    if (entry.adoption !== undefined) await entry.adoption;
    const exec = findRecorded(journal, entry, query.exec);
    return readLog(parts, entry, exec, { tail: query.tail, since: query.since }, query.follow, signal);
  });
}

/** The asked one; else the one the sandbox ends with, else the newest. @throws DSecError `not_found` */
function findRecorded(journal: Journal, entry: SandboxEntry, id: string | undefined): JournaledExec {
  const recorded = journal.execs(entry.id).filter(({ spec }) => isRecorded(spec));
  const found =
    id === undefined
      ? (recorded.findLast(({ spec }) => spec.endsSandbox) ?? recorded.at(-1))
      : recorded.find((exec) => exec.id === id);
  if (found !== undefined) return found;
  throw new DSecError(
    "not_found",
    id === undefined
      ? `sandbox ${entry.id} has no recorded command`
      : `sandbox ${entry.id} has no recorded command ${id}`,
  );
}

async function* readLog(
  { journal, recordings }: HistoryRouteParts,
  entry: SandboxEntry,
  exec: JournaledExec,
  query: LogQuery,
  follow: boolean,
  signal: AbortSignal,
): AsyncGenerator<LogLine, void, undefined> {
  const recorder = follow ? entry.execs.get(exec.id)?.recorder : undefined;
  yield* recordings.read(entry.id, exec.id, query, recorder, signal);
  if (signal.aborted) return;
  // a recording is closed just before the end is written down
  if (follow) await entry.execs.get(exec.id)?.done.catch(() => undefined);
  const exit = journal.execs(entry.id).find(({ id }) => id === exec.id)?.exit;
  yield { type: "end", ...(exit === undefined ? {} : { exit }) };
}
