import { mkdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { LayerKind } from "../../protocol/sandbox.ts";
import type { ResolvedImage } from "../provisioner.ts";
import { mapBounded } from "../bounded.ts";
import { throwIfCancelled } from "../resources/program.ts";
import { refuseOverlayAttributes } from "./buildable-tree.ts";
import { createDurably, moveDurably } from "./durable-file.ts";
import { makeErofsImage, type ErofsImage } from "./erofs-image.ts";
import { digestOf } from "./digest.ts";
import { digestOfFile, type FileDigest } from "./file-digest.ts";
import { encodeImage, noConfig, type ImageManifest } from "./images/image-manifest.ts";
import { leaseForWork, readLeases } from "./leases.ts";
import { encodeManifest, layerBytes, Manifest, type LayerManifest } from "./manifest.ts";
import { Provenances, type Origin } from "./provenance.ts";
import {
  formatReference,
  parseImageReference,
  parseLayerReference,
  type LayerReference,
} from "./reference.ts";
import { References, type PublishedReference } from "./references.ts";
import { sourceOf } from "./sources/source.ts";
import { StorePaths } from "./store-paths.ts";
import { requireStore } from "./store-presence.ts";
import { bringBack } from "./trash.ts";
import { withWorkDirectory } from "./work-directory.ts";
import { writeError } from "./write-error.ts";

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

export interface ListedLayer extends PublishedReference {
  readonly kind: LayerKind | "image";
  /** Of an image: of its layers together. */
  readonly bytes: number;
}

/** Manifests kept in memory: they never change. */
const cachedManifests = 4096;
/** Of them read together. */
const parallel = 16;

/**
 * The layers of a fleet: a directory on any POSIX file system, written by any number of processes without locks.
 *
 * ```
 * blobs/sha256/<digest>       images and file content
 * manifests/<digest>.json     what a layer, or an image, consists of
 * tags/<name>/<version>       digest of the layer or image of that reference: made once by link(2), never changed
 * aliases/<name>/<version>    digest; replaced by rename(2). A tag of the same reference goes before it. Imported images
 *                             have their registry's names here, with + for /
 * provenance/<name>/<version> who published that reference, when and from what
 * leases/<node>/<digest>      what a node uses, see {@link Lease}
 * trash/                      what a prune set aside and will remove
 * tmp/                        work in progress
 * ```
 *
 * A reader meets a tag only after all it leads to is on disk.
 */
export class LayerStore {
  readonly directory: string;
  readonly paths: StorePaths;
  readonly references: References;
  readonly provenance: Provenances;
  readonly #manifests = new Map<string, Manifest>();

  /** Use {@link openLayerStore}. */
  constructor(directory: string) {
    this.directory = directory;
    this.paths = new StorePaths(directory);
    this.references = new References(this.paths);
    this.provenance = new Provenances(this.paths);
  }

  /**
   * The published layer that `reference` names, else the imported image; undefined where there is neither.
   *
   * @throws DSecError `invalid_image_reference`, `layer_corrupt`
   */
  async resolve(reference: string): Promise<ResolvedImage | undefined> {
    const { layer, image } = parseImageReference(reference);
    for (const candidate of layer === undefined ? [image] : [layer, image]) {
      const digest = await this.references.find(candidate);
      if (digest === undefined) continue;
      const manifest = await this.read(digest);
      return {
        reference: formatReference(candidate),
        digest,
        ...(manifest.kind === "image"
          ? { kind: "base", layers: manifest.layers, config: manifest.config }
          : { kind: manifest.kind, layers: [digest], config: noConfig }),
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
      const bytes = await this.#readManifest(digest);
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
    return this.paths.blob(digest);
  }

  /** Puts back what a prune set aside of a layer or of an image's layers. */
  async bringBack(digest: string): Promise<void> {
    this.#manifests.delete(digest);
    const manifest = await this.read(digest);
    if (manifest.kind === "image") {
      for (const layer of manifest.layers) await this.bringBack(layer);
      return;
    }
    for (const blob of [manifest.metadata, ...manifest.data])
      if (!(await exists(this.blobPath(blob.digest))))
        await bringBack(this.paths, this.blobPath(blob.digest));
  }

  /** Every layer and image that has a reference. @throws DSecError `layer_corrupt` */
  async list(): Promise<ListedLayer[]> {
    return mapBounded(await this.references.list(), parallel, async (published) => this.describe(published));
  }

  /** @throws DSecError `layer_corrupt` */
  async describe(published: PublishedReference): Promise<ListedLayer> {
    const manifest = await this.read(published.digest);
    return { ...published, kind: manifest.kind, bytes: await this.#bytesOf(manifest) };
  }

  /**
   * Builds a layer and publishes it. The same content again is no error. Nothing is left behind by a failure.
   *
   * @throws DSecError `invalid_image_reference`, `invalid_argument` for a source that cannot be used, `layer_exists` when the reference
   * stands for other content, `backend_unavailable` when a program is missing, `disk_full`, `permission_denied`, `cancelled`
   */
  async build(spec: LayerBuildSpec, options: LayerBuildOptions = {}): Promise<BuiltLayer> {
    const reference = parseLayerReference(spec.reference);
    const tags = (spec.tags ?? []).map((tag) =>
      parseLayerReference(tag.includes(":") ? tag : `${reference.name}:${tag}`),
    );
    const source = await sourceOf(spec.from);
    const existing = spec.ifMissing === true ? await this.references.find(reference) : undefined;
    if (existing !== undefined) {
      options.onProgress?.(`${formatReference(reference)} is there already`);
      for (const tag of tags) {
        if ((await this.references.find(tag)) === undefined) await this.#setAlias(tag, existing);
      }
      const bytes = await this.#bytesOf(await this.read(existing));
      return { reference: formatReference(reference), digest: existing, bytes, created: false };
    }
    try {
      return await withWorkDirectory(this.paths.temporary, async (work) => {
        const root = await source.prepare(join(work, "root"), options);
        await refuseOverlayAttributes(root, options.signal);
        options.onProgress?.("making the image");
        await mkdir(join(work, "image"));
        const image = await makeErofsImage(root, join(work, "image"), options.signal);
        throwIfCancelled(options.signal);
        const digest = await this.addLayer(spec.kind ?? "base", image, work);
        const created = await this.#publish(reference, digest, await source.origin(), work);
        const bytes = await this.#bytesOf(await this.read(digest));
        const built = { reference: formatReference(reference), digest, bytes, created };
        for (const tag of tags) await this.#setAlias(tag, built.digest);
        options.onProgress?.(
          `${built.created ? "published" : "unchanged:"} ${built.reference} (${Math.ceil(built.bytes / 1_048_576)} MiB)`,
        );
        return built;
      });
    } catch (error) {
      throw writeError(error, `the layer in the layer store ${this.directory}`);
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
    try {
      await this.#setAlias(parseLayerReference(alias), found.digest);
    } catch (error) {
      throw writeError(error, `the name in the layer store ${this.directory}`);
    }
  }

  /**
   * Takes a reference from its layer or image. What nothing leads to any more is removed by the next prune, unless it is in use.
   *
   * @param force also where it is in use: whoever uses it keeps it
   * @throws DSecError `image_not_found`, `invalid_image_reference`, `conflict` naming who uses it, with the digests in `details.layers`
   */
  async remove(reference: string, force = false): Promise<PublishedReference> {
    const { layer, image } = parseImageReference(reference);
    const published = await this.references.list();
    for (const candidate of layer === undefined ? [image] : [layer, image]) {
      const name = formatReference(candidate);
      const found = published.find((known) => known.reference === name);
      if (found === undefined) continue;
      const last = published.filter(({ digest }) => digest === found.digest).length === 1;
      if (last && !force) await this.#refuseInUse(found);
      await this.provenance.remove(candidate);
      await this.references.remove(candidate, found.alias);
      return found;
    }
    throw new DSecError("image_not_found", `no layer is named ${reference}`);
  }

  async #refuseInUse({ reference, digest }: PublishedReference): Promise<void> {
    const manifest = await this.read(digest);
    const layers = new Set(manifest.kind === "image" ? manifest.layers : [digest]);
    const leases = await readLeases(this.paths, Date.now());
    const held = leases.filter((lease) => layers.has(lease.digest));
    const holders = [...new Set(held.map(({ holder }) => holder))];
    if (holders.length > 0)
      throw new DSecError("conflict", `${reference} is in use by ${holders.join(", ")}`, {
        details: { holders, layers: [...new Set(held.map((lease) => lease.digest))] },
      });
  }

  /**
   * Adds a layer that no reference names yet. Nothing that can be seen is left by a failure.
   *
   * @param work a directory of {@link withWorkDirectory} below the store's: it keeps the layer until it has a reference
   * @returns its digest
   */
  async addLayer(kind: LayerKind, image: ErofsImage, work: string): Promise<string> {
    const metadata = await this.#addBlob(image.metadata, work);
    const data = [];
    for (const path of image.data) data.push(await this.#addBlob(path, work));
    return this.#addManifest(encodeManifest({ schema: 1, kind, format: "erofs", metadata, data }), work);
  }

  /**
   * Publishes an image whose layers are in the store.
   *
   * @param name of its own, which never changes then; else it gets its registry's, which moves to it
   * @param work that the layers were added with
   * @throws DSecError `layer_exists` when `name` stands for other content
   */
  async publishImage(
    manifest: ImageManifest,
    name: { readonly own: LayerReference } | { readonly registry: LayerReference },
    work: string,
  ): Promise<BuiltLayer> {
    const digest = await this.#addManifest(encodeImage(manifest), work);
    const bytes = await this.#bytesOf(manifest);
    const origin = { from: manifest.source.reference, fromDigest: manifest.source.digest };
    if ("own" in name) {
      const created = await this.#publish(name.own, digest, origin, work);
      return { reference: formatReference(name.own), digest, bytes, created };
    }
    const created = (await this.references.find(name.registry)) !== digest;
    const record = await this.provenance.prepare(name.registry, digest, origin, work);
    await this.#setAlias(name.registry, digest);
    if (created) await record();
    return { reference: formatReference(name.registry), digest, bytes, created };
  }

  /** Makes a tag for ever, and writes down where it is from. @returns whether this call made it */
  async #publish(reference: LayerReference, digest: string, origin: Origin, work: string): Promise<boolean> {
    const record = await this.provenance.prepare(reference, digest, origin, work);
    const created = await this.references.publish(reference, digest, work);
    if (created) await record();
    return created;
  }

  async #addManifest(encoded: Buffer, work: string): Promise<string> {
    const digest = digestOf(encoded);
    await leaseForWork(work, [digest]);
    await createDurably(this.paths.manifest(digest), encoded, join(work, "manifest"));
    return digest;
  }

  /** Of its blobs; a layer that an image has twice counts twice. */
  async #bytesOf(manifest: Manifest): Promise<number> {
    if (manifest.kind !== "image") return layerBytes(manifest);
    let bytes = 0;
    for (const layer of manifest.layers) bytes += layerBytes(await this.manifest(layer));
    return bytes;
  }

  async #addBlob(path: string, work: string): Promise<FileDigest> {
    const { digest, bytes } = await digestOfFile(path);
    await leaseForWork(work, [digest]);
    // Replacing an equal blob is harmless: mounts keep the file they were made from.
    if ((await stat(this.blobPath(digest)).catch(() => undefined))?.size !== bytes) {
      await moveDurably(path, this.blobPath(digest));
    }
    return { digest, bytes };
  }

  async #setAlias(alias: LayerReference, digest: string): Promise<void> {
    if (!(await this.references.wantsAlias(alias, digest))) return;
    await withWorkDirectory(this.paths.temporary, async (work) => {
      await leaseForWork(work, [digest]);
      await this.bringBack(digest);
      await this.references.setAlias(alias, digest, work);
    });
  }

  async #readManifest(digest: string): Promise<Buffer> {
    const path = this.paths.manifest(digest);
    try {
      return await readFile(path);
    } catch (error) {
      if (!isErrno(error, "ENOENT") || !(await bringBack(this.paths, path))) throw error;
      return readFile(path);
    }
  }
}

/** Opens the layer store in `directory`, which is made when it is not there. */
export async function openLayerStore(directory: string): Promise<LayerStore> {
  for (const folder of ["blobs/sha256", "manifests", "tags", "aliases"]) {
    const path = join(directory, folder);
    // A store may be one that can only be read.
    if (!(await exists(path))) await mkdir(path, { recursive: true });
  }
  return new LayerStore(directory);
}

/**
 * Opens the layer store in `directory`, which must be there: a file system that is not mounted is no empty store.
 *
 * @throws DSecError `layer_store_unavailable`
 */
export async function openExistingStore(directory: string): Promise<LayerStore> {
  await requireStore(directory);
  try {
    return await openLayerStore(directory);
  } catch (cause) {
    throw new DSecError("layer_store_unavailable", `the layer store ${directory} cannot be used`, { cause });
  }
}

async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}
