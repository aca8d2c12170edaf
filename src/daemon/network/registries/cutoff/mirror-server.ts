import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { pipeline } from "node:stream/promises";
import { DSecError, errorTable } from "../../../../protocol/errors.ts";
import type { Mirror, MirrorAnswer, MirrorDocument } from "./mirror.ts";
import { UpstreamStatus } from "./upstream.ts";

/** Requests of one sandbox at a time. */
const maxPerClient = 64;
const maxConnections = 8192;
const longestPath = 1024;
/** Milliseconds without a byte taken after which a client is given up. */
const clientStallMs = 120_000;

/** Serves a mirror to sandboxes: reading only, and without TLS, as nothing lies between them and their node. */
export class MirrorServer {
  readonly #server: Server;
  readonly #busy = new Map<string, number>();
  #mirror: Mirror | undefined;

  private constructor() {
    this.#server = createServer(
      { maxHeaderSize: 16_384, requestTimeout: 30_000, keepAliveTimeout: 15_000 },
      (request, response) => void this.#handle(request, response),
    );
    this.#server.maxConnections = maxConnections;
    this.#server.setTimeout(clientStallMs);
  }

  /**
   * @param port 0 for any that is free
   * @param mirror makes what is served, from the address that it is reached at
   * @throws DSecError `address_in_use`
   */
  static async listen(
    host: string,
    port: number,
    mirror: (address: string) => Mirror,
  ): Promise<MirrorServer> {
    const server = new MirrorServer();
    await new Promise<void>((resolve, reject) => {
      server.#server.once("error", (cause) =>
        reject(new DSecError("address_in_use", `nothing can listen on ${host}:${port}`, { cause })),
      );
      server.#server.listen({ host, port }, resolve);
    });
    server.#mirror = mirror(`http://${host}:${server.port}/`);
    return server;
  }

  get port(): number {
    return portOf(this.#server.address());
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => {
      this.#server.close(resolve);
    });
    this.#server.closeAllConnections();
    await closed;
    this.#mirror?.close();
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const client = request.socket.remoteAddress ?? "";
    const busy = this.#busy.get(client) ?? 0;
    try {
      if (busy >= maxPerClient)
        throw new DSecError("connection_limit", `more than ${maxPerClient} requests at a time`);
      this.#busy.set(client, busy + 1);
      await this.#serve(request, response);
    } catch (error) {
      refuse(response, error);
    } finally {
      if (busy < maxPerClient) this.#release(client);
    }
  }

  #release(client: string): void {
    const left = (this.#busy.get(client) ?? 1) - 1;
    if (left === 0) this.#busy.delete(client);
    else this.#busy.set(client, left);
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    request.resume();
    const { method, headers, url = "/" } = request;
    if (method !== "GET" && method !== "HEAD")
      throw new DSecError("method_not_allowed", "this mirror can only be read");
    const path = decodePath(url);
    const answer = await this.#answer(path, headers.accept ?? "");
    if (answer.kind === "missing") return sendError(response, 404, answer.message);
    if (answer.kind === "document") return sendDocument(request, response, answer.document);
    const { file } = answer;
    try {
      response.writeHead(200, {
        "content-type": "application/octet-stream",
        ...(file.length !== undefined && { "content-length": file.length }),
      });
      if (method === "HEAD") response.end();
      else await pipeline(file.content(), response);
    } finally {
      await file.close();
    }
  }

  async #answer(path: string, accept: string): Promise<MirrorAnswer> {
    if (this.#mirror === undefined) throw new DSecError("backend_unavailable", "the mirror is not ready yet");
    return this.#mirror.answer(path, accept);
  }
}

function portOf(address: AddressInfo | string | null): number {
  return typeof address === "object" && address !== null ? address.port : 0;
}

/** @throws DSecError `invalid_argument` */
function decodePath(url: string): string {
  const path = url.split("?", 1)[0] ?? "";
  try {
    if (path.length > longestPath) throw new RangeError("too long");
    const decoded = decodeURIComponent(path.slice(1));
    if (!/^[\x20-\x7e]*$/.test(decoded) || /(?:^|\/)\.\.?(?:\/|$)/.test(decoded))
      throw new RangeError("not plain");
    return decoded;
  } catch (cause) {
    throw new DSecError("invalid_argument", "the path cannot be read", { cause });
  }
}

function sendDocument(
  request: IncomingMessage,
  response: ServerResponse,
  { body, type, etag }: MirrorDocument,
): void {
  const headers = { etag, vary: "accept", "cache-control": "max-age=60" };
  if (request.headers["if-none-match"] === etag) {
    response.writeHead(304, headers).end();
    return;
  }
  response.writeHead(200, { ...headers, "content-type": type, "content-length": body.length });
  response.end(request.method === "HEAD" ? undefined : body);
}

function refuse(response: ServerResponse, error: unknown): void {
  if (response.headersSent || response.destroyed) {
    // An answer that was cut short must not look whole.
    response.destroy();
    return;
  }
  const known = error instanceof DSecError;
  const status = known ? errorTable[error.code].status : 502;
  const said = known || error instanceof UpstreamStatus ? error.message : "the registry cannot be read";
  sendError(response, status, said);
}

function sendError(response: ServerResponse, status: number, message: string): void {
  const body = JSON.stringify({ error: message });
  response.writeHead(status, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
  });
  response.end(body);
}
