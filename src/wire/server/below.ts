import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { type RouteName, routes } from "../../protocol/routes.ts";
import { matchPath } from "./route-match.ts";

/** A request for anything below a route's path. Nobody has authenticated or checked it. */
export interface BelowCall {
  readonly request: IncomingMessage;
  readonly params: Readonly<Record<string, string>>;
  /** What follows the route's path, byte for byte, with the query; may be empty. */
  readonly rest: string;
  /** Aborts when the server closes. */
  readonly closing: AbortSignal;
}

/** Serves everything below a path, whatever the method. */
export interface BelowHandler {
  /** Answers on `response` itself, or throws before it does. */
  request(call: BelowCall & { readonly response: ServerResponse }): Promise<void>;
  /** Owns the socket; may throw until it has written to it. */
  upgrade(call: BelowCall & { readonly socket: Duplex; readonly head: Buffer }): Promise<void>;
}

interface Found {
  readonly handler: BelowHandler;
  readonly params: Readonly<Record<string, string>>;
  readonly rest: string;
}

/** The routes that end in whatever their handler likes. */
export class BelowRoutes {
  readonly #handlers = new Map<RouteName, { readonly segments: number; readonly handler: BelowHandler }>();

  handle(name: RouteName, handler: BelowHandler): void {
    this.#handlers.set(name, { segments: routes[name].path.split("/").length, handler });
  }

  /** @param url path and query as they came @throws DSecError `invalid_argument` on bad escapes */
  find(url: string): Found | undefined {
    for (const [name, { segments, handler }] of this.#handlers) {
      const end = endOf(url, segments);
      const params = end === undefined ? undefined : matchPath(routes[name].path, url.slice(0, end));
      if (params !== undefined) return { handler, params, rest: url.slice(end) };
    }
    return undefined;
  }
}

/** Where the first `segments` segments of a path end; undefined when it has fewer. */
function endOf(url: string, segments: number): number | undefined {
  const query = url.indexOf("?");
  const path = query === -1 ? url : url.slice(0, query);
  let at = -1;
  for (let segment = 0; segment < segments; segment += 1) {
    if (at === path.length) return undefined;
    const next = path.indexOf("/", at + 1);
    at = next === -1 ? path.length : next;
  }
  return at;
}
