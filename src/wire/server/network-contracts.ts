import { z } from "zod";
import { AuditEvent } from "../../protocol/audit-event.ts";
import { SandboxRef } from "../../protocol/names.ts";
import { NamedPolicy, NamedPolicyList, PolicyEdition } from "../../protocol/named-policy.ts";
import { NetworkDecision, NetworkProbe, NetworkProbeResult } from "../../protocol/network-decision.ts";
import { PolicyName } from "../../protocol/network-policy.ts";
import { SandboxPolicy } from "../../protocol/policy-in-force.ts";
import {
  PolicyApplication,
  PolicyChange,
  PolicyPush,
  PolicyPushResult,
  PolicyReplacement,
} from "../../protocol/policy-push.ts";

const ref = z.strictObject({ ref: SandboxRef });
const name = z.strictObject({ name: PolicyName });
const followed = z.strictObject({
  /** Milliseconds since the epoch. */
  since: z.number().min(0).optional(),
  follow: z.boolean().default(false),
});
const version = z.strictObject({ version: z.int().min(1).optional() });

/** Contracts of network policies. */
export const networkContracts = {
  getSandboxPolicy: {
    summary: "The network policy of a sandbox",
    params: ref,
    status: 200,
    answer: "json",
    schema: SandboxPolicy,
  },
  setSandboxPolicy: {
    summary: "Replace the network policy of a sandbox",
    params: ref,
    body: PolicyReplacement,
    status: 200,
    answer: "json",
    schema: PolicyChange,
  },
  testNetwork: {
    summary: "Whether a sandbox may connect to something, and by which rule",
    params: ref,
    body: NetworkProbe,
    status: 200,
    answer: "json",
    schema: NetworkProbeResult,
  },
  networkLog: {
    summary: "What was decided about a sandbox's connections and queries",
    params: ref,
    query: followed,
    status: 200,
    answer: "ndjson",
    schema: NetworkDecision,
  },
  audit: {
    summary: "What processes in a sandbox did",
    params: ref,
    query: followed,
    status: 200,
    answer: "ndjson",
    schema: AuditEvent,
  },
  applyPolicy: {
    summary: "Replace the network policy of sandboxes of this node",
    body: PolicyApplication,
    status: 200,
    answer: "json",
    schema: PolicyPushResult,
  },
  listPolicies: {
    summary: "Named network policies",
    status: 200,
    answer: "json",
    schema: NamedPolicyList,
  },
  getPolicy: {
    summary: "A named network policy",
    params: name,
    query: version,
    status: 200,
    answer: "json",
    schema: NamedPolicy,
  },
  listPolicyVersions: {
    summary: "Versions of a named network policy",
    params: name,
    status: 200,
    answer: "json",
    schema: NamedPolicyList,
  },
  setPolicy: {
    summary: "Make a new version of a named network policy",
    params: name,
    body: PolicyEdition,
    status: 200,
    answer: "json",
    schema: NamedPolicy,
  },
  removePolicy: {
    summary: "Forget a named network policy, or one version of it",
    params: name,
    query: version,
    status: 204,
    answer: "empty",
  },
  pushPolicy: {
    summary: "Replace the network policy of many sandboxes",
    body: PolicyPush,
    status: 200,
    answer: "json",
    schema: PolicyPushResult,
  },
} as const;
