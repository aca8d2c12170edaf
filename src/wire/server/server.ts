import { setTimeout as delay } from "node:timers/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from "fastify";
import { DSecError, errorTable } from "../../protocol/errors.ts";
import { toProblem } from "../../protocol/problem-codec.ts";
import { maxBodyBytes, maxBodyOf, type RouteName, routes } from "../../protocol/routes.ts";
import { z } from "zod";
import { parseAddress } from "../address.ts";
import { type BelowHandler, BelowRoutes } from "./below.ts";
import { bearerAuthenticator } from "./authentication.ts";
import {
  type Call,
  type Handler,
  type RawCall,
  type RawHandler,
  type StreamHandler,
  withSignal,
} from "./call.ts";
import { type Contract, contracts, type Query, type Result } from "./contracts.ts";
import { type Listener, listen, type TlsFiles } from "./listener.ts";
import { writeNdjson } from "./ndjson.ts";
import { openApiDocument } from "./openapi.ts";
import { asDSecError, problemHeaders, sendProblem, sendRawProblem } from "./problems.ts";
import { matchPath } from "./route-match.ts";
import type { LocalServer } from "./handover.ts";
import { type UpgradeHandler, Upgrades } from "./upgrades.ts";
import { parsePart } from "./validation.ts";

export interface WireServerOptions {
  readonly role: "coordinator" | "daemon";
  readonly version: string;
  /** Bearer token that every request but `GET /v1/version` must carry. */
  readonly token: string;
  /** A pino logger. */
  readonly log: FastifyBaseLogger;
}

/** Milliseconds that open requests get to end after a close. */
const closeGraceMs = 2000;

/**
 * The HTTP server of coordinator and daemon: routes by name from the route table, validated by their contracts;
 * authentication, problems, upgrades, listening and closing are the same for both.
 */
export class WireServer implements LocalServer {
  readonly #app: FastifyInstance;
  readonly #log: FastifyBaseLogger;
  readonly #below = new BelowRoutes();
  readonly #upgrades: Upgrades;
  readonly #closing = new AbortController();
  readonly #listeners: Listener[] = [];
  readonly #served = new Set<RouteName>();
  #openApi: Promise<object> | undefined;

