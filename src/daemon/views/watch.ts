import type { WatchEvent } from "../../protocol/sandbox.ts";
import type { Change, ChangeFeed, SandboxSource } from "./change-feed.ts";
import type { Clock } from "../clock.ts";
import type { Match } from "./filter.ts";

export interface WatchParts {
  readonly feed: ChangeFeed;
  readonly source: SandboxSource;
  readonly clock: Clock;
}

/** Sandboxes whose change a watcher has not taken yet. One that falls further behind is cut. */
const maxPending = 8192;
/** Milliseconds of silence after which a ping is sent. */
const pingMs = 15_000;

/**
 * The sandboxes a filter shows: a snapshot, `synced`, then changes; or, from a cursor that is recent enough, the changes since then
 * and no `synced`. A sandbox that leaves the filter is told once more as it is, then as removed. Changes of one sandbox
 * that a slow watcher has not taken yet are told as one. The iteration ends when the watcher is too far behind: it resumes
 * with its cursor and gets a fresh snapshot if need be.
 */
export async function* watchSandboxes(
  parts: WatchParts,
  match: Match,
  cursor: string | undefined,
  signal: AbortSignal,
): AsyncGenerator<WatchEvent, void, undefined> {
  const { feed, source, clock } = parts;
  const shown = new Set<string>();
  /** Revisions by id, in rising order: a change that comes again moves to the end. */
  const pending = new Map<string, number>();
  let wake: () => void = () => undefined;
  const unlisten = feed.listen(({ id, revision }) => {
    pending.delete(id);
    pending.set(id, revision);
    wake();
  });
  const stop = (): void => wake();
  signal.addEventListener("abort", stop, { once: true });
  try {
    const resumed = cursor === undefined ? undefined : feed.revisionOf(cursor);
    if (resumed === undefined || !missed(resumed)) yield* snapshot();
    while (!signal.aborted) {
      while (pending.size > 0) {
        if (pending.size > maxPending) return;
        const [[id, revision] = ["", 0]] = pending;
        pending.delete(id);
        yield* change(id, revision);
      }
      if ((await idle()) === "silent") yield { type: "ping" };
    }
  } finally {
    signal.removeEventListener("abort", stop);
    unlisten();
  }

  /** Makes pending what changed since the watcher's cursor; false where that is too much to be told one by one. */
  function missed(since: number): boolean {
    const changed: Change[] = [...source.views()].filter(({ revision }) => revision > since);
    const removed = feed.removedSince(since);
    if (changed.length + removed.length > maxPending) return false;
    for (const { id, revision } of [...changed, ...removed].sort((a, b) => a.revision - b.revision))
      pending.set(id, revision);
    for (const sandbox of source.views()) if (match.exceptState(sandbox)) shown.add(sandbox.id);
    for (const { id } of removed) shown.add(id);
    return true;
  }

  function* snapshot(): Generator<WatchEvent> {
    const at = feed.cursor();
    for (const sandbox of [...source.views()].filter((candidate) => match.all(candidate))) {
      shown.add(sandbox.id);
      yield { type: "snapshot", sandbox };
    }
    yield { type: "synced", cursor: at };
  }

  function* change(id: string, revision: number): Generator<WatchEvent> {
    const at = feed.cursor(revision);
    const sandbox = source.view(id);
    if (sandbox !== undefined && match.all(sandbox)) {
      shown.add(id);
      yield { type: "changed", cursor: at, sandbox };
    } else if (shown.delete(id)) {
      if (sandbox !== undefined && match.exceptState(sandbox)) yield { type: "changed", cursor: at, sandbox };
      yield { type: "removed", cursor: at, id };
    }
  }

  async function idle(): Promise<"changed" | "silent"> {
    const { promise, resolve } = Promise.withResolvers<"changed" | "silent">();
    wake = () => resolve("changed");
    const dispose = clock.after(pingMs, () => resolve("silent"));
    if (pending.size > 0 || signal.aborted) wake();
    const outcome = await promise;
    dispose();
    return outcome;
  }
}
