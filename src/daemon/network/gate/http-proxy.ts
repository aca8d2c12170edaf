import {
  Agent,
  createServer,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from "node:http";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { canonicalName } from "../../../protocol/domain-name.ts";
import type { NetworkVerdict } from "../../../protocol/network-decision.ts";
import { type Flow, tooManyFlows, unchecked } from "./flow.ts";

export interface HttpProxyParts {
  readonly now: () => number;
  /** Milliseconds until a server must have taken the connection. */
  readonly connectMs: number;
}

/** A flow that speaks HTTP, and the one connection to its server. */
interface HttpFlow {
  readonly flow: Flow;
  readonly agent: Agent;
  /** Requests that have not been answered to their end. */
  open: number;
}

/** Requests of a connection at a time: Node reads on, however many wait. Package managers send a dozen ahead. */
const mostOpen = 64;
const idleMs = 30_000;
const headersMs = 20_000;
/** What is said about one hop, and is not passed on. */
const hopByHop = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "proxy-authenticate",
  "proxy-authorization",
  "te",
  "trailer",
  "upgrade",
  "http2-settings",
]);

/** The way to a flow's server: one connection at a time, and as many as a sandbox may begin. */
class FlowAgent extends Agent {
  readonly #flow: Flow;
  readonly #now: () => number;

  constructor(flow: Flow, now: () => number) {
    super({ keepAlive: true, maxSockets: 1, timeout: idleMs });
    this.#flow = flow;
    this.#now = now;
  }

  override createConnection(
    options: Parameters<Agent["createConnection"]>[0],
    callback?: Parameters<Agent["createConnection"]>[1],
  ): ReturnType<Agent["createConnection"]> {
    if (this.#flow.sandbox.begun.take(this.#now())) return super.createConnection(options, callback);
    // Thrown, it would not always reach whoever waits.
    queueMicrotask(() => callback?.(new TooManyFlows(), new Duplex()));
    return undefined;
  }
}

class TooManyFlows extends Error {}

/**
 * Plain HTTP: every request is parsed, judged by its Host and written anew, so that no second one can hide behind a first. Upgrades are not
 * passed on, as nobody could read what follows.
 */
export class HttpProxy {
  readonly #parts: HttpProxyParts;
  readonly #server: Server;
  readonly #flows = new WeakMap<Socket, HttpFlow>();

