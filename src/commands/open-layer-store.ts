import { join } from "node:path";
import { text } from "./option.ts";
import type { Context } from "./verb.ts";

// the daemon's modules are loaded when needed only, and so are their types
type LayerStoreModule = typeof import("../daemon/layers/layer-store.ts");
export type LayerStore = Awaited<ReturnType<LayerStoreModule["openLayerStore"]>>;
export type ListedLayer = Awaited<ReturnType<LayerStore["list"]>>[number];

export const layerStoreOption = text(
  "--layer-store <dir>",
  "directory of the layer store; <data>/layers unless given",
);

/** The last line of `--help` of verbs that work on a store. */
export const storeNote = "Works on the layer store itself; no fleet needs to run.";

/** The store in `directory`, or this machine's. */
export async function openStore({ settings }: Context, directory: string | undefined): Promise<LayerStore> {
  const { openLayerStore } = await import("../daemon/layers/layer-store.ts");
  return openLayerStore(directory ?? join((await settings()).dataDir, "layers"));
}
