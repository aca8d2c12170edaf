import { DSecError } from "../protocol/errors.ts";
import { formatsFrom } from "./format.ts";
import { layerView } from "./layer-ls.ts";
import { selectLayers } from "./layer-selection.ts";
import { layerStoreOption, openStore, storeNote, type ListedLayer } from "./open-layer-store.ts";
import { listingOf } from "./outcome.ts";
import { defineVerb } from "./verb.ts";

export const layerInspect = defineVerb({
  description: storeNote,
  operands: "<layer...>",
  options: { store: layerStoreOption },
  formats: formatsFrom("json"),
  run: async (context, options, references) => {
    const store = await openStore(context, options.store);
    const { found, failures } = await selectLayers(store, references);
    const rows: ListedLayer[] = [];
    for (const published of found) {
      try {
        rows.push({ ...(await store.describe(published)), ...(await store.read(published.digest)) });
      } catch (error) {
        if (!(error instanceof DSecError)) throw error;
        failures.push(error);
      }
    }
    return { type: "listing", listing: listingOf(layerView, rows), failures };
  },
});
