import { formatDuration } from "./duration.ts";
import { listingFormats } from "./format.ts";
import { selectLayers } from "./layer-selection.ts";
import { layerStoreOption, openStore, storeNote, type LayerStore } from "./open-layer-store.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { formatSize } from "./size.ts";
import { defineVerb } from "./verb.ts";

interface HistoryEntry {
  /** Of a version: its reference; of an image's layer: its place, from the base upwards. */
  readonly name: string;
  readonly digest: string;
  readonly kind: string;
  readonly bytes: number;
  /** Milliseconds since the epoch. */
  readonly publishedAt: number;
}

const historyView: View<HistoryEntry> = {
  columns: [
    { title: "LAYER", value: ({ name }) => name },
    { title: "KIND", value: ({ kind }) => kind },
    { title: "AGE", value: ({ publishedAt }, now) => formatDuration(now - publishedAt) },
    { title: "SIZE", value: ({ bytes }) => formatSize(bytes) },
    { title: "DIGEST", value: ({ digest }) => digest },
  ],
  name: ({ digest }) => digest,
};

export const layerHistory = defineVerb({
  description:
    "Of an image: its layers, the uppermost first. Of a layer: every version of its name, the newest first; what several have in\n" +
    `common is shown by \`dsec layer du\`. ${storeNote}`,
  operands: "<layer>",
  options: { store: layerStoreOption },
  formats: listingFormats,
  run: async (context, options, [reference = ""]) => {
    const store = await openStore(context, options.store);
    const versions = await versionsOf(store, reference);
    if (versions.length > 0) return { type: "listing", listing: listingOf(historyView, versions) };
    const { found, failures } = await selectLayers(store, [reference]);
    const [image] = found;
    const rows = image === undefined ? [] : await layersOf(store, image);
    return { type: "listing", listing: listingOf(historyView, rows), failures };
  },
});

type Published = Awaited<ReturnType<LayerStore["references"]["list"]>>[number];

/** Every layer of the name that `reference` has; none where it is an image's. */
async function versionsOf(store: LayerStore, reference: string): Promise<HistoryEntry[]> {
  const { parseImageReference } = await import("../daemon/layers/reference.ts");
  const { layer } = parseImageReference(reference);
  if (layer === undefined) return [];
  const entries: HistoryEntry[] = [];
  for (const published of await store.references.list()) {
    if (published.alias || !published.reference.startsWith(`${layer.name}:`)) continue;
    const { kind, bytes } = await store.describe(published);
    if (kind === "image") continue;
    entries.push({ ...published, name: published.reference, kind, bytes });
  }
  return entries.toSorted((a, b) => b.publishedAt - a.publishedAt);
}

async function layersOf(store: LayerStore, image: Published): Promise<HistoryEntry[]> {
  const manifest = await store.read(image.digest);
  const digests = manifest.kind === "image" ? manifest.layers : [image.digest];
  const entries: HistoryEntry[] = [];
  for (const [place, digest] of digests.entries()) {
    const { kind, bytes } = await store.describe({ ...image, digest });
    entries.push({
      name: `${image.reference} ${place + 1}/${digests.length}`,
      digest,
      kind,
      bytes,
      publishedAt: image.publishedAt,
    });
  }
  return entries.toReversed();
}
