import { setTimeout as delay } from "node:timers/promises";
import { DSecError } from "../../protocol/errors.ts";
import type { SandboxFilter, WatchEvent } from "../../protocol/sandbox.ts";
import { isUnreachable } from "./fan-out.ts";
import type { FleetNode } from "./fleet-node.ts";

/** What a watch of one node reports. `connected` begins each connection; `refused` is final. */
export type NodeReport =
  | { readonly type: "event"; readonly node: string; readonly event: WatchEvent }
  | { readonly type: "connected"; readonly node: string }
  | { readonly type: "down"; readonly node: string }
  | { readonly type: "refused"; readonly node: string; readonly error: DSecError };

/** Nodes send a ping at least every 15 s. */
const idleTimeoutMs = 45_000;
const firstPauseMs = 250;
const longestPauseMs = 5000;

/** Watches one node until `signal` aborts, over lost connections: each new one resumes where the last ended. */
export async function followNode(
  node: FleetNode,
  filter: SandboxFilter,
  start: string | undefined,
  report: (report: NodeReport) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const { name } = node;
  let cursor = start;
  for (let failures = 0; !signal.aborted; failures += 1) {
    try {
      const query = { ...filter, cursor };
      const events = await node.client.lines<WatchEvent>("watch", { query, signal, idleTimeoutMs });
      await report({ type: "connected", node: name });
      for await (const event of events) {
        failures = 0;
        await report({ type: "event", node: name, event });
        if ("cursor" in event) cursor = event.cursor;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof DSecError)) throw error;
      if (!isUnreachable(error)) {
        await report({ type: "refused", node: name, error });
        return;
      }
      await report({ type: "down", node: name });
    }
    const ceiling = Math.min(firstPauseMs * 2 ** failures, longestPauseMs);
    await delay(Math.random() * ceiling, undefined, { signal }).catch(() => undefined);
  }
}