  constructor(parts: HttpProxyParts) {
    this.#parts = parts;
    this.#server = createServer({
      keepAliveTimeout: idleMs,
      headersTimeout: headersMs,
      requestTimeout: 0,
      connectionsCheckingInterval: headersMs / 2,
    });
    this.#server.on("request", (message, response) => this.#take(message, response));
    this.#server.on("checkContinue", (message: IncomingMessage, response: ServerResponse) => {
      response.writeContinue();
      this.#take(message, response);
    });
    this.#server.on("connect", (message: IncomingMessage, socket: Socket) => {
      const known = this.#flows.get(socket);
      known?.flow.decided("name", unchecked("name_mismatch"), message.url?.replace(/:\d+$/, ""));
      socket.end(`HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n${refusal}`);
    });
    this.#server.on("clientError", (error: Error, socket: Socket) => {
      // What the parser does not take as one request and nothing else: of a part that nobody has read, too.
      if (isOfParser(error)) this.#flows.get(socket)?.flow.decided("name", unchecked("malformed"));
      if (!socket.destroyed) socket.destroy();
    });
  }

  /** Takes over a connection whose first bytes are those of a request. */
  take(flow: Flow): void {
    const agent = new FlowAgent(flow, this.#parts.now);
    flow.own(agent);
    flow.client.once("close", () => agent.destroy());
    this.#flows.set(flow.client, { flow, agent, open: 0 });
    this.#server.emit("connection", flow.client);
  }

  close(): void {
    this.#server.closeAllConnections();
    // Never listens; this ends its timer.
    this.#server.close();
  }

  /** What is read may be more than what may be written; an error here must not end more than this connection. */
  #take(message: IncomingMessage, response: ServerResponse): void {
    try {
      this.#serve(message, response);
    } catch {
      this.#flows.get(message.socket)?.flow.decided("name", unchecked("malformed"));
      message.socket.destroy();
    }
  }

  #serve(message: IncomingMessage, response: ServerResponse): void {
    const known = this.#flows.get(message.socket);
    if (known === undefined) {
      response.destroy();
      return;
    }
    const { flow, agent } = known;
    if (known.open >= mostOpen) {
      flow.cut();
      return;
    }
    known.open += 1;
    response.once("close", () => (known.open -= 1));
    const host = hostOf(message);
    const verdict = host === undefined ? unchecked("no_name") : flow.judgeName(host, this.#parts.now());
    const name = host === undefined ? undefined : canonicalName(host);
    if (!verdict.allowed || flow.name !== name || flow.name === undefined)
      flow.decided("name", verdict, host);
    if (!verdict.allowed) {
      refuse(response, verdict);
      return;
    }
    flow.allowAs(name);
    const outgoing = request({
      host: flow.address,
      port: flow.port,
      agent,
      method: message.method ?? "GET",
      path: message.url ?? "/",
      headers: passedOn(message.rawHeaders),
      setHost: false,
    });
    // Only until the connection is there: a server may think as long as it likes.
    const timer = setTimeout(
      () => outgoing.destroy(new Error("the server does not answer")),
      this.#parts.connectMs,
    );
    outgoing.on("socket", (socket) => {
      if (socket.connecting) socket.once("connect", () => clearTimeout(timer));
      else clearTimeout(timer);
    });
    outgoing.on("close", () => clearTimeout(timer));
    outgoing.on("response", (answer) => {
      try {
        response.writeHead(answer.statusCode ?? 502, answer.statusMessage, passedOn(answer.rawHeaders));
        answer.on("error", () => undefined);
        answer.once("close", () => {
          // A part of an answer must not look like all of it.
          if (!answer.complete) flow.client.destroy();
        });
        answer.pipe(response);
      } catch {
        flow.cut();
      }
    });
    // Nobody has asked for it: what asks is not passed on.
    outgoing.on("upgrade", (_answer, socket) => {
      socket.destroy();
      respond(response, 502, "the server has changed the protocol");
    });
    outgoing.on("error", (error) => {
      // Of no use to anybody; unread, it would keep the connection from its end.
      message.resume();
      if (response.headersSent) flow.client.destroy();
      else if (error instanceof TooManyFlows) {
        flow.decided("name", tooManyFlows, host);
        respond(response, 429, "more connections than the sandbox may begin");
      } else respond(response, 502, `the server cannot be reached: ${error.message}`);
    });
    response.on("close", () => {
      if (!response.writableFinished) outgoing.destroy();
    });
    message.on("error", () => undefined);
    message.pipe(outgoing);
  }
}

const refusal = "refused by the sandbox's network policy\n";

function refuse(response: ServerResponse, { by }: NetworkVerdict): void {
  const why = by.kind === "rule" ? `: ${by.text}` : by.kind === "unchecked" ? `: ${by.reason}` : "";
  respond(response, 403, `${refusal.trimEnd()}${why}`);
}

function respond(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { "content-type": "text/plain; charset=utf-8", connection: "close" });
  response.end(`${text}\n`);
}

/** The name that a request is for; undefined where it names none, several, or one as if this were a proxy that it knows of. */
function hostOf({ headersDistinct, url }: IncomingMessage): string | undefined {
  const [host, ...more] = headersDistinct["host"] ?? [];
  if (host === undefined || more.length > 0 || !(url?.startsWith("/") === true || url === "*"))
    return undefined;
  return host.replace(/:\d{1,5}$/, "");
}

function isOfParser(error: Error): boolean {
  return "code" in error && typeof error.code === "string" && error.code.startsWith("HPE_");
}

function passedOn(rawHeaders: readonly string[]): string[] {
  const named = new Set<string>();
  for (let at = 0; at < rawHeaders.length; at += 2)
    if (rawHeaders[at]?.toLowerCase() === "connection")
      for (const name of rawHeaders[at + 1]?.split(",") ?? []) named.add(name.trim().toLowerCase());
  const kept: string[] = [];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const [name = "", value = ""] = rawHeaders.slice(at, at + 2);
    const lower = name.toLowerCase();
    if (hopByHop.has(lower) || (named.has(lower) && !framing.has(lower))) continue;
    kept.push(name, value);
  }
  return kept;
}

/** What tells where a message ends cannot be declared to be of one hop, nor can its target. */
const framing = new Set(["content-length", "transfer-encoding", "host"]);
