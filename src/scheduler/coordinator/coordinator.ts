import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { FastifyBaseLogger } from "fastify";
import { DSecError } from "../../protocol/errors.ts";
import type { SandboxList } from "../../protocol/sandbox.ts";
import { bearerAuthenticator, loadOrCreateToken } from "../../wire/server/authentication.ts";
import type { TlsFiles } from "../../wire/server/listener.ts";
import { WireServer } from "../../wire/server/server.ts";
import { Creates } from "./creates.ts";
import { askAll } from "./fan-out.ts";
import type { FleetNode, NodeOptions } from "./fleet-node.ts";
import { Metrics } from "./metrics.ts";
import { Orphans } from "./orphans.ts";
import { servePolicies } from "./policy-routes.ts";
import { PortAccess } from "./port-access.ts";
import { PortProxy } from "./port-proxy.ts";
import { PortTokens } from "./port-tokens.ts";
import { Registry } from "./registry.ts";
import { serveRoutes } from "./routes.ts";
import { Store } from "./store.ts";
import { Watcher } from "./watcher.ts";

export interface CoordinatorOptions {
  /** Token and store are kept here. */
  readonly dataDir: string;
  /** `unix:/path`, `http://127.0.0.1:port`, `https://host:port`. */
  readonly listen: readonly string[];
  /** For https addresses. */
  readonly tls?: TlsFiles | undefined;
  /** Nodes known from the start; others register. */
  readonly nodes: readonly NodeOptions[];
  /** PEM of the authority behind nodes' https addresses. */
  readonly nodeCa?: string | Buffer | undefined;
  readonly version: string;
  /** A pino logger. */
  readonly log: FastifyBaseLogger;
  /** Called after `POST /v1/shutdown` was answered (and, with `stop`, every sandbox was); absent: the route is refused. */
  readonly onShutdown?: (() => void) | undefined;
  /** Milliseconds between two probes of a node; default 2000. */
  readonly probeIntervalMs?: number;
  /** Milliseconds between two sweeps of old keys and nodes; default 60,000. */
  readonly sweepIntervalMs?: number;
  /** Milliseconds since the epoch. */
  readonly now?: () => number;
  readonly random?: () => number;
}

/** A running coordinator. */
export interface Coordinator {
  /** As clients would give them. */
  readonly addresses: readonly string[];
  /** Bearer token of its clients, from `<dataDir>/token`. */
  readonly token: string;
  /** Ends watches and exec connections, waits shortly for other requests, and lets go of everything. */
  close(): Promise<void>;
}

const defaultProbeIntervalMs = 2000;
/** Idempotency keys are honoured this long, milliseconds. */
const keyLifetimeMs = 86_400_000;
const defaultSweepIntervalMs = 60_000;
/** Milliseconds between two parts of one sweep. */
const sweepPauseMs = 100;
/** Owner of sandboxes made with the fleet's own token. */
const owner = "local";
/** Sandboxes stopped at the same time on one node. */
const stopWidth = 16;

/**
 * Starts the API server of a fleet. Resolves when it listens and the nodes it was given were asked once.
 * @throws DSecError `already_running`, `address_in_use`, `journal_corrupt`, `config_invalid`, `invalid_argument`
 */
export async function startCoordinator(options: CoordinatorOptions): Promise<Coordinator> {
  const { dataDir, version, log, now = Date.now, random = Math.random } = options;
  const token = await loadOrCreateToken(join(dataDir, "token"));
  const store = new Store(join(dataDir, "coordinator", "store.sqlite"));
  const registry = new Registry(options.nodes, store, { now, ca: options.nodeCa });
  const intervalMs = options.probeIntervalMs ?? defaultProbeIntervalMs;
  const watcher = new Watcher(registry, { now, random, intervalMs, log });
  const server = new WireServer({ role: "coordinator", version, token, log });
  const metrics = new Metrics(registry, () => server.upgraded);
  const orphans = new Orphans(log);
  const creates = new Creates({
    registry,
    orphans,
    watcher,
    store,
    now,
    random,
    randomBytes,
    refused: ({ code }) => metrics.refused(code),
  });
  const shutdown = shutdownOf(options, registry);
  const tokens = new PortTokens(token, now);
  const proxy = new PortProxy(registry, new PortAccess(bearerAuthenticator(token), tokens), log);
  serveRoutes(server, { registry, watcher, creates, metrics, proxy, tokens, now, owner, shutdown });
  servePolicies(server, { registry, policies: store.policies, now });
  const sweepIntervalMs = options.sweepIntervalMs ?? defaultSweepIntervalMs;
  let sweeping: NodeJS.Timeout;
  const sweep = (): void => {
    let isMore = false;
    try {
      isMore = store.sweepCreates(now() - keyLifetimeMs);
      registry.sweep();
    } catch (error) {
      log.warn({ err: error }, "old keys and nodes could not be forgotten");
    }
    sweeping = setTimeout(sweep, isMore ? sweepPauseMs : sweepIntervalMs).unref();
  };
  sweeping = setTimeout(sweep, sweepIntervalMs).unref();
  const close = async (): Promise<void> => {
    clearTimeout(sweeping);
    watcher.close();
    await server.close();
    proxy.close();
    orphans.close();
    registry.close();
    store.close();
  };
  try {
    const addresses: string[] = [];
    for (const address of options.listen) addresses.push(await server.listen(address, options.tls));
    await watcher.probeUnhealthy();
    return { addresses, token, close };
  } catch (error) {
    await close();
    throw error;
  }
}

function shutdownOf({ onShutdown, log }: CoordinatorOptions, registry: Registry) {
  if (onShutdown === undefined) return undefined;
  return (sandboxes: "keep" | "stop"): void => {
    const stopped = sandboxes === "stop" ? stopEverything(registry, log) : Promise.resolve();
    stopped
      .catch((error: unknown) => log.error({ err: error }, "not every sandbox could be stopped"))
      .finally(onShutdown);
  };
}

async function stopEverything(registry: Registry, log: FastifyBaseLogger): Promise<void> {
  const { unreachable, refusals } = await askAll(registry.all(), async (node) => {
    let cursor: string | undefined;
    do {
      const query = { limit: 10_000, cursor };
      const page: SandboxList = await node.client.json("listSandboxes", { query });
      const ids = page.items.map(({ id }) => id);
      await Promise.all(Array.from({ length: stopWidth }, async () => stopEach(node, ids, log)));
      cursor = page.nextCursor;
    } while (cursor !== undefined);
  });
  for (const node of unreachable)
    log.warn({ node }, "sandboxes of a node that does not answer were not stopped");
  for (const { node, error } of refusals)
    log.warn({ node: node.name, err: error }, "not every sandbox was stopped");
}

/** One that cannot be stopped does not keep the others running. */
async function stopEach(node: FleetNode, ids: string[], log: FastifyBaseLogger): Promise<void> {
  for (let ref = ids.pop(); ref !== undefined; ref = ids.pop())
    await node.client
      .json("stopSandbox", { params: { ref }, body: {}, idempotent: true })
      .catch((error: unknown) => {
        // it has ended meanwhile, and its record with it
        if (error instanceof DSecError && error.code === "not_found") return;
        log.warn({ err: error, sandbox: ref }, "a sandbox could not be stopped");
      });
}
