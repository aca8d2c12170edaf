import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { ResolvedImage } from "../provisioner.ts";
import { throwIfCancelled } from "../resources/program.ts";
import { createDurably, moveDurably, replaceDurably } from "./durable-file.ts";
import { makeErofsImage, type ErofsImage } from "./erofs-image.ts";
import { digestOf, encodeManifest, layerBytes, LayerManifest, type LayerKind } from "./manifest.ts";
import {
  formatReference,
  parseImageReference,
  parseLayerReference,
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
  readonly kind: LayerKind;
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
 * manifests/<digest>.json     what a layer consists of
 * tags/<name>/<version>       digest of the layer of that reference: made once by link(2), never changed
 * aliases/<name>/<version>    digest; replaced by rename(2). A tag of the same reference goes before it
 * tmp/                        work in progress
 * ```
 *
 * A reader meets a tag only after all it leads to is on disk.
 */
export class LayerStore {
  readonly directory: string;
  readonly #manifests = new Map<string, LayerManifest>();

  /** Use {@link openLayerStore}. */
  constructor(directory: string) {
    this.directory = directory;
  }

  /** The published layer that `reference` names; undefined where there is none. @throws DSecError `invalid_image_reference`, `layer_corrupt` */
  async resolve(reference: string): Promise<ResolvedImage | undefined> {
    const parsed = parseImageReference(reference);
    const digest = parsed && (await this.#digestOf(parsed));
    if (parsed === undefined || digest === undefined) return undefined;
    await this.manifest(digest);
    return { reference: formatReference(parsed), digest, layers: [digest] };
  }

  /** @throws DSecError `layer_corrupt` when it is missing or does not match its digest */
  async manifest(digest: string): Promise<LayerManifest> {
    const known = this.#manifests.get(digest);
    if (known !== undefined) return known;
    let manifest: LayerManifest;
    try {
      const bytes = await readFile(this.#manifestPath(digest));
      if (digestOf(bytes) !== digest)
        throw new DSecError("layer_corrupt", "its bytes do not match the digest");
      manifest = LayerManifest.parse(JSON.parse(bytes.toString()));
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
      const manifest = await this.manifest(digest);
      layers.push({
        reference: formatReference(reference),
        digest,
        kind: manifest.kind,
        bytes: layerBytes(manifest),
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
      const bytes = layerBytes(await this.manifest(existing));
      return { reference: formatReference(reference), digest: existing, bytes, created: false };
    }
    try {
      return await withWorkDirectory(join(this.directory, "tmp"), async (work) => {
        const root = await source.prepare(join(work, "root"), options);
        options.onProgress?.("making the image");
        await mkdir(join(work, "image"));
        const image = await makeErofsImage(root, join(work, "image"), options.signal);
        throwIfCancelled(options.signal);
        const built = await this.#publish(reference, spec.kind ?? "base", image, work);
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
   * Gives a published layer a further name, or moves such a name to it.
   *
   * @throws DSecError `image_not_found`, `invalid_image_reference`, `layer_exists` when `alias` is the reference that another layer was published under
   */
  async tag(reference: string, alias: string): Promise<void> {
    const digest = await this.#digestOf(parseLayerReference(reference));
    if (digest === undefined) throw new DSecError("image_not_found", `no layer is named ${reference}`);
    await this.#setAlias(parseLayerReference(alias), digest);
  }

  async #publish(
    reference: LayerReference,
    kind: LayerKind,
    image: ErofsImage,
    work: string,
  ): Promise<BuiltLayer> {
    const metadata = await this.#addBlob(image.metadata);
    const data = [];
    for (const path of image.data) data.push(await this.#addBlob(path));
    const manifest: LayerManifest = { schema: 1, kind, format: "erofs", metadata, data };
    const encoded = encodeManifest(manifest);
    const digest = digestOf(encoded);
    await createDurably(this.#manifestPath(digest), encoded, join(work, "manifest"));
    const tag = this.#referencePath("tags", reference);
    await mkdir(join(this.directory, "tags", reference.name), { recursive: true });
    const created = await createDurably(tag, `${digest}\n`, join(work, "tag"));
    if (!created && (await readDigest(tag)) !== digest) throw layerExists(reference);
    return { reference: formatReference(reference), digest, bytes: layerBytes(manifest), created };
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
    await mkdir(join(this.directory, "aliases", alias.name), { recursive: true });
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
      for (const version of await readdir(join(this.directory, folder, name)))
        references.push({ name, version });
    }
    return references;
  }

  #referencePath(folder: "tags" | "aliases", reference: LayerReference): string {
    return join(this.directory, folder, reference.name, reference.version);
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
