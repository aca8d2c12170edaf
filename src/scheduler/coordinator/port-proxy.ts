import { randomUUID } from "node:crypto";
import {
  type IncomingMessage,
  type OutgoingHttpHeaders,
  STATUS_CODES,
  validateHeaderName,
  validateHeaderValue,
} from "node:http";
import { type Duplex, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { FastifyBaseLogger } from "fastify";
import { DSecError } from "../../protocol/errors.ts";
import { routePath } from "../../protocol/routes.ts";
import { PortClient, type PortRequest, unusable } from "../../wire/client/port-client.ts";
import { openTunnel } from "../../wire/client/tunnel.ts";
import type { BelowCall, BelowHandler } from "../../wire/server/below.ts";
import { contracts } from "../../wire/server/contracts.ts";
import { parsePart } from "../../wire/server/validation.ts";
import type { TunnelStream } from "../../wire/tunnel-stream.ts";
import { locate } from "./locate.ts";
import type { PortAccess } from "./port-access.ts";
import { headersInward, headersOutward, upgradeHeaders, withoutToken } from "./proxy-headers.ts";
import type { Registry } from "./registry.ts";

/** Milliseconds until a service must have sent the head of its answer. */
const answerMs = 300_000;
/** Milliseconds for a client to take the last answer and close. */
const farewellMs = 2000;

/**
 * HTTP to services in sandboxes: `/v1/sandboxes/:ref/http/:port/…`. Everything goes to the port of the sandbox that the path names, whatever
 * else a request says; bodies stream both ways, no faster than the other end takes them. What a service answers is not
 * believed: it is parsed strictly, and of its headers only those of a message are passed on.
 */
export class PortProxy implements BelowHandler {
  readonly #access: PortAccess;
  readonly #log: FastifyBaseLogger;
  readonly #ports: PortClient;

  constructor(registry: Registry, access: PortAccess, log: FastifyBaseLogger) {
    this.#access = access;
    this.#log = log;
    this.#ports = new PortClient(async (ref, port, signal) => {
      const { node, ref: there } = await locate(registry, ref, signal);
      const { address, token, ca } = node;
      return openTunnel({ address, token, ca, peer: "node" }, there, port, signal);
    });
  }

  async request(call: Parameters<BelowHandler["request"]>[0]): Promise<void> {
    const { request, response, closing } = call;
    const target = this.#admit(call);
    if (!target.path.startsWith("/")) {
      // so that the service's relative links lead below its own path
      response.writeHead(308, { location: `${target.port}/${target.path}`, "content-length": 0 }).end();
      return;
    }
    const gone = new AbortController();
    response.once("close", () => gone.abort(new DSecError("cancelled", "the client went away")));
    const hasBody =
      request.headers["transfer-encoding"] !== undefined ||
      Number(request.headers["content-length"] ?? 0) > 0;
    const answer = await this.#ports.request({
      ...target,
      body: hasBody ? request : undefined,
      signal: AbortSignal.any([gone.signal, closing]),
    });
    try {
      response.writeHead(answer.statusCode ?? 0, outward(answer, target));
    } catch (cause) {
      answer.destroy();
      throw unusable(target.port, cause);
    }
    response.flushHeaders();
    await pipeline(answer, response).catch((error: unknown) => {
      // the head is out: all that is left is to cut the answer, which pipeline did
      this.#log.debug({ err: error, port: target.port }, "the answer of a service broke off");
    });
  }

  async upgrade(call: Parameters<BelowHandler["upgrade"]>[0]): Promise<void> {
    const { request, socket, head, closing } = call;
    const target = this.#admit(call);
    const { "content-length": length = "0", "transfer-encoding": coding } = request.headers;
    if (coding !== undefined || length !== "0")
      throw new DSecError("invalid_argument", "a request for an upgrade cannot have a body");
    const gone = new AbortController();
    socket.once("close", () => gone.abort(new DSecError("cancelled", "the client went away")));
    const answer = await this.#ports.upgrade({
      ...target,
      path: target.path.startsWith("/") ? target.path : `/${target.path}`,
      headers: { ...target.headers, ...upgradeHeaders(request) },
      signal: AbortSignal.any([gone.signal, closing]),
    });
    const { response } = answer;
    try {
      if (answer.type === "refused") {
        await refuse(socket, response, target);
        return;
      }
      const headers = { ...outward(response, target), ...upgradeHeaders(response) };
      socket.write(responseHead(101, headers, target.port), "latin1");
      socket.write(answer.head);
      answer.stream.write(head);
      join(socket, answer.stream, closing);
    } catch (error) {
      // nobody else knows of the tunnel
      if (answer.type === "upgraded") answer.stream.destroy();
      response.destroy();
      throw error;
    }
  }

  close(): void {
    this.#ports.close();
  }

  /** Whose request it is and where it leads. @throws DSecError `unauthenticated`, `forbidden`, `invalid_argument` */
  #admit({ request, params, rest }: BelowCall): Target {
    const { ref, port } = parsePart("params", contracts.http.params, params);
    const { path, tokens } = withoutToken(rest);
    const { passAuthorization } = this.#access.check(request, { ref, port }, tokens);
    const requestId = String(request.headers["x-request-id"] ?? randomUUID());
    const prefix = routePath("http", { ref, port: String(port) });
    return {
      ref,
      port,
      method: request.method ?? "GET",
      // a redirect has to keep the token
      path: path.startsWith("/") ? path : rest,
      headers: headersInward(request, { port, requestId, prefix, passAuthorization }),
      answerMs,
      hasTokenInAddress: tokens.length > 0,
    };
  }
}

