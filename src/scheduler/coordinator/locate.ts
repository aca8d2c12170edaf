import { DSecError } from "../../protocol/errors.ts";
import { nodeOfSandboxId } from "../../protocol/names.ts";
import type { Sandbox } from "../../protocol/sandbox.ts";
import { askAll } from "./fan-out.ts";
import type { FleetNode } from "./fleet-node.ts";
import type { Registry } from "./registry.ts";

/** Where a reference leads: a node, and what to call the sandbox there. */
export interface Location {
  readonly node: FleetNode;
  readonly ref: string;
}

/** Milliseconds a node has to say whether it knows a name. */
const lookupMs = 5000;
/** Candidates listed for an ambiguous reference. */
const maxCandidates = 20;

/**
 * The node of an id, without asking anybody: the id names it. A prefix or a name goes to the only node, or every node is asked.
 * @throws DSecError `not_found`, `ambiguous_reference` with details.candidates, `node_unreachable` where it may be on a node that
 *   does not answer, `no_node`
 */
export function locate(registry: Registry, ref: string, signal?: AbortSignal): Location | Promise<Location> {
  const named = registry.get(nodeOfSandboxId(ref) ?? "");
  if (named !== undefined) return { node: named, ref };
  const nodes = registry.all();
  const [first] = nodes;
  if (first === undefined) throw new DSecError("no_node", "the fleet has no nodes");
  return nodes.length === 1 ? { node: first, ref } : search(nodes, ref, signal);
}

async function search(
  nodes: readonly FleetNode[],
  ref: string,
  signal: AbortSignal | undefined,
): Promise<Location> {
  const { answers, unreachable, refusals } = await askAll(nodes, async (node) =>
    node.client.json<Sandbox>("getSandbox", {
      params: { ref },
      timeoutMs: node.patience(lookupMs),
      signal,
    }),
  );
  const exact = answers.filter(({ value }) => value.id === ref || value.name === ref);
  const found = exact.length > 0 ? exact : answers;
  const ambiguous = refusals.filter(({ error }) => error.code === "ambiguous_reference");
  const candidates = [
    ...found.map(({ value }) => value.id),
    ...(exact.length > 0 ? [] : ambiguous.flatMap(({ error }) => candidatesOf(error))),
  ];
  const [only] = found;
  if (only !== undefined && candidates.length === 1) return { node: only.node, ref: only.value.id };
  if (candidates.length > 1)
    throw new DSecError(
      "ambiguous_reference",
      `${ref} could be ${candidates.length} sandboxes: ${candidates.slice(0, 3).join(", ")}${candidates.length > 3 ? ", …" : ""}`,
      { details: { candidates: candidates.slice(0, maxCandidates), count: candidates.length } },
    );
  const other = refusals.find(({ error }) => error.code !== "not_found");
  if (other !== undefined) throw other.error;
  if (unreachable.length > 0)
    throw new DSecError(
      "node_unreachable",
      `no node that answers knows ${ref}, and ${unreachable.join(", ")} gave no answer`,
      { details: { unreachable } },
    );
  throw new DSecError("not_found", `no sandbox has the id, name or id prefix ${ref}`);
}

function candidatesOf({ details }: DSecError): string[] {
  const candidates = details?.["candidates"];
  return Array.isArray(candidates) ? candidates.map(String) : [];
}
