import { join } from "node:path";
import { openLayerStore, type LayerStore } from "../../../../src/daemon/layers/layer-store.ts";
import { temporaryNode, type TemporaryNode } from "../../temporary-node.ts";

/** An empty store to import into, and where an import works; it is gone with the node. */
export interface ImportPlace extends AsyncDisposable {
  readonly node: TemporaryNode;
  readonly store: LayerStore;
  /** Of the imports' own work. */
  readonly directory: string;
  /** For an OCI layout; not there yet. */
  readonly layout: string;
}

export async function importPlace(): Promise<ImportPlace> {
  const node = await temporaryNode();
  return {
    node,
    store: await openLayerStore(node.layerStore),
    directory: join(node.directory, "imports"),
    layout: join(node.directory, "layout"),
    [Symbol.asyncDispose]: () => node[Symbol.asyncDispose](),
  };
}
