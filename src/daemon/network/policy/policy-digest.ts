import type { NetworkPolicy } from "../../../protocol/network-policy.ts";
import { formatRule } from "../../../protocol/network-rule-text.ts";
import type { PolicyInForce, PolicyOrigin } from "../../../protocol/policy-in-force.ts";

/** The policy of which there is nothing to say. */
export const emptyPolicy: NetworkPolicy = { default: "deny", rules: [] };

/** Its rules by their text, in the order they stand in. */
export function ruleTexts({ rules }: NetworkPolicy): string[] {
  return rules.map((rule) => `${rule.action} ${formatRule(rule)}`);
}

/** @param now milliseconds since the epoch */
export function policyInForce(
  policy: NetworkPolicy,
  digest: string,
  origin: PolicyOrigin | undefined,
  revision: number,
  now: number,
): PolicyInForce {
  return {
    ...(origin === undefined ? {} : { origin }),
    revision,
    digest,
    default: policy.default,
    rules: policy.rules.length,
    changedAt: now,
  };
}
