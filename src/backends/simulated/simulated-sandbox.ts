import type { Usage } from "../../protocol/sandbox.ts";
import type { BackendEnd, Json, Running } from "../backend.ts";
import { SimulatedGuest } from "./simulated-guest.ts";
import type { Timers } from "./timers.ts";

const MIB = 1_048_576;

export interface SimulatedSandboxOptions {
  /** Milliseconds since the epoch. */
  readonly startedAt: number;
  readonly hostname: string;
  readonly diskBytes: number;
  /** MiB it seems to use. */
  readonly memoryMb: number;
  readonly agentLostAfterMs: number | undefined;
}

export class SimulatedSandbox implements Running {
  readonly record: Json;
  readonly guest: SimulatedGuest;
  readonly ended: Promise<BackendEnd>;
  readonly #memoryBytes: number;
  readonly #gone: () => void;
  #disposeFault: () => void = () => undefined;

  /** @param gone called when it is destroyed */
  constructor(options: SimulatedSandboxOptions, record: Json, timers: Timers, gone: () => void) {
    this.record = record;
    this.#memoryBytes = options.memoryMb * MIB;
    this.#gone = gone;
    this.guest = new SimulatedGuest({ ...options, timers });
    const ended = Promise.withResolvers<BackendEnd>();
    this.ended = ended.promise;
    if (options.agentLostAfterMs !== undefined) {
      const left = options.startedAt + options.agentLostAfterMs - timers.now();
      this.#disposeFault = timers.after(Math.max(0, left), () => {
        this.guest.close();
        ended.resolve({
          reason: "agent_lost",
          message: `lost ${options.agentLostAfterMs} ms after the start, as scripted`,
        });
      });
    }
  }

  async usage(): Promise<Usage> {
    return {
      memoryBytes: this.#memoryBytes,
      cpuSeconds: 0,
      pids: 1 + this.guest.running,
      diskBytes: this.guest.diskBytes,
      oomKills: 0,
    };
  }

  /** Accepted and without effect: there is nothing to limit. */
  async update(): Promise<void> {}

  async destroy(): Promise<void> {
    this.drop();
    this.#gone();
  }

  /** Lets go of it as the end of a daemon would. */
  drop(): void {
    this.#disposeFault();
    this.guest.close();
  }
}
