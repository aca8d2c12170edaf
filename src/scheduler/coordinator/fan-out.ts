import { DSecError } from "../../protocol/errors.ts";
import type { FleetNode } from "./fleet-node.ts";

/** What became of one question to several nodes. */
export interface FanOut<T> {
  readonly answers: readonly { readonly node: FleetNode; readonly value: T }[];
  /** Names of the nodes that gave no answer. */
  readonly unreachable: readonly string[];
  /** What nodes that did answer refused, by node. */
  readonly refusals: readonly { readonly node: FleetNode; readonly error: DSecError }[];
}

/** Nodes asked at the same time. */
const width = 32;

/** Asks every node; one that cannot be reached is named instead of failing the question. */
export async function askAll<T>(
  nodes: readonly FleetNode[],
  ask: (node: FleetNode) => Promise<T>,
): Promise<FanOut<T>> {
  const answers: { node: FleetNode; value: T }[] = [];
  const unreachable: string[] = [];
  const refusals: { node: FleetNode; error: DSecError }[] = [];
  const waiting = [...nodes];
  const worker = async (): Promise<void> => {
    for (let node = waiting.shift(); node !== undefined; node = waiting.shift()) {
      try {
        answers.push({ node, value: await ask(node) });
      } catch (error) {
        if (!(error instanceof DSecError) || error.code === "cancelled") throw error;
        if (isUnreachable(error)) unreachable.push(node.name);
        else refusals.push({ node, error });
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(width, nodes.length) }, worker));
  return { answers, unreachable: unreachable.sort(), refusals };
}

/** The node gave no answer, as opposed to one that says no. */
export function isUnreachable({ code }: DSecError): boolean {
  return code === "node_unreachable" || code === "connection_lost" || code === "permission_denied";
}
