import { mapBounded } from "../bounded.ts";
import type { LayerStore } from "./layer-store.ts";
import { bytesAside, filesOf } from "./prune.ts";
import type { PublishedReference } from "./references.ts";

/** Manifests that are read together. */
const parallel = 16;

/** What a layer or image takes of its store. Bytes. */
export interface LayerDiskUsage {
  readonly reference: string;
  readonly digest: string;
  readonly bytes: number;
  /** Of blobs that only this one has: what its removal would free. */
  readonly uniqueBytes: number;
}

export interface StoreDiskUsage {
  readonly layers: readonly LayerDiskUsage[];
  /** Of every blob and manifest, each once. */
  readonly totalBytes: number;
  /** Of these what no reference leads to. */
  readonly unreferencedBytes: number;
  /** Set aside by a prune, and not counted above. */
  readonly asideBytes: number;
}

/** Aliases are further names, and not listed. @throws DSecError `layer_corrupt` */
export async function storeDiskUsage(store: LayerStore): Promise<StoreDiskUsage> {
  const published = await store.references.list();
  const holders = new Map<string, Set<string>>();
  const contents = new Map<string, ReadonlyMap<string, number>>();
  const digests = [...new Set(published.map(({ digest }) => digest))];
  await mapBounded(digests, parallel, async (digest) => contents.set(digest, await contentOf(store, digest)));
  for (const [digest, blobs] of contents)
    for (const blob of blobs.keys()) holders.set(blob, (holders.get(blob) ?? new Set()).add(digest));
  const layers = listed(published).map(({ reference, digest }) => {
    const blobs = [...(contents.get(digest) ?? [])];
    const unique = blobs.filter(([blob]) => holders.get(blob)?.size === 1);
    return { reference, digest, bytes: sum(blobs), uniqueBytes: sum(unique) };
  });
  const files = await filesOf(store.paths);
  const total = files.reduce((bytes, file) => bytes + file.bytes, 0);
  const unreferenced = files.filter(({ digest }) => !holders.has(digest));
  return {
    layers,
    totalBytes: total,
    unreferencedBytes: unreferenced.reduce((bytes, file) => bytes + file.bytes, 0),
    asideBytes: await bytesAside(store.paths),
  };
}

/** The names that layers were published under; of a layer that has none left, one of its aliases. */
function listed(published: readonly PublishedReference[]): PublishedReference[] {
  const own = published.filter(({ alias }) => !alias);
  const named = new Set(own.map(({ digest }) => digest));
  for (const reference of published) {
    if (named.has(reference.digest)) continue;
    named.add(reference.digest);
    own.push(reference);
  }
  return own.toSorted((a, b) => (a.reference < b.reference ? -1 : 1));
}

/** Digests and bytes of the files that a layer, or an image with its layers, consists of. */
async function contentOf(store: LayerStore, digest: string): Promise<Map<string, number>> {
  const manifest = await store.read(digest);
  const content = new Map([[digest, 0]]);
  if (manifest.kind !== "image") {
    for (const blob of [manifest.metadata, ...manifest.data]) content.set(blob.digest, blob.bytes);
    return content;
  }
  for (const layer of manifest.layers)
    for (const [blob, bytes] of await contentOf(store, layer)) content.set(blob, bytes);
  return content;
}

function sum(blobs: readonly (readonly [string, number])[]): number {
  return blobs.reduce((total, [, bytes]) => total + bytes, 0);
}
