import type { ReclaimRequest, ReclaimResult } from "../../protocol/sandbox.ts";
import { mapBounded } from "../bounded.ts";
import type { Ending } from "../lifecycle/ending.ts";
import { compileFilter } from "../views/filter.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";
import { readableUsageOf } from "../views/usage.ts";

export interface ReclaimParts {
  readonly sandboxes: Sandboxes;
  readonly ending: Pick<Ending, "stop">;
  readonly now: () => number;
}

type Item = ReclaimResult["items"][number];
const parallel = 16;

/** Ends the sandboxes that have been idle for so long, or says which those would be and what they hold. Longest idle first. */
export async function reclaim(parts: ReclaimParts, request: ReclaimRequest): Promise<ReclaimResult> {
  const { sandboxes, now } = parts;
  const match = compileFilter(request.filter);
  const asked = now();
  const idle = [...sandboxes.values()]
    .filter((entry) => isIdle(entry, request.idleFor, asked) && match.all(sandboxes.viewOf(entry)))
    .sort((a, b) => a.record.lastActiveAt - b.record.lastActiveAt);
  const items = await mapBounded(idle, parallel, async (entry) => reclaimOne(parts, request, entry));
  const freed = items.filter((item) => item.ended || request.dryRun);
  return {
    items,
    memoryBytes: freed.reduce((sum, item) => sum + item.memoryBytes, 0),
    diskBytes: freed.reduce((sum, item) => sum + item.diskBytes, 0),
  };
}

async function reclaimOne(parts: ReclaimParts, request: ReclaimRequest, entry: SandboxEntry): Promise<Item> {
  const usage = await readableUsageOf(entry);
  const idleMs = parts.now() - entry.record.lastActiveAt;
  // it may have been used since the list was made
  const ends = !request.dryRun && isIdle(entry, request.idleFor, parts.now());
  if (ends)
    await parts.ending.stop(
      entry,
      "evicted",
      `reclaimed by request after ${Math.round(idleMs / 1000)} s idle`,
    );
  const { name } = entry.record.spec;
  return {
    id: entry.id,
    ...(name === undefined ? {} : { name }),
    idleSeconds: Math.max(0, idleMs / 1000),
    memoryBytes: usage?.memoryBytes ?? 0,
    diskBytes: usage?.diskBytes ?? 0,
    ended: ends && entry.record.endReason === "evicted",
  };
}

function isIdle(entry: SandboxEntry, idleSeconds: number, now: number): boolean {
  const { state, lastActiveAt } = entry.record;
  return state === "running" && entry.activeExecs === 0 && now - lastActiveAt >= idleSeconds * 1000;
}