  constructor(options: WireServerOptions) {
    const authenticate = bearerAuthenticator(options.token);
    this.#log = options.log;
    this.#upgrades = new Upgrades(authenticate, this.#below, this.#closing.signal);
    this.#app = fastify({
      loggerInstance: options.log,
      logController: new LogController({ disableRequestLogging: true }),
      requestIdHeader: "x-request-id",
      exposeHeadRoutes: false,
      bodyLimit: maxBodyBytes,
      return503OnClosing: false,
      forceCloseConnections: false,
      routerOptions: { maxParamLength: 256 },
      frameworkErrors: (error, _request, reply) => answerProblem(reply, asDSecError(error)),
    });
    this.#app.addHook("onRequest", async (request) => {
      if (request.url !== routes.version.path) authenticate(request.raw);
    });
    this.#app.addHook("onResponse", async (request, reply) => {
      request.log.debug(
        { method: request.method, url: request.url, status: reply.statusCode, ms: reply.elapsedTime },
        "answered",
      );
    });
    this.#app.setErrorHandler((error, request, reply) => this.#fail(error, request, reply));
    this.#app.setNotFoundHandler((request, reply) => answerProblem(reply, this.#unknown(request, reply)));
    this.#app.removeAllContentTypeParsers();
    this.#app.addContentTypeParser("application/json", { parseAs: "string" }, (_request, body, done) => {
      parseJson(body.toString(), done);
    });
    this.handle("version", async () => ({ version: options.version, role: options.role, api: "v1" }));
    this.#app.get("/v1/openapi.json", async () => {
      this.#openApi ??= openApiDocument([...this.#served], options.version);
      return this.#openApi;
    });
  }

  /** Aborts when the server begins to close. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Open upgraded connections. */
  get upgraded(): number {
    return this.#upgrades.size;
  }

  /** Serves a route. An ndjson handler throws before it resolves if it has nothing to stream: later errors cut the connection. */
  handle<N extends RouteName>(name: N, handler: Handler<N>): void {
    const contract: Contract = contracts[name];
    this.#served.add(name);
    this.#app.route({
      method: routes[name].method,
      url: routes[name].path,
      bodyLimit: maxBodyOf(name),
      handler: async (request, reply) => {
        const fields = {
          params: contract.params && parsePart("params", contract.params, request.params),
          query: parseQuery(contract, request.query),
          body: contract.body && parsePart("body", contract.body, request.body),
          headers: request.headers,
          requestId: request.id,
          log: request.log,
        };
        // the types of the fields are read off the same contract that parsed them
        const call = withSignal(fields, reply.raw, this.closing) as Call<N>;
        return answer(contract, reply, await handler(call), call);
      },
    });
  }

  /** Serves a route without reading or checking its body and query: for forwarding. */
  handleRaw(name: RouteName, handler: RawHandler): void {
    this.#raw(name, async (call) => handler(call));
  }

  /** Serves a route whose body or answer is content: the handler reads and writes it by itself. */
  handleStream<N extends RouteName>(name: N, handler: StreamHandler<N>): void {
    this.#raw(name, async (call, query) => {
      // the type is read off the same contract that parsed it
      const checked = parseQuery(contracts[name], query) as Query<N>;
      await handler(Object.assign(call, { query: checked }));
    });
  }

  #raw(name: RouteName, handler: (call: RawCall, query: unknown) => Promise<void>): void {
    this.#served.add(name);
    void this.#app.register(async (scope) => {
      scope.removeAllContentTypeParsers();
      scope.addContentTypeParser("*", (_request, _payload, done) => done(null));
      scope.route({
        method: routes[name].method,
        url: routes[name].path,
        handler: async (request, reply) => {
          const contract: Contract = contracts[name];
          const params =
            contract.params === undefined ? {} : parsePart("params", contract.params, request.params);
          reply.hijack();
          const { raw: response } = reply;
          const fields = {
            request: request.raw,
            response,
            params: params as Readonly<Record<string, string>>,
            requestId: request.id,
            log: request.log,
          };
          try {
            await handler(withSignal(fields, response, this.closing), request.query);
          } catch (error) {
            const known = asDSecError(error);
            logFailure(request.log, known);
            sendProblem(response, known);
          }
        },
      });
    });
  }

  /** Serves a route that is answered by an upgrade. */
  handleUpgrade(name: RouteName, handler: UpgradeHandler): void {
    this.#served.add(name);
    this.#upgrades.handle(name, handler);
  }

  /** Serves everything below a route's path. Its handler authenticates by itself. */
  handleBelow(name: RouteName, handler: BelowHandler): void {
    this.#served.add(name);
    this.#below.handle(name, handler);
  }

  /**
   * Listens on `unix:/path`, `http://127.0.0.1:port` or `https://host:port`; may be called for several addresses.
   * @returns the address as a client would give it
   * @throws DSecError `already_running`, `address_in_use`, `permission_denied`, `invalid_argument`
   */
  async listen(address: string, tls?: TlsFiles): Promise<string> {
    const parsed = parseAddress(address);
    await this.#app.ready();
    const listener = await listen(
      parsed,
      (request, response) => void this.#route(request, response),
      tls,
      (server) => {
        this.#upgrades.attach(server);
        server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
          if (error.code === "ECONNRESET") socket.destroy();
          else sendRawProblem(socket, clientError(error));
        });
      },
    );
    this.#listeners.push(listener);
    return listener.address;
  }

  take(request: IncomingMessage, response: ServerResponse): void {
    void this.#route(request, response);
  }

  takeUpgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    this.#upgrades.take(request, socket, head);
  }

  /** Stops accepting, ends watches and other long answers, lets the rest finish for two seconds, then cuts what is left. */
  async close(): Promise<void> {
    this.#closing.abort(new DSecError("cancelled", "the server is shutting down"));
    const stopped = Promise.all(this.#listeners.map(async (listener) => listener.stop()));
    const grace = new AbortController();
    const cut = delay(closeGraceMs, undefined, { signal: grace.signal }).then(
      () => this.#cut(),
      () => undefined,
    );
    await stopped;
    grace.abort();
    await cut;
    await this.#app.close();
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const below = this.#below.find(request.url ?? "/");
      if (below === undefined) this.#app.routing(request, response);
      else {
        const { params, rest } = below;
        await below.handler.request({ request, response, params, rest, closing: this.closing });
      }
    } catch (error) {
      const known = asDSecError(error);
      logFailure(this.#log, known);
      sendProblem(response, known);
    }
  }

  #cut(): void {
    this.#upgrades.destroyAll();
    for (const { server } of this.#listeners) server.closeAllConnections();
  }

  #fail(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
    const known = asDSecError(error);
    logFailure(request.log, known);
    answerProblem(reply.header("x-request-id", request.id), known);
  }

  #unknown(request: FastifyRequest, reply: FastifyReply): DSecError {
    const path = request.url.split("?", 1)[0] ?? "/";
    const allowed = [...this.#served].filter((name) => matchPath(routes[name].path, path) !== undefined);
    if (allowed.length === 0) return new DSecError("not_found", `this server has nothing at ${path}`);
    const methods = [...new Set(allowed.map((name) => routes[name].method))];
    reply.header("allow", methods.join(", "));
    if (methods.includes("GET") && request.method === "GET")
      return new DSecError("invalid_argument", `${path} is answered by an upgrade to WebSocket only`);
    return new DSecError(
      "method_not_allowed",
      `${path} does not take ${request.method}, but ${methods.join(", ")}`,
    );
  }
}

