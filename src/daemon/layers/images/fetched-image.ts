import { createWriteStream } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { DSecError } from "../../../protocol/errors.ts";
import { digestOf } from "../digest.ts";
import { formatReference, type LayerReference } from "../reference.ts";
import type { BlobCache } from "./blob-cache.ts";
import { imageInvalid } from "./image-error.ts";
import type { ImageConfig, ImageStep } from "./image-manifest.ts";
import { describeSource, type ImageSource } from "./image-source.ts";
import { readLayoutIndex, readOciConfig, readOciReference, type OciManifest } from "./oci.ts";
import { copyImage, inspectRaw, type RegistryAccess } from "./skopeo.ts";
import type { FetchedLayer } from "./unpack.ts";

/** An image whose blobs are in the cache. */
export interface FetchedImage {
  /** Of the manifest that the source has. */
  readonly digest: string;
  readonly config: ImageConfig;
  readonly history: readonly ImageStep[];
  /** From the base upwards. */
  readonly layers: readonly (FetchedLayer & { readonly bytes: number })[];
}

export interface FetchOptions {
  readonly access: RegistryAccess;
  /** Of the Docker daemon, for its images. */
  readonly dockerSocket?: string;
  /** An empty directory on the cache's file system. */
  readonly work: string;
  readonly cache: BlobCache;
  /** Called with how many bytes are there, of how many. */
  readonly onBytes: (bytes: number, totalBytes: number | undefined) => void;
  readonly signal?: AbortSignal;
}

/** Milliseconds between two looks at how far a copy has got. */
const lookMs = 500;
/** Milliseconds without a byte after which a registry is given up. */
const stallMs = 120_000;

/** What a registry's reference stands for now. */
export interface PinnedImage {
  readonly digest: string;
  readonly manifest: OciManifest;
}

/** @throws DSecError those of skopeo.ts and oci.ts */
export async function pinReference(
  reference: LayerReference,
  access: RegistryAccess,
  signal?: AbortSignal,
): Promise<PinnedImage> {
  const ask = async (version: string): Promise<PinnedImage> => {
    const bytes = await inspectRaw(formatReference({ ...reference, version }), access, signal);
    const digest = digestOf(bytes);
    if (version.startsWith("sha256:") && version !== digest)
      throw new DSecError(
        "digest_mismatch",
        `the manifest ${version} has other content: its digest is ${digest}`,
      );
    const found = readOciReference(bytes);
    return found.type === "index" ? ask(found.digest) : { digest, manifest: found.manifest };
  };
  return ask(reference.version);
}

/**
 * Brings an image's blobs into the cache; what is there is not fetched again.
 *
 * @param pinned of a registry's image
 */
export async function fetchImage(
  source: ImageSource,
  pinned: PinnedImage | undefined,
  options: FetchOptions,
): Promise<FetchedImage> {
  const layout = join(options.work, "layout");
  const target = { layout, blobs: options.cache.directory };
  const from = await transportName(source, pinned, options);
  const watch = new CopyWatch(layout, pinned?.manifest, options);
  try {
    await copyImage(from, target, options.access, watch.signal);
  } catch (error) {
    throw watch.stalled ?? error;
  } finally {
    watch.stop();
  }
  const manifestDigest = readLayoutIndex(await readFile(join(layout, "index.json")));
  const found = readOciReference(await readBlob(options.cache, manifestDigest));
  if (found.type === "index") throw imageInvalid("the copied image is a list of images");
  const { config, layers } = found.manifest;
  const image = readOciConfig(await readBlob(options.cache, config.digest));
  const { diffIds } = image;
  if (diffIds.length !== layers.length)
    throw imageInvalid(
      `the image's configuration speaks of ${diffIds.length} layers, its manifest of ${layers.length}`,
    );
  await options.cache.touch(
    [manifestDigest, config.digest, ...layers.map(({ digest }) => digest)],
    Date.now(),
  );
  return {
    digest: pinned?.digest ?? manifestDigest,
    config: image.config,
    history: image.history,
    layers: layers.map(({ digest, size }, index) => ({
      path: options.cache.path(digest),
      digest,
      diffId: diffIds[index] ?? "",
      bytes: size,
    })),
  };
}

