import type { Logger } from "pino";
import type { NodeRegistration } from "../protocol/node.ts";
import { HttpClient } from "../wire/client/http-client.ts";
import type { Clock } from "./clock.ts";

export interface RegistrationOptions {
  readonly coordinator: { readonly address: string; readonly token: string };
  readonly node: NodeRegistration;
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: () => number;
}

const heartbeatMs = 5000;
const timeoutMs = 4000;

/** Registers the node with its coordinator, again and again: the heartbeat. The node works without a coordinator, too. */
export class Registration {
  readonly #options: RegistrationOptions;
  readonly #client: HttpClient;
  readonly #closing = new AbortController();
  #dispose: () => void = () => undefined;
  #reached: boolean | undefined;

  constructor(options: RegistrationOptions) {
    this.#options = options;
    this.#client = new HttpClient({ ...options.coordinator, peer: "coordinator" });
  }

  /** Sends the first heartbeat; resolves when it was answered or failed. */
  async start(): Promise<void> {
    await this.#beat();
  }

  close(): void {
    this.#closing.abort();
    this.#dispose();
    this.#client.close();
  }

  async #beat(): Promise<void> {
    const { node, log, clock, random } = this.#options;
    try {
      await this.#client.json("registerNode", {
        params: { name: node.name },
        body: node,
        timeoutMs,
        signal: this.#closing.signal,
        idempotent: false,
      });
      if (this.#reached !== true) log.info({ coordinator: this.#client.address }, "registered");
      this.#reached = true;
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      // said once per outage, not per heartbeat
      if (this.#reached !== false)
        log.warn({ err: error, coordinator: this.#client.address }, "not registered");
      this.#reached = false;
    }
    if (this.#closing.signal.aborted) return;
    this.#dispose = clock.after(heartbeatMs * (0.8 + 0.4 * random()), () => void this.#beat());
  }
}
