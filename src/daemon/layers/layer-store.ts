import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, readdir, readFile, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { ResolvedImage } from "../provisioner.ts";
import { throwIfCancelled } from "../resources/program.ts";
import { createDurably, moveDurably, replaceDurably } from "./durable-file.ts";
import { makeErofsImage, type ErofsImage } from "./erofs-image.ts";
import { digestOf } from "./digest.ts";
import { encodeImage, noConfig, type ImageManifest } from "./images/image-manifest.ts";
import { encodeManifest, layerBytes, Manifest, type LayerKind, type LayerManifest } from "./manifest.ts";
import {
  formatReference,
  parseImageReference,
  parseLayerReference,
  referenceFile,
  referenceOfFile,
  type LayerReference,
} from "./reference.ts";
import { sourceOf } from "./sources/source.ts";
import { withWorkDirectory } from "./work-directory.ts";

export interface LayerBuildSpec {
  /** `name:version`, or `name` for `name:latest`. */
  readonly reference: string;
  /** A directory, a tar archive, `debian:SUITE` or `busybox`. */
  readonly from: string;
  /** A workspace or toolkit lies above a base. */
  readonly kind?: LayerKind;
  /** Whether a layer of that reference is taken as it is, instead of being built and compared. */
  readonly ifMissing?: boolean;
  /** More names for it: versions of the same name, or whole references. */
  readonly tags?: readonly string[];
}

export interface LayerBuildOptions {
  /** Called with a sentence at each step. */
  readonly onProgress?: (message: string) => void;
  readonly signal?: AbortSignal;
}

export interface BuiltLayer {
  readonly reference: string;
  readonly digest: string;
  readonly bytes: number;
  /** False when the store had it already. */
  readonly created: boolean;
}

export interface ListedLayer {
  readonly reference: string;
  readonly digest: string;
  readonly kind: LayerKind | "image";
  /** Of an image: of its layers together. */
  readonly bytes: number;
  /** Milliseconds since the epoch. */
  readonly publishedAt: number;
  /** Whether the reference is a further name, which may be moved to another layer. */
  readonly alias: boolean;
}

/** Manifests kept in memory: they never change. */
const cachedManifests = 256;

/**
 * The layers of a fleet: a directory on any POSIX file system, written by any number of processes without locks.
 *
 * ```
 * blobs/sha256/<digest>       images and file content
 * manifests/<digest>.json     what a layer, or an image, consists of
 * tags/<name>/<version>       digest of the layer or image of that reference: made once by link(2), never changed
 * aliases/<name>/<version>    digest; replaced by rename(2). A tag of the same reference goes before it. Imported images
 *                             have their registry's names here, with + for /
 * tmp/                        work in progress
 * ```
 *
 * A reader meets a tag only after all it leads to is on disk.
 */
export class LayerStore {
  readonly directory: string;
  readonly #manifests = new Map<string, Manifest>();

  /** Use {@link openLayerStore}. */
  constructor(directory: string) {
    this.directory = directory;
  }

  /**
   * The published layer that `reference` names, else the imported image; undefined where there is neither.
   *
   * @throws DSecError `invalid_image_reference`, `layer_corrupt`
   */
  async resolve(reference: string): Promise<ResolvedImage | undefined> {
    const { layer, image } = parseImageReference(reference);
    for (const candidate of layer === undefined ? [image] : [layer, image]) {
      const digest = await this.#digestOf(candidate);
      if (digest === undefined) continue;
      const manifest = await this.read(digest);
      return {
        reference: formatReference(candidate),
        digest,
        ...(manifest.kind === "image"
          ? { layers: manifest.layers, config: manifest.config }
          : { layers: [digest], config: noConfig }),
      };
    }
    return undefined;
  }

  /** Of a layer. @throws DSecError `layer_corrupt` when it is missing or does not match its digest */
  async manifest(digest: string): Promise<LayerManifest> {
    const manifest = await this.read(digest);
    if (manifest.kind === "image") throw new DSecError("layer_corrupt", `${digest} is an image, not a layer`);
    return manifest;
  }

