import type { IncomingMessage, Server } from "node:http";
import type { Socket } from "node:net";
import { DSecError } from "../../protocol/errors.ts";
import { type RouteName, routes } from "../../protocol/routes.ts";
import type { Authenticator } from "./authentication.ts";
import type { BelowRoutes } from "./below.ts";
import { asDSecError, sendRawProblem } from "./problems.ts";
import { matchPath } from "./route-match.ts";

/** An authenticated upgrade request. The handler owns the socket, and everything that is written to it. */
export interface Upgrade {
  readonly request: IncomingMessage;
  readonly socket: Socket;
  readonly head: Buffer;
  readonly params: Readonly<Record<string, string>>;
  /** Aborts when the server closes; what is still open shortly after is cut. */
  readonly closing: AbortSignal;
}

/** May throw until it has written to the socket: the error is then the answer. */
export type UpgradeHandler = (upgrade: Upgrade) => void | Promise<void>;

/** Hands upgrade requests to the owners of their routes; remembers the sockets so that a close can end them. */
export class Upgrades {
  readonly #handlers = new Map<RouteName, UpgradeHandler>();
  readonly #sockets = new Set<Socket>();
  readonly #authenticate: Authenticator;
  readonly #below: BelowRoutes;
  readonly #closing: AbortSignal;

  constructor(authenticate: Authenticator, below: BelowRoutes, closing: AbortSignal) {
    this.#authenticate = authenticate;
    this.#below = below;
    this.#closing = closing;
  }

  handle(name: RouteName, handler: UpgradeHandler): void {
    this.#handlers.set(name, handler);
  }

  attach(server: Server): void {
    server.on("upgrade", (request: IncomingMessage, socket: Socket, head: Buffer) =>
      this.take(request, socket, head),
    );
  }

  take(request: IncomingMessage, socket: Socket, head: Buffer): void {
    void this.#upgrade(request, socket, head);
  }

  /** Open upgraded connections. */
  get size(): number {
    return this.#sockets.size;
  }

  destroyAll(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#sockets.clear();
  }

  async #upgrade(request: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
    // Node leaves the socket without a listener: an error of the peer must not end the process
    socket.on("error", () => socket.destroy());
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    const written = socket.bytesWritten;
    const connection = { request, socket, head, closing: this.#closing };
    try {
      const below = this.#below.find(request.url ?? "/");
      if (below !== undefined) {
        const { params, rest } = below;
        await below.handler.upgrade({ ...connection, params, rest });
        return;
      }
      const { handler, params } = this.#route(request);
      await handler({ ...connection, params });
    } catch (error) {
      if (socket.bytesWritten === written) sendRawProblem(socket, asDSecError(error));
      else socket.destroy();
    }
  }

  #route(request: IncomingMessage): { handler: UpgradeHandler; params: Record<string, string> } {
    this.#authenticate(request);
    const path = (request.url ?? "/").split("?", 1)[0] ?? "/";
    for (const [name, handler] of this.#handlers) {
      const params = matchPath(routes[name].path, path);
      if (params !== undefined) return { handler, params };
    }
    throw new DSecError("not_found", `nothing at ${path} can be upgraded`);
  }
}
