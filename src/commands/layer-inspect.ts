import { DSecError } from "../protocol/errors.ts";
import type { NodeLayer } from "../protocol/layer.ts";
import { formatsFrom } from "./format.ts";
import { note } from "./io.ts";
import { layerView } from "./layer-ls.ts";
import { provenanceOf, type Provenance } from "./layer-provenance.ts";
import { selectLayers } from "./layer-selection.ts";
import {
  layerStoreOption,
  openStore,
  storeNote,
  type LayerStore,
  type ListedLayer,
} from "./open-layer-store.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import type { Context } from "./verb.ts";
import { defineVerb } from "./verb.ts";

interface Use {
  readonly node: string;
  /** Ids of those whose roots it is part of. */
  readonly sandboxes: readonly string[];
}

/** With what its manifest says; of an image, `layers` with what theirs say, from the base upwards. */
interface InspectedLayer extends ListedLayer {
  /** All its names. */
  readonly references: readonly string[];
  /** Who published it, when and from what; absent where that was not written down. */
  readonly provenance?: Provenance;
  /** By the fleet's word; absent where no fleet answers. */
  readonly usedBy?: readonly Use[];
  /** Nodes and builds that keep it from being pruned, by the store's word. */
  readonly leasedBy: readonly string[];
}

const inspectedView: View<InspectedLayer> = {
  ...layerView,
  columns: [
    ...layerView.columns,
    {
      title: "USED BY",
      value: ({ usedBy = [] }) =>
        usedBy.map(({ node, sandboxes }) => `${node} (${sandboxes.length})`).join(", "),
    },
    { title: "BY", wide: true, value: ({ provenance }) => provenance?.by ?? "" },
    { title: "FROM", wide: true, value: ({ provenance }) => provenance?.from ?? "" },
    { title: "LEASED BY", wide: true, value: ({ leasedBy }) => leasedBy.join(", ") },
  ],
};

export const layerInspect = defineVerb({
  description:
    "Kind, digests, blobs with their sizes, an image's configuration, source and history; who published it, when and from what; who\n" +
    "uses it: sandboxes by the fleet's word, where one answers, nodes also by their leases in the store.\n" +
    storeNote,
  operands: "<layer...>",
  examples: ["dsec layer inspect python:3.12-slim | jq '.[].usedBy'"],
  options: { store: layerStoreOption },
  formats: formatsFrom("json"),
  run: async (context, options, references) => {
    const store = await openStore(context, options.store);
    const { found, failures } = await selectLayers(store, references);
    if (found.length === 0) return { type: "listing", listing: listingOf(inspectedView, []), failures };
    const look = await usesIn(context, store);
    const published = await store.references.list();
    const rows: InspectedLayer[] = [];
    for (const layer of found) {
      try {
        const names = published.filter(({ digest }) => digest === layer.digest);
        const { digests, manifest } = await manifestOf(store, layer.digest);
        const provenance = await provenanceOf(store, [layer, ...names]);
        rows.push({
          ...(await store.describe(layer)),
          references: names.map(({ reference }) => reference),
          ...manifest,
          ...provenance,
          ...look(digests),
        });
      } catch (error) {
        if (!(error instanceof DSecError)) throw error;
        failures.push(error);
      }
    }
    return { type: "listing", listing: listingOf(inspectedView, rows), failures };
  },
});

/** What its manifest says, and the digests of the layers it consists of. */
async function manifestOf(store: LayerStore, digest: string) {
  const manifest = await store.read(digest);
  if (manifest.kind !== "image") return { manifest, digests: [digest] };
  const layers = [];
  for (const layer of manifest.layers) layers.push({ digest: layer, ...(await store.manifest(layer)) });
  return { manifest: { ...manifest, layers }, digests: manifest.layers };
}

/** Who uses what. */
async function usesIn({ io, client }: Context, store: LayerStore) {
  const { readLeases } = await import("../daemon/layers/leases.ts");
  const leases = await readLeases(store.paths, io.now());
  let items: readonly NodeLayer[] | undefined;
  try {
    const list = await (await client()).layers();
    items = list.items;
    for (const node of list.unreachable ?? [])
      note(io, `node ${node} does not answer: what it uses is missing`);
  } catch (error) {
    if (!(error instanceof DSecError)) throw error;
    note(io, "no fleet answers: which sandboxes use it is not known");
  }
  return (digests: readonly string[]): Pick<InspectedLayer, "usedBy" | "leasedBy"> => ({
    ...(items !== undefined && { usedBy: usesOf(items, digests) }),
    leasedBy: [
      ...new Set(leases.filter(({ digest }) => digests.includes(digest)).map(({ holder }) => holder)),
    ],
  });
}

/** A sandbox that has several of the layers is named once. */
function usesOf(items: readonly NodeLayer[], digests: readonly string[]): Use[] {
  const nodes = new Map<string, Set<string>>();
  for (const { node, digest, sandboxes } of items) {
    if (!digests.includes(digest) || sandboxes.length === 0) continue;
    const known = nodes.get(node) ?? new Set();
    nodes.set(node, known);
    for (const id of sandboxes) known.add(id);
  }
  return [...nodes].map(([node, sandboxes]) => ({ node, sandboxes: [...sandboxes] }));
}
