import {
  Counter,
  collectDefaultMetrics,
  Gauge,
  type GaugeConfiguration,
  Histogram,
  Registry,
} from "prom-client";
import type { Backend } from "../backends/backend.ts";
import { DSecError } from "../protocol/errors.ts";
import type { ExecExit } from "../protocol/exec.ts";
import type { Audit } from "./audit/audit.ts";
import type { Sandboxes } from "./lifecycle/sandboxes.ts";
import type { SandboxPolicies } from "./network/sandbox-policies.ts";

const secondsBuckets = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120,
];

let ofProcess: Registry | undefined;

/** Collected once, whatever daemons come and go in this process: what measures them cannot be ended. */
function processRegistry(): Registry {
  if (ofProcess === undefined) {
    ofProcess = new Registry();
    collectDefaultMetrics({ register: ofProcess });
  }
  return ofProcess;
}

/** The node's Prometheus metrics, each daemon with a registry of its own. */
export class Metrics {
  readonly #ofProcess = processRegistry();
  readonly #registry = new Registry();
  readonly #starts: Counter<"backend">;
  readonly #startFailures: Counter<"code">;
  readonly #startSeconds: Histogram<"backend">;
  readonly #ends: Counter<"reason">;
  readonly #execs: Counter<"cause">;
  readonly #execSeconds: Histogram;
  readonly #execStartSeconds: Histogram;

