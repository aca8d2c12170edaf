import { DSecError } from "../protocol/errors.ts";
import type { NodeLayer } from "../protocol/layer.ts";
import { parseDuration } from "./duration.ts";
import { listingFormats } from "./format.ts";
import { untilInterrupted } from "./interrupt.ts";
import { note } from "./io.ts";
import { namesOfLayers } from "./layer-names.ts";
import { releaseIdleLayers } from "./layer-release.ts";
import { layerStoreOption, openStore, storeNote } from "./open-layer-store.ts";
import { flag, value } from "./option.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { formatSize } from "./size.ts";
import { defineVerb } from "./verb.ts";
import type { Context } from "./verb.ts";

type PruneModule = typeof import("../daemon/layers/prune.ts");
type PrunedFile = Awaited<ReturnType<PruneModule["pruneStore"]>>[number];

const prunedView: View<PrunedFile> = {
  columns: [
    { title: "KIND", value: ({ kind }) => kind },
    { title: "ACTION", value: ({ action }) => action },
    { title: "SIZE", value: ({ bytes }) => formatSize(bytes) },
    { title: "DIGEST", value: ({ digest }) => digest },
  ],
  name: ({ digest }) => digest,
};

/** Milliseconds: longer than any node's view of the store lags behind. */
const usualGraceMs = 3_600_000;

export const layerPrune = defineVerb({
  description:
    "Removes what no name leads to and no node uses, in two steps: it is set aside, and a prune after the grace time frees it,\n" +
    "unless it was needed meanwhile. Nodes say what they use in the store; a fleet that answers is asked, too. Files younger than that are left alone. Where all nodes see changes at once (a local disk),\n" +
    `--grace 0 does both at once. Safe beside builds, nodes and other prunes. ${storeNote}`,
  examples: ["dsec layer rm tools:1 && dsec layer prune", "dsec layer prune --grace 0 --dry-run"],
  options: {
    grace: value(
      "--grace <duration>",
      "how long what is set aside can be had back; 1h unless given",
      parseDuration,
    ),
    dryRun: flag("--dry-run", "remove nothing, only show what would be set aside"),
    store: layerStoreOption,
  },
  formats: listingFormats,
  run: (context, options) =>
    untilInterrupted(async (signal) => {
      const store = await openStore(context, options.store);
      const { bytesAside, pruneStore } = await import("../daemon/layers/prune.ts");
      const { grace = usualGraceMs, dryRun } = options;
      const inUse = await usedByFleet(context, options.store);
      const pruned = await pruneStore(store.paths, { graceMs: grace, dryRun, inUse, signal });
      const freed = pruned
        .filter(({ action }) => action === "freed")
        .reduce((sum, { bytes }) => sum + bytes, 0);
      if (!dryRun)
        note(
          context.io,
          `freed ${formatSize(freed)}; ${formatSize(await bytesAside(store.paths))} are set aside`,
        );
      return { type: "listing", listing: listingOf(prunedView, pruned) };
    }),
});

/**
 * Layers that the fleet's nodes use: some can only read the store, and leave no word there. What they only keep for the next sandbox and no
 * name leads to they let go of. None where no fleet answers.
 */
async function usedByFleet(context: Context, directory: string | undefined): Promise<ReadonlySet<string>> {
  let items: readonly NodeLayer[];
  try {
    const list = await (await context.client()).layers();
    for (const node of list.unreachable ?? [])
      note(context.io, `node ${node} does not answer: what it has leased is kept`);
    ({ items } = list);
  } catch (error) {
    if (error instanceof DSecError) return new Set();
    throw error;
  }
  const { names } = await namesOfLayers(context, directory, []);
  const idle = items.filter(({ digest, sandboxes }) => sandboxes.length === 0 && !names.has(digest));
  const digests = new Set(idle.map(({ digest }) => digest));
  const kept = await releaseIdleLayers(context, [...digests]);
  return new Set(
    [...items.filter(({ digest }) => !digests.has(digest)), ...(kept ?? idle)].map(({ digest }) => digest),
  );
}
