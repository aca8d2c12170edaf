import type { NamedPolicySummary } from "../protocol/named-policy.ts";
import type { DecidedBy, NetworkDecision, NetworkVerdict } from "../protocol/network-decision.ts";
import type { PolicyChange } from "../protocol/policy-push.ts";
import { describePolicy } from "./describe-policy.ts";
import { formatDuration } from "./duration.ts";
import type { View } from "./outcome.ts";
import type { Tone } from "./theme.ts";

export const policyView: View<NamedPolicySummary> = {
  columns: [
    { title: "NAME", value: ({ name }) => name },
    { title: "VERSION", value: ({ version }) => String(version) },
    { title: "DEFAULT", value: (row) => row.default },
    { title: "RULES", value: ({ rules }) => String(rules) },
    { title: "AGE", value: ({ createdAt }, now) => formatDuration(now - createdAt) },
  ],
  name: ({ name, version }) => `${name}@${version}`,
};

const outcomeTones: Readonly<Record<PolicyChange["outcome"], Tone>> = {
  changed: "good",
  unchanged: "muted",
  failed: "bad",
};

export const changeView: View<PolicyChange> = {
  columns: [
    { title: "ID", value: ({ id }) => id },
    { title: "NAME", value: ({ name }) => name ?? "" },
    { title: "OUTCOME", value: ({ outcome }) => outcome, tone: ({ outcome }) => outcomeTones[outcome] },
    { title: "BEFORE", value: ({ before }) => (before === undefined ? "" : describePolicy(before)) },
    { title: "AFTER", value: ({ after }) => (after === undefined ? "" : describePolicy(after)) },
    { title: "ADDED", value: ({ addedCount }) => String(addedCount) },
    { title: "REMOVED", value: ({ removedCount }) => String(removedCount) },
    { title: "CUT", value: ({ cut }) => String(cut) },
    {
      title: "RULES",
      wide: true,
      value: ({ added, removed }) =>
        [...added.map((rule) => `+${rule}`), ...removed.map((rule) => `-${rule}`)].join(", "),
    },
    { title: "MESSAGE", wide: true, value: ({ problem }) => problem?.title ?? "" },
  ],
  name: ({ id }) => id,
};

/** A rule that only one of two policies has. */
export interface RuleDifference {
  readonly change: "added" | "removed";
  readonly rule: string;
}

export const differenceView: View<RuleDifference> = {
  columns: [
    {
      title: "CHANGE",
      value: ({ change }) => change,
      tone: ({ change }) => (change === "added" ? "good" : "bad"),
    },
    { title: "RULE", value: ({ rule }) => rule },
  ],
  name: ({ rule }) => rule,
};

/** What was found of a destination: of its name, or of one of its addresses. */
export interface Finding {
  readonly target: string;
  readonly verdict: NetworkVerdict | undefined;
  readonly message: string | undefined;
}

export const findingView: View<Finding> = {
  columns: [
    { title: "TARGET", value: ({ target }) => target },
    {
      title: "VERDICT",
      value: ({ verdict }) => (verdict === undefined ? "" : verdictOf(verdict)),
      tone: ({ verdict }) => (verdict?.allowed === true ? "good" : "bad"),
    },
    {
      title: "BY",
      value: ({ verdict, message }) => (verdict === undefined ? (message ?? "") : describeBy(verdict.by)),
    },
  ],
  name: ({ target }) => target,
};

export const decisionView: View<NetworkDecision> = {
  columns: [
    { title: "TIME", width: 24, value: ({ time }) => new Date(time).toISOString() },
    {
      title: "VERDICT",
      width: 7,
      value: verdictOf,
      tone: ({ allowed }) => (allowed ? "good" : "bad"),
    },
    { title: "STAGE", width: 7, value: ({ stage }) => stage },
    { title: "TARGET", width: 40, value: describeTarget },
    { title: "BY", width: 24, value: ({ by }) => describeBy(by) },
    { title: "COUNT", value: ({ count }) => String(count) },
    { title: "NAME", wide: true, value: ({ name }) => name ?? "" },
  ],
  name: ({ sequence }) => String(sequence),
};

function verdictOf({ allowed }: { readonly allowed: boolean }): string {
  return allowed ? "allowed" : "refused";
}

function describeBy(by: DecidedBy): string {
  switch (by.kind) {
    case "rule":
      return by.text;
    case "default":
      return "default";
    case "protected":
      return `${by.range} address`;
    case "unchecked":
      return by.reason.replaceAll("_", " ");
    case "limit":
      return `too many ${by.limit}`;
  }
}

function describeTarget({ name, address, port, protocol }: NetworkDecision): string {
  const host = address ?? name ?? "";
  const shown = host.includes(":") ? `[${host}]` : host;
  return `${shown}${port === undefined ? "" : `:${port}`}/${protocol}`;
}
