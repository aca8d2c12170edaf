import type { ErrorCode } from "../../protocol/errors.ts";
import { sample, seededRandom } from "./random.ts";
import { liveCount, loadOf, type NodeSnapshot, placedRecently, type PlacementRequest } from "./snapshot.ts";

/** Why a node was not chosen, or refused. */
export interface Refusal {
  readonly node: string;
  readonly code: ErrorCode;
  readonly reason: string;
}

/** Where a request should go; `refusals` tells of every node that could not take it. */
export interface Plan {
  /** Absent when no node can take it. */
  readonly node: string | undefined;
  readonly refusals: readonly Refusal[];
}

export interface PlanOptions {
  readonly seed: number;
  /** Nodes compared per request: the k of power-of-k choices. */
  readonly choices?: number;
}

const defaultChoices = 2;

/**
 * Places requests one after the other, each seeing what was placed before it: leaves out the nodes that cannot take it,
 * samples k of the others and takes the least loaded. A pure function of its arguments.
 */
export function plan(
  snapshot: readonly NodeSnapshot[],
  requests: readonly PlacementRequest[],
  { seed, choices = defaultChoices }: PlanOptions,
): Plan[] {
  const random = seededRandom(seed);
  const nodes = new Map(snapshot.map((node) => [node.name, node]));
  return requests.map((request) => {
    const { fitting, refusals } = filter([...nodes.values()], request);
    const chosen = sample(fitting, choices, random).reduce<NodeSnapshot | undefined>(
      (best, node) => (best === undefined || load(node) < load(best) ? node : best),
      undefined,
    );
    if (chosen !== undefined)
      nodes.set(chosen.name, { ...chosen, recent: [...chosen.recent, placedRecently(request)] });
    return { node: chosen?.name, refusals };
  });
}

function filter(
  nodes: readonly NodeSnapshot[],
  request: PlacementRequest,
): { fitting: NodeSnapshot[]; refusals: Refusal[] } {
  const fitting: NodeSnapshot[] = [];
  const refusals: Refusal[] = [];
  for (const node of nodes) {
    const refused = refusalOf(node, request);
    if (refused === undefined) fitting.push(node);
    else refusals.push({ node: node.name, ...refused });
  }
  return { fitting, refusals };
}

/** Only what is certain: the node itself has the last word, and says no under pressure. */
function refusalOf(node: NodeSnapshot, request: PlacementRequest): Omit<Refusal, "node"> | undefined {
  const { status, unreachable, recent } = node;
  if (unreachable !== undefined) return { code: "node_unreachable", reason: unreachable };
  if (status === undefined) return { code: "node_unreachable", reason: "has not answered yet" };
  if (status.cordoned) return { code: "draining", reason: "is cordoned" };
  const backend = backendRefusal(status.backends, request);
  if (backend !== undefined) return { code: "backend_unavailable", reason: backend };
  const count = liveCount(status, recent);
  if (count >= status.maxSandboxes)
    return { code: "admission_count", reason: `holds ${count} sandboxes, its limit` };
  return undefined;
}

function backendRefusal(
  reports: NonNullable<NodeSnapshot["status"]>["backends"],
  { backend, engine }: PlacementRequest,
): string | undefined {
  const asked = engine === undefined ? backend : `${backend} (${engine})`;
  const offered = reports.filter(
    (report) => report.backend === backend && (engine === undefined || report.engine === engine),
  );
  if (offered.length === 0) return `has no backend ${asked}`;
  if (offered.some(({ works }) => works)) return undefined;
  const finding = offered.flatMap(({ findings }) => findings).find(({ level }) => level === "error");
  return `its backend ${asked} does not work${finding === undefined ? "" : `: ${finding.message}`}`;
}

function load({ status, recent }: NodeSnapshot): number {
  return status === undefined ? Number.POSITIVE_INFINITY : loadOf(status, recent);
}
