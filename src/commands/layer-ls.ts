import { DSecError } from "../protocol/errors.ts";
import { formatDuration } from "./duration.ts";
import { listingFormats } from "./format.ts";
import { layerStoreOption, openStore, storeNote, type ListedLayer } from "./open-layer-store.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { formatSize } from "./size.ts";
import { defineVerb } from "./verb.ts";

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
    const rows: ListedLayer[] = [];
    const failures: DSecError[] = [];
    for (const published of await store.references.list()) {
      try {
        rows.push(await store.describe(published));
      } catch (error) {
        if (!(error instanceof DSecError)) throw error;
        failures.push(error);
      }
    }
    return { type: "listing", listing: listingOf(layerView, rows), failures };
  },
});
