import type { NodeLayerList } from "../../protocol/layer.ts";
import { askAll } from "./fan-out.ts";
import type { Registry } from "./registry.ts";

/** Milliseconds a node has to look at the layers it uses; a big one takes seconds. */
const heatMs = 60_000;
const plainMs = 15_000;

/** Of every node; one that does not answer is named. */
export async function listLayers(
  registry: Registry,
  { heat }: { readonly heat: boolean },
  signal: AbortSignal,
): Promise<NodeLayerList> {
  const { answers, unreachable, refusals } = await askAll(registry.all(), async (node) =>
    node.client.json<NodeLayerList>("listLayers", {
      query: { heat },
      timeoutMs: node.patience(heat ? heatMs : plainMs),
      signal,
    }),
  );
  const [refused] = refusals;
  if (refused !== undefined) throw refused.error;
  return {
    items: answers.flatMap(({ value }) => value.items),
    ...(unreachable.length === 0 ? {} : { unreachable: [...unreachable] }),
  };
}
