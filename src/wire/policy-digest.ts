import { createHash } from "node:crypto";
import type { NetworkPolicy } from "../protocol/network-policy.ts";
import { formatRule } from "../protocol/network-rule-text.ts";

/** `sha256:…`; the order of rules does not count, as it does not in a verdict. */
export function policyDigest(policy: NetworkPolicy): string {
  const texts = [...new Set(policy.rules.map((rule) => `${rule.action} ${formatRule(rule)}`))].sort();
  const hash = createHash("sha256").update(JSON.stringify([policy.default, texts]));
  return `sha256:${hash.digest("hex")}`;
}

const digests = new WeakMap<NetworkPolicy, string>();
/** Rules from which on a policy is better named than sent. */
const manyRules = 64;

/** Undefined for one that is as quickly sent. Kept in mind for as long as the policy is, which must not change. */
export function digestOfLongPolicy(policy: NetworkPolicy): string | undefined {
  if (policy.rules.length < manyRules) return undefined;
  const known = digests.get(policy) ?? policyDigest(policy);
  digests.set(policy, known);
  return known;
}
