/** What is kept of a document, and what it costs. */
interface Cached<T> {
  readonly value: T;
  readonly bytes: number;
}

export interface DocumentCacheOptions {
  readonly maxBytes: number;
  /** Milliseconds for which a document is taken to be current. */
  readonly freshMs: number;
  readonly now: () => number;
}

/** Documents in memory, the least recently used go first. Those who ask for the same at the same time share one fetch. */
export class DocumentCache<T> {
  readonly #options: DocumentCacheOptions;
  readonly #entries = new Map<string, { readonly cached: Cached<T>; readonly freshUntil: number }>();
  readonly #loading = new Map<string, Promise<T>>();
  #bytes = 0;

  constructor(options: DocumentCacheOptions) {
    this.#options = options;
  }

  /** @param load gets what is there already, which has grown old */
  async get(key: string, load: (known: Cached<T> | undefined) => Promise<Cached<T>>): Promise<T> {
    const entry = this.#entries.get(key);
    if (entry !== undefined) {
      this.#entries.delete(key);
      this.#entries.set(key, entry);
      if (entry.freshUntil > this.#options.now()) return entry.cached.value;
    }
    const loading = this.#loading.get(key);
    if (loading !== undefined) return loading;
    const fresh = load(entry?.cached)
      .then((cached) => this.#keep(key, cached))
      .finally(() => this.#loading.delete(key));
    this.#loading.set(key, fresh);
    return fresh;
  }

  #keep(key: string, cached: Cached<T>): T {
    const { maxBytes, freshMs, now } = this.#options;
    this.#drop(key);
    this.#entries.set(key, { cached, freshUntil: now() + freshMs });
    this.#bytes += cached.bytes;
    for (const oldest of this.#entries.keys()) {
      if (this.#bytes <= maxBytes) break;
      this.#drop(oldest);
    }
    return cached.value;
  }

  #drop(key: string): void {
    this.#bytes -= this.#entries.get(key)?.cached.bytes ?? 0;
    this.#entries.delete(key);
  }
}
