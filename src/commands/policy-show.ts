import { ruleTextsOf, textsOfPolicy } from "../protocol/policy-texts.ts";
import type { NamedPolicy, NamedPolicySummary } from "../protocol/named-policy.ts";
import type { NetworkPolicy } from "../protocol/network-policy.ts";
import type { SandboxPolicy } from "../protocol/policy-in-force.ts";
import type { DSecClient } from "../sdk/index.ts";
import { describePolicy } from "./describe-policy.ts";
import { formatsFrom, listingFormats } from "./format.ts";
import { listingOf } from "./outcome.ts";
import { findPolicy, parsePolicyName, sandboxIn } from "./policy-source.ts";
import { differenceView, policyView } from "./policy-views.ts";
import type { RuleDifference } from "./policy-views.ts";
import { defined } from "./sandbox-options.ts";
import { defineVerb } from "./verb.ts";

export const listPolicies = defineVerb({
  description: "The newest version of each; with a name, every version of it.",
  operands: "[name]",
  options: {},
  formats: listingFormats,
  run: async ({ client }, _options, [name]) => {
    const { policies } = await client();
    const rows = name === undefined ? await policies.list() : await policies.versions(name);
    return { type: "listing", listing: listingOf(policyView, rows) };
  },
});

export const getPolicy = defineVerb({
  description:
    "As a file that `dsec policy set -f` takes, or all there is to know of it (-o json). sandbox/REF is the policy a sandbox has.",
  operands: "<name[@version]|sandbox/ref>",
  examples: ["dsec policy get web@2", "dsec policy get sandbox/web-1"],
  options: {},
  formats: formatsFrom("yaml"),
  run: async ({ client, format }, _options, [given = ""]) => {
    const { title, row, whole } = await shownPolicy(await client(), given);
    if (format === "yaml") return { type: "text", text: await policyFile(title, whole.policy) };
    return { type: "listing", single: true, listing: { ...listingOf(policyView, [row]), items: [whole] } };
  },
});

export const diffPolicies = defineVerb({
  description:
    "Which rules only one of two policies has. Without a second one, the newest version of the first. Exits with 1 where they differ.",
  operands: "<name[@version]|sandbox/ref> [name[@version]|sandbox/ref]",
  examples: ["dsec policy diff web@1", "dsec policy diff sandbox/web-1 web"],
  options: {},
  formats: listingFormats,
  run: async ({ client }, _options, [before = "", after]) => {
    const fleet = await client();
    const other = after ?? (sandboxIn(before) === undefined ? parsePolicyName(before).name : before);
    const [old, now] = [await findPolicy(fleet, before), await findPolicy(fleet, other)].map(ruleTextsOf);
    const rows: RuleDifference[] = [
      ...[...(old ?? [])]
        .filter((rule) => now?.has(rule) !== true)
        .map((rule) => ({ change: "removed" as const, rule })),
      ...[...(now ?? [])]
        .filter((rule) => old?.has(rule) !== true)
        .map((rule) => ({ change: "added" as const, rule })),
    ];
    return { type: "listing", listing: listingOf(differenceView, rows), exitCode: rows.length === 0 ? 0 : 1 };
  },
});

/** What there is of a policy: a line about it, a row of a listing, and all that the fleet says. */
interface ShownPolicy {
  readonly title: string;
  readonly row: NamedPolicySummary;
  readonly whole: NamedPolicy | SandboxPolicy;
}

async function shownPolicy(fleet: DSecClient, given: string): Promise<ShownPolicy> {
  const ref = sandboxIn(given);
  if (ref === undefined) {
    const { name, version } = parsePolicyName(given);
    const whole = await fleet.policies.get(name, defined({ version }));
    const { policy, ...rest } = whole;
    const row = { ...rest, default: policy.default, rules: policy.rules.length };
    return { title: `${name}@${whole.version}`, row, whole };
  }
  const whole = await (await fleet.get(ref)).networkPolicy();
  const { revision, changedAt: createdAt, rules } = whole;
  const name = describePolicy(whole);
  return {
    title: `sandbox ${whole.sandbox}: ${name}, revision ${revision}`,
    row: { name, version: revision, newestVersion: revision, createdAt, default: whole.default, rules },
    whole,
  };
}

async function policyFile(title: string, policy: NetworkPolicy): Promise<string> {
  const { stringify } = await import("yaml");
  return `# ${title}\n${stringify(textsOfPolicy(policy), { lineWidth: 0 })}`;
}
