import type { PolicyInForce } from "../protocol/policy-in-force.ts";

/** `web@3`, `open`, `none`; `rules` where a sandbox has some of its own. */
export function describePolicy({ origin, rules, default: otherwise }: PolicyInForce): string {
  if (origin === undefined) return rules === 0 && otherwise === "deny" ? "none" : "rules";
  return origin.version === undefined ? origin.name : `${origin.name}@${origin.version}`;
}
