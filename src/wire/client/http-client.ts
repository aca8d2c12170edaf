import type {
  Agent,
  AgentOptions,
  ClientRequest,
  IncomingMessage,
  OutgoingHttpHeaders,
  RequestOptions,
} from "node:http";
import type { Readable } from "node:stream";
import { DSecError } from "../../protocol/errors.ts";
import { maxBodyOf, type RouteName, routePath, routes } from "../../protocol/routes.ts";
import { type Address, parseAddress } from "../address.ts";
import {
  cancelledError,
  connectionError,
  type Peer,
  type Progress,
  timeoutError,
} from "./connection-error.ts";
import { pipeBody } from "./request-body.ts";
import { readJson, readLines, refuseProblem } from "./response.ts";
import { withRetries } from "./retry.ts";

export interface HttpClientOptions {
  /** `unix:/path`, `http://127.0.0.1:port` or `https://host:port`. */
  readonly address: string;
  readonly token: string;
  readonly peer: Peer;
  /** PEM; trusted instead of the system's authorities. */
  readonly ca?: string | Buffer;
  /** Milliseconds to make a connection; default 10,000. */
  readonly connectTimeoutMs?: number;
}

export type QueryValue = string | number | boolean | readonly (string | number)[] | undefined;

export interface CallOptions {
  readonly params?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, QueryValue>>;
  /** Sent as JSON. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds until the answer must have begun; none by default. */
  readonly timeoutMs?: number;
  /** Of {@link HttpClient.lines}: milliseconds without a line after which the connection counts as lost. */
  readonly idleTimeoutMs?: number;
  /** Whether it may be sent twice; default: GET, PUT and DELETE. */
  readonly idempotent?: boolean;
}

/** Writes a body and ends the request. */
export type BodyWriter = (outgoing: ClientRequest) => void;

/** A request as the coordinator forwards it. */
export interface RawRequest {
  readonly method: string;
  /** With query. */
  readonly path: string;
  readonly headers: OutgoingHttpHeaders;
  readonly body?: Readable | string | Uint8Array | BodyWriter | undefined;
  /** Sent after a body that is a stream of unknown length; the header `trailer` announces them. */
  readonly trailers?: (() => Readonly<Record<string, string>>) | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
}

/**
 * Not by import: that evaluates every export of node:http, one of which loads undici, and costs each command 25 ms.
 * TLS is another 10.
 */
const http = process.getBuiltinModule("node:http");
const loadHttps = (): typeof import("node:https") => process.getBuiltinModule("node:https");

/** Idle connections are closed before the server would (75 s), so that no request meets a closing one. */
const idleMs = 30_000;
/** Silence after which TCP asks whether the peer still is there. */
const probeAfterMs = 15_000;
const defaultConnectTimeoutMs = 10_000;

/** HTTP/1.1 to one coordinator or daemon, over connections that are kept. Connections are made when first needed. */
export class HttpClient {
  readonly address: string;
  readonly peer: Peer;
  readonly #target: Address;
  readonly #tls: boolean;
  readonly #authorization: string;
  readonly #connectTimeoutMs: number;
  readonly #options: RequestOptions & { readonly servername?: string };
  readonly #kept: Agent;
  /** For answers without a known end: they must not take the connections of short requests. */
  readonly #streams: Agent;

