import { DSecError } from "../../protocol/errors.ts";

/** Where no machine's addresses lie: this network, loopback, link-local, multicast and what is reserved. */
const unusable = [
  ["0.0.0.0", 8],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["224.0.0.0", 3],
] as const;

/** An IPv4 range, e.g. 10.213.0.0/16. Addresses are numbers in it: 0 is the network's own, 1 the node's. */
export class AddressRange {
  readonly prefixLength: number;
  readonly #base: number;

  private constructor(base: number, prefixLength: number) {
    this.#base = base;
    this.prefixLength = prefixLength;
  }

  /** @throws DSecError `config_invalid` */
  static parse(text: string): AddressRange {
    const [address = "", length = "", ...rest] = text.split("/");
    const base = parseAddress(address);
    const prefixLength = /^\d{1,2}$/.test(length) ? Number(length) : Number.NaN;
    if (base === undefined || rest.length > 0 || !(prefixLength >= 8 && prefixLength <= 29)) {
      throw new DSecError(
        "config_invalid",
        `'${text}' is not a network range: it must be like 10.213.0.0/16, from /8 to /29`,
      );
    }
    if (base % 2 ** (32 - prefixLength) !== 0) {
      throw new DSecError("config_invalid", `${text} has bits set beyond its /${prefixLength}`);
    }
    const range = new AddressRange(base, prefixLength);
    if (unusable.some(([network, length]) => range.overlaps(network, length)))
      throw new DSecError("config_invalid", `no sandbox can have an address of ${text}`);
    return range;
  }

  /** How many addresses it holds, the first and last included. */
  get size(): number {
    return 2 ** (32 - this.prefixLength);
  }

  /** The node's own address towards its sandboxes. */
  get gateway(): string {
    return this.addressAt(1);
  }

  get network(): string {
    return this.addressAt(0);
  }

  addressAt(number: number): string {
    const value = this.#base + number;
    return [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255].join(".");
  }

  /** The number of an address; undefined when it lies outside. */
  numberOf(address: string): number | undefined {
    const value = parseAddress(address);
    const number = value === undefined ? -1 : value - this.#base;
    return number >= 0 && number < this.size ? number : undefined;
  }

  /** Whether it shares an address with `network`/`prefixLength`. */
  overlaps(network: string, prefixLength: number): boolean {
    const start = parseAddress(network);
    if (start === undefined) return false;
    const first = start - (start % 2 ** (32 - prefixLength));
    return first < this.#base + this.size && this.#base < first + 2 ** (32 - prefixLength);
  }

  toString(): string {
    return `${this.network}/${this.prefixLength}`;
  }
}

/** An IPv4 address as four bytes. */
export function addressBytes(address: string): Buffer {
  return Buffer.from(address.split(".").map(Number));
}

function parseAddress(text: string): number | undefined {
  const parts = text.split(".");
  if (parts.length !== 4 || !parts.every((part) => /^(?:0|[1-9]\d{0,2})$/.test(part) && Number(part) <= 255))
    return undefined;
  return parts.reduce((value, part) => value * 256 + Number(part), 0);
}
