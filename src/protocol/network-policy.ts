/**
 * What a sandbox may reach. The verdict does not depend on the order of the rules:
 *
 * 1. A deny rule that matches refuses, whatever else allows. So a rule can be added to any policy, and policies can be joined, without
 *    reading what is there; and no edit higher up can open what a deny closes.
 * 2. The node's own addresses and services, other sandboxes, link-local, metadata and multicast addresses are refused, unless
 *    an allow rule names an address block that lies within them (`0.0.0.0/0` does not).
 * 3. An allow rule that matches allows.
 * 4. Else the default decides.
 *
 * A sandbox's own loopback is not subject to it.
 */
import { z } from "zod";
import { formatCidr, parseCidr } from "./cidr.ts";
import { canonicalDomain } from "./domain-name.ts";
import { builtinPolicies, maxNetworkRules, registryName } from "./network-rule-limits.ts";
import { parseRule } from "./network-rule-text.ts";

/** A name in the registry table of the node: npm, pypi, debian… */
export const RegistryName = z.string().regex(registryName, "must be a lower-case DNS label");

/** Checks and rewrites a text by a function that throws what is wrong with it. */
function canonical(rewrite: (text: string) => string): z.ZodString {
  // the check comes just before the rewriting, which may not fail: of 10,000 rules each is read once
  let last = { given: "", written: "" };
  return z
    .string()
    .max(400)
    .superRefine((given, context) => {
      last = { given, written: given };
      try {
        last = { given, written: rewrite(given) };
      } catch (error) {
        context.addIssue(error instanceof Error ? error.message : String(error));
      }
    })
    .overwrite((given) => (given === last.given ? last.written : given));
}

export const NetworkTarget = z.discriminatedUnion(
  "kind",
  [
    z.strictObject({ kind: z.literal("registry"), name: RegistryName }),
    /** `example.com`, or `*.example.com`: every name below it at any depth, not itself. */
    z.strictObject({ kind: z.literal("domain"), domain: canonical(canonicalDomain) }),
    /** IPv4 or IPv6; an address alone is a block of one. */
    z.strictObject({ kind: z.literal("cidr"), cidr: canonical((text) => formatCidr(parseCidr(text))) }),
  ],
  { error: "kind must be registry, domain or cidr" },
);
export type NetworkTarget = z.infer<typeof NetworkTarget>;

const PortNumber = z.int().min(1).max(65_535);
/** Both ends included. */
export const PortRange = z
  .strictObject({ from: PortNumber, to: PortNumber })
  .refine(({ from, to }) => from <= to, "from must not be above to");
export type PortRange = z.infer<typeof PortRange>;

export const NetworkProtocol = z.enum(["tcp", "udp", "icmp"]);
export type NetworkProtocol = z.infer<typeof NetworkProtocol>;

/**
 * What is not said: of a deny rule and of any rule for addresses, every port and protocol; of an allow rule for a registry, the
 * registry's own ports; of an allow rule for a domain, TCP 80 and 443. UDP (and so QUIC) to names must be asked for.
 */
export const NetworkRule = z
  .strictObject({
    action: z.enum(["allow", "deny"]),
    target: NetworkTarget,
    ports: z.array(PortRange).min(1).max(64).optional(),
    protocol: NetworkProtocol.optional(),
  })
  .refine(
    ({ ports, protocol }) => ports === undefined || protocol !== "icmp",
    "icmp has no ports: leave out ports or protocol",
  )
  .refine(
    ({ target, protocol }) => target.kind === "cidr" || protocol !== "icmp",
    "icmp carries no names: give addresses",
  );
export type NetworkRule = z.infer<typeof NetworkRule>;

export const NetworkPolicy = z.strictObject({
  default: z.enum(["deny", "allow"]).default("deny"),
  rules: z.array(NetworkRule).max(maxNetworkRules, `at most ${maxNetworkRules} rules`).default([]),
});
export type NetworkPolicy = z.infer<typeof NetworkPolicy>;
export type NetworkPolicyInput = z.input<typeof NetworkPolicy>;

/** Listing 1: rules by their text (most often a registry's name); true allows, false denies. */
export const NetworkRules = z
  .record(
    z
      .string()
      .max(400)
      .superRefine((text, context) => {
        try {
          parseRule("allow", text);
        } catch (error) {
          context.addIssue(error instanceof Error ? error.message : String(error));
        }
      }),
    z.boolean(),
  )
  .refine((rules) => Object.keys(rules).length <= maxNetworkRules, `at most ${maxNetworkRules} rules`);
export type NetworkRules = z.infer<typeof NetworkRules>;

/** Of a named policy. */
export const PolicyName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9.-]{0,62}$/, "must be at most 63 lower-case letters, digits, '.' or '-'");

/** `name` (its newest version), `name@version`, `open` or `none`. */
export const PolicyReference = z
  .string()
  .regex(/^[a-z0-9][a-z0-9.-]{0,62}(?:@[1-9]\d{0,8})?$/, "must be a policy's name, or name@version");

/** The policy a sandbox gets: a named one, or rules of its own. */
export const PolicyChoice = z.union([PolicyReference, NetworkPolicy]);
export type PolicyChoice = z.infer<typeof PolicyChoice>;

/** Policies that need not be made: everything is allowed (but what rule 2 refuses), nothing is. */
export function builtinPolicy(name: string): NetworkPolicy | undefined {
  if (name === builtinPolicies.open) return { default: "allow", rules: [] };
  if (name === builtinPolicies.none) return { default: "deny", rules: [] };
  return undefined;
}

/**
 * The policy that a spec stands for.
 * @param base the chosen policy; without one, everything is denied that the rules do not allow
 */
export function policyWith(base: NetworkPolicy | undefined, rules: NetworkRules): NetworkPolicy {
  const own = Object.entries(rules).map(([text, allow]) => parseRule(allow ? "allow" : "deny", text));
  return { default: base?.default ?? "deny", rules: [...(base?.rules ?? []), ...own] };
}
