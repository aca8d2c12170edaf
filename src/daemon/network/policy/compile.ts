import { type Cidr, parseCidr } from "../../../protocol/cidr.ts";
import { DSecError } from "../../../protocol/errors.ts";
import type {
  NetworkPolicy,
  NetworkProtocol,
  NetworkRule,
  PortRange,
} from "../../../protocol/network-policy.ts";
import { formatRule } from "../../../protocol/network-rule-text.ts";
import { NameTable } from "./name-table.ts";
import { PrefixTable } from "./prefix-table.ts";
import type { ProtectedRange } from "./protected-ranges.ts";
import type { RegistryTable } from "./registry-table.ts";

/** What a rule comes to for one domain or one block of addresses. */
export interface RuleTerm {
  readonly action: NetworkRule["action"];
  /** Of the rule in its policy. */
  readonly index: number;
  /** Of the rule, with its action: `allow npm`. */
  readonly text: string;
  /** Undefined: every port. */
  readonly ports: readonly PortRange[] | undefined;
  /** Undefined: every protocol. */
  readonly protocol: NetworkProtocol | undefined;
}

export type DomainTerm = RuleTerm & { readonly domain: string };
export type CidrTerm = RuleTerm & { readonly cidr: Cidr };

/** A policy made ready to be judged by, and to be put into rules of the kernel. Immutable: sandboxes may share it. */
export interface CompiledPolicy {
  readonly source: NetworkPolicy;
  readonly default: NetworkPolicy["default"];
  readonly domains: readonly DomainTerm[];
  readonly cidrs: readonly CidrTerm[];
  readonly names: NameTable<DomainTerm>;
  readonly prefixes: PrefixTable<CidrTerm>;
  /** The narrowest first. */
  readonly protectedRanges: readonly ProtectedRange[];
  /** What its author may not expect, in sentences. */
  readonly warnings: readonly string[];
}

export interface CompileContext {
  readonly registries: RegistryTable;
  readonly protectedRanges: readonly ProtectedRange[];
}

/** Of an allow rule for a domain that names no ports: HTTP and HTTPS. */
const webPorts: readonly PortRange[] = [80, 443].map(portAlone);

/** @throws DSecError `unknown_registry` with details.registries; `invalid_argument` for what the wire's schema does not let through */
export function compilePolicy(policy: NetworkPolicy, context: CompileContext): CompiledPolicy {
  checkRegistries(policy, context.registries);
  const domains: DomainTerm[] = [];
  const cidrs: CidrTerm[] = [];
  policy.rules.forEach((rule, index) => {
    const term = { action: rule.action, index, text: `${rule.action} ${formatRule(rule)}` };
    const targets = endpointsOf(rule, context.registries);
    for (const domain of targets.domains) domains.push({ ...term, domain, ...reach(rule, targets.ports) });
    for (const cidr of targets.cidrs)
      cidrs.push({ ...term, cidr: parseCidr(cidr), ...reach(rule, targets.ports) });
  });
  return {
    source: policy,
    default: policy.default,
    domains,
    cidrs,
    names: new NameTable(domains),
    prefixes: new PrefixTable(cidrs),
    protectedRanges: context.protectedRanges,
    warnings: [...sharedHosts(domains), ...ipv6Openings(cidrs)],
  };
}

function checkRegistries({ rules }: NetworkPolicy, registries: RegistryTable): void {
  const unknown = new Set<string>();
  for (const { target } of rules)
    if (target.kind === "registry" && !registries.has(target.name)) unknown.add(target.name);
  if (unknown.size === 0) return;
  const names = [...unknown].slice(0, 10);
  throw new DSecError(
    "unknown_registry",
    `this node knows no registry ${names.join(", ")}: it knows ${[...registries.keys()].join(", ") || "none"}. A domain of one label is written with a final dot`,
    { details: { registries: names } },
  );
}

interface Targets {
  readonly domains: readonly string[];
  readonly cidrs: readonly string[];
  /** Where the rule itself names none. */
  readonly ports: readonly PortRange[] | undefined;
}

function endpointsOf({ target }: NetworkRule, registries: RegistryTable): Targets {
  switch (target.kind) {
    case "domain":
      return { domains: [target.domain], cidrs: [], ports: webPorts };
    case "cidr":
      return { domains: [], cidrs: [target.cidr], ports: undefined };
    case "registry": {
      const { domains = [], cidrs = [], ports = [] } = registries.get(target.name) ?? {};
      return { domains, cidrs, ports: ports.map(portAlone) };
    }
  }
}

function reach(rule: NetworkRule, ports: Targets["ports"]): Pick<RuleTerm, "ports" | "protocol"> {
  // what is denied by name is denied on every port, unless the rule says less
  const own = rule.action === "deny" ? undefined : ports;
  const byName = rule.action === "allow" && rule.target.kind !== "cidr";
  return { ports: rule.ports ?? own, protocol: rule.protocol ?? (byName ? "tcp" : undefined) };
}

/** Registries may stand for the same mirror: then the denied one closes the allowed one. */
function sharedHosts(domains: readonly DomainTerm[]): string[] {
  const denied = new Map(
    domains.filter(({ action }) => action === "deny").map((term) => [term.domain, term]),
  );
  return domains
    .filter(({ action }) => action === "allow")
    .flatMap((term) => {
      const deny = denied.get(term.domain);
      return deny === undefined ? [] : [`'${deny.text}' closes ${term.domain}, which '${term.text}' needs`];
    });
}

/** Rules that a warning names. */
const shownRules = 5;

/** Sandboxes have no IPv6, so that its addresses can only be denied. One warning, however many rules there are. */
function ipv6Openings(cidrs: readonly CidrTerm[]): string[] {
  const rules = cidrs.filter(({ action, cidr }) => action === "allow" && cidr.family === 6);
  const texts = [...new Set(rules.map(({ text }) => `'${text}'`))];
  if (texts.length === 0) return [];
  const shown = texts.slice(0, shownRules).join(", ");
  const more = texts.length > shownRules ? ` and ${texts.length - shownRules} more` : "";
  return [`sandboxes have no IPv6: ${shown}${more} cannot open its addresses`];
}

function portAlone(port: number): PortRange {
  return { from: port, to: port };
}
