import type { Duplex } from "node:stream";
import type { PortClient } from "../wire/client/port-client.ts";
import type { FetchInit } from "./fetch.ts";
import type { ForwardOptions, PortForward } from "./forward.ts";
import type { Connection } from "./open-connection.ts";

/** The ports of a fleet's sandboxes, for all of one client's. What it needs is loaded when it is first used. */
export class Ports {
  readonly #connection: Connection;
  #http: Promise<PortClient> | undefined;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  async connect(ref: string, port: number, signal?: AbortSignal): Promise<Duplex> {
    const { openTunnel } = await import("../wire/client/tunnel.ts");
    return openTunnel({ ...this.#connection, peer: "coordinator" }, ref, port, signal);
  }

  async fetch(ref: string, port: number, path: string, init: FetchInit): Promise<Response> {
    this.#http ??= this.#openHttp();
    const [{ fetchPort }, http] = await Promise.all([import("./fetch.ts"), this.#http]);
    return fetchPort(http, ref, port, path, init);
  }

  async forward(ref: string, options: ForwardOptions): Promise<PortForward> {
    const { PortForward } = await import("./forward.ts");
    return PortForward.open(async (signal) => this.connect(ref, options.remote, signal), options);
  }

  /** Cuts the connections that {@link fetch} keeps. */
  close(): void {
    void this.#http?.then((http) => http.close());
  }

  async #openHttp(): Promise<PortClient> {
    const [{ PortClient }, { openTunnel }] = await Promise.all([
      import("../wire/client/port-client.ts"),
      import("../wire/client/tunnel.ts"),
    ]);
    const server = { ...this.#connection, peer: "coordinator" } as const;
    return new PortClient(async (ref, port, signal) => openTunnel(server, ref, port, signal));
  }
}
