import type { LayerQuery, LayerRelease, NodeLayerList } from "../../protocol/layer.ts";
import { askAll } from "./fan-out.ts";
import type { FleetNode } from "./fleet-node.ts";
import type { Registry } from "./registry.ts";

/** Milliseconds a node has to look at the layers it uses; a big one takes seconds. */
const heatMs = 60_000;
const plainMs = 15_000;

/** Of every node; one that does not answer is named. */
export async function listLayers(
  registry: Registry,
  query: LayerQuery,
  signal: AbortSignal,
): Promise<NodeLayerList> {
  return together(registry, (node) =>
    node.client.json<NodeLayerList>("listLayers", {
      query: { ...query },
      timeoutMs: node.patience(query.heat ? heatMs : plainMs),
      signal,
    }),
  );
}

/** Lets every node unmount those that it does not use. */
export async function releaseLayers(
  registry: Registry,
  body: LayerRelease,
  signal: AbortSignal,
): Promise<NodeLayerList> {
  return together(registry, (node) =>
    node.client.json<NodeLayerList>("releaseLayers", {
      body,
      idempotent: true,
      timeoutMs: node.patience(plainMs),
      signal,
    }),
  );
}

async function together(
  registry: Registry,
  ask: (node: FleetNode) => Promise<NodeLayerList>,
): Promise<NodeLayerList> {
  const { answers, unreachable, refusals } = await askAll(registry.all(), ask);
  const [refused] = refusals;
  if (refused !== undefined) throw refused.error;
  return {
    items: answers.flatMap(({ value }) => value.items),
    ...(unreachable.length === 0 ? {} : { unreachable: [...unreachable] }),
  };
}