  constructor() {
    const registers = [this.#registry];
    this.#starts = new Counter({
      name: "dsec_sandbox_starts_total",
      help: "Sandboxes started",
      labelNames: ["backend"],
      registers,
    });
    this.#startFailures = new Counter({
      name: "dsec_sandbox_start_failures_total",
      help: "Sandboxes refused or not started, by error code",
      labelNames: ["code"],
      registers,
    });
    this.#startSeconds = new Histogram({
      name: "dsec_sandbox_start_seconds",
      help: "From the beginning of a start to running",
      labelNames: ["backend"],
      buckets: secondsBuckets,
      registers,
    });
    this.#ends = new Counter({
      name: "dsec_sandbox_ends_total",
      help: "Sandboxes ended, by reason",
      labelNames: ["reason"],
      registers,
    });
    this.#execs = new Counter({
      name: "dsec_execs_total",
      help: "Execs ended, by cause",
      labelNames: ["cause"],
      registers,
    });
    this.#execStartSeconds = new Histogram({
      name: "dsec_exec_start_seconds",
      help: "From an exec's request to its process having started",
      buckets: secondsBuckets,
      registers,
    });
    this.#execSeconds = new Histogram({
      name: "dsec_exec_seconds",
      help: "From an exec's request to its exit status",
      buckets: secondsBuckets,
      registers,
    });
  }

  /** Adds the gauges that are read off the node when they are scraped. */
  observe(sandboxes: Sandboxes, watchers: () => number, tunnels: () => number): void {
    this.#add({
      name: "dsec_sandboxes",
      help: "Sandboxes by state and backend, ended ones included while they are kept",
      labelNames: ["state", "backend"],
      collect(): void {
        this.reset();
        for (const { record } of sandboxes.values())
          this.inc({ state: record.state, backend: record.engine ?? record.spec.backend });
      },
    });
    this.#add({
      name: "dsec_execs_active",
      help: "Execs that run",
      collect(): void {
        let active = 0;
        for (const entry of sandboxes.values()) active += entry.activeExecs;
        this.set(active);
      },
    });
    this.#add({
      name: "dsec_tunnels",
      help: "Open connections to sandboxes' ports",
      collect(): void {
        this.set(tunnels());
      },
    });
    this.#add({
      name: "dsec_watchers",
      help: "Open watches",
      collect(): void {
        this.set(watchers());
      },
    });
  }

  /** Adds gauges whose values are asked for when they are scraped, e.g. sizes of pools. */
  observePools(pools: () => Readonly<Record<string, number>>): void {
    this.#add({
      name: "dsec_pool_size",
      help: "Members of a pool that are ready",
      labelNames: ["pool"],
      collect(): void {
        for (const [pool, size] of Object.entries(pools())) this.set({ pool }, size);
      },
    });
  }

  /** Adds sums over all sandboxes: a series for each of thousands would be more than is kept. */
  observeNetwork(policies: Pick<SandboxPolicies, "totals">): void {
    const registers: Registry[] = [];
    const connections = new Counter({
      name: "dsec_network_connections_total",
      help: "Connections of sandboxes by verdict: allowed by name, refused, cut by a change of policy",
      labelNames: ["verdict"],
      registers,
      collect(): void {
        const { allowed, refused, cut } = policies.totals();
        this.reset();
        for (const [verdict, count] of Object.entries({ allowed, refused, cut }))
          this.inc({ verdict }, count);
      },
    });
    const queries = new Counter({
      name: "dsec_network_queries_total",
      help: "Questions of sandboxes to the node's resolver by verdict",
      labelNames: ["verdict"],
      registers,
      collect(): void {
        const { queriesAnswered: answered, queriesRefused: refused } = policies.totals();
        this.reset();
        for (const [verdict, count] of Object.entries({ answered, refused })) this.inc({ verdict }, count);
      },
    });
    const interruptions = new Counter({
      name: "dsec_network_interruptions_total",
      help: "How often the resolver and the proxy of sandboxes have failed and were begun anew",
      registers,
      collect(): void {
        this.reset();
        this.inc(policies.totals().interruptions);
      },
    });
    for (const metric of [connections, queries, interruptions]) this.#registry.registerMetric(metric);
  }

  /** Adds what the kernel has told of processes in sandboxes. */
  observeAudit(audit: Pick<Audit, "totals">): void {
    const registers: Registry[] = [];
    const events = new Counter({
      name: "dsec_audit_events_total",
      help: "Events of processes in sandboxes, by kind",
      labelNames: ["kind"],
      registers,
      collect(): void {
        const { exec, connect, exit } = audit.totals();
        this.reset();
        for (const [kind, count] of Object.entries({ exec, connect, exit })) this.inc({ kind }, count);
      },
    });
    const lost = new Counter({
      name: "dsec_audit_lost_total",
      help: "Events of processes in sandboxes that were counted, but not told",
      registers,
      collect(): void {
        this.reset();
        this.inc(audit.totals().lost);
      },
    });
    const interruptions = new Counter({
      name: "dsec_audit_interruptions_total",
      help: "How often the audit has failed and was begun anew; nothing was counted meanwhile",
      registers,
      collect(): void {
        this.reset();
        this.inc(audit.totals().interruptions);
      },
    });
    for (const metric of [events, lost, interruptions]) this.#registry.registerMetric(metric);
  }

  started(backend: Backend, ms: number): void {
    const label = backend.engine ?? backend.kind;
    this.#starts.inc({ backend: label });
    this.#startSeconds.observe({ backend: label }, ms / 1000);
  }

  startFailed(error: unknown): void {
    this.#startFailures.inc({ code: error instanceof DSecError ? error.code : "internal" });
  }

  ended(reason: string): void {
    this.#ends.inc({ reason });
  }

  execStarted(ms: number): void {
    this.#execStartSeconds.observe(ms / 1000);
  }

  execEnded(cause: ExecExit["cause"] | "lost", ms: number): void {
    this.#execs.inc({ cause });
    this.#execSeconds.observe(ms / 1000);
  }

  #add<T extends string>(configuration: GaugeConfiguration<T>): void {
    this.#registry.registerMetric(new Gauge({ ...configuration, registers: [] }));
  }

  async render(): Promise<{ contentType: string; text: string }> {
    const parts = await Promise.all([this.#ofProcess.metrics(), this.#registry.metrics()]);
    return { contentType: this.#registry.contentType, text: parts.join("\n") };
  }
}
