import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { DSecError } from "../../protocol/errors.ts";
import { mapBounded } from "../bounded.ts";
import { readLeases } from "./leases.ts";
import { Manifest } from "./manifest.ts";
import type { StorePaths } from "./store-paths.ts";

const parallel = 8;
const digests = /sha256:[0-9a-f]{64}/g;

/**
 * The digests of everything that must stay: what tags and aliases name, what is leased, and the layers and blobs of that.
 *
 * @param now by the store's clock, milliseconds
 * @param inUse digests that somebody else says are in use
 * @throws DSecError `layer_corrupt` when the manifest of a layer that must stay cannot be read, so that its blobs are not known
 */
export async function reachableDigests(
  paths: StorePaths,
  now: number,
  inUse: Iterable<string> = [],
): Promise<Set<string>> {
  const reached = new Set(inUse);
  // Leases before roots: a build makes its tag before it lets go of its leases.
  for (const { digest } of await readLeases(paths, now)) reached.add(digest);
  for (const folder of paths.roots) for (const digest of await digestsBelow(folder)) reached.add(digest);
  let found: readonly string[] = [...reached];
  while (found.length > 0) {
    const below = await mapBounded(found, parallel, async (digest) => partsOf(paths, digest));
    found = [...new Set(below.flat())].filter((digest) => !reached.has(digest));
    for (const digest of found) reached.add(digest);
  }
  return reached;
}

/** Every digest that stands in a file below `folder`. */
async function digestsBelow(folder: string): Promise<string[]> {
  let files: string[];
  try {
    const found = await readdir(folder, { withFileTypes: true, recursive: true });
    files = found.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return [];
    throw error;
  }
  const texts = await mapBounded(files, parallel, async (file) => (await readIfThere(file)) ?? "");
  return texts.flatMap((text) => text.match(digests) ?? []);
}

/** Layers of an image, blobs of a layer. */
async function partsOf(paths: StorePaths, digest: string): Promise<readonly string[]> {
  const path = paths.manifest(digest);
  const text = (await readIfThere(path)) ?? (await readIfThere(paths.aside(path)));
  // Of a blob, or of something that is gone.
  if (text === undefined) return [];
  try {
    const manifest = Manifest.parse(JSON.parse(text));
    if (manifest.kind === "image") return manifest.layers;
    return [manifest.metadata, ...manifest.data].map((blob) => blob.digest);
  } catch (error) {
    throw new DSecError("layer_corrupt", `the manifest of layer ${digest} cannot be used`, { cause: error });
  }
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}
