import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { mountErofs, unmountIfMounted } from "../../../backends/linux/mount.ts";
import { mountOverlay } from "../../../backends/linux/overlay-mount.ts";
import { DSecError } from "../../../protocol/errors.ts";
import { throwIfCancelled } from "../../resources/program.ts";
import { makeErofsImage } from "../erofs-image.ts";
import type { BuiltLayer, LayerStore } from "../layer-store.ts";
import { formatReference, parseLayerReference } from "../reference.ts";
import { withWorkDirectory } from "../work-directory.ts";
import { writeError } from "../write-error.ts";
import { BlobCache } from "./blob-cache.ts";
import { Conversions } from "./conversions.ts";
import { fetchImage, pinReference, type FetchedImage, type PinnedImage } from "./fetched-image.ts";
import type { ImageStep } from "./image-manifest.ts";
import { describeSource, imageSourceOf, type ImageSource } from "./image-source.ts";
import { LayerTree } from "./layer-tree.ts";
import type { RegistryAccess } from "./skopeo.ts";
import { unpackLayer } from "./unpack.ts";

/** Bytes up to which consecutive layers are merged. */
export const usualMergeLimit = 3 * 2 ** 30;
/** Bytes of fetched blobs that are kept for the next import. */
const cacheBytes = 20 * 2 ** 30;

export interface ImageImportSpec extends RegistryAccess {
  /** See {@link imageSourceOf}. */
  readonly source: string;
  /** `name:version` to publish it under, for ever; without it a registry's image keeps its name there, which follows the registry. */
  readonly name?: string;
  readonly mergeLimit?: number;
}

/** How far an import has got. */
export interface ImportProgress {
  readonly phase: "fetching" | "unpacking" | "packing";
  readonly bytes: number;
  readonly totalBytes?: number;
}

export interface ImageImportOptions {
  /** Of the node, for fetched blobs and unpacked trees; a local file system. */
  readonly directory: string;
  /** Of the Docker daemon; Docker's own default without it. */
  readonly dockerSocket?: string;
  readonly onProgress?: (progress: ImportProgress) => void;
  readonly signal?: AbortSignal;
}

/**
 * Imports an image: fetches it, merges its layers and publishes it, as a whole or not at all. The same image again is no error.
 *
 * @throws DSecError `invalid_argument`, `invalid_image_reference`, `image_not_found`, `registry_denied`, `registry_unreachable`,
 * `digest_mismatch`, `unsupported_media_type`, `unsupported`, `image_invalid`, `layer_exists`, `permission_denied`, `disk_full`, `cancelled`
 */
export async function importImage(
  store: LayerStore,
  spec: ImageImportSpec,
  options: ImageImportOptions,
): Promise<BuiltLayer> {
  const source = await imageSourceOf(spec.source);
  const name = nameOf(source, spec);
  if (process.geteuid?.() !== 0)
    throw new DSecError("permission_denied", "importing keeps owners and makes devices, and so takes root");
  try {
    return await new ImageImport(store, spec, options).run(source, name);
  } catch (error) {
    throw writeError(error, "the image in the layer store or in the work area");
  }
}

type ImageName = Parameters<LayerStore["publishImage"]>[1];

function nameOf(source: ImageSource, { name }: ImageImportSpec): ImageName {
  if (name !== undefined) return { own: parseLayerReference(name) };
  if (source.type === "registry") return { registry: source.reference };
  if (source.type === "daemon") return { registry: source.name };
  throw new DSecError("invalid_argument", "an image from a file needs a name: --name NAME:VERSION");
}

class ImageImport {
  readonly #store: LayerStore;
  readonly #spec: ImageImportSpec;
  readonly #options: ImageImportOptions;
  readonly #mergeLimit: number;
  readonly #conversions: Conversions;
  readonly #cache: BlobCache;

  constructor(store: LayerStore, spec: ImageImportSpec, options: ImageImportOptions) {
    this.#store = store;
    this.#spec = spec;
    this.#options = options;
    this.#mergeLimit = spec.mergeLimit ?? usualMergeLimit;
    this.#conversions = new Conversions(store, this.#mergeLimit);
    this.#cache = new BlobCache(join(options.directory, "blobs"), cacheBytes);
  }

