import { DSecError } from "../protocol/errors.ts";
import { selectLayers } from "./layer-selection.ts";
import { openStore, type LayerStore } from "./open-layer-store.ts";
import type { Context } from "./verb.ts";

/** Manifests that are read together. */
const parallel = 16;
const digest = /^sha256:[0-9a-f]{64}$/;

/**
 * What this machine's store calls the layers, and which of them are meant.
 *
 * @param given references or digests; with references there must be a store
 * @returns `wanted`: undefined for all
 * @throws DSecError `image_not_found`
 */
export async function namesOfLayers(
  context: Context,
  directory: string | undefined,
  given: readonly string[],
): Promise<{ names: ReadonlyMap<string, readonly string[]>; wanted: ReadonlySet<string> | undefined }> {
  const names = new Map<string, string[]>();
  let store: LayerStore;
  try {
    store = await openStore(context, directory);
  } catch (error) {
    // A machine without a store knows no names.
    if (given.every((text) => digest.test(text)))
      return { names, wanted: given.length === 0 ? undefined : new Set(given) };
    throw error;
  }
  const layersOf = async (published: string): Promise<readonly string[]> => {
    const manifest = await store.read(published);
    return manifest.kind === "image" ? manifest.layers : [published];
  };
  const { mapBounded } = await import("../daemon/bounded.ts");
  const known = await mapBounded(
    await store.references.list(),
    parallel,
    async ({ reference, digest: of }) => ({
      reference,
      // A layer that cannot be read has a digest at least.
      layers: await layersOf(of).catch(() => [of]),
    }),
  );
  for (const { reference, layers } of known)
    for (const layer of layers) names.set(layer, [...(names.get(layer) ?? []), reference]);
  if (given.length === 0) return { names, wanted: undefined };
  const wanted = new Set(given.filter((text) => digest.test(text)));
  const { found, failures } = await selectLayers(
    store,
    given.filter((text) => !digest.test(text)),
  );
  const [failure] = failures;
  if (failure instanceof DSecError) throw failure;
  if (wanted.size < given.length)
    for (const { digest: of } of found) for (const layer of await layersOf(of)) wanted.add(layer);
  return { names, wanted };
}
