import { join } from "node:path";
import { onTestFinished } from "vitest";
import { LayerMounts } from "../../../src/daemon/layers/layer-mounts.ts";
import { StoreProcess, type StoreProcessParts } from "../../../src/daemon/layers/store-process.ts";
import type { TemporaryNode } from "../temporary-node.ts";

/** A node's own process for its store; it ends with the test. */
export function openStoreProcess(
  node: TemporaryNode,
  mounts: string,
  parts: StoreProcessParts & { readonly directory?: string } = {},
): StoreProcess {
  const { directory = node.layerStore } = parts;
  const metadata = join(node.dataDir, "layer-metadata");
  const heat = join(node.dataDir, "layer-heat.json");
  const options = { directory, create: false, mounts, metadata, heat, owner: "n1+test" };
  const store = new StoreProcess(options, parts);
  onTestFinished(() => store.close());
  return store;
}

/** The mounts of a node, as a daemon has them. */
export async function openMounts(node: TemporaryNode, directory: string): Promise<LayerMounts> {
  const mounts = await LayerMounts.open(openStoreProcess(node, directory), directory);
  mounts.counted();
  return mounts;
}