interface Target extends PortRequest {
  readonly hasTokenInAddress: boolean;
}

function outward(response: IncomingMessage, { hasTokenInAddress }: Target): OutgoingHttpHeaders {
  const headers = headersOutward(response);
  // links that lead elsewhere must not take the address along
  return hasTokenInAddress ? { ...headers, "referrer-policy": "no-referrer" } : headers;
}

/** The service wants no upgrade: its answer is passed on, and the connection is of no further use. */
async function refuse(socket: Duplex, response: IncomingMessage, target: Target): Promise<void> {
  const { "content-length": _, ...headers } = outward(response, target);
  const status = response.statusCode ?? 0;
  const framing = { ...headers, connection: "close", "transfer-encoding": "chunked" };
  socket.write(responseHead(status, framing, target.port), "latin1");
  // a failure cuts the connection before the last chunk
  await pipeline(response, chunked(), socket).catch(() => undefined);
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), farewellMs).unref();
  socket.once("close", () => clearTimeout(timer));
}

function responseHead(status: number, headers: OutgoingHttpHeaders, port: number): string {
  try {
    const lines = Object.entries(headers).flatMap(([name, value]) => {
      validateHeaderName(name);
      return [value].flat().map((each) => {
        validateHeaderValue(name, String(each));
        return `${name}: ${each}\r\n`;
      });
    });
    return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "unknown"}\r\n${lines.join("")}\r\n`;
  } catch (cause) {
    throw unusable(port, cause);
  }
}

function chunked(): Transform {
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      this.push(`${chunk.length.toString(16)}\r\n`);
      this.push(chunk);
      done(null, "\r\n");
    },
    flush(done) {
      done(null, "0\r\n\r\n");
    },
  });
}

/** After the upgrade: bytes, ends and failures of one end become the other's. */
function join(socket: Duplex, stream: TunnelStream, closing: AbortSignal): void {
  const cut = (): void => {
    socket.destroy();
    stream.destroy();
  };
  stream.on("error", cut);
  socket.on("error", cut);
  socket.on("close", () => {
    closing.removeEventListener("abort", cut);
    if (!stream.readableEnded || !stream.writableFinished) stream.destroy();
  });
  stream.on("close", () => {
    if (!stream.readableEnded) socket.destroy();
  });
  closing.addEventListener("abort", cut, { once: true });
  if (closing.aborted) cut();
  socket.pipe(stream);
  stream.pipe(socket);
}
