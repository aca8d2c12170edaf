import { emptyPolicy, policyInForce } from "../../src/daemon/network/policy/policy-digest.ts";
import { policyDigest } from "../../src/wire/policy-digest.ts";
import type { PolicyInForce } from "../../src/protocol/policy-in-force.ts";

/** In force since `now`. */
export function nothingAllowed(now: number): PolicyInForce {
  return policyInForce(emptyPolicy, policyDigest(emptyPolicy), undefined, 1, now);
}
