import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/**
 * A server as another one in the same process sees it: it takes requests that came to that one as if they had come over a connection
 * of its own. Address, headers, authentication and answers are the wire's; only the second socket is saved.
 */
export interface LocalServer {
  /** Aborts when it takes nothing any more. */
  readonly closing: AbortSignal;
  take(request: IncomingMessage, response: ServerResponse): void;
  takeUpgrade(request: IncomingMessage, socket: Socket, head: Buffer): void;
}

/** What a request is for where it is handed over to. */
export interface Readdressed {
  /** With query. */
  readonly path: string;
  /** All that is left of the headers. */
  readonly headers: IncomingHttpHeaders;
}

/** Makes a request that was received into the one that would have been sent on. */
export function readdress(request: IncomingMessage, { path, headers }: Readdressed): IncomingMessage {
  return Object.assign(request, { url: path, headers });
}