  constructor(options: HttpClientOptions) {
    this.address = options.address;
    this.peer = options.peer;
    this.#target = parseAddress(options.address);
    this.#authorization = `Bearer ${options.token}`;
    this.#connectTimeoutMs = options.connectTimeoutMs ?? defaultConnectTimeoutMs;
    this.#tls = this.#target.kind === "tcp" && this.#target.tls;
    const trust = options.ca === undefined ? {} : { ca: options.ca };
    const kept = { keepAlive: true, maxSockets: 512, maxFreeSockets: 64, timeout: idleMs };
    const makeAgent = (pool: AgentOptions): Agent =>
      this.#tls ? new (loadHttps().Agent)({ ...pool, ...trust }) : new http.Agent(pool);
    this.#kept = makeAgent(kept);
    this.#streams = makeAgent({ keepAlive: true, maxFreeSockets: 16, timeout: idleMs });
    const peer =
      this.#target.kind === "unix"
        ? { socketPath: this.#target.path, host: "localhost" }
        : { host: this.#target.host, port: this.#target.port };
    // without TLS nobody asks for the server's name, but Node takes 4 ms to find out that it is no address
    this.#options = this.#tls ? peer : { ...peer, servername: "" };
  }

  /**
   * The JSON answer of a route; undefined where it has none. Its shape is the contract's: clients do not validate.
   * @throws DSecError the server's problem, or an error of the connection
   */
  async json<T>(route: RouteName, options: CallOptions = {}): Promise<T> {
    const request = this.#prepare(route, options);
    const idempotent = options.idempotent ?? isIdempotent(request.method);
    return withRetries(idempotent, options.signal, async () => {
      const response = await this.#send(request, this.#kept);
      return this.#guard(request, response, async () => (await readJson(response)) as T);
    });
  }

  /** The lines of an NDJSON route, no faster than they are read. Rejects before the first line with the server's problem. */
  async lines<T>(route: RouteName, options: CallOptions = {}): Promise<AsyncGenerator<T, void, undefined>> {
    const request = this.#prepare(route, options);
    const response = await withRetries(true, options.signal, async () => this.#send(request, this.#streams));
    await this.#guard(request, response, async () => refuseProblem(response));
    const idle = options.idleTimeoutMs;
    if (idle !== undefined)
      response.setTimeout(idle, () => response.destroy(timeoutError(idle, this.#progress(request, true))));
    return this.#lines<T>(request, response);
  }

  /**
   * Sends a request as it is, plus authorization, and resolves with the answer's head, whatever its status.
   * Aborting `signal` also cuts the answer's body.
   */
  async raw(request: RawRequest): Promise<IncomingMessage> {
    return this.#send(request, this.#kept);
  }

  /** As {@link raw}, for an answer without a known end. */
  async rawStream(request: RawRequest): Promise<IncomingMessage> {
    return this.#send(request, this.#streams);
  }

  /** Cuts every connection. */
  close(): void {
    this.#kept.destroy();
    this.#streams.destroy();
  }

  #prepare(route: RouteName, options: CallOptions): RawRequest {
    const body = options.body === undefined ? undefined : JSON.stringify(options.body);
    const size = body === undefined ? 0 : Buffer.byteLength(body);
    const maxBytes = maxBodyOf(route);
    if (size > maxBytes)
      throw new DSecError("body_too_large", `the request body is larger than ${maxBytes} bytes`);
    const { method } = routes[route];
    return {
      method,
      path: routePath(route, options.params) + queryString(options.query ?? {}),
      headers: {
        ...options.headers,
        ...(body === undefined ? {} : { "content-type": "application/json", "content-length": size }),
      },
      body,
      signal: options.signal,
      timeoutMs: options.timeoutMs,
    };
  }

  #send(request: RawRequest, agent: Agent): Promise<IncomingMessage> {
    const { method, path, headers, body, signal } = request;
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) {
        reject(cancelledError(signal.reason, this.#progress(request, false)));
        return;
      }
      const { request: send } = this.#tls ? loadHttps() : http;
      const outgoing = send({
        ...this.#options,
        method,
        path,
        agent,
        headers: { ...headers, authorization: this.#authorization },
      });
      if (this.#target.kind === "tcp") outgoing.setSocketKeepAlive(true, probeAfterMs);
      const state = watchConnection(outgoing, this.#tls ? "secureConnect" : "connect");
      const progress = (): Progress => this.#progress(request, state.connected);
      const abort = (): void => void outgoing.destroy(cancelledError(signal?.reason, progress()));
      const expire = (ms: number) => (): void => void outgoing.destroy(timeoutError(ms, progress()));
      const connecting = setTimeout(() => {
        if (!state.connected && state.assigned) expire(this.#connectTimeoutMs)();
      }, this.#connectTimeoutMs);
      const answering =
        request.timeoutMs === undefined
          ? undefined
          : setTimeout(expire(request.timeoutMs), request.timeoutMs);
      const settle = (): void => {
        clearTimeout(connecting);
        clearTimeout(answering);
      };
      signal?.addEventListener("abort", abort, { once: true });
      outgoing.once("close", () => {
        settle();
        signal?.removeEventListener("abort", abort);
      });
      outgoing.once("response", (response: IncomingMessage) => {
        settle();
        resolve(response);
      });
      outgoing.on("error", (error) => reject(connectionError(error, progress())));
      if (body === undefined || typeof body === "string" || body instanceof Uint8Array) outgoing.end(body);
      else if (typeof body === "function") body(outgoing);
      else pipeBody(body, outgoing, request.trailers);
    });
  }

  /** Turns failures while reading an answer into errors of the connection; what is left of the answer is then cut. */
  async #guard<T>(request: RawRequest, response: IncomingMessage, read: () => Promise<T>): Promise<T> {
    try {
      return await read();
    } catch (error) {
      response.destroy();
      throw this.#readError(error, request);
    }
  }

  async *#lines<T>(request: RawRequest, response: IncomingMessage): AsyncGenerator<T, void, undefined> {
    try {
      for await (const line of readLines(response)) yield line as T;
    } catch (error) {
      throw this.#readError(error, request);
    } finally {
      response.destroy();
    }
  }

  #readError(error: unknown, request: RawRequest): DSecError {
    const progress = this.#progress(request, true);
    return request.signal?.aborted === true && !(error instanceof DSecError)
      ? cancelledError(request.signal.reason, progress)
      : connectionError(error, progress);
  }

  #progress(request: RawRequest, connected: boolean): Progress {
    return { peer: this.peer, address: this.address, connected, changes: request.method !== "GET" };
  }
}

function isIdempotent(method: string): boolean {
  return method === "GET" || method === "PUT" || method === "DELETE";
}

/** `assigned`: the agent gave the request a socket; `connected`: that socket is connected. */
function watchConnection(request: ClientRequest, event: "connect" | "secureConnect") {
  const state = { assigned: false, connected: false };
  request.once("socket", (socket) => {
    state.assigned = true;
    if (socket.connecting) socket.once(event, () => (state.connected = true));
    else state.connected = true;
  });
  return state;
}

/** `?key=value…`; arrays are repeated, undefined is left out. Empty without parameters. */
export function queryString(query: Readonly<Record<string, QueryValue>>): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value === undefined) continue;
    for (const item of Array.isArray(value) ? (value as readonly (string | number)[]) : [value])
      search.append(key, String(item));
  }
  const text = search.toString();
  return text === "" ? "" : `?${text}`;
}
