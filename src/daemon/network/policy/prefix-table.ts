import { type Cidr, masked } from "../../../protocol/cidr.ts";

/** Finds the blocks that hold an address. Costs a look-up per prefix length in use, however many entries. */
export class PrefixTable<T extends { readonly cidr: Cidr }> {
  /** By prefix length, then by the network's bytes. */
  readonly #families: Readonly<Record<4 | 6, Map<number, Map<string, T[]>>>> = {
    4: new Map(),
    6: new Map(),
  };

  constructor(entries: readonly T[]) {
    for (const entry of entries) {
      const { family, prefixLength, bytes } = entry.cidr;
      const lengths = this.#families[family];
      const networks = lengths.get(prefixLength) ?? new Map<string, T[]>();
      lengths.set(prefixLength, networks);
      const key = keyOf(bytes);
      const found = networks.get(key);
      if (found === undefined) networks.set(key, [entry]);
      else found.push(entry);
    }
  }

  /** @param address 4 or 16 bytes; IPv6-mapped addresses as the IPv4 address they stand for */
  *find(address: readonly number[]): Generator<T, void, undefined> {
    const lengths = this.#families[address.length === 4 ? 4 : 6];
    for (const [prefixLength, networks] of lengths)
      yield* networks.get(keyOf(masked(address, prefixLength))) ?? [];
  }
}

function keyOf(bytes: readonly number[]): string {
  return String.fromCharCode(...bytes);
}
