import { SimulatedBackend } from "../../src/backends/simulated/simulated-backend.ts";
import { Simulation } from "../../src/protocol/sandbox.ts";
import type { Harness, PreparedStart, SandboxWish } from "./harness.ts";
import { conformance } from "./suite.ts";

/** Long enough that an abort can come before the end of a start. */
const START_MS = 20;

class SimulatedHarness implements Harness {
  backend = new SimulatedBackend();

  async prepare(wish: SandboxWish): Promise<PreparedStart> {
    return prepared(wish, { startMs: START_MS });
  }

  async prepareImpossible(wish: SandboxWish): Promise<PreparedStart & { code: string }> {
    return { ...prepared(wish, { startFailure: "scripted" }), code: "start_failed" };
  }

  async restart(): Promise<void> {
    await this.backend.close();
    this.backend = new SimulatedBackend();
  }

  async leftovers(): Promise<string[]> {
    return this.backend.size === 0 ? [] : [`${this.backend.size} sandboxes`];
  }

  async dispose(): Promise<void> {
    await this.backend.close();
  }
}

function prepared(
  { id, hostname, limits }: SandboxWish,
  simulation: { startMs?: number; startFailure?: string },
): PreparedStart {
  return {
    request: {
      id,
      hostname,
      env: {},
      root: { type: "none" },
      limits,
      simulation: Simulation.parse(simulation),
    },
    started: async () => {},
    release: async () => {},
  };
}

conformance({
  name: "simulated",
  capabilities: new SimulatedBackend().capabilities,
  open: async () => new SimulatedHarness(),
});
