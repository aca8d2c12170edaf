import type { NodeStatus } from "../../protocol/node.ts";
import type { SandboxSpec } from "../../protocol/sandbox.ts";

/** What placement knows of a node. */
export interface NodeSnapshot {
  readonly name: string;
  /** Absent: it has not answered yet, or no longer answers. */
  readonly status: NodeStatus | undefined;
  /** Why it cannot be asked now; absent when it answers. */
  readonly unreachable: string | undefined;
  /** Sandboxes placed there that its status does not count yet. */
  readonly recent: readonly PlacedRecently[];
}

export interface PlacedRecently {
  readonly memoryBytes: number;
  readonly cpus: number;
}

/** What placement needs to know of a sandbox to be made. */
export type PlacementRequest = Pick<SandboxSpec, "backend" | "engine" | "memoryMb" | "cpus">;

const mib = 1_048_576;

/** What `request` will add to a node once it is placed. */
export function placedRecently(request: PlacementRequest): PlacedRecently {
  return { memoryBytes: request.memoryMb * mib, cpus: request.cpus };
}

/** Live sandboxes, those on their way included. */
export function liveCount(status: NodeStatus, recent: readonly PlacedRecently[]): number {
  const { stopped: _s, failed: _f, lost: _l, ...live } = status.counts;
  return Object.values(live).reduce((sum, count) => sum + count, recent.length);
}

/**
 * How full a node is: the fullest of its dimensions, 0 for empty. Requests may exceed the machine (overcommit), so what is
 * asked for only decides between nodes that are otherwise alike.
 */
export function loadOf(status: NodeStatus, recent: readonly PlacedRecently[]): number {
  const asked = recent.reduce((sum, { memoryBytes }) => sum + memoryBytes, status.asked.memoryBytes);
  const cores = recent.reduce((sum, { cpus }) => sum + cpus, status.asked.cpus);
  const used = Math.max(
    liveCount(status, recent) / Math.max(1, status.maxSandboxes),
    1 - status.memoryAvailableBytes / Math.max(1, status.memoryBytes),
    (status.pressure?.memory ?? 0) / 100,
    (status.pressure?.cpu ?? 0) / 100,
  );
  const wanted = asked / Math.max(1, status.memoryBytes) + cores / Math.max(1, status.cpus);
  return used + wanted / 100;
}