async function answer(
  contract: Contract,
  reply: FastifyReply,
  result: unknown,
  call: { readonly signal: AbortSignal },
): Promise<unknown> {
  switch (contract.answer) {
    case "ndjson":
      reply.hijack();
      await writeNdjson(reply.raw, result as AsyncIterable<unknown>, call.signal).catch((error: unknown) => {
        reply.log.warn({ err: error }, "a stream broke off");
      });
      return undefined;
    case "text": {
      const { contentType, text } = result as Result<"metrics">;
      return reply.code(contract.status).header("content-type", contentType).send(text);
    }
    case "json":
      return reply
        .code(contract.status)
        .header("content-type", "application/json; charset=utf-8")
        .send(JSON.stringify(result));
    default:
      return reply.code(contract.status).send();
  }
}

/** The query of a route without one must be empty. */
const noQuery = z.strictObject({});

function parseQuery(contract: Contract, query: unknown): unknown {
  const parsed = parsePart("query", contract.query ?? noQuery, query);
  return contract.query === undefined ? undefined : parsed;
}

function parseJson(text: string, done: (error: Error | null, body?: unknown) => void): void {
  let body: unknown;
  try {
    body = text === "" ? undefined : JSON.parse(text);
  } catch (cause) {
    done(new DSecError("invalid_argument", "the request body is not valid JSON", { cause }));
    return;
  }
  done(null, body);
}

function answerProblem(reply: FastifyReply, error: DSecError): void {
  reply
    .code(errorTable[error.code].status)
    .headers(problemHeaders(error))
    .send(JSON.stringify(toProblem(error)));
}

function logFailure(log: FastifyBaseLogger, error: DSecError): void {
  if (error.code === "internal") log.error({ err: error }, "a request failed");
  else log.debug({ code: error.code, reason: error.message }, "a request was refused");
}

function clientError(error: NodeJS.ErrnoException): DSecError {
  if (error.code === "HPE_HEADER_OVERFLOW")
    return new DSecError("invalid_argument", "the request's headers are too large", { cause: error });
  if (error.code === "ERR_HTTP_REQUEST_TIMEOUT")
    return new DSecError("invalid_argument", "the request did not arrive in time", { cause: error });
  return new DSecError("invalid_argument", "what was sent is no HTTP request", { cause: error });
}
