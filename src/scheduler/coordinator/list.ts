import { DSecError } from "../../protocol/errors.ts";
import type { ReclaimRequest, ReclaimResult, SandboxList } from "../../protocol/sandbox.ts";
import type { ListQuery } from "../../wire/server/contracts.ts";
import { askAll } from "./fan-out.ts";
import type { FleetNode } from "./fleet-node.ts";
import type { Registry } from "./registry.ts";

/** Milliseconds a node has for a page. */
const pageMs = 15_000;
/** Nodes asked at once, in order; what exceeds the limit is asked again by the next page. */
const batch = 16;
const reclaimMs = 120_000;

/** Node by node, in the order of their names. A cursor is `node` or `node:cursor of the node`: where the next page begins. */
export async function listSandboxes(
  registry: Registry,
  { cursor, limit, ...filter }: ListQuery,
  signal: AbortSignal,
): Promise<SandboxList> {
  const start = parseCursor(cursor);
  const nodes = registry.all().filter(({ name }) => name >= start.node);
  const items: SandboxList["items"] = [];
  const unreachable: string[] = [];
  for (let at = 0; at < nodes.length; at += batch) {
    const asked = nodes.slice(at, at + batch);
    const {
      answers,
      unreachable: silent,
      refusals,
    } = await askAll(asked, async (node) => {
      const resumed = node.name === start.node ? start.cursor : undefined;
      const query = { ...filter, limit: limit - items.length, cursor: resumed };
      return node.client.json<SandboxList>("listSandboxes", {
        query,
        timeoutMs: node.patience(pageMs),
        signal,
      });
    });
    // a filter that one node calls malformed is malformed
    const [refused] = refusals;
    if (refused !== undefined) throw refused.error;
    unreachable.push(...silent);
    const pages = new Map(answers.map(({ node, value }) => [node.name, value]));
    for (const [index, node] of asked.entries()) {
      const page = pages.get(node.name);
      if (page === undefined) continue;
      const room = limit - items.length;
      if (room === 0 || page.items.length > room) {
        // it was asked while more was wanted: the next page asks it again from where it began
        return result(
          items,
          cursorOf(node, node.name === start.node ? start.cursor : undefined),
          unreachable,
        );
      }
      items.push(...page.items);
      if (page.nextCursor !== undefined) return result(items, cursorOf(node, page.nextCursor), unreachable);
      const next = asked[index + 1] ?? nodes[at + batch];
      if (items.length === limit && next !== undefined)
        return result(items, cursorOf(next, undefined), unreachable);
    }
  }
  return result(items, undefined, unreachable);
}

/** On every node at once. A node that does not answer is named; if none does, it fails. */
export async function reclaim(
  registry: Registry,
  request: ReclaimRequest,
  signal: AbortSignal,
): Promise<ReclaimResult> {
  const options = { body: request, timeoutMs: reclaimMs, signal };
  const { answers, unreachable, refusals } = await askAll(registry.all(), async (node) =>
    node.client.json<ReclaimResult>("reclaim", options),
  );
  const [refused] = refusals;
  if (answers.length === 0 && refused !== undefined) throw refused.error;
  if (answers.length === 0 && unreachable.length > 0)
    throw new DSecError("node_unreachable", `no node answers: ${unreachable.join(", ")}`);
  const items = answers.flatMap(({ value }) => value.items);
  const sum = (key: "memoryBytes" | "diskBytes"): number =>
    answers.reduce((total, { value }) => total + value[key], 0);
  return {
    items,
    memoryBytes: sum("memoryBytes"),
    diskBytes: sum("diskBytes"),
    ...(unreachable.length === 0 ? {} : { unreachable: [...unreachable] }),
  };
}

function result(
  items: SandboxList["items"],
  nextCursor: string | undefined,
  unreachable: readonly string[],
): SandboxList {
  return {
    items,
    ...(nextCursor === undefined ? {} : { nextCursor }),
    ...(unreachable.length === 0 ? {} : { unreachable: [...new Set(unreachable)] }),
  };
}

function cursorOf(node: FleetNode, cursor: string | undefined): string {
  return cursor === undefined ? node.name : `${node.name}:${cursor}`;
}

function parseCursor(cursor: string | undefined): { node: string; cursor: string | undefined } {
  if (cursor === undefined) return { node: "", cursor: undefined };
  const [, node, rest] = /^([a-z0-9-]{1,63})(?::(.+))?$/s.exec(cursor) ?? [];
  if (node === undefined) throw new DSecError("invalid_argument", "cursor: is not one that a list gave");
  return { node, cursor: rest };
}
