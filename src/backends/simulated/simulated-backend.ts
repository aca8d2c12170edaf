import { z } from "zod";
import type { BackendReport } from "../../protocol/node.ts";
import { Simulation } from "../../protocol/sandbox.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { Backend, BackendCapabilities, Json, StartRequest } from "../backend.ts";
import { startAborted } from "../start-aborted.ts";
import { SimulatedSandbox } from "./simulated-sandbox.ts";
import { systemTimers } from "./timers.ts";
import type { Timers } from "./timers.ts";

/** What the journal keeps: everything a simulated sandbox is, since it has no processes that outlive the daemon. */
const SimulatedRecord = z.object({
  startedAt: z.number(),
  hostname: z.string(),
  diskBytes: z.number(),
  simulation: Simulation,
});

/**
 * Sandboxes in the daemon's own memory, scripted by {@link Simulation}: for placement tests, fleet benchmarks, TUI work and
 * capacity planning. An idle one costs a few objects and no timer. After a restart of the daemon it is made again from
 * its record, as running as before; its files and execs are lost.
 */
export class SimulatedBackend implements Backend {
  readonly kind = "simulated";
  readonly capabilities: BackendCapabilities = {
    root: "none",
    composes: false,
    network: "none",
    diskLimit: false,
    updates: new Set(["memoryBytes", "cpus", "cpuLimit", "pids"]),
    adopts: true,
    realProcesses: false,
  };
  readonly #timers: Timers;
  readonly #sandboxes = new Map<string, SimulatedSandbox>();
  readonly #starting = new Set<string>();

  constructor(options: { readonly timers?: Timers } = {}) {
    this.#timers = options.timers ?? systemTimers;
  }

  /** Sandboxes that are starting or started. */
  get size(): number {
    return this.#sandboxes.size + this.#starting.size;
  }

  async probe(): Promise<BackendReport> {
    return { backend: this.kind, works: true, findings: [] };
  }

  async start(request: StartRequest, signal: AbortSignal): Promise<SimulatedSandbox> {
    const simulation = request.simulation ?? Simulation.parse({});
    if (this.#sandboxes.has(request.id) || this.#starting.has(request.id)) {
      throw new DSecError("conflict", `sandbox ${request.id} is there already`);
    }
    this.#starting.add(request.id);
    try {
      await this.#pause(simulation.startMs, signal);
    } finally {
      this.#starting.delete(request.id);
    }
    if (simulation.startFailure !== undefined) throw new DSecError("start_failed", simulation.startFailure);
    return this.#make(request.id, {
      startedAt: this.#timers.now(),
      hostname: request.hostname,
      diskBytes: request.limits.diskBytes,
      simulation,
    });
  }

  async adopt(id: string, record: Json): Promise<SimulatedSandbox> {
    const parsed = SimulatedRecord.safeParse(record);
    if (!parsed.success) {
      throw new DSecError("agent_lost", `the record of sandbox ${id} cannot be read`, {
        cause: parsed.error,
      });
    }
    const { startedAt, simulation } = parsed.data;
    if (
      simulation.agentLostAfterMs !== undefined &&
      startedAt + simulation.agentLostAfterMs <= this.#timers.now()
    ) {
      throw new DSecError(
        "agent_lost",
        `the agent was lost ${simulation.agentLostAfterMs} ms after the start, as scripted`,
      );
    }
    return this.#make(id, parsed.data);
  }

  /** All there is is held: what a daemon leaves when it goes, goes with its memory. */
  async sweep(): Promise<string[]> {
    return [];
  }

  async close(): Promise<void> {
    for (const sandbox of this.#sandboxes.values()) sandbox.drop();
    this.#sandboxes.clear();
  }

  #make(id: string, record: z.infer<typeof SimulatedRecord>): SimulatedSandbox {
    const sandbox: SimulatedSandbox = new SimulatedSandbox(
      {
        ...record,
        agentLostAfterMs: record.simulation.agentLostAfterMs,
        memoryMb: record.simulation.memoryMb,
      },
      SimulatedRecord.parse(record) as Json,
      this.#timers,
      () => {
        if (this.#sandboxes.get(id) === sandbox) this.#sandboxes.delete(id);
      },
    );
    this.#sandboxes.get(id)?.drop();
    this.#sandboxes.set(id, sandbox);
    return sandbox;
  }

  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    if (!signal.aborted && ms > 0) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const dispose = this.#timers.after(ms, resolve);
      const wake = (): void => resolve();
      signal.addEventListener("abort", wake, { once: true });
      await promise;
      dispose();
      signal.removeEventListener("abort", wake);
    }
    if (signal.aborted) throw startAborted(signal);
  }
}
