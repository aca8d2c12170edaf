import { Semaphore } from "../../../semaphore.ts";
import { DocumentCache } from "./document-cache.ts";
import type { FileCache } from "./file-cache.ts";
import type { MirrorAnswer } from "./mirror.ts";
import { type Upstream, UpstreamStatus } from "./upstream.ts";

const limits = {
  /** Of one document as the registry sends it, unpacked, bytes. */
  largest: 100_663_296,
  /** Of all that are kept, bytes. */
  kept: 134_217_728,
  /** Bytes that a document takes of which nothing is shown. */
  least: 1024,
  freshMs: 300_000,
  /** Taken apart at a time: each takes several times its size. */
  parallel: 4,
} as const;

/** What sandboxes see of a document, and the bytes that it takes. */
export interface Shown<T> {
  readonly value: T;
  readonly bytes: number;
}

export interface DatedDocumentsParts<T> {
  /** Ends with these. */
  readonly upstream: Upstream;
  /** Where files that the documents name are kept. */
  readonly files: FileCache;
  readonly accept: string;
  readonly now: () => number;
  /** Undefined where nothing had been published by then. */
  readonly make: (body: string, key: string, url: URL) => Shown<T> | undefined;
}

interface Known<T> {
  readonly etag: string | undefined;
  readonly shown: T | undefined;
}

/** Documents of a registry as they were at its cut-off, each fetched and made once for all who ask. */
export class DatedDocuments<T> {
  readonly #parts: DatedDocumentsParts<T>;
  readonly #cache: DocumentCache<Known<T>>;
  readonly #slots = new Semaphore(limits.parallel);
  readonly #closed = new AbortController();

  constructor(parts: DatedDocumentsParts<T>) {
    this.#parts = parts;
    this.#cache = new DocumentCache({ maxBytes: limits.kept, freshMs: limits.freshMs, now: parts.now });
  }

  /**
   * @returns undefined where there is no such document, or was none
   * @throws UpstreamStatus, DSecError
   */
  async find(key: string, url: URL): Promise<T | undefined> {
    return (await this.#cache.get(key, (known) => this.#load(key, url, known))).shown;
  }

  /** A file that a document names. @throws as {@link find} */
  async file(url: URL): Promise<MirrorAnswer> {
    const { files, upstream } = this.#parts;
    return { kind: "file", file: await files.get(url.href, () => upstream.open(url)) };
  }

  close(): void {
    this.#closed.abort();
    this.#parts.upstream.close();
  }

  async #load(key: string, url: URL, cached: Shown<Known<T>> | undefined): Promise<Shown<Known<T>>> {
    const { upstream, accept, make } = this.#parts;
    const release = await this.#slots.acquire(this.#closed.signal);
    try {
      const read = await upstream.read(url, accept, limits.largest, cached?.value.etag);
      if (read === undefined && cached !== undefined) return cached;
      const shown = make(read?.body.toString("utf8") ?? "", key, url);
      return {
        value: { etag: read?.etag, shown: shown?.value },
        bytes: limits.least + (shown?.bytes ?? 0),
      };
    } catch (error) {
      if (error instanceof UpstreamStatus && error.status === 404)
        return { value: { etag: undefined, shown: undefined }, bytes: limits.least };
      throw error;
    } finally {
      release();
    }
  }
}
