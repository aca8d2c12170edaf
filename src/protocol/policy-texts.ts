import { DSecError } from "./errors.ts";
import type { NetworkPolicy } from "./network-policy.ts";
import { formatRule, parseRule } from "./network-rule-text.ts";

/** A policy as people write it: rules by their text, e.g. `{ allow: ["pypi", "*.github.com:443"], deny: ["10.0.0.0/8"] }`. */
export interface PolicyTexts {
  /** Of what no rule is about; default `deny`. */
  readonly default?: "deny" | "allow";
  readonly allow?: readonly string[];
  readonly deny?: readonly string[];
}

/** @throws DSecError `invalid_argument` for a rule that cannot be read */
export function policyFromTexts(texts: PolicyTexts): NetworkPolicy {
  return {
    default: texts.default ?? "deny",
    rules: [
      ...(texts.allow ?? []).map((text) => parseRule("allow", text)),
      ...(texts.deny ?? []).map((text) => parseRule("deny", text)),
    ],
  };
}

/** As {@link policyFromTexts} reads it. */
export function textsOfPolicy(policy: NetworkPolicy): Required<PolicyTexts> {
  const of = (action: "allow" | "deny"): string[] =>
    policy.rules.filter((rule) => rule.action === action).map(formatRule);
  return { default: policy.default, allow: of("allow"), deny: of("deny") };
}

/** What a policy consists of, for comparison: its default, and its rules with their actions. */
export function ruleTextsOf(policy: NetworkPolicy): ReadonlySet<string> {
  const rules = policy.rules.map((rule) => `${rule.action} ${formatRule(rule)}`);
  return new Set([`default ${policy.default}`, ...rules]);
}

/**
 * Reads what a document (YAML, JSON) says of a policy.
 * @throws DSecError `invalid_argument` naming the field
 */
export function policyTextsFrom(document: unknown): PolicyTexts {
  if (typeof document !== "object" || document === null || Array.isArray(document))
    throw new DSecError("invalid_argument", "a policy must have the fields default, allow and deny");
  const {
    default: otherwise = "deny",
    allow = [],
    deny = [],
    ...unknown
  } = document as Record<string, unknown>;
  const [field] = Object.keys(unknown);
  if (field !== undefined)
    throw new DSecError("invalid_argument", `${field}: a policy has the fields default, allow and deny`);
  if (otherwise !== "deny" && otherwise !== "allow")
    throw new DSecError("invalid_argument", "default: must be deny or allow");
  return { default: otherwise, allow: textList("allow", allow), deny: textList("deny", deny) };
}

function textList(field: string, value: unknown): string[] {
  const list: unknown = value ?? [];
  if (!Array.isArray(list) || !list.every((item) => typeof item === "string"))
    throw new DSecError("invalid_argument", `${field}: must be a list of rules, each a text`);
  return list;
}
