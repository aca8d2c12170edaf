import { DSecError } from "../protocol/errors.ts";
import { formatsFrom } from "./format.ts";
import { untilInterrupted } from "./interrupt.ts";
import { note } from "./io.ts";
import { layerStoreOption, openStore, storeNote, type LayerStore } from "./open-layer-store.ts";
import { choice, flag, many, text } from "./option.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { formatSize } from "./size.ts";
import { defineVerb } from "./verb.ts";

type BuiltLayer = Awaited<ReturnType<LayerStore["build"]>>;

export const builtView: View<BuiltLayer> = {
  columns: [
    { title: "LAYER", value: ({ reference }) => reference },
    { title: "SIZE", value: ({ bytes }) => formatSize(bytes) },
    { title: "CREATED", value: ({ created }) => (created ? "yes" : "no") },
    { title: "DIGEST", value: ({ digest }) => digest },
  ],
  name: ({ reference }) => reference,
};

export const layerBuild = defineVerb({
  description:
    "FROM is a directory, a tar archive (also compressed), debian:SUITE (by mmdebstrap) or busybox.\n" +
    "A published layer never changes: the same content again is no error, other content is.\n" +
    storeNote,
  operands: "<name:version>",
  examples: [
    "dsec layer build debian:bookworm --from debian:bookworm --tag latest",
    "dsec layer build tools:1 --from ./rootfs",
  ],
  options: {
    from: text("--from <source>", "directory, tar archive, debian:SUITE or busybox"),
    kind: choice("--kind <kind>", "base|workspace|toolkit; base unless given", [
      "base",
      "workspace",
      "toolkit",
    ]),
    tags: many("--tag <version>", "a further name for it; may be repeated", (given) => given),
    ifMissing: flag("--if-missing", "do nothing when a layer of that name is there"),
    store: layerStoreOption,
  },
  formats: formatsFrom("name"),
  run: (context, options, [reference = ""]) =>
    untilInterrupted(async (signal) => {
      const { from, kind, tags, ifMissing } = options;
      if (from === undefined)
        throw new DSecError("invalid_argument", "--from says what the layer is made from, and is needed");
      const store = await openStore(context, options.store, true);
      const spec = { reference, from, ifMissing, tags, ...(kind === undefined ? {} : { kind }) };
      const built = await store.build(spec, { signal, onProgress: (message) => note(context.io, message) });
      return { type: "listing", single: true, listing: listingOf(builtView, [built]) };
    }),
});
