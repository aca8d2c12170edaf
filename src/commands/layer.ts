import { join } from "node:path";
import { DSecError } from "../protocol/errors.ts";
import { formatDuration } from "./duration.ts";
import { formatsFrom, listingFormats } from "./format.ts";
import { untilInterrupted } from "./interrupt.ts";
import { note } from "./io.ts";
import { choice, flag, many, text } from "./option.ts";
import { done, listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { formatSize } from "./size.ts";
import { defineVerb } from "./verb.ts";
import type { Context, VerbGroup } from "./verb.ts";

// the daemon's modules are loaded when needed only, and so are their types
type LayerStoreModule = typeof import("../daemon/layers/layer-store.ts");
type LayerStore = Awaited<ReturnType<LayerStoreModule["openLayerStore"]>>;
type ListedLayer = Awaited<ReturnType<LayerStore["list"]>>[number];
type BuiltLayer = Awaited<ReturnType<LayerStore["build"]>>;

export const layerStoreOption = text(
  "--layer-store <dir>",
  "directory of the layer store; <data>/layers unless given",
);

const layerView: View<ListedLayer> = {
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

const builtView: View<BuiltLayer> = {
  columns: [
    { title: "LAYER", value: ({ reference }) => reference },
    { title: "SIZE", value: ({ bytes }) => formatSize(bytes) },
    { title: "CREATED", value: ({ created }) => (created ? "yes" : "no") },
    { title: "DIGEST", value: ({ digest }) => digest },
  ],
  name: ({ reference }) => reference,
};

const build = defineVerb({
  description:
    "FROM is a directory, a tar archive (also compressed), debian:SUITE (by mmdebstrap) or busybox.\n" +
    "A published layer never changes: the same content again is no error, other content is.\n" +
    "Works on the layer store itself; no fleet needs to run.",
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
      const store = await openStore(context, options.store);
      const spec = { reference, from, ifMissing, tags, ...(kind === undefined ? {} : { kind }) };
      const built = await store.build(spec, { signal, onProgress: (message) => note(context.io, message) });
      return { type: "listing", single: true, listing: listingOf(builtView, [built]) };
    }),
});

const ls = defineVerb({
  options: { store: layerStoreOption },
  formats: listingFormats,
  run: async (context, options) => {
    const store = await openStore(context, options.store);
    return { type: "listing", listing: listingOf(layerView, await store.list()) };
  },
});

const inspect = defineVerb({
  operands: "<layer...>",
  options: { store: layerStoreOption },
  formats: formatsFrom("json"),
  run: async (context, options, references) => {
    const store = await openStore(context, options.store);
    const listed = await store.list();
    const rows: ListedLayer[] = [];
    const failures: DSecError[] = [];
    for (const reference of references) {
      const wanted = reference.includes(":") ? reference : `${reference}:latest`;
      const layer = listed.find((known) => known.reference === wanted);
      if (layer === undefined) failures.push(new DSecError("image_not_found", `no layer is named ${wanted}`));
      else rows.push({ ...layer, ...(await store.read(layer.digest)) });
    }
    return { type: "listing", listing: listingOf(layerView, rows), failures };
  },
});

const tag = defineVerb({
  description: "Unlike the name a layer was published under, a further name may be moved to another layer.",
  operands: "<layer> <name>",
  options: { store: layerStoreOption },
  run: async (context, options, [reference = "", alias = ""]) => {
    const store = await openStore(context, options.store);
    await store.tag(reference, alias);
    return done;
  },
});

export const layer: VerbGroup = {
  verbs: {
    build: { summary: "make a layer and publish it", verb: build },
    ls: { summary: "list layers", verb: ls },
    inspect: { summary: "show what layers consist of", verb: inspect },
    tag: { summary: "give a layer a further name", verb: tag },
  },
};

async function openStore({ settings }: Context, directory: string | undefined): Promise<LayerStore> {
  const { openLayerStore } = await import("../daemon/layers/layer-store.ts");
  return openLayerStore(directory ?? join((await settings()).dataDir, "layers"));
}
