import { setTimeout as delay } from "node:timers/promises";
import type { FastifyBaseLogger } from "fastify";
import { DSecError } from "../../protocol/errors.ts";
import type { NodeStatus } from "../../protocol/node.ts";
import type { FleetNode } from "./fleet-node.ts";
import type { Registry } from "./registry.ts";

export interface WatcherOptions {
  readonly now: () => number;
  readonly random: () => number;
  /** Milliseconds between two probes of a node, ± a quarter. */
  readonly intervalMs: number;
  readonly log: FastifyBaseLogger;
}

/** Milliseconds a node has to answer a probe. */
const probeMs = 5000;
/** A doctor run starts every backend's own checks. */
const doctorMs = 60_000;

/** Probes every node again and again; what it learns is the base of placement. It keeps nothing: a restart polls anew. */
export class Watcher {
  readonly #registry: Registry;
  readonly #options: WatcherOptions;
  readonly #stop = new AbortController();
  readonly #probes = new Map<FleetNode, Promise<void>>();

  constructor(registry: Registry, options: WatcherOptions) {
    this.#registry = registry;
    this.#options = options;
    for (const node of registry.all()) void this.#follow(node);
    const unlisten = registry.onNode((node) => void this.#follow(node));
    this.#stop.signal.addEventListener("abort", unlisten, { once: true });
  }

  /** Asks the nodes that are not known to be healthy, now. Resolves when each has answered or failed to. */
  async probeUnhealthy(): Promise<void> {
    const nodes = this.#registry.all().filter((node) => !node.healthy);
    await Promise.all(nodes.map(async (node) => this.#probe(node)));
  }

  /** Fresh probes of every backend of every node. */
  async examine(signal: AbortSignal): Promise<void> {
    const options = { timeoutMs: doctorMs, idempotent: false, signal };
    await Promise.all(
      this.#registry
        .all()
        .map(async (node) =>
          this.#ask(node, async () => node.client.json<NodeStatus>("nodeDoctor", options)),
        ),
    );
  }

  close(): void {
    this.#stop.abort();
  }

  /** Until the watcher closes or the registry holds another node of that name. */
  async #follow(node: FleetNode): Promise<void> {
    const { signal } = this.#stop;
    const { intervalMs, random } = this.#options;
    while (!signal.aborted && this.#registry.get(node.name) === node) {
      await this.#probe(node);
      const pause = intervalMs * (0.75 + random() / 2);
      await delay(pause, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  /** One probe of a node at a time, however many wait for it. */
  #probe(node: FleetNode): Promise<void> {
    const running = this.#probes.get(node);
    if (running !== undefined) return running;
    const options = { timeoutMs: probeMs, idempotent: false, signal: this.#stop.signal };
    const probe = this.#ask(node, async () => node.client.json<NodeStatus>("nodeStatus", options)).finally(
      () => this.#probes.delete(node),
    );
    this.#probes.set(node, probe);
    return probe;
  }

  async #ask(node: FleetNode, question: () => Promise<NodeStatus>): Promise<void> {
    const { now, log } = this.#options;
    const askedAt = now();
    const wasHealthy = node.healthy;
    try {
      const status = await question();
      if (status.name === node.name) node.answered(status, askedAt, now());
      else node.failed(`at ${node.address} answers a node of the name ${status.name}`);
    } catch (error) {
      if (this.#stop.signal.aborted) return;
      node.failed(reasonOf(error));
    }
    if (wasHealthy !== node.healthy)
      log.info(
        { node: node.name, healthy: node.healthy, reason: node.describe().message },
        "node changed health",
      );
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error instanceof DSecError && error.cause instanceof Error ? `: ${error.cause.message}` : "";
  return `${error.message}${cause}`;
}
