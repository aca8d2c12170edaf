import { z } from "zod";
import { NetworkPolicy, PolicyName } from "./network-policy.ts";

/** The named policy that rules were taken from; built-in ones have no versions. */
export const PolicyOrigin = z.strictObject({ name: PolicyName, version: z.int().min(1).optional() });
export type PolicyOrigin = z.infer<typeof PolicyOrigin>;

/** A policy on its way to a node: whoever sends it has looked up what a name stands for. */
export const GivenPolicy = z.strictObject({
  policy: NetworkPolicy,
  origin: PolicyOrigin.optional(),
});
export type GivenPolicy = z.infer<typeof GivenPolicy>;

/** A policy that the node has been given before, and so need not be sent again. */
export const KnownPolicy = z.strictObject({
  digest: z.string().regex(/^sha256:[0-9a-f]{64}$/, "must be sha256: and 64 hexadecimal digits"),
  origin: PolicyOrigin.optional(),
});
export type KnownPolicy = z.infer<typeof KnownPolicy>;

/** What policy a sandbox has, without its rules. */
export const PolicyInForce = z.object({
  /** Absent: it has rules of its own. */
  origin: PolicyOrigin.optional(),
  /** Counts the policies this sandbox has had; give as `expectedRevision`. */
  revision: z.int(),
  /** Of default and rules, `sha256:…`: the same rules have the same. */
  digest: z.string(),
  default: z.enum(["deny", "allow"]),
  /** How many there are. */
  rules: z.int(),
  /** Milliseconds since the epoch. */
  changedAt: z.number(),
});
export type PolicyInForce = z.infer<typeof PolicyInForce>;

export const SandboxPolicy = PolicyInForce.extend({
  sandbox: z.string(),
  policy: NetworkPolicy,
  /** What its author may not expect, in sentences. */
  warnings: z.array(z.string()),
});
export type SandboxPolicy = z.infer<typeof SandboxPolicy>;
