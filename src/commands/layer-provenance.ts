import type { LayerStore, PublishedLayer } from "./open-layer-store.ts";

export type Provenance = NonNullable<Awaited<ReturnType<LayerStore["provenance"]["find"]>>>;

/** What is written down of the first of these names of one layer or image of which anything is. */
export async function provenanceOf(
  store: LayerStore,
  names: readonly PublishedLayer[],
): Promise<{ readonly provenance?: Provenance }> {
  const { parseImageReference } = await import("../daemon/layers/reference.ts");
  for (const { reference, digest } of names) {
    const { layer, image } = parseImageReference(reference);
    const provenance = await store.provenance.find(layer ?? image, digest);
    if (provenance !== undefined) return { provenance };
  }
  return {};
}
