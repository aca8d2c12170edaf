import { DSecError } from "../protocol/errors.ts";
import type { LayerStore, PublishedLayer } from "./open-layer-store.ts";

/**
 * The layers and images that references name; all where none is given.
 *
 * @returns what was found, and an error `image_not_found` for each that was not
 */
export async function selectLayers(
  store: LayerStore,
  references: readonly string[],
): Promise<{ found: PublishedLayer[]; failures: DSecError[] }> {
  const { formatReference, parseImageReference } = await import("../daemon/layers/reference.ts");
  const published = await store.references.list();
  if (references.length === 0) return { found: published, failures: [] };
  const found: PublishedLayer[] = [];
  const failures: DSecError[] = [];
  for (const reference of references) {
    const { layer, image } = parseImageReference(reference);
    const names = (layer === undefined ? [image] : [layer, image]).map(formatReference);
    const known = names.flatMap((name) => published.filter((candidate) => candidate.reference === name));
    if (known[0] === undefined)
      failures.push(new DSecError("image_not_found", `no layer is named ${names[0]}`));
    else found.push(known[0]);
  }
  return { found, failures };
}
