import { mkdir, readFile, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { DSecError } from "../../../protocol/errors.ts";
import { Digest, digestOf } from "../digest.ts";
import { replaceDurably } from "../durable-file.ts";
import type { LayerStore } from "../layer-store.ts";
import { leaseForWork } from "../leases.ts";
import { hexOf } from "../store-paths.ts";

/** To be raised when the same archives would become another tree. */
const version = 1;

/**
 * Which layer consecutive archives of an image became, on top of which others: files in the store's folder `conversions`, named by
 * the digest of the question, so that no node converts what another one has. They keep nothing from being pruned.
 */
export class Conversions {
  readonly #store: LayerStore;
  readonly #mergeLimit: number;

  constructor(store: LayerStore, mergeLimit: number) {
    this.#store = store;
    this.#mergeLimit = mergeLimit;
  }

  /**
   * The layer of as many archives as possible from `first` on.
   *
   * @param diffIds of the whole image
   * @param work keeps the layer from being pruned
   */
  async find(
    diffIds: readonly string[],
    first: number,
    work: string,
  ): Promise<{ readonly digest: string; readonly count: number } | undefined> {
    for (let end = diffIds.length; end > first; end -= 1) {
      const digest = await this.#read(this.#path(diffIds, first, end));
      if (digest !== undefined && (await this.#keep(digest, work))) return { digest, count: end - first };
    }
    return undefined;
  }

  async record(
    diffIds: readonly string[],
    first: number,
    end: number,
    digest: string,
    work: string,
  ): Promise<void> {
    const path = this.#path(diffIds, first, end);
    await mkdir(dirname(path), { recursive: true });
    await replaceDurably(path, `${digest}\n`, join(work, "conversion"));
  }

  #path(diffIds: readonly string[], first: number, end: number): string {
    const question = {
      version,
      mergeLimit: this.#mergeLimit,
      below: diffIds.slice(0, first),
      these: diffIds.slice(first, end),
    };
    return join(this.#store.directory, "conversions", hexOf(digestOf(Buffer.from(JSON.stringify(question)))));
  }

  async #read(path: string): Promise<string | undefined> {
    const text = await readFile(path, "utf8").catch(() => "");
    return Digest.safeParse(text.trim()).data;
  }

  /** Whether the layer is there as a whole, and stays. */
  async #keep(digest: string, work: string): Promise<boolean> {
    try {
      await leaseForWork(work, [digest]);
      await this.#store.bringBack(digest);
      const { metadata, data } = await this.#store.manifest(digest);
      for (const blob of [metadata, ...data])
        if ((await stat(this.#store.blobPath(blob.digest))).size !== blob.bytes) return false;
      return true;
    } catch (error) {
      // Pruned: it will be made anew.
      if (error instanceof DSecError || (error instanceof Error && "code" in error)) return false;
      throw error;
    }
  }
}
