import { DSecError } from "../protocol/errors.ts";
import { formatsFrom } from "./format.ts";
import { releaseIdleLayers } from "./layer-release.ts";
import { layerStoreOption, openStore, storeNote, type LayerStore } from "./open-layer-store.ts";
import { flag } from "./option.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { defineVerb, type Context } from "./verb.ts";

interface Removed {
  readonly reference: string;
  readonly digest: string;
}

/** Sandboxes that a refusal names. */
const mostNamed = 5;

const removedView: View<Removed> = {
  columns: [
    { title: "LAYER", value: ({ reference }) => reference },
    { title: "DIGEST", value: ({ digest }) => digest },
  ],
  name: ({ reference }) => reference,
};

export const layerRm = defineVerb({
  description:
    "Removes the names; what no name leads to any more is freed by `dsec layer prune`. The last name of a layer that a sandbox or a\n" +
    "build uses stays unless --force; with it the layer itself stays until it is not in use any more. Nodes of a fleet that answers\n" +
    `unmount what they only keep for the next sandbox; of others all that they have mounted counts. ${storeNote}`,
  operands: "<layer...>",
  options: { force: flag("-f, --force", "also names of layers in use"), store: layerStoreOption },
  formats: formatsFrom("name"),
  run: async (context, options, references) => {
    const store = await openStore(context, options.store);
    const rows: Removed[] = [];
    const failures: DSecError[] = [];
    for (const reference of references) {
      try {
        rows.push(
          options.force ? await store.remove(reference, true) : await removeUnused(context, store, reference),
        );
      } catch (error) {
        if (!(error instanceof DSecError)) throw error;
        failures.push(error);
      }
    }
    return { type: "listing", listing: listingOf(removedView, rows), failures };
  },
});

/** A node may keep a layer mounted though no sandbox has it any more: it lets go of that when it is asked to. */
async function removeUnused(context: Context, store: LayerStore, reference: string): Promise<Removed> {
  try {
    return await store.remove(reference);
  } catch (error) {
    if (!(error instanceof DSecError) || error.code !== "conflict") throw error;
    const layers = error.details?.["layers"] as readonly string[];
    const used = await releaseIdleLayers(context, layers);
    if (used === undefined) throw error;
    const sandboxes = [...new Set(used.flatMap((layer) => layer.sandboxes))];
    if (sandboxes.length === 0) return store.remove(reference);
    throw new DSecError("conflict", error.message, {
      cause: new Error(
        `its sandboxes: ${sandboxes.slice(0, mostNamed).join(", ")}${sandboxes.length > mostNamed ? "…" : ""}`,
      ),
      details: { ...error.details, sandboxes },
    });
  }
}
