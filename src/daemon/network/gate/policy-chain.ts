import type { NfInterval, NfMatch, NfRule } from "../../../backends/linux/nf-rules.ts";
import { covers } from "../../../protocol/cidr.ts";
import type { CidrTerm, CompiledPolicy } from "../policy/compile.ts";
import { type AddressInterval, everyAddress, intervalOf, merged, without } from "./address-interval.ts";

/** The rules of the kernel for what a policy says of addresses, as two chains. Equal for equal rules. */
export interface PolicyChains {
  /** For packets of the sandbox. What passes all of them is up to its pins. */
  readonly outgoing: readonly NfRule[];
  /**
   * The same by where a connection really leads, in either direction: for answers, and for what another table of the node has
   * redirected.
   */
  readonly answers: readonly NfRule[];
}

const protocolNumber = { icmp: 1, tcp: 6, udp: 17 } as const;
const withPorts: NfMatch = {
  field: "transport protocol",
  in: [alone(protocolNumber.tcp), alone(protocolNumber.udp)],
};
const udpAlone: NfMatch = { field: "transport protocol", in: [alone(protocolNumber.udp)] };
const tcpAlone: NfMatch = { field: "transport protocol", in: [alone(protocolNumber.tcp)] };
const asItBegan: NfMatch = { field: "direction", in: [alone(0)] };
/** Where names are denied and everything else is allowed, these would be ways round the names. */
const unchecked: readonly (readonly NfMatch[])[] = [
  [withPorts, { field: "destination port", in: [alone(53), alone(853)] }],
  [udpAlone, { field: "destination port", in: [alone(443)] }],
];
const refused = { goto: "refused" } as const;

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
  const accept = { mark: directMark, verdict: "accept" } as const;
  const rest = unprotected(policy);
  return {
    outgoing: [
      ...denied.map(({ outgoing }) => ({ matches: outgoing, verdict: refused })),
      ...opening.map(({ outgoing }) => ({ matches: outgoing, ...accept })),
      // An address that the node was given since the policy was compiled.
      { matches: [], verdict: { jump: "foreign" } },
      ...allowed.map(({ outgoing }) => ({ matches: outgoing, ...accept })),
      ...defaultOutgoing(policy, { field: "destination address", in: rest }, accept),
    ],
    answers: [
      ...denied.map(({ answers }) => ({ matches: answers, verdict: { goto: "barred" } })),
      ...opening.map(({ answers }) => ({ matches: answers, verdict: "accept" as const })),
      { matches: [asItBegan], verdict: { jump: "foreign" } },
      ...allowed.map(({ answers }) => ({ matches: answers, verdict: "accept" as const })),
      ...(policy.default === "allow"
        ? [{ matches: [{ field: "responder address", in: rest } as const], verdict: "accept" as const }]
        : []),
    ],
  };
}

/** Whether connections are looked into though their addresses are allowed, for the names that are denied. */
export function inspects(policy: CompiledPolicy): boolean {
  return policy.default === "allow" && policy.domains.some(({ action }) => action === "deny");
}

function defaultOutgoing(
  policy: CompiledPolicy,
  rest: NfMatch,
  accept: Pick<NfRule, "mark" | "verdict">,
): NfRule[] {
  if (policy.default === "deny") return [];
  if (!inspects(policy)) return [{ matches: [rest], ...accept }];
  return [
    ...unchecked.map((match) => ({ matches: match, verdict: refused })),
    { matches: [rest, tcpAlone], verdict: { goto: "proxied" } },
    { matches: [rest], ...accept },
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
  readonly outgoing: readonly NfMatch[];
  readonly answers: readonly NfMatch[];
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
        outgoing: [...transport(term, "destination port"), { field: "destination address", in: addresses }],
        answers: [...transport(term, "responder port"), { field: "responder address", in: addresses }],
      },
    ];
  });
}

function transport({ protocol, ports }: CidrTerm, field: "destination port" | "responder port"): NfMatch[] {
  const carrier: NfMatch[] =
    protocol === undefined ? [] : [{ field: "transport protocol", in: [alone(protocolNumber[protocol])] }];
  if (ports === undefined) return carrier;
  const numbers = merged(ports.map(({ from, to }) => ({ first: from, last: to })));
  return [...(protocol === undefined ? [withPorts] : carrier), { field, in: numbers }];
}

function alone(value: number): NfInterval {
  return { first: value, last: value };
}