  async run(source: ImageSource, name: ImageName): Promise<BuiltLayer> {
    const { signal } = this.#options;
    const pinned =
      source.type === "registry" ? await pinReference(source.reference, this.#spec, signal) : undefined;
    const known = pinned && (await this.#published(name, pinned));
    if (known !== undefined) return known;
    await this.#cache.open();
    return withWorkDirectory(join(this.#options.directory, "tmp"), async (local) => {
      const image = await this.#fetch(source, pinned, local);
      try {
        return await this.#publish(source, name, image, local);
      } catch (error) {
        // whatever is wrong with them, they are not to be found again
        if (error instanceof DSecError && error.code === "digest_mismatch")
          for (const { digest } of image.layers) await this.#cache.remove(digest);
        throw error;
      } finally {
        await this.#cache.trim(Date.now());
      }
    });
  }

  /** The image, where the name stands for just that one already. */
  async #published(name: ImageName, { digest }: PinnedImage): Promise<BuiltLayer | undefined> {
    const reference = formatReference("own" in name ? name.own : name.registry);
    const found = await this.#store.resolve(reference);
    if (found?.reference !== reference) return undefined;
    const manifest = await this.#store.read(found.digest);
    if (manifest.kind !== "image" || manifest.source.digest !== digest) return undefined;
    const listed = await this.#store.describe({
      reference,
      digest: found.digest,
      publishedAt: 0,
      alias: true,
    });
    return { reference, digest: found.digest, bytes: listed.bytes, created: false };
  }

  async #fetch(source: ImageSource, pinned: PinnedImage | undefined, local: string): Promise<FetchedImage> {
    const { dockerSocket, signal } = this.#options;
    return fetchImage(source, pinned, {
      access: this.#spec,
      work: local,
      cache: this.#cache,
      onBytes: (bytes, totalBytes) =>
        this.#options.onProgress?.({
          phase: "fetching",
          bytes,
          ...(totalBytes !== undefined && { totalBytes }),
        }),
      ...(dockerSocket !== undefined && { dockerSocket }),
      ...(signal !== undefined && { signal }),
    });
  }

  async #publish(
    source: ImageSource,
    name: ImageName,
    image: FetchedImage,
    local: string,
  ): Promise<BuiltLayer> {
    return withWorkDirectory(this.#store.paths.temporary, async (work) => {
      const { layers, ends } = await this.#convert(image, local, work);
      throwIfCancelled(this.#options.signal);
      return this.#store.publishImage(
        {
          schema: 1,
          kind: "image",
          layers,
          config: image.config,
          source: { reference: describeSource(source), digest: image.digest },
          ...(image.history.length > 0 && { history: mergedHistory(image.history, ends) }),
        },
        name,
        work,
      );
    });
  }

  /** @returns digests of the layers that the image's own became, and of each the first of the image's that is not in it */
  async #convert(
    image: FetchedImage,
    local: string,
    work: string,
  ): Promise<{ layers: string[]; ends: number[] }> {
    const diffIds = image.layers.map(({ diffId }) => diffId);
    const progress = new UnpackProgress(image, this.#options.onProgress);
    const digests: string[] = [];
    const ends: number[] = [];
    for (let first = 0; first === 0 || first < image.layers.length;) {
      const known = await this.#conversions.find(diffIds, first, work);
      if (known !== undefined) {
        progress.skip(first, known.count);
        digests.push(known.digest);
        first += known.count;
        ends.push(first);
        continue;
      }
      const place = String(first);
      const tree = join(local, `tree-${place}`);
      const end = await this.#withLower(digests, join(local, `lower-${place}`), (lower) =>
        this.#merge(image, first, { tree, lower, progress }),
      );
      this.#options.onProgress?.({ phase: "packing", bytes: 0 });
      const into = join(work, `image-${place}`);
      await mkdir(into);
      const { signal } = this.#options;
      const digest = await this.#store.addLayer("base", await makeErofsImage(tree, into, signal), work);
      await this.#conversions.record(diffIds, first, end, digest, work);
      digests.push(digest);
      ends.push(end);
      first = end;
      if (image.layers.length === 0) break;
    }
    return { layers: digests, ends };
  }

  /**
   * Unpacks the layer `first` and those after it, as long as what they have become and the next one's blob are not larger
   * together than the limit.
   *
   * @returns the first layer that is not in the tree
   */
  async #merge(
    image: FetchedImage,
    first: number,
    { tree, lower, progress }: { tree: string; lower: string | undefined; progress: UnpackProgress },
  ): Promise<number> {
    await mkdir(tree, { mode: 0o755 });
    const merged = new LayerTree(tree, lower);
    let bytes = 0;
    let end = first;
    for (const layer of image.layers.slice(first)) {
      if (end > first && bytes + layer.bytes > this.#mergeLimit) break;
      const { signal } = this.#options;
      bytes += await unpackLayer(layer, merged, {
        onBytes: (more) => progress.add(more),
        ...(signal !== undefined && { signal }),
      });
      end += 1;
    }
    merged.finish();
    return end;
  }

  /** Shows what the layers so far are together. */
  async #withLower<T>(
    digests: readonly string[],
    directory: string,
    work: (lower: string | undefined) => Promise<T>,
  ): Promise<T> {
    if (digests.length === 0) return work(undefined);
    const mounted: string[] = [];
    try {
      for (const [index, digest] of digests.entries()) {
        const { metadata, data } = await this.#store.manifest(digest);
        const target = join(directory, String(index));
        await mkdir(target, { recursive: true });
        const devices = data.map((blob) => this.#store.blobPath(blob.digest));
        mountErofs(this.#store.blobPath(metadata.digest), target, devices);
        mounted.push(target);
      }
      const [only = ""] = mounted;
      if (mounted.length === 1) return await work(only);
      const together = join(directory, "all");
      await mkdir(together);
      mountOverlay({ lower: mounted.toReversed() }, together);
      mounted.push(together);
      return await work(together);
    } finally {
      for (const target of mounted.toReversed()) unmountIfMounted(target);
    }
  }
}

/** Which step went into which of the layers that were merged. */
function mergedHistory(history: readonly ImageStep[], ends: readonly number[]): ImageStep[] {
  return history.map((step) => ({
    ...step,
    layer: Math.max(
      0,
      ends.findIndex((end) => step.layer < end),
    ),
  }));
}

/** Bytes of an image's blobs that have been unpacked, or need not be. */
class UnpackProgress {
  readonly #image: FetchedImage;
  readonly #report: ((progress: ImportProgress) => void) | undefined;
  readonly #total: number;
  #bytes = 0;

  constructor(image: FetchedImage, report: ((progress: ImportProgress) => void) | undefined) {
    this.#image = image;
    this.#report = report;
    this.#total = image.layers.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    this.#report?.({ phase: "unpacking", bytes: this.#bytes, totalBytes: this.#total });
  }

  skip(first: number, count: number): void {
    for (const { bytes } of this.#image.layers.slice(first, first + count)) this.add(bytes);
  }
}
