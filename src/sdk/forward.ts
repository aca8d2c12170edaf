import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { DSecError } from "../protocol/errors.ts";

export interface ForwardOptions {
  /** Port in the sandbox. */
  readonly remote: number;
  /** Port here; any free one by default. */
  readonly local?: number;
  /** Address here; by default only this machine's programs can connect. */
  readonly host?: string;
  /** Told of each connection that could not be made, or broke. */
  readonly onError?: (error: DSecError) => void;
}

const loopback = "127.0.0.1";

/** A listener here whose connections lead to a port of a sandbox. */
export class PortForward implements AsyncDisposable {
  readonly host: string;
  readonly port: number;
  /** Port in the sandbox. */
  readonly remote: number;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #closing = new AbortController();

  /** @throws DSecError `address_in_use`, `permission_denied`, `invalid_argument` */
  static async open(
    connect: (signal: AbortSignal) => Promise<Duplex>,
    options: ForwardOptions,
  ): Promise<PortForward> {
    const { remote, local = 0, host = loopback, onError = (): void => undefined } = options;
    for (const port of [remote, ...(local === 0 ? [] : [local])])
      if (!Number.isInteger(port) || port < 1 || port > 65_535)
        throw new DSecError("invalid_argument", `${port} is not a port from 1 to 65535`);
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true });
    try {
      server.listen({ host, port: local });
      await once(server, "listening");
    } catch (cause) {
      throw listenError(cause, `${host}:${local}`);
    }
    return new PortForward(server, host, remote, connect, onError);
  }

  private constructor(
    server: Server,
    host: string,
    remote: number,
    connect: (signal: AbortSignal) => Promise<Duplex>,
    onError: (error: DSecError) => void,
  ) {
    const bound = server.address();
    this.#server = server;
    this.host = host;
    this.port = typeof bound === "object" && bound !== null ? bound.port : 0;
    this.remote = remote;
    server.on("connection", (socket: Socket) => void this.#accept(socket, connect, onError));
  }

  /** Open connections. */
  get connections(): number {
    return this.#sockets.size;
  }

  /** Stops listening and cuts every connection. */
  async close(): Promise<void> {
    this.#closing.abort();
    for (const socket of this.#sockets) socket.destroy();
    if (!this.#server.listening) return;
    this.#server.close();
    await once(this.#server, "close");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** A connection that fails is reset, so that its client does not take it for an end. */
  async #accept(
    socket: Socket,
    connect: (signal: AbortSignal) => Promise<Duplex>,
    onError: (error: DSecError) => void,
  ): Promise<void> {
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    let stream: Duplex | undefined;
    socket.on("error", () => stream?.destroy());
    const fail = (error: unknown): void => {
      socket.resetAndDestroy();
      if (this.#closing.signal.aborted) return;
      onError(
        error instanceof DSecError
          ? error
          : new DSecError("connection_lost", "a connection broke", { cause: error }),
      );
    };
    try {
      stream = await connect(this.#closing.signal);
    } catch (error) {
      fail(error);
      return;
    }
    if (socket.destroyed) {
      stream.destroy();
      return;
    }
    const tunnel = stream;
    tunnel.on("error", fail);
    socket.once("close", () => {
      if (!tunnel.readableEnded || !tunnel.writableFinished) tunnel.destroy();
    });
    socket.pipe(tunnel);
    tunnel.pipe(socket);
  }
}

function listenError(cause: unknown, address: string): DSecError {
  const errno = cause instanceof Error && "code" in cause ? cause.code : undefined;
  if (errno === "EADDRINUSE")
    return new DSecError("address_in_use", `${address} is in use by another process`, { cause });
  if (errno === "EACCES" || errno === "EPERM")
    return new DSecError("permission_denied", `listening on ${address} is not permitted`, { cause });
  return new DSecError("invalid_argument", `this machine cannot listen on ${address}`, { cause });
}
