import type { NodeLayer } from "../protocol/layer.ts";
import { formatDuration } from "./duration.ts";
import { listingFormats } from "./format.ts";
import { note } from "./io.ts";
import { namesOfLayers } from "./layer-names.ts";
import { layerStoreOption } from "./open-layer-store.ts";
import { flag } from "./option.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { formatSize } from "./size.ts";
import { defineVerb } from "./verb.ts";

interface Row extends NodeLayer {
  /** Names that the store has for the layer, images it is part of included. */
  readonly references: readonly string[];
}

/** Of one request. */
const mostDigests = 64;

const heatView: View<Row> = {
  columns: [
    { title: "LAYER", value: ({ references, digest }) => references[0] ?? digest.slice(0, 19) },
    { title: "NODE", value: ({ node }) => node },
    { title: "SANDBOXES", value: ({ sandboxes }) => String(sandboxes.length) },
    { title: "MOUNTED", value: ({ mounted }) => (mounted ? "yes" : "") },
    { title: "SIZE", value: ({ heat }) => (heat === undefined ? "" : formatSize(heat.bytes)) },
    { title: "READ", value: ({ heat }) => (heat === undefined ? "" : formatSize(heat.peakBytes)) },
    { title: "READ%", value: ({ heat }) => (heat === undefined ? "" : percent(heat.peakBytes, heat.bytes)) },
    { title: "FILES%", value: ({ heat }) => (heat === undefined ? "" : percent(heat.filesRead, heat.files)) },
    {
      title: "CACHED",
      wide: true,
      value: ({ heat }) => (heat === undefined ? "" : formatSize(heat.cachedBytes)),
    },
    {
      title: "SEEN",
      wide: true,
      value: ({ heat }, now) => (heat === undefined ? "" : `${formatDuration(now - heat.sampledAt)} ago`),
    },
    { title: "DIGEST", wide: true, value: ({ digest }) => digest },
  ],
  name: ({ digest }) => digest,
};

export const layerHeat = defineVerb({
  description:
    "Asks the fleet. READ is how much of a layer's files was in the node's page cache when the node looked: what sandboxes read, or\n" +
    "the kernel read ahead for them. It looks now, and just before a layer is unmounted; what was evicted in between is not\n" +
    "seen, so a node short of memory shows less than was read. Names come from the layer store, where this machine has it.",
  operands: "[layer...]",
  examples: ["dsec layer heat", "dsec layer heat debian:bookworm -o json"],
  options: { all: flag("-a, --all", "also layers that are not mounted any more"), store: layerStoreOption },
  formats: listingFormats,
  run: async (context, options, references) => {
    const { names, wanted } = await namesOfLayers(context, options.store, references);
    const { items, unreachable = [] } = await (
      await context.client()
    ).layers({
      heat: true,
      // more are asked for all together
      ...(wanted !== undefined && wanted.size <= mostDigests && { digests: [...wanted] }),
    });
    for (const node of unreachable) note(context.io, `node ${node} does not answer: what it uses is missing`);
    const rows = items
      .filter(({ digest, mounted, sandboxes }) =>
        wanted === undefined ? options.all || mounted || sandboxes.length > 0 : wanted.has(digest),
      )
      .map((layer): Row => ({ ...layer, references: names.get(layer.digest) ?? [] }));
    return { type: "listing", listing: listingOf(heatView, rows) };
  },
});

function percent(part: number, whole: number): string {
  return whole === 0 ? "" : `${((100 * part) / whole).toFixed(1)}%`;
}
