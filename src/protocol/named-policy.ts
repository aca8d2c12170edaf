import { z } from "zod";
import { NetworkPolicy, PolicyName } from "./network-policy.ts";

/** One version of a named policy: it never changes, and its number is never given again. */
export const NamedPolicy = z.object({
  name: PolicyName,
  version: z.int(),
  /** Of its name. */
  newestVersion: z.int(),
  /** Milliseconds since the epoch. */
  createdAt: z.number(),
  policy: NetworkPolicy,
});
export type NamedPolicy = z.infer<typeof NamedPolicy>;

/** A version without its rules. */
export const NamedPolicySummary = NamedPolicy.omit({ policy: true }).extend({
  default: z.enum(["deny", "allow"]),
  /** How many there are. */
  rules: z.int(),
});
export type NamedPolicySummary = z.infer<typeof NamedPolicySummary>;

export const NamedPolicyList = z.object({ items: z.array(NamedPolicySummary) });
export type NamedPolicyList = z.infer<typeof NamedPolicyList>;

export const PolicyEdition = z.strictObject({
  policy: NetworkPolicy,
  /** The newest version it follows on, 0: there must be none of that name yet. Absent: whichever there is, but there must be one. */
  expectedVersion: z.int().min(0).optional(),
});
export type PolicyEdition = z.infer<typeof PolicyEdition>;
