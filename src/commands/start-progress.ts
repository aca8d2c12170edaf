import { DSecError } from "../protocol/errors.ts";
import type { DSecClient } from "../sdk/client.ts";
import { isTerminal } from "./io.ts";
import type { Io } from "./io.ts";
import { StatusLine } from "./progress.ts";

/** Milliseconds that a start is given before anybody asks what it waits for: most are over by then. */
const patienceMs = 300;

/**
 * Shows on a terminal what a sandbox that is being made waits for, e.g. how much of its image was fetched. A create tells no id
 * before it is done, so what is shown is what the fleet says of a pending sandbox of that image: an import is one for all
 * who wait for it on a node.
 *
 * @returns takes the line away; resolves when nothing more will be written
 */
export function showStart(fleet: DSecClient, image: string, io: Io): () => Promise<void> {
  if (!isTerminal(io.stderr)) return async () => undefined;
  const over = new AbortController();
  const line = new StatusLine(io);
  let watching: Promise<void> | undefined;
  const timer = setTimeout(() => {
    watching = follow(fleet, image, line, over.signal);
  }, patienceMs);
  return async () => {
    clearTimeout(timer);
    over.abort(new DSecError("cancelled", "the sandbox has started"));
    await watching;
    line.clear();
  };
}

async function follow(fleet: DSecClient, image: string, line: StatusLine, over: AbortSignal): Promise<void> {
  let shown: string | undefined;
  try {
    for await (const event of fleet.watch({ state: ["pending"] }, { signal: over })) {
      if (event.type === "removed" && event.id === shown) shown = undefined;
      if (event.type !== "snapshot" && event.type !== "changed") continue;
      const { id, progress, state } = event.sandbox;
      if (event.sandbox.image !== image || state !== "pending" || progress === undefined) continue;
      shown ??= id;
      if (id === shown) line.update(progress);
    }
  } catch (error) {
    // whether there is a sandbox is for the create to say
    if (!(error instanceof DSecError)) throw error;
  }
}
