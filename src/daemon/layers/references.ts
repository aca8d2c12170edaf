import { mkdir, readdir, readFile, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { DSecError } from "../../protocol/errors.ts";
import { mapBounded } from "../bounded.ts";
import { createDurably, replaceDurably } from "./durable-file.ts";
import { formatReference, referenceOfFile, type LayerReference } from "./reference.ts";
import type { StorePaths } from "./store-paths.ts";

/** Files that are looked at together: a store on a network answers several questions in the time of one. */
const parallel = 16;

/** What a reference stands for. */
export interface PublishedReference {
  readonly reference: string;
  readonly digest: string;
  /** Milliseconds since the epoch. */
  readonly publishedAt: number;
  /** Whether the reference is a further name, which may be moved to another layer. */
  readonly alias: boolean;
}

/** The references of a store: tags, which never change, and aliases, which a tag of the same reference goes before. */
export class References {
  readonly #paths: StorePaths;

  constructor(paths: StorePaths) {
    this.#paths = paths;
  }

  async find(reference: LayerReference): Promise<string | undefined> {
    return (
      (await readDigest(this.#paths.reference("tags", reference))) ??
      (await readDigest(this.#paths.reference("aliases", reference)))
    );
  }

  /** By name and version. */
  async list(): Promise<PublishedReference[]> {
    const tags = await this.#listFolder("tags");
    const tagged = new Set(tags.map(formatReference));
    const aliases = await this.#listFolder("aliases");
    const references = [...tags, ...aliases.filter((alias) => !tagged.has(formatReference(alias)))];
    const published = await mapBounded(references, parallel, async (reference) => {
      const name = formatReference(reference);
      const alias = !tagged.has(name);
      const path = this.#paths.reference(alias ? "aliases" : "tags", reference);
      const digest = await readDigest(path);
      const found = await stat(path).catch(() => undefined);
      return digest === undefined || found === undefined
        ? []
        : [{ reference: name, digest, publishedAt: found.mtimeMs, alias }];
    });
    return published.flat().sort((a, b) => (a.reference < b.reference ? -1 : 1));
  }

  /**
   * Makes a tag, for ever.
   *
   * @returns whether this call made it
   * @throws DSecError `layer_exists` when it stands for something else
   */
  async publish(reference: LayerReference, digest: string, work: string): Promise<boolean> {
    const tag = this.#paths.reference("tags", reference);
    await mkdir(dirname(tag), { recursive: true });
    const created = await createDurably(tag, `${digest}\n`, join(work, "tag"));
    if (!created && (await readDigest(tag)) !== digest) throw layerExists(reference);
    return created;
  }

  /** Whether an alias has to be made or moved for `alias` to stand for `digest`. @throws DSecError `layer_exists` when it is a tag of something else */
  async wantsAlias(alias: LayerReference, digest: string): Promise<boolean> {
    const published = await readDigest(this.#paths.reference("tags", alias));
    if (published !== undefined && published !== digest) throw layerExists(alias);
    return published === undefined;
  }

  async setAlias(alias: LayerReference, digest: string, work: string): Promise<void> {
    const path = this.#paths.reference("aliases", alias);
    await mkdir(dirname(path), { recursive: true });
    await replaceDurably(path, `${digest}\n`, join(work, "alias"));
  }

  /** Removes the tag, or the alias where there is none. */
  async remove(reference: LayerReference, alias: boolean): Promise<void> {
    await rm(this.#paths.reference(alias ? "aliases" : "tags", reference), { force: true });
  }

  async #listFolder(folder: "tags" | "aliases"): Promise<LayerReference[]> {
    const parent = join(this.#paths.directory, folder);
    const found = await mapBounded(await readdir(parent), parallel, async (name) =>
      (await readdir(join(parent, name))).map((version) => referenceOfFile(name, version)),
    );
    return found.flat().filter((reference) => reference !== undefined);
  }
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
