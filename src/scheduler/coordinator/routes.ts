import type { IncomingHttpHeaders } from "node:http";
import { DSecError } from "../../protocol/errors.ts";
import type { PortToken, PortTokenRequest } from "../../protocol/port.ts";
import { idempotencyHeader, type RouteName, routePath } from "../../protocol/routes.ts";
import type { Sandbox } from "../../protocol/sandbox.ts";
import type { WireServer } from "../../wire/server/server.ts";
import { checkTunnel } from "../../wire/server/tunnels.ts";
import type { Creates } from "./creates.ts";
import { FleetWatch } from "./fleet-watch.ts";
import { forward } from "./forward.ts";
import { listSandboxes, reclaim } from "./list.ts";
import { listLayers, releaseLayers } from "./list-layers.ts";
import { locate } from "./locate.ts";
import type { Metrics } from "./metrics.ts";
import type { PortProxy } from "./port-proxy.ts";
import type { PortTokens } from "./port-tokens.ts";
import type { Registry } from "./registry.ts";
import { checkWebSocket, splice } from "./splice.ts";
import type { Watcher } from "./watcher.ts";

export interface RouteParts {
  readonly registry: Registry;
  readonly watcher: Watcher;
  readonly creates: Creates;
  readonly metrics: Metrics;
  readonly proxy: PortProxy;
  readonly tokens: PortTokens;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Whom the token belongs to. */
  readonly owner: string;
  readonly shutdown: ((sandboxes: "keep" | "stop") => void) | undefined;
}

/** Answered by the sandbox's node; the coordinator only passes on. */
const forwarded: readonly RouteName[] = [
  "getSandbox",
  "updateSandbox",
  "removeSandbox",
  "stopSandbox",
  "touchSandbox",
  "waitSandbox",
  "listEvents",
  "listExecs",
  "listSessions",
  "endSession",
  "logs",
  "getSandboxPolicy",
  "testNetwork",
  "networkLog",
  "audit",
  "readFile",
  "writeFile",
  "statFile",
  "listFiles",
  "makeDirectory",
  "removeFile",
  "renameFile",
  "readArchive",
  "writeArchive",
];

/** Binds the route table's coordinator side. */
export function serveRoutes(server: WireServer, parts: RouteParts): void {
  const { registry, watcher, creates, metrics, owner } = parts;
  for (const route of forwarded) server.handleRaw(route, async (call) => forward(registry, route, call));
  for (const route of ["exec", "attach"] as const)
    server.handleUpgrade(route, async (upgrade) => {
      checkWebSocket(upgrade);
      await splice(registry, route, upgrade);
    });
  server.handleUpgrade("port", async (upgrade) => {
    checkTunnel(upgrade);
    await splice(registry, "port", upgrade);
  });
  server.handleBelow("http", parts.proxy);
  server.handle("createPortToken", async ({ params, body, signal }) =>
    issueToken(parts, params.ref, body, signal),
  );
  server.handle("createSandbox", async ({ body, headers, requestId, signal }) => {
    const begun = performance.now();
    const count = (outcome: string): void => metrics.created(outcome, (performance.now() - begun) / 1000);
    try {
      const key = idempotencyKey(headers);
      const sandbox = await creates.create({ owner, spec: body, key, requestId, signal });
      count("created");
      return sandbox;
    } catch (error) {
      count(error instanceof DSecError ? error.code : "internal");
      throw error;
    }
  });
  server.handle("listSandboxes", async ({ query, signal }) => listSandboxes(registry, query, signal));
  server.handle("watch", async ({ query, signal }) => new FleetWatch(registry, query, signal).start());
  server.handle("reclaim", async ({ body, signal }) => reclaim(registry, body, signal));
  server.handle("listLayers", async ({ query, signal }) => listLayers(registry, query, signal));
  server.handle("releaseLayers", async ({ body, signal }) => releaseLayers(registry, body, signal));
  server.handle("listNodes", async () => ({ items: registry.all().map((node) => node.describe()) }));
  server.handle("doctor", async ({ signal }) => {
    await watcher.examine(signal);
    return { items: registry.all().map((node) => node.describe()) };
  });
  server.handle("registerNode", async ({ params, body }) => {
    if (params.name !== body.name)
      throw new DSecError("invalid_argument", `name: is ${body.name}, but ${params.name} in the path`);
    registry.register(body);
  });
  server.handle("metrics", async () => metrics.render());
  server.handle("shutdown", async ({ query }) => {
    const { shutdown } = parts;
    if (shutdown === undefined)
      throw new DSecError("unsupported", "this coordinator cannot be ended by a request");
    // the answer goes out first
    setImmediate(() => shutdown(query.sandboxes));
  });
}

/** The token is for the sandbox's id: a name may be another's tomorrow. */
async function issueToken(
  { registry, tokens, now }: RouteParts,
  given: string,
  { port, ttl }: PortTokenRequest,
  signal: AbortSignal,
): Promise<PortToken> {
  const { node, ref } = await locate(registry, given, signal);
  const { id } = await node.client.json<Sandbox>("getSandbox", { params: { ref }, signal });
  const expires = Math.floor(now() / 1000) + ttl;
  return {
    token: tokens.issue({ sandbox: id, port, expires }),
    sandbox: id,
    port,
    expiresAt: expires * 1000,
    path: `${routePath("http", { ref: id, port: String(port) })}/`,
  };
}

function idempotencyKey(headers: IncomingHttpHeaders): string | undefined {
  const key = headers[idempotencyHeader];
  if (key === undefined) return undefined;
  if (typeof key !== "string" || !/^[\x21-\x7e]{1,255}$/.test(key))
    throw new DSecError("invalid_argument", `${idempotencyHeader}: must be 1 to 255 printable characters`);
  return key;
}
