import { DSecError } from "../protocol/errors.ts";
import { formatsFrom } from "./format.ts";
import { layerStoreOption, openStore, storeNote } from "./open-layer-store.ts";
import { flag } from "./option.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { defineVerb } from "./verb.ts";

interface Removed {
  readonly reference: string;
  readonly digest: string;
}

const removedView: View<Removed> = {
  columns: [
    { title: "LAYER", value: ({ reference }) => reference },
    { title: "DIGEST", value: ({ digest }) => digest },
  ],
  name: ({ reference }) => reference,
};

export const layerRm = defineVerb({
  description:
    "Removes the names; what no name leads to any more is freed by `dsec layer prune`. The last name of a layer that a node uses\n" +
    `stays unless --force; with it the layer itself stays until it is not in use any more. ${storeNote}`,
  operands: "<layer...>",
  options: { force: flag("-f, --force", "also names of layers in use"), store: layerStoreOption },
  formats: formatsFrom("name"),
  run: async (context, options, references) => {
    const store = await openStore(context, options.store);
    const rows: Removed[] = [];
    const failures: DSecError[] = [];
    for (const reference of references) {
      try {
        rows.push(await store.remove(reference, options.force));
      } catch (error) {
        if (!(error instanceof DSecError)) throw error;
        failures.push(error);
      }
    }
    return { type: "listing", listing: listingOf(removedView, rows), failures };
  },
});
