import { addressBytes, type Cidr, covers } from "../../../protocol/cidr.ts";
import { canonicalName } from "../../../protocol/domain-name.ts";
import { DSecError } from "../../../protocol/errors.ts";
import type { NetworkVerdict } from "../../../protocol/network-decision.ts";
import type { NetworkProtocol } from "../../../protocol/network-policy.ts";
import type { CidrTerm, CompiledPolicy, RuleTerm } from "./compile.ts";
import { protectedRangeOf } from "./protected-ranges.ts";

/** A connection, or a packet that would begin one. */
export interface Destination {
  /** IPv4 or IPv6. */
  readonly address: string;
  /** Undefined of protocols without ports. */
  readonly port: number | undefined;
  /** `other`: no rule that names a protocol is for it. */
  readonly protocol: NetworkProtocol | "other";
  /** What the caller has found the destination to be: the TLS server name or Host, given this address by the resolver. */
  readonly name?: string | undefined;
}

/**
 * Whether a sandbox may reach a destination, by the precedence of the policy's model (see the protocol).
 * @throws DSecError `invalid_argument` for what is no address
 */
export function judge(policy: CompiledPolicy, destination: Destination): NetworkVerdict {
  const bytes = addressBytes(destination.address);
  if (bytes === undefined) throw new DSecError("invalid_argument", `'${destination.address}' is no address`);
  const address: Cidr = { family: bytes.length === 4 ? 4 : 6, bytes, prefixLength: bytes.length * 8 };
  const name = destination.name === undefined ? undefined : canonicalName(destination.name);
  const byAddress = [...policy.prefixes.find(bytes)].filter((term) => reaches(term, destination));
  const byName = [...(name === undefined ? [] : policy.names.find(name))].filter((term) =>
    reaches(term, destination),
  );
  const deny = first([...byAddress, ...byName], "deny");
  if (deny !== undefined) return byRule(deny);
  const range = protectedRangeOf(policy.protectedRanges, address);
  if (range !== undefined) {
    const opens = byAddress.filter((term) => within(term, range.cidr));
    const allow = first(opens, "allow");
    return allow === undefined
      ? { allowed: false, by: { kind: "protected", range: range.name } }
      : byRule(allow);
  }
  const allow = first([...byAddress, ...byName], "allow");
  return allow === undefined ? byDefault(policy) : byRule(allow);
}

/**
 * Whether the resolver may answer for a name: some connection to it is allowed by its name, and not every one is denied.
 * Where only addresses are allowed, names are not: a query carries data out.
 */
export function judgeName(policy: CompiledPolicy, text: string): NetworkVerdict {
  const name = canonicalName(text);
  // no rule can be about it
  if (name === undefined) return { allowed: false, by: { kind: "unchecked", reason: "malformed" } };
  const terms = [...policy.names.find(name)];
  const deny = first(
    terms.filter(({ ports, protocol }) => ports === undefined && protocol === undefined),
    "deny",
  );
  if (deny !== undefined) return byRule(deny);
  const allow = first(terms, "allow");
  return allow === undefined ? byDefault(policy) : byRule(allow);
}

/**
 * {@link judgeName} of a name that turned out to stand for others: a rule that denies one of those denies it, too.
 *
 * @param aliases canonical
 */
export function judgeAliases(
  policy: CompiledPolicy,
  name: string,
  aliases: readonly string[],
): NetworkVerdict {
  const verdict = judgeName(policy, name);
  if (!verdict.allowed) return verdict;
  const denied = aliases
    .map((alias) => judgeName(policy, alias))
    .find(({ allowed, by }) => !allowed && by.kind === "rule");
  return denied ?? verdict;
}

/** A connection of which only the name is known: what the addresses behind it are may still refuse it. */
export function judgeConnectionByName(
  policy: CompiledPolicy,
  connection: {
    readonly name: string;
    readonly port: number | undefined;
    readonly protocol: NetworkProtocol;
  },
): NetworkVerdict {
  const { name, port, protocol } = connection;
  if (port === undefined) return judgeName(policy, name);
  const canonical = canonicalName(name);
  if (canonical === undefined) return { allowed: false, by: { kind: "unchecked", reason: "malformed" } };
  const terms = [...policy.names.find(canonical)].filter((term) => reaches(term, { port, protocol }));
  const decisive = first(terms, "deny") ?? first(terms, "allow");
  return decisive === undefined ? byDefault(policy) : byRule(decisive);
}

function reaches(
  { ports, protocol }: RuleTerm,
  destination: Pick<Destination, "port" | "protocol">,
): boolean {
  if (protocol !== undefined && protocol !== destination.protocol) return false;
  if (ports === undefined) return true;
  const { port } = destination;
  return port !== undefined && ports.some(({ from, to }) => from <= port && port <= to);
}

/** The one that stands first in the policy, so that the same question always has the same answer. */
function first<T extends RuleTerm>(terms: readonly T[], action: RuleTerm["action"]): T | undefined {
  return terms
    .filter((term) => term.action === action)
    .reduce<T | undefined>(
      (found, term) => (found !== undefined && found.index <= term.index ? found : term),
      undefined,
    );
}

function within({ cidr }: CidrTerm, range: Cidr): boolean {
  return covers(range, cidr);
}

function byRule({ action, index, text }: RuleTerm): NetworkVerdict {
  return { allowed: action === "allow", by: { kind: "rule", index, text } };
}

function byDefault(policy: CompiledPolicy): NetworkVerdict {
  return { allowed: policy.default === "allow", by: { kind: "default" } };
}
