import { DSecError } from "../../protocol/errors.ts";
import { builtinPolicy, type NetworkPolicy, type PolicyChoice } from "../../protocol/network-policy.ts";
import type { GivenPolicy } from "../../protocol/policy-in-force.ts";
import type { FleetNode } from "./fleet-node.ts";
import type { NamedPolicies } from "./named-policies.ts";

/**
 * What a choice stands for now.
 * @throws DSecError `not_found` for a policy or version that is not there
 */
export function givenPolicy(policies: NamedPolicies, choice: PolicyChoice): GivenPolicy {
  if (typeof choice !== "string") return { policy: choice };
  const builtin = builtinPolicy(choice);
  if (builtin !== undefined) return { policy: builtin, origin: { name: choice } };
  const [name = "", given] = choice.split("@");
  const { version, policy } = policies.get(name, given === undefined ? undefined : Number(given));
  return { policy, origin: { name, version } };
}

/**
 * Refuses a name that no node knows, as long as any has said what it knows: a policy with a typo in it is better found when it is
 * made than when it is needed.
 * @throws DSecError `unknown_registry` with details.registries
 */
export function checkRegistries({ rules }: NetworkPolicy, nodes: readonly FleetNode[]): void {
  const told = nodes.flatMap((node) => node.describe().status?.registries ?? []);
  if (told.length === 0) return;
  const known = new Set(told.map(({ name }) => name));
  const unknown = new Set<string>();
  for (const { target } of rules)
    if (target.kind === "registry" && !known.has(target.name)) unknown.add(target.name);
  if (unknown.size === 0) return;
  const names = [...unknown].slice(0, 10);
  throw new DSecError(
    "unknown_registry",
    `no node knows a registry ${names.join(", ")}: they know ${[...known].toSorted().join(", ")}. A domain of one label is written with a final dot`,
    { details: { registries: names } },
  );
}
