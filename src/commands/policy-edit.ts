import type { NamedPolicy, NamedPolicySummary } from "../protocol/named-policy.ts";
import { formatsFrom } from "./format.ts";
import { parseCount, value } from "./option.ts";
import { listingOf } from "./outcome.ts";
import type { Outcome, View } from "./outcome.ts";
import { parsePolicyName, ruleOptions, rulesOf } from "./policy-source.ts";
import { policyView } from "./policy-views.ts";
import { defined } from "./sandbox-options.ts";
import { forEachSandbox } from "./selection.ts";
import { defineVerb } from "./verb.ts";

export const createPolicy = defineVerb({
  description:
    "Makes version 1. Rules are like npm, example.com, *.example.com:443, 10.0.0.0/8:5432/tcp, [2001:db8::]/32.",
  operands: "<name>",
  examples: [
    "dsec policy create web --allow pypi --allow '*.github.com'",
    "dsec policy create web -f web.yaml",
  ],
  options: ruleOptions,
  formats: formatsFrom("name"),
  run: async ({ io, client }, options, [name = ""]) => {
    const rules = await rulesOf(options, io);
    return shown(await (await client()).policies.create(name, rules));
  },
});

export const setPolicy = defineVerb({
  description: "Makes a version more, of these rules alone; the rules of the newest version again make none.",
  operands: "<name>",
  examples: ["dsec policy get web > web.yaml; $EDITOR web.yaml; dsec policy set web -f web.yaml"],
  options: {
    ...ruleOptions,
    expected: value("--expected-version <version>", "fail unless this is the newest version", parseCount),
  },
  formats: formatsFrom("name"),
  run: async ({ io, client }, options, [name = ""]) => {
    const rules = await rulesOf(options, io);
    const expected = defined({ expectedVersion: options.expected });
    return shown(await (await client()).policies.set(name, rules, expected));
  },
});

export const removePolicy = defineVerb({
  description: "All versions of a name, or the one given. Sandboxes that have it keep it.",
  operands: "<name[@version]...>",
  options: {},
  formats: formatsFrom("name"),
  run: async ({ client }, _options, names) => {
    const { policies } = await client();
    const { rows, failures } = await forEachSandbox(names, async (given) => {
      const { name, version } = parsePolicyName(given);
      await policies.remove(name, defined({ version }));
      return { policy: given };
    });
    return { type: "listing", listing: listingOf(removedView, rows), failures };
  },
});

const removedView: View<{ readonly policy: string }> = {
  columns: [{ title: "POLICY", value: ({ policy }) => policy }],
  name: ({ policy }) => policy,
};

function shown({ policy, ...version }: NamedPolicy): Outcome {
  const row: NamedPolicySummary = { ...version, default: policy.default, rules: policy.rules.length };
  return { type: "listing", single: true, listing: listingOf(policyView, [row]) };
}
