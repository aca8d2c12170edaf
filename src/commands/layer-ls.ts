import { DSecError } from "../protocol/errors.ts";
import { formatDuration } from "./duration.ts";
import { listingFormats } from "./format.ts";
import { layerStoreOption, openStore, storeNote, type ListedLayer } from "./open-layer-store.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { formatSize } from "./size.ts";
import { defineVerb } from "./verb.ts";

/** Manifests that are read together. */
const parallel = 16;

export const layerView: View<ListedLayer> = {
  columns: [
    { title: "LAYER", value: ({ reference }) => reference },
    { title: "KIND", value: ({ kind }) => kind },
    { title: "SIZE", value: ({ bytes }) => formatSize(bytes) },
    { title: "AGE", value: ({ publishedAt }, now) => formatDuration(now - publishedAt) },
    { title: "ALIAS", value: ({ alias }) => (alias ? "yes" : "") },
    { title: "DIGEST", wide: true, value: ({ digest }) => digest },
  ],
  name: ({ reference }) => reference,
};

export const layerLs = defineVerb({
  description: storeNote,
  options: { store: layerStoreOption },
  formats: listingFormats,
  run: async (context, options) => {
    const store = await openStore(context, options.store);
    const { mapBounded } = await import("../daemon/bounded.ts");
    const failures: DSecError[] = [];
    const rows = await mapBounded(await store.references.list(), parallel, async (published) =>
      store.describe(published).catch((error: unknown) => {
        if (!(error instanceof DSecError)) throw error;
        failures.push(error);
        return undefined;
      }),
    );
    const layers = rows.filter((row) => row !== undefined);
    return { type: "listing", listing: listingOf(layerView, layers), failures };
  },
});
