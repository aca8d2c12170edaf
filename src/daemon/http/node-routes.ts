import type { WireServer } from "../../wire/server/server.ts";
import { compileFilter } from "../views/filter.ts";
import type { Metrics } from "../metrics.ts";
import type { NodeStatusReader } from "../views/node-status.ts";
import { type WatchParts, watchSandboxes } from "../views/watch.ts";

export interface NodeRouteParts extends WatchParts {
  readonly status: NodeStatusReader;
  readonly metrics: Metrics;
}

/** The routes about the node as a whole. */
export function serveNode(server: WireServer, parts: NodeRouteParts): void {
  const { status, metrics } = parts;
  server.handle("nodeStatus", async () => status.read());
  server.handle("nodeDoctor", async () => {
    await status.probe();
    return status.read();
  });
  server.handle("metrics", async () => metrics.render());
  server.handle("watch", async ({ query, signal }) => {
    const { cursor, ...filter } = query;
    return watchSandboxes(parts, compileFilter(filter), cursor, signal);
  });
}
