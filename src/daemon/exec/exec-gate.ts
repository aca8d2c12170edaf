import { WebSocketServer } from "ws";
import { DSecError } from "../../protocol/errors.ts";
import { maxExecFrame } from "../../protocol/exec-frames.ts";
import { contracts } from "../../wire/server/contracts.ts";
import type { Upgrade } from "../../wire/server/upgrades.ts";
import { parsePart } from "../../wire/server/validation.ts";
import type { Clock } from "../clock.ts";
import { reach } from "../reach.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";
import { type Attachable, AttachConnection } from "./attach-connection.ts";
import type { ClientConnection } from "./client-socket.ts";
import { ExecConnection } from "./exec-connection.ts";
import type { Execs } from "./execs.ts";
import type { Recordings } from "./recordings.ts";

export interface ExecGateParts {
  readonly clock: Clock;
  readonly sandboxes: Sandboxes;
  readonly execs: Execs;
  readonly recordings: Recordings;
  /** Milliseconds without a sign of life after which a client is gone. */
  readonly clientTimeoutMs: number;
}

/** Upgrades requests to exec connections, and keeps watch over the clients. */
export class ExecGate {
  readonly #parts: ExecGateParts;
  readonly #connections = new Set<ExecConnection | AttachConnection>();
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
    this.#accept(
      { request, socket, head },
      (connection) => new ExecConnection(connection, entry, this.#parts.execs),
    );
  }

  /** To a recorded exec, also one that has ended. @throws DSecError `not_found`, `ambiguous_reference`, `unsupported` */
  async attach({ request, socket, head, params }: Upgrade): Promise<void> {
    const { sandboxes, execs, recordings } = this.#parts;
    const { ref, exec: id } = parsePart("params", contracts.attach.params, params);
    const entry = sandboxes.find(ref);
    if (entry.adoption !== undefined) await entry.adoption;
    const record = execs.list(entry).find((exec) => exec.id === id);
    if (record === undefined) throw new DSecError("not_found", `sandbox ${entry.id} has no exec ${id}`);
    if (!record.recorded)
      throw new DSecError(
        "unsupported",
        `exec ${id} is not recorded: only detached and kept ones can be followed`,
      );
    const live = entry.execs.get(id);
    const frames: Attachable["frames"] = (signal) => recordings.frames(entry.id, id, live?.recorder, signal);
    this.#accept(
      { request, socket, head },
      (connection) => new AttachConnection(connection, { record, live, frames }),
    );
  }

  /** Ends every connection with a status; kept execs go on in their sandboxes. */
  close(): void {
    this.#disposeBeat();
    for (const connection of this.#connections) connection.shutDown();
    this.#server.close();
  }

  #accept(
    { request, socket, head }: Pick<Upgrade, "request" | "socket" | "head">,
    connect: (connection: ClientConnection) => ExecConnection | AttachConnection,
  ): void {
    this.#server.handleUpgrade(request, socket, head, (webSocket) => {
      const now = (): number => this.#parts.clock.now();
      const connection = connect({ socket: webSocket, transport: socket, now });
      this.#connections.add(connection);
      webSocket.once("close", () => this.#connections.delete(connection));
    });
  }

  #scheduleBeat(): void {
    const { clock, clientTimeoutMs } = this.#parts;
    this.#disposeBeat = clock.after(clientTimeoutMs / 6, () => {
      for (const connection of this.#connections) connection.beat(clientTimeoutMs);
      this.#scheduleBeat();
    });
  }
}