  /** Of a layer or an image. @throws DSecError `layer_corrupt` when it is missing or does not match its digest */
  async read(digest: string): Promise<Manifest> {
    const known = this.#manifests.get(digest);
    if (known !== undefined) return known;
    let manifest: Manifest;
    try {
      const bytes = await readFile(this.#manifestPath(digest));
      if (digestOf(bytes) !== digest)
        throw new DSecError("layer_corrupt", "its bytes do not match the digest");
      manifest = Manifest.parse(JSON.parse(bytes.toString()));
    } catch (error) {
      throw new DSecError("layer_corrupt", `the manifest of layer ${digest} cannot be used`, {
        cause: error,
      });
    }
    const [oldest] = this.#manifests.keys();
    if (oldest !== undefined && this.#manifests.size >= cachedManifests) this.#manifests.delete(oldest);
    this.#manifests.set(digest, manifest);
    return manifest;
  }

  blobPath(digest: string): string {
    return join(this.directory, "blobs", "sha256", hexOf(digest));
  }

  /** Every reference, by name and version. */
  async list(): Promise<ListedLayer[]> {
    const tags = await this.#listReferences("tags");
    const aliases = await this.#listReferences("aliases");
    const tagged = new Set(tags.map(formatReference));
    const layers: ListedLayer[] = [];
    for (const reference of [...tags, ...aliases.filter((alias) => !tagged.has(formatReference(alias)))]) {
      const alias = !tagged.has(formatReference(reference));
      const path = this.#referencePath(alias ? "aliases" : "tags", reference);
      const digest = await readDigest(path);
      if (digest === undefined) continue;
      const manifest = await this.read(digest);
      layers.push({
        reference: formatReference(reference),
        digest,
        kind: manifest.kind,
        bytes: await this.#bytesOf(manifest),
        publishedAt: (await stat(path)).mtimeMs,
        alias,
      });
    }
    return layers.sort((a, b) => (a.reference < b.reference ? -1 : 1));
  }

  /**
   * Builds a layer and publishes it. The same content again is no error. Nothing is left behind by a failure.
   *
   * @throws DSecError `invalid_image_reference`, `invalid_argument` for a source that cannot be used, `layer_exists` when the reference
   * stands for other content, `backend_unavailable` when a program is missing, `disk_full`, `cancelled`
   */
  async build(spec: LayerBuildSpec, options: LayerBuildOptions = {}): Promise<BuiltLayer> {
    const reference = parseLayerReference(spec.reference);
    const tags = (spec.tags ?? []).map((tag) =>
      parseLayerReference(tag.includes(":") ? tag : `${reference.name}:${tag}`),
    );
    const source = await sourceOf(spec.from);
    const existing = spec.ifMissing === true ? await this.#digestOf(reference) : undefined;
    if (existing !== undefined) {
      options.onProgress?.(`${formatReference(reference)} is there already`);
      for (const tag of tags) {
        if ((await this.#digestOf(tag)) === undefined) await this.#setAlias(tag, existing);
      }
      const bytes = await this.#bytesOf(await this.read(existing));
      return { reference: formatReference(reference), digest: existing, bytes, created: false };
    }
    try {
      return await withWorkDirectory(join(this.directory, "tmp"), async (work) => {
        const root = await source.prepare(join(work, "root"), options);
        options.onProgress?.("making the image");
        await mkdir(join(work, "image"));
        const image = await makeErofsImage(root, join(work, "image"), options.signal);
        throwIfCancelled(options.signal);
        const digest = await this.addLayer(spec.kind ?? "base", image, work);
        const created = await this.#publish(reference, digest, work);
        const bytes = await this.#bytesOf(await this.read(digest));
        const built = { reference: formatReference(reference), digest, bytes, created };
        for (const tag of tags) await this.#setAlias(tag, built.digest);
        options.onProgress?.(
          `${built.created ? "published" : "unchanged:"} ${built.reference} (${Math.ceil(built.bytes / 1_048_576)} MiB)`,
        );
        return built;
      });
    } catch (error) {
      if (!isErrno(error, "ENOSPC", "EDQUOT")) throw error;
      throw new DSecError("disk_full", "no room for the layer in the layer store", { cause: error });
    }
  }

  /**
   * Gives a published layer or image a further name, or moves such a name to it.
   *
   * @throws DSecError `image_not_found`, `invalid_image_reference`, `layer_exists` when `alias` is the reference that another layer was published under
   */
  async tag(reference: string, alias: string): Promise<void> {
    const found = await this.resolve(reference);
    if (found === undefined) throw new DSecError("image_not_found", `no layer is named ${reference}`);
    await this.#setAlias(parseLayerReference(alias), found.digest);
  }

  /**
   * Adds a layer that no reference names yet. Nothing that can be seen is left by a failure.
   *
   * @param work a directory of the caller's own
   * @returns its digest
   */
  async addLayer(kind: LayerKind, image: ErofsImage, work: string): Promise<string> {
    const metadata = await this.#addBlob(image.metadata);
    const data = [];
    for (const path of image.data) data.push(await this.#addBlob(path));
    return this.#addManifest(encodeManifest({ schema: 1, kind, format: "erofs", metadata, data }), work);
  }

  /**
   * Publishes an image whose layers are in the store.
   *
   * @param name of its own, which never changes then; else it gets its registry's, which moves to it
   * @param work a directory of the caller's own
   * @throws DSecError `layer_exists` when `name` stands for other content
   */
  async publishImage(
    manifest: ImageManifest,
    name: { readonly own: LayerReference } | { readonly registry: LayerReference },
    work: string,
  ): Promise<BuiltLayer> {
    const digest = await this.#addManifest(encodeImage(manifest), work);
    const bytes = await this.#bytesOf(manifest);
    if ("own" in name) {
      const created = await this.#publish(name.own, digest, work);
      return { reference: formatReference(name.own), digest, bytes, created };
    }
    const created = (await this.#digestOf(name.registry)) !== digest;
    await this.#setAlias(name.registry, digest);
    return { reference: formatReference(name.registry), digest, bytes, created };
  }

  async #addManifest(encoded: Buffer, work: string): Promise<string> {
    const digest = digestOf(encoded);
    await createDurably(this.#manifestPath(digest), encoded, join(work, "manifest"));
    return digest;
  }

  /** @returns whether this call made the reference */
  async #publish(reference: LayerReference, digest: string, work: string): Promise<boolean> {
    const tag = this.#referencePath("tags", reference);
    await mkdir(dirname(tag), { recursive: true });
    const created = await createDurably(tag, `${digest}\n`, join(work, "tag"));
    if (!created && (await readDigest(tag)) !== digest) throw layerExists(reference);
    return created;
  }

  /** Of its blobs; a layer that an image has twice counts twice. */
  async #bytesOf(manifest: Manifest): Promise<number> {
    if (manifest.kind !== "image") return layerBytes(manifest);
    let bytes = 0;
    for (const layer of manifest.layers) bytes += layerBytes(await this.manifest(layer));
    return bytes;
  }

  async #addBlob(path: string): Promise<{ digest: string; bytes: number }> {
    const hash = createHash("sha256");
    let bytes = 0;
    for await (const chunk of createReadStream(path, { highWaterMark: 1_048_576 })) {
      if (!(chunk instanceof Uint8Array)) continue;
      hash.update(chunk);
      bytes += chunk.length;
    }
    const digest = `sha256:${hash.digest("hex")}`;
    // Replacing an equal blob is harmless: mounts keep the file they were made from.
    if ((await stat(this.blobPath(digest)).catch(() => undefined))?.size !== bytes) {
      await moveDurably(path, this.blobPath(digest));
    }
    return { digest, bytes };
  }

  async #setAlias(alias: LayerReference, digest: string): Promise<void> {
    const published = await readDigest(this.#referencePath("tags", alias));
    if (published === digest) return;
    if (published !== undefined) throw layerExists(alias);
    await mkdir(dirname(this.#referencePath("aliases", alias)), { recursive: true });
    await withWorkDirectory(join(this.directory, "tmp"), (work) =>
      replaceDurably(this.#referencePath("aliases", alias), `${digest}\n`, join(work, "alias")),
    );
  }

  async #digestOf(reference: LayerReference): Promise<string | undefined> {
    return (
      (await readDigest(this.#referencePath("tags", reference))) ??
      (await readDigest(this.#referencePath("aliases", reference)))
    );
  }

  async #listReferences(folder: "tags" | "aliases"): Promise<LayerReference[]> {
    const references: LayerReference[] = [];
    for (const name of await readdir(join(this.directory, folder))) {
      for (const version of await readdir(join(this.directory, folder, name))) {
        const reference = referenceOfFile(name, version);
        if (reference !== undefined) references.push(reference);
      }
    }
    return references;
  }

  #referencePath(folder: "tags" | "aliases", reference: LayerReference): string {
    return join(this.directory, folder, ...referenceFile(reference));
  }

  #manifestPath(digest: string): string {
    return join(this.directory, "manifests", `${hexOf(digest)}.json`);
  }
}

/** Opens the layer store in `directory`, which is made when it is not there. */
export async function openLayerStore(directory: string): Promise<LayerStore> {
  for (const folder of ["blobs/sha256", "manifests", "tags", "aliases"]) {
    await mkdir(join(directory, folder), { recursive: true });
  }
  return new LayerStore(directory);
}

function hexOf(digest: string): string {
  return digest.slice("sha256:".length);
}

async function readDigest(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, "utf8")).trim();
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}

function layerExists(reference: LayerReference): DSecError {
  return new DSecError(
    "layer_exists",
    `${formatReference(reference)} is published with other content; layers never change: choose another version`,
  );
}
