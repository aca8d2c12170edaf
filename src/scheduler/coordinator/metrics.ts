import { Counter, Gauge, Histogram, Registry as MetricRegistry } from "prom-client";
import type { Registry } from "./registry.ts";

/** What the coordinator counts, for `GET /metrics`. */
export class Metrics {
  readonly #registry = new MetricRegistry();
  readonly #creates: Histogram<"outcome">;
  readonly #refusals: Counter<"code">;

  constructor(nodes: Registry, upgraded: () => number) {
    const registers = [this.#registry];
    this.#creates = new Histogram({
      name: "dsec_coordinator_create_seconds",
      help: "Time until a sandbox ran or was refused",
      labelNames: ["outcome"],
      buckets: [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
      registers,
    });
    this.#refusals = new Counter({
      name: "dsec_coordinator_refusals_total",
      help: "Placements that a node refused, by reason",
      labelNames: ["code"],
      registers,
    });
    const health = new Gauge({
      name: "dsec_coordinator_nodes",
      help: "Nodes by health",
      labelNames: ["health"],
      registers: [],
      collect() {
        const healthy = nodes.all().filter((node) => node.healthy).length;
        this.set({ health: "healthy" }, healthy);
        this.set({ health: "unreachable" }, nodes.size - healthy);
      },
    });
    const execs = new Gauge({
      name: "dsec_coordinator_exec_connections",
      help: "Exec connections passing through",
      registers: [],
      collect() {
        this.set(upgraded());
      },
    });
    this.#registry.registerMetric(health);
    this.#registry.registerMetric(execs);
  }

  /** @param outcome `created` or an error code */
  created(outcome: string, seconds: number): void {
    this.#creates.observe({ outcome }, seconds);
  }

  refused(code: string): void {
    this.#refusals.inc({ code });
  }

  async render(): Promise<{ contentType: string; text: string }> {
    return { contentType: this.#registry.contentType, text: await this.#registry.metrics() };
  }
}