async function readBlob(cache: BlobCache, digest: string): Promise<Buffer> {
  const bytes = await readFile(cache.path(digest));
  if (digestOf(bytes) === digest) return bytes;
  await cache.remove(digest);
  throw new DSecError(
    "digest_mismatch",
    `blob ${digest} has other content: its digest is ${digestOf(bytes)}`,
  );
}

async function transportName(
  source: ImageSource,
  pinned: PinnedImage | undefined,
  options: FetchOptions,
): Promise<string> {
  switch (source.type) {
    case "registry":
      return `docker://${formatReference({ ...source.reference, version: pinned?.digest ?? source.reference.version })}`;
    case "file":
      return describeSource(source);
    case "daemon":
      return `docker-archive:${await saveFromDocker(source.reference, options)}`;
  }
}

/** By Docker's own interface, of which skopeo speaks versions that newer Docker daemons refuse. */
async function saveFromDocker(
  reference: string,
  { work, dockerSocket, signal }: FetchOptions,
): Promise<string> {
  const { default: Docker } = await import("dockerode");
  const docker = new Docker(dockerSocket === undefined ? {} : { socketPath: dockerSocket, host: "" });
  const archive = join(work, "docker.tar");
  try {
    const image = docker.getImage(reference);
    await image.inspect();
    await pipeline(await image.get(), createWriteStream(archive), signal === undefined ? {} : { signal });
  } catch (error) {
    if (signal?.aborted === true)
      throw new DSecError("cancelled", "the import was cancelled", { cause: error });
    const status = error instanceof Error && "statusCode" in error ? error.statusCode : undefined;
    if (status === 404)
      throw new DSecError("image_not_found", `the Docker daemon has no image ${reference}`, { cause: error });
    if (error instanceof Error && "code" in error && error.code === "ENOSPC") throw error;
    throw new DSecError("backend_unavailable", `the Docker daemon could not hand out ${reference}`, {
      cause: error,
    });
  }
  return archive;
}

/** Looks how much of an image has arrived, and ends a copy that does not get on. */
class CopyWatch {
  readonly #layout: string;
  readonly #options: FetchOptions;
  readonly #blobs: readonly { readonly digest: string; readonly size: number }[];
  readonly #abort = new AbortController();
  readonly #timer: NodeJS.Timeout;
  readonly signal: AbortSignal;
  #bytes = -1;
  #since = performance.now();
  stalled: DSecError | undefined;

  constructor(layout: string, manifest: OciManifest | undefined, options: FetchOptions) {
    this.#layout = layout;
    this.#options = options;
    this.#blobs = manifest === undefined ? [] : [manifest.config, ...manifest.layers];
    this.signal =
      options.signal === undefined
        ? this.#abort.signal
        : AbortSignal.any([options.signal, this.#abort.signal]);
    this.#timer = setInterval(() => void this.#look(), lookMs);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  async #look(): Promise<void> {
    let bytes = 0;
    for (const { digest, size } of this.#blobs)
      bytes += Math.min(size, await this.#options.cache.bytesOf(digest));
    for (const name of await readdir(this.#layout).catch(() => []))
      bytes += (await stat(join(this.#layout, name)).catch(() => undefined))?.size ?? 0;
    const totalBytes =
      this.#blobs.length === 0 ? undefined : this.#blobs.reduce((sum, { size }) => sum + size, 0);
    if (bytes !== this.#bytes) {
      this.#bytes = bytes;
      this.#since = performance.now();
      this.#options.onBytes(totalBytes === undefined ? bytes : Math.min(bytes, totalBytes), totalBytes);
    } else if (this.#blobs.length > 0 && performance.now() - this.#since > stallMs) {
      this.stalled = new DSecError(
        "registry_unreachable",
        `no byte came from the registry for ${stallMs / 1000} s`,
      );
      this.#abort.abort(this.stalled);
    }
  }
}
