import { DSecError } from "../../protocol/errors.ts";
import type { GivenPolicy } from "../../protocol/policy-in-force.ts";
import type {
  PolicyApplication,
  PolicyChange,
  PolicyPush,
  PolicyPushResult,
  PolicyReplacement,
} from "../../protocol/policy-push.ts";
import { fromProblem, toProblem } from "../../protocol/problem-codec.ts";
import { askAll, type FanOut } from "./fan-out.ts";
import type { FleetNode } from "./fleet-node.ts";
import { locate } from "./locate.ts";
import type { NamedPolicies } from "./named-policies.ts";
import { givenPolicy } from "./policy-choice.ts";
import type { Registry } from "./registry.ts";

export interface PolicyPushParts {
  readonly registry: Registry;
  readonly policies: NamedPolicies;
}

/** Milliseconds a node has to change all of its sandboxes. */
const applyMs = 120_000;
/** References looked up at a time: a name costs a question to every node. */
const lookups = 16;

/**
 * Replaces the policy of sandboxes all over the fleet. What fails for one sandbox or node stands in the answer.
 * @throws DSecError `not_found` for the policy, `node_unreachable` when no node answers, what every node refused
 */
export async function pushPolicy(
  { registry, policies }: PolicyPushParts,
  { policy, to, dryRun }: PolicyPush,
  signal: AbortSignal,
): Promise<PolicyPushResult> {
  const given = givenPolicy(policies, policy);
  if ("filter" in to)
    return resultOf(await applyTo(registry.all(), () => ({ given, to, dryRun }), signal), []);
  const { refs, failed } = await byNode(registry, to.refs, signal);
  const asked = await applyTo(
    [...refs.keys()],
    (node) => ({ given, to: { refs: refs.get(node) ?? [] }, dryRun }),
    signal,
  );
  return resultOf(asked, failed);
}

/** As {@link pushPolicy}, for one sandbox. @throws DSecError why it was not changed */
export async function replacePolicy(
  { registry, policies }: PolicyPushParts,
  given: string,
  { policy, expectedRevision }: PolicyReplacement,
  signal: AbortSignal,
): Promise<PolicyChange> {
  const { node, ref } = await locate(registry, given, signal);
  const body: PolicyApplication = {
    given: givenPolicy(policies, policy),
    to: { refs: [ref] },
    dryRun: false,
    ...(expectedRevision === undefined ? {} : { expectedRevision }),
  };
  const { items } = await apply(node, body, signal);
  const [change] = items;
  if (change === undefined)
    throw new DSecError("protocol_error", `node ${node.name} left the change unanswered`);
  if (change.problem !== undefined) throw fromProblem(change.problem);
  return change;
}

async function applyTo(
  nodes: readonly FleetNode[],
  bodyFor: (node: FleetNode) => { given: GivenPolicy; to: PolicyApplication["to"]; dryRun: boolean },
  signal: AbortSignal,
): Promise<FanOut<PolicyPushResult>> {
  return askAll(nodes, async (node) => apply(node, bodyFor(node), signal));
}

async function apply(
  node: FleetNode,
  body: PolicyApplication,
  signal: AbortSignal,
): Promise<PolicyPushResult> {
  // applied twice it is the same; only what the answer says of the second time differs
  return node.client.json<PolicyPushResult>("applyPolicy", { body, timeoutMs: applyMs, signal });
}

async function byNode(
  registry: Registry,
  given: readonly string[],
  signal: AbortSignal,
): Promise<{ refs: Map<FleetNode, string[]>; failed: PolicyChange[] }> {
  const refs = new Map<FleetNode, string[]>();
  const failed: PolicyChange[] = [];
  const waiting = [...new Set(given)];
  const worker = async (): Promise<void> => {
    for (let ref = waiting.shift(); ref !== undefined; ref = waiting.shift()) {
      try {
        const location = await locate(registry, ref, signal);
        const found = refs.get(location.node);
        if (found === undefined) refs.set(location.node, [location.ref]);
        else found.push(location.ref);
      } catch (error) {
        if (error instanceof DSecError && error.code === "cancelled") throw error;
        failed.push(failedChange(ref, error));
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(lookups, waiting.length) }, worker));
  return { refs, failed };
}

function resultOf(
  { answers, unreachable, refusals }: FanOut<PolicyPushResult>,
  failed: readonly PolicyChange[],
): PolicyPushResult {
  const items = [...answers.flatMap(({ value }) => value.items), ...failed];
  const [refused] = refusals;
  if (answers.length === 0 && failed.length === 0 && refused !== undefined) throw refused.error;
  if (items.length === 0 && answers.length === 0 && unreachable.length > 0)
    throw new DSecError("node_unreachable", `no node answers: ${unreachable.join(", ")}`, {
      ambiguous: true,
    });
  return {
    items: items.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
    ...(unreachable.length === 0 ? {} : { unreachable: [...unreachable] }),
    ...(refusals.length === 0
      ? {}
      : { refusals: refusals.map(({ node, error }) => ({ node: node.name, problem: toProblem(error) })) }),
  };
}

function failedChange(id: string, error: unknown): PolicyChange {
  return {
    id,
    outcome: "failed",
    added: [],
    removed: [],
    addedCount: 0,
    removedCount: 0,
    cut: 0,
    warnings: [],
    problem: toProblem(error),
  };
}
