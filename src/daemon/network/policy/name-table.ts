/** Finds what was said of a name: of itself, and of everything below a domain it is in. Costs a look-up per label, however many entries. */
export class NameTable<T extends { readonly domain: string }> {
  readonly #exact = new Map<string, T[]>();
  /** By the domain that `*.` stands before. */
  readonly #below = new Map<string, T[]>();

  /** @param entries whose domains are `example.com` or `*.example.com`, in canonical form */
  constructor(entries: readonly T[]) {
    for (const entry of entries) {
      const wildcard = entry.domain.startsWith("*.");
      const key = wildcard ? entry.domain.slice(2) : entry.domain;
      const table = wildcard ? this.#below : this.#exact;
      const found = table.get(key);
      if (found === undefined) table.set(key, [entry]);
      else found.push(entry);
    }
  }

  /** @param name in canonical form */
  *find(name: string): Generator<T, void, undefined> {
    yield* this.#exact.get(name) ?? [];
    for (let dot = name.indexOf("."); dot !== -1; dot = name.indexOf(".", dot + 1))
      yield* this.#below.get(name.slice(dot + 1)) ?? [];
  }
}
