import { WebSocketServer } from "ws";
import type { Upgrade } from "../../wire/server/upgrades.ts";
import { maxExecFrame } from "../../protocol/exec-frames.ts";
import type { Clock } from "../clock.ts";
import { reach } from "../reach.ts";
import type { Sandboxes } from "../sandboxes.ts";
import { ExecConnection } from "./exec-connection.ts";
import type { Execs } from "./execs.ts";

export interface ExecGateParts {
  readonly clock: Clock;
  readonly sandboxes: Sandboxes;
  readonly execs: Execs;
  /** Milliseconds without a sign of life after which a client is gone. */
  readonly clientTimeoutMs: number;
}

/** Upgrades requests to exec connections, and keeps watch over the clients. */
export class ExecGate {
  readonly #parts: ExecGateParts;
  readonly #connections = new Set<ExecConnection>();
  readonly #server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    // what is too long for a frame is refused with a status; what is much too long is cut
    maxPayload: 2 * maxExecFrame,
  });
  #disposeBeat: () => void = () => undefined;

  constructor(parts: ExecGateParts) {
    this.#parts = parts;
    this.#scheduleBeat();
  }

  /** @throws DSecError `not_found`, `ambiguous_reference`, `sandbox_not_running` */
  async upgrade({ request, socket, head, params }: Upgrade): Promise<void> {
    const entry = await reach(this.#parts.sandboxes, params["ref"] ?? "");
    this.#server.handleUpgrade(request, socket, head, (webSocket) => {
      const { execs, clock } = this.#parts;
      const connection = new ExecConnection(webSocket, entry, execs, () => clock.now());
      this.#connections.add(connection);
      webSocket.once("close", () => this.#connections.delete(connection));
    });
  }

  /** Ends every connection with a status; kept execs go on in their sandboxes. */
  close(): void {
    this.#disposeBeat();
    for (const connection of this.#connections) connection.shutDown();
    this.#server.close();
  }

  #scheduleBeat(): void {
    const { clock, clientTimeoutMs } = this.#parts;
    this.#disposeBeat = clock.after(clientTimeoutMs / 6, () => {
      for (const connection of this.#connections) connection.beat(clientTimeoutMs);
      this.#scheduleBeat();
    });
  }
}
