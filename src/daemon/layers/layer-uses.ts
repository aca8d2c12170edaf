import type { LayerHeat, NodeLayer } from "../../protocol/layer.ts";

/**
 * What this node has to do with layers: each that is mounted, in use or remembered.
 *
 * @param held layers of sandboxes, by id
 */
export function usesOfLayers(
  mounted: ReadonlySet<string>,
  held: ReadonlyMap<string, readonly string[]>,
  heats: ReadonlyMap<string, LayerHeat>,
): Omit<NodeLayer, "node">[] {
  const users = new Map<string, string[]>();
  for (const digest of [...mounted, ...heats.keys()]) users.set(digest, []);
  for (const [id, layers] of held)
    for (const digest of layers) {
      const known = users.get(digest);
      if (known === undefined) users.set(digest, [id]);
      else known.push(id);
    }
  return [...users].map(([digest, sandboxes]) => {
    const heat = heats.get(digest);
    return { digest, mounted: mounted.has(digest), sandboxes, ...(heat !== undefined && { heat }) };
  });
}
