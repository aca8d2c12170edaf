import type { ClientRequest, RequestOptions } from "node:http";
import { Duplex } from "node:stream";
import { TunnelStream } from "../tunnel-stream.ts";

export type OpenPort = (ref: string, port: number, signal?: AbortSignal) => Promise<TunnelStream>;

/** What the agent is asked with: which port of which sandbox. */
export interface PortOptions extends RequestOptions {
  readonly ref?: string;
  readonly sandboxPort?: number;
}

type Created = (error: Error | null, stream: Duplex) => void;

/** Milliseconds that a connection is kept without a request: servers commonly close theirs after five seconds. */
const idleMs = 4000;
const maxPerPort = 256;
const maxIdlePerPort = 16;

const http = process.getBuiltinModule("node:http");
const { Agent } = http;

/**
 * Keeps HTTP connections to sandboxes' ports, each a tunnel. One whose sandbox stops, or whose service ends it, leaves at once, and
 * so does one on which anything comes that was not asked for.
 */
export class PortAgent extends Agent {
  readonly #open: OpenPort;
  readonly #idle = new WeakMap<Duplex, () => void>();

  constructor(open: OpenPort) {
    super({ keepAlive: true, maxSockets: maxPerPort, maxFreeSockets: maxIdlePerPort, scheduling: "lifo" });
    this.#open = open;
  }

  override getName(options?: PortOptions): string {
    return `${options?.ref}:${options?.sandboxPort}`;
  }

  override createConnection(options: PortOptions, created?: Created): null {
    this.#open(options.ref ?? "", options.sandboxPort ?? 0).then(
      (stream) => created?.(null, preparedForHttp(stream)),
      (error: Error) => {
        created?.(error, new Duplex());
        const name = this.getName(options);
        // an empty row would stay for every port that was ever tried
        if (this.sockets[name]?.length === 0) Reflect.deleteProperty(this.sockets, name);
      },
    );
    return null;
  }

  override keepSocketAlive(stream: Duplex): boolean {
    if (!(stream instanceof TunnelStream)) return false;
    const leave = (): void => void stream.destroy();
    const timer = setTimeout(leave, idleMs).unref();
    stream.on("data", leave);
    stream.resume();
    stream.unref();
    this.#idle.set(stream, () => {
      clearTimeout(timer);
      stream.off("data", leave);
    });
    return true;
  }

  override reuseSocket(stream: Duplex, request: ClientRequest): void {
    this.#idle.get(stream)?.();
    super.reuseSocket(stream, request);
  }
}

/** A service that ends its direction has no more answers: HTTP knows no half-open connections. */
export function preparedForHttp(stream: TunnelStream): TunnelStream {
  stream.once("end", () => stream.end());
  return tolerant(stream);
}

/** Node's HTTP leaves a connection without a listener for moments in which an error would end the process. */
export function tolerant(stream: TunnelStream): TunnelStream {
  return stream.on("error", () => undefined);
}
