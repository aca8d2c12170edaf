import type { WireServer } from "../../wire/server/server.ts";
import { compileFilter } from "../views/filter.ts";
import type { Metrics } from "../metrics.ts";
import type { Provisioner } from "../provisioner.ts";
import type { NodeStatusReader } from "../views/node-status.ts";
import { type WatchParts, watchSandboxes } from "../views/watch.ts";

export interface NodeRouteParts extends WatchParts {
  readonly status: NodeStatusReader;
  readonly metrics: Metrics;
  /** Undefined where the node has no backend that needs it. */
  readonly provisioner: Pick<Provisioner, "layers" | "releaseLayers"> | undefined;
  readonly name: string;
}

/** The routes about the node as a whole. */
export function serveNode(server: WireServer, parts: NodeRouteParts): void {
  const { status, metrics, provisioner, name } = parts;
  server.handle("nodeStatus", async () => status.read());
  server.handle("nodeDoctor", async () => {
    await status.probe();
    return status.read();
  });
  server.handle("listLayers", async ({ query }) => {
    const layers = (await provisioner?.layers(query)) ?? [];
    return { items: layers.map((layer) => ({ node: name, ...layer })) };
  });
  server.handle("releaseLayers", async ({ body }) => {
    const layers = (await provisioner?.releaseLayers(body.digests)) ?? [];
    return { items: layers.map((layer) => ({ node: name, ...layer })) };
  });
  server.handle("metrics", async () => metrics.render());
  server.handle("watch", async ({ query, signal }) => {
    const { cursor, ...filter } = query;
    return watchSandboxes(parts, compileFilter(filter), cursor, signal);
  });
}
