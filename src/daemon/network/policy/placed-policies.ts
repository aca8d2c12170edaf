import { DSecError } from "../../../protocol/errors.ts";
import {
  builtinPolicy,
  type NetworkPolicy,
  type PolicyChoice,
  policyWith,
} from "../../../protocol/network-policy.ts";
import { maxNetworkRules } from "../../../protocol/network-rule-limits.ts";
import { digestOfLongPolicy, policyDigest } from "../../../wire/policy-digest.ts";
import type { GivenPolicy, PolicyOrigin } from "../../../protocol/policy-in-force.ts";
import type { Placement } from "../../../protocol/sandbox.ts";
import type { PolicyBook } from "./policy-book.ts";

export interface PlacedPolicy {
  readonly policy: NetworkPolicy;
  readonly digest: string;
  readonly origin: PolicyOrigin | undefined;
}

type Known = Omit<PlacedPolicy, "origin">;

/** Long policies, and what they come to with sandboxes' own rules, that are kept in mind. */
const mostKept = 64;

/** The policies of sandboxes that are placed here. A long one is read once, and then known by its digest. */
export class PlacedPolicies {
  readonly #book: Pick<PolicyBook, "find">;
  readonly #long = new Map<string, NetworkPolicy>();
  readonly #joined = new Map<string, Known>();

  constructor(book: Pick<PolicyBook, "find">) {
    this.#book = book;
  }

  /** @throws DSecError `unknown_policy`; `invalid_argument` for a named policy that nobody looked up, or too many rules */
  of({ spec, networkPolicy, knownPolicy }: Placement): PlacedPolicy {
    const rules = spec.networkRules;
    if (knownPolicy !== undefined) {
      const { digest, origin } = knownPolicy;
      const key = `${digest} ${JSON.stringify(rules)}`;
      const known = this.#joined.get(key) ?? join(this.#find(digest), rules, digest);
      keep(this.#joined, key, known);
      return { ...known, origin };
    }
    const given = networkPolicy ?? givenBy(spec.networkPolicy);
    const digest = given && digestOfLongPolicy(given.policy);
    if (given !== undefined && digest !== undefined) keep(this.#long, digest, given.policy);
    return { ...join(given?.policy, rules, digest), origin: given?.origin };
  }

  #find(digest: string): NetworkPolicy {
    const policy = this.#long.get(digest) ?? this.#book.find(digest);
    if (policy !== undefined) return policy;
    throw new DSecError(
      "unknown_policy",
      `this node does not have the network policy ${digest}: send its rules`,
    );
  }
}

/** @param digest of the base, where it is known */
function join(
  base: NetworkPolicy | undefined,
  rules: Placement["spec"]["networkRules"],
  digest: string | undefined,
): Known {
  if (base !== undefined && digest !== undefined && Object.keys(rules).length === 0)
    return { policy: base, digest };
  const policy = policyWith(base, rules);
  if (policy.rules.length > maxNetworkRules)
    throw new DSecError(
      "invalid_argument",
      `networkRules: at most ${maxNetworkRules} rules together with those of networkPolicy`,
    );
  return { policy, digest: policyDigest(policy) };
}

/** The one used last is the last to be forgotten. */
function keep<T>(kept: Map<string, T>, key: string, value: T): void {
  kept.delete(key);
  kept.set(key, value);
  const [oldest] = kept.keys();
  if (kept.size > mostKept && oldest !== undefined) kept.delete(oldest);
}

/** @throws DSecError `invalid_argument` for a named policy: only the coordinator knows those */
function givenBy(choice: PolicyChoice | undefined): GivenPolicy | undefined {
  if (choice === undefined) return undefined;
  if (typeof choice !== "string") return { policy: choice };
  const policy = builtinPolicy(choice);
  if (policy !== undefined) return { policy, origin: { name: choice } };
  throw new DSecError(
    "invalid_argument",
    `networkPolicy: a node knows no policy ${choice}; the coordinator looks names up`,
  );
}
