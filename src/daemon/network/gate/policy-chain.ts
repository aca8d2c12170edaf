import { covers } from "../../../protocol/cidr.ts";
import type { CidrTerm, CompiledPolicy } from "../policy/compile.ts";
import {
  type AddressInterval,
  everyAddress,
  formatInterval,
  intervalOf,
  merged,
  without,
} from "./address-interval.ts";

/** The rules of the kernel for what a policy says of addresses: statements of two chains. Equal for equal rules. */
export interface PolicyChains {
  /** For packets of the sandbox. What passes all of them is up to its pins. */
  readonly outgoing: readonly string[];
  /** For the answers, which come by another link. */
  readonly answers: readonly string[];
}

/** Where names are denied and everything else is allowed, these would be ways round the names. */
const unchecked = ["meta l4proto { tcp, udp } th dport { 53, 853 }", "udp dport 443"] as const;

/**
 * @param directMark of packets that are allowed by their address
 * @returns undefined where a policy allows nothing by address, and so needs no rules: what is not allowed is refused
 */
export function policyChains(policy: CompiledPolicy, directMark: number): PolicyChains | undefined {
  const terms = policy.cidrs.filter(({ cidr }) => cidr.family === 4);
  const allows = terms.filter(({ action }) => action === "allow");
  if (allows.length === 0 && policy.default === "deny") return undefined;
  const denied = matches(
    terms.filter(({ action }) => action === "deny").map((term) => [term, [intervalOf(term.cidr)]]),
  );
  const isOpening = ({ cidr }: CidrTerm) => policy.protectedRanges.some((range) => covers(range.cidr, cidr));
  const shielded = allows.map((term): [CidrTerm, AddressInterval[]] => [term, shield(term, policy)]);
  const opening = matches(shielded.filter(([term]) => isOpening(term)));
  const allowed = matches(shielded.filter(([term]) => !isOpening(term)));
  const accept = `meta mark set ${directMark} accept`;
  return {
    outgoing: [
      ...denied.map((match) => `${match.outgoing} goto refused`),
      ...opening.map((match) => `${match.outgoing} ${accept}`),
      // An address that the node was given since the policy was compiled.
      "fib daddr type { local, broadcast, multicast } goto refused",
      ...allowed.map((match) => `${match.outgoing} ${accept}`),
      ...defaultOutgoing(policy, accept),
    ],
    answers: [
      ...denied.map((match) => `${match.answers} drop`),
      ...[...opening, ...allowed].map((match) => `${match.answers} accept`),
      ...(policy.default === "allow" ? [`ip saddr ${list(unprotected(policy))} accept`] : []),
    ],
  };
}

/** Whether connections are looked into though their addresses are allowed, for the names that are denied. */
export function inspects(policy: CompiledPolicy): boolean {
  return policy.default === "allow" && policy.domains.some(({ action }) => action === "deny");
}

function defaultOutgoing(policy: CompiledPolicy, accept: string): string[] {
  if (policy.default === "deny") return [];
  const rest = `ip daddr ${list(unprotected(policy))}`;
  if (!inspects(policy)) return [`${rest} ${accept}`];
  return [
    ...unchecked.map((match) => `${match} goto refused`),
    `${rest} meta l4proto tcp goto proxied`,
    `${rest} ${accept}`,
  ];
}

function unprotected(policy: CompiledPolicy): AddressInterval[] {
  return without(everyAddress, protectedIntervals(policy));
}

function protectedIntervals({ protectedRanges }: CompiledPolicy): AddressInterval[] {
  return protectedRanges.filter(({ cidr }) => cidr.family === 4).map(({ cidr }) => intervalOf(cidr));
}

/** The addresses of an allow term less the protected ones that it does not name. */
function shield({ cidr }: CidrTerm, { protectedRanges }: CompiledPolicy): AddressInterval[] {
  const inside = protectedRanges.filter((range) => covers(cidr, range.cidr) && !covers(range.cidr, cidr));
  return without(
    intervalOf(cidr),
    inside.map((range) => intervalOf(range.cidr)),
  );
}

interface Match {
  readonly outgoing: string;
  readonly answers: string;
}

/** Terms about the same protocol and ports are one match. */
function matches(terms: readonly (readonly [CidrTerm, AddressInterval[]])[]): Match[] {
  const groups = new Map<string, { term: CidrTerm; intervals: AddressInterval[] }>();
  for (const [term, intervals] of terms) {
    const key = JSON.stringify([term.protocol ?? null, term.ports ?? null]);
    const group = groups.get(key) ?? { term, intervals: [] };
    groups.set(key, group);
    group.intervals.push(...intervals);
  }
  return [...groups.values()].flatMap(({ term, intervals }) => {
    const addresses = merged(intervals);
    if (addresses.length === 0) return [];
    return [
      {
        outgoing: `${transport(term, "dport")}ip daddr ${list(addresses)}`,
        answers: `${transport(term, "sport")}ip saddr ${list(addresses)}`,
      },
    ];
  });
}

function transport({ protocol, ports }: CidrTerm, side: "dport" | "sport"): string {
  if (ports === undefined) return protocol === undefined ? "" : `meta l4proto ${protocol} `;
  const carriers = protocol ?? "{ tcp, udp }";
  const numbers = merged(ports.map(({ from, to }) => ({ first: from, last: to })));
  const listed = numbers.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`));
  return `meta l4proto ${carriers} th ${side} { ${listed.join(", ")} } `;
}

function list(intervals: readonly AddressInterval[]): string {
  return `{ ${intervals.map(formatInterval).join(", ")} }`;
}
