import ipaddr from "ipaddr.js";
import { DSecError } from "./errors.ts";

/** A block of addresses. IPv4 is kept as IPv4, also where it was written as IPv6-mapped. */
export interface Cidr {
  readonly family: 4 | 6;
  /** 4 or 16 bytes, in network order. */
  readonly bytes: readonly number[];
  readonly prefixLength: number;
}

/** How many leading bits of an IPv6-mapped IPv4 address (`::ffff:0:0/96`) say only that it is one. */
const mappedBits = 96;

/**
 * `10.0.0.0/8`, `2001:db8::/32`; an address alone is a block of one.
 * @throws DSecError `invalid_argument` saying what is wrong with it
 */
export function parseCidr(text: string): Cidr {
  const [address = "", length, ...rest] = text.split("/");
  const parsed = parseAddress(address);
  if (parsed === undefined || rest.length > 0)
    throw invalid(`'${text}' is no address or CIDR: it must be like 10.0.0.0/8 or 2001:db8::/32`);
  const bits = parsed.length * 8;
  if (length !== undefined && !(/^\d{1,3}$/.test(length) && Number(length) <= bits))
    throw invalid(`'${text}' has no valid prefix length: it must be from /0 to /${bits}`);
  const prefixLength = length === undefined ? bits : Number(length);
  const network = masked(parsed, prefixLength);
  if (network.some((byte, index) => byte !== parsed[index]))
    throw invalid(
      `'${text}' has bits set beyond its /${prefixLength}: its network is ${formatCidr(asCidr(network, prefixLength))}`,
    );
  return asCidr(network, prefixLength);
}

/** The bytes of an address, IPv6-mapped IPv4 as IPv4; undefined for what is none. */
export function addressBytes(text: string): readonly number[] | undefined {
  const parsed = parseAddress(text);
  return parsed === undefined ? undefined : asCidr(parsed, parsed.length * 8).bytes;
}

/** As {@link parseCidr} reads it; without the length where it is a single address. */
export function formatCidr({ bytes, prefixLength }: Cidr): string {
  const address = ipaddr.fromByteArray([...bytes]);
  const text = address instanceof ipaddr.IPv6 ? address.toRFC5952String() : address.toString();
  return prefixLength === bytes.length * 8 ? text : `${text}/${prefixLength}`;
}

/** 4 or 16 bytes in the usual form, IPv6-mapped IPv4 as IPv4. */
export function formatAddress(bytes: readonly number[]): string {
  return formatCidr(asCidr(bytes, bytes.length * 8));
}

/** Whether every address of `inner` is in `outer`. */
export function covers(outer: Cidr, inner: Cidr): boolean {
  return (
    outer.family === inner.family &&
    outer.prefixLength <= inner.prefixLength &&
    masked(inner.bytes, outer.prefixLength).every((byte, index) => byte === outer.bytes[index])
  );
}

/** The bytes with everything beyond the prefix cleared. */
export function masked(bytes: readonly number[], prefixLength: number): number[] {
  return bytes.map((byte, index) => {
    const kept = Math.min(8, Math.max(0, prefixLength - index * 8));
    return byte & (0xff << (8 - kept)) & 0xff;
  });
}

/** Only the usual forms: what inet_aton also reads (`10.1`, `0x7f.1`, `010.0.0.1`) means different things to different programs. */
function parseAddress(text: string): number[] | undefined {
  if (ipaddr.IPv4.isValidFourPartDecimal(text)) return ipaddr.IPv4.parse(text).toByteArray();
  if (!text.includes(":") || text.includes("%") || !ipaddr.IPv6.isValid(text)) return undefined;
  return ipaddr.IPv6.parse(text).toByteArray();
}

function asCidr(bytes: readonly number[], prefixLength: number): Cidr {
  const isMapped =
    bytes.length === 16 &&
    prefixLength >= mappedBits &&
    bytes.every((byte, index) => index >= 12 || byte === (index < 10 ? 0 : 0xff));
  if (isMapped) return { family: 4, bytes: bytes.slice(12), prefixLength: prefixLength - mappedBits };
  return { family: bytes.length === 4 ? 4 : 6, bytes, prefixLength };
}

function invalid(message: string): DSecError {
  return new DSecError("invalid_argument", message);
}
