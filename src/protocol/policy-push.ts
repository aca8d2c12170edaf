import { z } from "zod";
import { SandboxRef } from "./names.ts";
import { PolicyChoice } from "./network-policy.ts";
import { GivenPolicy, PolicyInForce } from "./policy-in-force.ts";
import { Problem } from "./problem.ts";
import { SandboxFilter } from "./sandbox.ts";

/** Sandboxes chosen by what they are, or named. */
export const PolicyAudience = z.union([
  z.strictObject({ filter: SandboxFilter }),
  z.strictObject({ refs: z.array(SandboxRef).min(1).max(10_000) }),
]);
export type PolicyAudience = z.infer<typeof PolicyAudience>;

/** Replaces the policy of sandboxes, each as one step. */
export const PolicyPush = z.strictObject({
  policy: PolicyChoice,
  to: PolicyAudience,
  /** Only says what would change. */
  dryRun: z.boolean().default(false),
});
export type PolicyPush = z.infer<typeof PolicyPush>;

/** {@link PolicyPush}, as a node gets it. */
export const PolicyApplication = z.strictObject({
  given: GivenPolicy,
  to: PolicyAudience,
  /** Of the policy it replaces; another is a `conflict`. */
  expectedRevision: z.int().min(1).optional(),
  dryRun: z.boolean().default(false),
});
export type PolicyApplication = z.infer<typeof PolicyApplication>;

/** `PUT` of one sandbox's policy. */
export const PolicyReplacement = z.strictObject({
  policy: PolicyChoice,
  expectedRevision: z.int().min(1).optional(),
});
export type PolicyReplacement = z.infer<typeof PolicyReplacement>;

/** What became of one sandbox. */
export const PolicyChange = z.object({
  /** As it was given, where no sandbox was found by it. */
  id: z.string(),
  name: z.string().optional(),
  outcome: z.enum(["changed", "unchanged", "failed"]),
  before: PolicyInForce.optional(),
  after: PolicyInForce.optional(),
  /** Rules by their text, with their action; at most 20, `addedCount` counts all. */
  added: z.array(z.string()),
  removed: z.array(z.string()),
  addedCount: z.int(),
  removedCount: z.int(),
  /** Connections ended because they no longer pass. */
  cut: z.int(),
  warnings: z.array(z.string()),
  /** Why it failed: the policy before is still in force. */
  problem: Problem.optional(),
});
export type PolicyChange = z.infer<typeof PolicyChange>;

export const PolicyPushResult = z.object({
  items: z.array(PolicyChange),
  /** Nodes that did not answer: what of it took effect there is not known. */
  unreachable: z.array(z.string()).optional(),
  /** Nodes that changed nothing, e.g. because they do not know a registry. */
  refusals: z.array(z.object({ node: z.string(), problem: Problem })).optional(),
});
export type PolicyPushResult = z.infer<typeof PolicyPushResult>;
