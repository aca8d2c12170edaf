import { formatDuration } from "./duration.ts";
import { listingFormats } from "./format.ts";
import { provenanceOf, type Provenance } from "./layer-provenance.ts";
import { selectLayers } from "./layer-selection.ts";
import {
  layerStoreOption,
  openStore,
  storeNote,
  type LayerStore,
  type PublishedLayer,
} from "./open-layer-store.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { formatSize } from "./size.ts";
import { defineVerb } from "./verb.ts";

type Manifest = Awaited<ReturnType<LayerStore["read"]>>;
type ImageStep = NonNullable<Extract<Manifest, { kind: "image" }>["history"]>[number];

interface HistoryEntry {
  /** Of a version: its reference; of an image's layer: its place, from the base upwards. */
  readonly name: string;
  readonly digest: string;
  readonly kind: string;
  readonly bytes: number;
  /** Milliseconds since the epoch. */
  readonly publishedAt: number;
  /** Who published it, when and from what; absent where that was not written down. */
  readonly provenance?: Provenance;
  /** Of an image's layer: how its builder made it, as far as the image says. */
  readonly steps?: readonly ImageStep[];
}

/** Characters of a table's cell. */
const widest = 50;

const historyView: View<HistoryEntry> = {
  columns: [
    { title: "LAYER", value: ({ name }) => name },
    { title: "KIND", value: ({ kind }) => kind },
    { title: "AGE", value: ({ publishedAt }, now) => formatDuration(now - publishedAt) },
    { title: "SIZE", value: ({ bytes }) => formatSize(bytes) },
    { title: "BY", value: ({ provenance }) => provenance?.by ?? "" },
    { title: "FROM", value: (entry) => shortened(originOf(entry)) },
    { title: "DIGEST", value: ({ digest }) => digest },
  ],
  name: ({ digest }) => digest,
};

function originOf({ provenance, steps }: HistoryEntry): string {
  const made = steps?.filter(({ files }) => files === true).map(({ createdBy }) => createdBy);
  return made === undefined || made.length === 0 ? (provenance?.from ?? "") : made.join("; ");
}

/** Of a path the end says most, of a command the beginning. */
function shortened(text: string): string {
  const line = text.replaceAll(/\s+/g, " ");
  if (line.length <= widest) return line;
  return line.startsWith("/") && !line.includes(" ")
    ? `…${line.slice(1 - widest)}`
    : `${line.slice(0, widest - 1)}…`;
}

export const layerHistory = defineVerb({
  description:
    "Of an image: its layers, the uppermost first, with the steps of its builder that went into each. Of a layer: every version of its\n" +
    "name, the newest first, with who published it and from what; all that is known is shown by -o json. What several have in common is\n" +
    `shown by \`dsec layer du\`. ${storeNote}`,
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
    const provenance = await provenanceOf(store, [published]);
    entries.push({ ...published, name: published.reference, kind, bytes, ...provenance });
  }
  return entries.toSorted((a, b) => b.publishedAt - a.publishedAt);
}

async function layersOf(store: LayerStore, image: PublishedLayer): Promise<HistoryEntry[]> {
  const manifest = await store.read(image.digest);
  const [digests, history] =
    manifest.kind === "image" ? [manifest.layers, manifest.history] : [[image.digest], undefined];
  const provenance = await provenanceOf(store, [image]);
  const entries: HistoryEntry[] = [];
  for (const [place, digest] of digests.entries()) {
    const { kind, bytes } = await store.describe({ ...image, digest });
    entries.push({
      name: `${image.reference} ${place + 1}/${digests.length}`,
      digest,
      kind,
      bytes,
      publishedAt: image.publishedAt,
      ...provenance,
      ...(history !== undefined && { steps: history.filter(({ layer }) => layer === place) }),
    });
  }
  return entries.toReversed();
}
