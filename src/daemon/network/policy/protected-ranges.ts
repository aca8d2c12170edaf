import { type Cidr, covers, parseCidr } from "../../../protocol/cidr.ts";
import type { DecidedBy } from "../../../protocol/network-decision.ts";

export type ProtectedName = Extract<DecidedBy, { kind: "protected" }>["range"];

/** Addresses that are refused unless an allow rule names a block within them. */
export interface ProtectedRange {
  readonly name: ProtectedName;
  readonly cidr: Cidr;
}

const everywhere: Readonly<Record<Exclude<ProtectedName, "node" | "sandboxes">, readonly string[]>> = {
  // where clouds answer questions about, and hand out credentials of, the machine
  metadata: [
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
  ],
  "link-local": ["169.254.0.0/16", "fe80::/10"],
  multicast: ["224.0.0.0/4", "ff00::/8"],
  loopback: ["127.0.0.0/8", "::1"],
  reserved: ["0.0.0.0/8", "240.0.0.0/4", "::", "100::/64", "fec0::/10"],
  // IPv6 addresses that a gateway turns into IPv4 ones, past the rules for those
  translated: ["64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96"],
};

/**
 * The protected ranges of a node, the narrowest first: the first that holds an address is the one it belongs to.
 * @param node its own addresses, and those of services only it may use
 * @param sandboxes the ranges that sandboxes have their addresses from
 */
export function protectedRanges(
  node: readonly string[],
  sandboxes: readonly string[],
): readonly ProtectedRange[] {
  return Object.entries({ ...everywhere, node, sandboxes })
    .flatMap(([name, texts]) => texts.map((text) => ({ name: name as ProtectedName, cidr: parseCidr(text) })))
    .toSorted((a, b) => b.cidr.prefixLength - a.cidr.prefixLength);
}

/** The range an address belongs to. */
export function protectedRangeOf(
  ranges: readonly ProtectedRange[],
  address: Cidr,
): ProtectedRange | undefined {
  return ranges.find(({ cidr }) => covers(cidr, address));
}
