import { errorTable } from "../protocol/errors.ts";
import { listingFormats } from "./format.ts";
import { untilInterrupted } from "./interrupt.ts";
import { note } from "./io.ts";
import { selectLayers } from "./layer-selection.ts";
import { layerStoreOption, openStore, storeNote } from "./open-layer-store.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { formatSize } from "./size.ts";
import { defineVerb } from "./verb.ts";

type Verifier = InstanceType<(typeof import("../daemon/layers/verify.ts"))["LayerVerifier"]>;
type VerifiedLayer = Awaited<ReturnType<Verifier["verify"]>>;

const verifiedView: View<VerifiedLayer> = {
  columns: [
    { title: "LAYER", value: ({ reference }) => reference },
    {
      title: "STATUS",
      value: ({ status }) => status,
      tone: ({ status }) => (status === "ok" ? "good" : "bad"),
    },
    { title: "READ", value: ({ bytes }) => formatSize(bytes) },
    { title: "MESSAGE", value: ({ message }) => message ?? "" },
    { title: "DIGEST", wide: true, value: ({ digest }) => digest },
  ],
  name: ({ reference }) => reference,
};

export const layerVerify = defineVerb({
  description:
    "Reads every byte of the given layers, of all unless some are given, and compares it with the digests. Exit code 125 when\n" +
    `something is wrong. ${storeNote}`,
  operands: "[layer...]",
  options: { store: layerStoreOption },
  formats: listingFormats,
  run: (context, options, references) =>
    untilInterrupted(async (signal) => {
      const store = await openStore(context, options.store);
      const { LayerVerifier } = await import("../daemon/layers/verify.ts");
      const { found, failures } = await selectLayers(store, references);
      const verifier = new LayerVerifier(store, signal);
      const rows: VerifiedLayer[] = [];
      for (const published of found) {
        const verified = await verifier.verify(published);
        if (verified.status !== "ok")
          note(context.io, `${verified.reference}: ${verified.message ?? verified.status}`);
        rows.push(verified);
      }
      const wrong = rows.some(({ status }) => status !== "ok");
      return {
        type: "listing",
        listing: listingOf(verifiedView, rows),
        failures,
        ...(wrong && { exitCode: errorTable.layer_corrupt.exit }),
      };
    }),
});
