import type { NetworkPolicy } from "../../../protocol/network-policy.ts";
import type { PolicyChange } from "../../../protocol/policy-push.ts";
import { ruleTexts } from "./policy-digest.ts";

export type PolicyDifference = Pick<PolicyChange, "added" | "removed" | "addedCount" | "removedCount">;

/** Texts shown of each side. */
const shown = 20;

export const noDifference: PolicyDifference = { added: [], removed: [], addedCount: 0, removedCount: 0 };

/** What of the rules is in one of two policies only. */
export function policyDifference(before: NetworkPolicy, after: NetworkPolicy): PolicyDifference {
  const [old, now] = [new Set(ruleTexts(before)), new Set(ruleTexts(after))];
  const added = [...now].filter((text) => !old.has(text));
  const removed = [...old].filter((text) => !now.has(text));
  return {
    added: added.slice(0, shown),
    removed: removed.slice(0, shown),
    addedCount: added.length,
    removedCount: removed.length,
  };
}
