import type { ClientRequest, IncomingMessage, OutgoingHttpHeaders } from "node:http";
import type { Readable } from "node:stream";
import { DSecError } from "../../protocol/errors.ts";
import type { TunnelStream } from "../tunnel-stream.ts";
import { type OpenPort, PortAgent, type PortOptions, preparedForHttp, tolerant } from "./port-agent.ts";

export interface PortRequest {
  /** Id, name or prefix of the sandbox. */
  readonly ref: string;
  readonly port: number;
  readonly method: string;
  /** With query. */
  readonly path: string;
  readonly headers: OutgoingHttpHeaders;
  readonly body?: Readable | Uint8Array | undefined;
  /** Milliseconds until the head of the answer must be there; none by default. */
  readonly answerMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The answer to an upgrade: the connection, or a response like any other. */
export type UpgradeAnswer =
  | {
      readonly type: "upgraded";
      readonly response: IncomingMessage;
      readonly stream: TunnelStream;
      readonly head: Buffer;
    }
  | { readonly type: "refused"; readonly response: IncomingMessage };

const http = process.getBuiltinModule("node:http");
/** Methods that change nothing, so that they may be sent twice. */
const safeMethods: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS"]);

/** HTTP to services in sandboxes, over tunnels. */
export class PortClient {
  readonly #open: OpenPort;
  readonly #agent: PortAgent;

  constructor(open: OpenPort) {
    this.#open = open;
    this.#agent = new PortAgent(open);
  }

  /**
   * Sends a request; resolves with the head of the answer, whatever its status. A request that changes nothing goes over a kept
   * connection where there is one, and again if that turns out to have ended; any other has a connection of its own,
   * so that it is never in doubt because of one that just ended.
   * @throws DSecError `port_refused`, `port_timeout`, `protocol_error` when what answers does not speak HTTP,
   *   `connection_lost`, `cancelled`, and whatever keeps a tunnel from being opened
   */
  async request(request: PortRequest): Promise<IncomingMessage> {
    const isRepeatable = safeMethods.has(request.method) && request.body === undefined;
    if (!isRepeatable) {
      const stream = preparedForHttp(await this.#open(request.ref, request.port, request.signal));
      return this.#exchange(request, { createConnection: () => stream }).answer;
    }
    for (;;) {
      const options: PortOptions = { ref: request.ref, sandboxPort: request.port, agent: this.#agent };
      const { outgoing, answer } = this.#exchange(request, options);
      try {
        return await answer;
      } catch (error) {
        const isStale =
          outgoing.reusedSocket && error instanceof DSecError && error.code === "connection_lost";
        if (!isStale) throw error;
      }
    }
  }

  /** Asks for an upgrade, over a connection of its own. @throws as {@link request} */
  async upgrade(request: PortRequest): Promise<UpgradeAnswer> {
    const stream = tolerant(await this.#open(request.ref, request.port, request.signal));
    const { promise: upgraded, resolve } = Promise.withResolvers<UpgradeAnswer>();
    const { answer } = this.#exchange(request, { createConnection: () => stream }, (response, head) =>
      resolve({ type: "upgraded", response, stream, head }),
    );
    const refused = answer.then((response) => {
      response.once("close", () => stream.destroy());
      return { type: "refused", response } as const;
    });
    return Promise.race([upgraded, refused]);
  }

  /** Cuts every connection that is kept. */
  close(): void {
    this.#agent.destroy();
  }

  #exchange(
    request: PortRequest,
    connection: PortOptions,
    upgraded?: (response: IncomingMessage, head: Buffer) => void,
  ): { outgoing: ClientRequest; answer: Promise<IncomingMessage> } {
    const { method, path, headers, body, signal, answerMs } = request;
    const outgoing = http.request({ method, path, headers, ...connection });
    const { promise: answer, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const abort = (): void => void outgoing.destroy(cancelled(signal));
    const timer =
      answerMs === undefined ? undefined : setTimeout(() => outgoing.destroy(late(request)), answerMs);
    outgoing.once("close", () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    });
    outgoing.once("upgrade", (response, stream, head: Buffer) => {
      clearTimeout(timer);
      if (upgraded !== undefined) upgraded(response, head);
      else {
        stream.destroy();
        reject(unusable(request.port));
      }
    });
    outgoing.once("response", (response) => {
      clearTimeout(timer);
      const { socket } = outgoing;
      // what broke the tunnel says more than that it broke
      const broken = (error: Error): void => void response.destroy(error);
      socket?.once("error", broken);
      response.once("close", () => socket?.off("error", broken));
      resolve(response);
    });
    outgoing.on("error", (error) => reject(answerError(error, request)));
    if (signal?.aborted === true) abort();
    else signal?.addEventListener("abort", abort, { once: true });
    if (body === undefined || body instanceof Uint8Array) outgoing.end(body);
    else send(body, outgoing);
    return { outgoing, answer };
  }
}

/** Not by pipeline, which would destroy a source that is only half read: the answer may have come before its end. */
function send(body: Readable, outgoing: ClientRequest): void {
  body.pipe(outgoing);
  body.once("error", (error) => outgoing.destroy(error));
  body.once("close", () => {
    if (!body.readableEnded) outgoing.destroy();
  });
  outgoing.once("close", () => body.unpipe(outgoing));
}

function cancelled(signal: AbortSignal | undefined): DSecError {
  const reason: unknown = signal?.reason;
  return reason instanceof DSecError
    ? reason
    : new DSecError("cancelled", "the request was cancelled", { cause: reason });
}

function late({ port, answerMs }: PortRequest): DSecError {
  return new DSecError("port_timeout", `the service on port ${port} gave no answer within ${answerMs} ms`, {
    details: { port },
  });
}

function answerError(error: Error & { readonly code?: unknown }, { port, method }: PortRequest): DSecError {
  if (error instanceof DSecError) return error;
  const options = { cause: error, details: { port } };
  if (typeof error.code === "string" && error.code.startsWith("HPE_")) return unusable(port, error);
  return new DSecError(
    "connection_lost",
    `the service on port ${port} ended the connection without an answer`,
    {
      ...options,
      ambiguous: !safeMethods.has(method),
    },
  );
}

/** The error for an answer that cannot be passed on. */
export function unusable(port: number, cause?: unknown): DSecError {
  return new DSecError("protocol_error", `what answers on port ${port} is no HTTP that can be passed on`, {
    details: { port },
    ...(cause === undefined ? {} : { cause }),
  });
}
