import { layerStoreOption, openStore, storeNote } from "./open-layer-store.ts";
import { done } from "./outcome.ts";
import { defineVerb } from "./verb.ts";

export const layerTag = defineVerb({
  description: `Unlike the name a layer was published under, a further name may be moved to another layer.\n${storeNote}`,
  operands: "<layer> <name>",
  options: { store: layerStoreOption },
  run: async (context, options, [reference = "", alias = ""]) => {
    const store = await openStore(context, options.store);
    await store.tag(reference, alias);
    return done;
  },
});
