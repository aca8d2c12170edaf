import { existsSync } from "node:fs";
import { join } from "node:path";
import { DSecError } from "../protocol/errors.ts";
import { note } from "./io.ts";
import { text } from "./option.ts";
import type { Context } from "./verb.ts";

// the daemon's modules are loaded when needed only, and so are their types
type LayerStoreModule = typeof import("../daemon/layers/layer-store.ts");
export type LayerStore = Awaited<ReturnType<LayerStoreModule["openLayerStore"]>>;
export type ListedLayer = Awaited<ReturnType<LayerStore["list"]>>[number];

export type PublishedLayer = Awaited<ReturnType<LayerStore["references"]["list"]>>[number];

export const layerStoreOption = text(
  "--layer-store <dir>",
  "directory of the layer store; <data>/layers unless given",
);

/** The last line of `--help` of verbs that work on a store. */
export const storeNote = "Works on the layer store itself; no fleet needs to run.";

/**
 * The store in `directory`, or this machine's, which is made where it is not there.
 *
 * @param made whether another one is made, too, and that is said; else it must be there, so that a misspelt one is not taken for an empty one
 * @throws DSecError `invalid_argument`, `layer_store_unavailable`
 */
export async function openStore(
  { io, settings }: Context,
  directory: string | undefined,
  made = false,
): Promise<LayerStore> {
  if (directory?.startsWith("rclone:") === true || directory === "")
    throw new DSecError(
      "invalid_argument",
      "--layer-store: must be a directory; what is in an object store is for nodes to read: work on the store that was copied there",
    );
  const { openExistingStore, openLayerStore } = await import("../daemon/layers/layer-store.ts");
  const path = directory ?? join((await settings()).dataDir, "layers");
  try {
    if (directory === undefined) return await openLayerStore(path);
    if (!made) return await openExistingStore(path);
    const isNew = !existsSync(join(path, "manifests"));
    const store = await openLayerStore(path);
    // perhaps of a file system that was to be mounted here
    if (isNew) note(io, `made a layer store in ${path}, where there was none`);
    return store;
  } catch (cause) {
    if (cause instanceof DSecError) throw cause;
    throw new DSecError("layer_store_unavailable", `the layer store ${path} cannot be used`, { cause });
  }
}
