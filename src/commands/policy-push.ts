import { DSecError } from "../protocol/errors.ts";
import type { PolicyAudience, PolicyPushResult } from "../protocol/policy-push.ts";
import { fromProblem } from "../protocol/problem-codec.ts";
import { listingFormats } from "./format.ts";
import { note } from "./io.ts";
import { flag } from "./option.ts";
import type { OptionValues } from "./option.ts";
import { listingOf } from "./outcome.ts";
import { givesRules, ruleOptions, rulesOf } from "./policy-source.ts";
import { changeView } from "./policy-views.ts";
import { filterOf, selectionOptions } from "./selection.ts";
import { defineVerb } from "./verb.ts";

export const pushPolicy = defineVerb({
  description:
    "Replaces the policy of sandboxes, each as one step; connections that no longer pass are cut. POLICY is a name, name@version,\n" +
    "open or none; or give the rules by flags and no name. One that fails does not keep the others from changing: what failed\n" +
    "is reported, and the exit code is 125 then.",
  operands: "[policy] [ref...]",
  examples: [
    "dsec policy push web@3 -l job=train-7",
    "dsec policy push none web-1 web-2",
    "dsec policy push --allow pypi -l stage=build --dry-run",
  ],
  options: { ...ruleOptions, ...selectionOptions, dryRun: flag("--dry-run", "change nothing, only show") },
  formats: listingFormats,
  run: async ({ io, client }, options, operands) => {
    const [policy, refs] = givesRules(options)
      ? [await rulesOf(options, io), operands]
      : [operands[0] ?? "", operands.slice(1)];
    if (policy === "")
      throw new DSecError(
        "invalid_argument",
        "give a policy: a name, name@version, open, none, or rules by flags",
      );
    const to = audience(refs, options);
    const result = await (await client()).policies.push(policy, to, { dryRun: options.dryRun });
    if (result.items.length === 0) note(io, "no sandbox is meant by that");
    for (const warning of new Set(result.items.flatMap(({ warnings }) => warnings)))
      note(io, `warning: ${warning}`);
    return { type: "listing", listing: listingOf(changeView, result.items), failures: failuresOf(result) };
  },
});

function audience(refs: readonly string[], options: OptionValues<typeof selectionOptions>): PolicyAudience {
  const filter = filterOf(options);
  const filtered = Object.keys(filter).length > 0 || options.all;
  if (refs.length > 0 && filtered)
    throw new DSecError("invalid_argument", "give references or filters (-l, --state, --all…), not both");
  if (refs.length > 0) return { refs: [...refs] };
  if (filtered) return { filter };
  throw new DSecError("invalid_argument", "give a sandbox id or name, a filter (-l, --state…) or --all");
}

function failuresOf({ items, unreachable = [], refusals = [] }: PolicyPushResult): DSecError[] {
  return [
    ...items.flatMap(({ problem }) => (problem === undefined ? [] : [fromProblem(problem)])),
    ...refusals.map(({ node, problem }) => {
      const cause = fromProblem(problem);
      return new DSecError(cause.code, `node ${node} changed nothing`, { cause });
    }),
    ...unreachable.map(
      (node) => new DSecError("node_unreachable", `node ${node} gave no answer`, { ambiguous: true }),
    ),
  ];
}
