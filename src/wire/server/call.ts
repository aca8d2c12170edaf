import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import type { FastifyBaseLogger } from "fastify";
import { DSecError } from "../../protocol/errors.ts";
import type { RouteName } from "../../protocol/routes.ts";
import type { Body, Params, Query, Result } from "./contracts.ts";

/** A validated request. */
export interface Call<N extends RouteName> {
  readonly params: Params<N>;
  readonly query: Query<N>;
  readonly body: Body<N>;
  readonly headers: IncomingHttpHeaders;
  readonly requestId: string;
  readonly log: FastifyBaseLogger;
  /** Aborts when the client goes away before its answer, and when the server closes. */
  readonly signal: AbortSignal;
}

export type Handler<N extends RouteName> = (call: Call<N>) => Promise<Result<N>>;

/** An authenticated request whose body has not been read. The handler answers on `response` itself, or throws before it does. */
export interface RawCall {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly params: Readonly<Record<string, string>>;
  readonly requestId: string;
  readonly log: FastifyBaseLogger;
  /** As in {@link Call}. */
  readonly signal: AbortSignal;
}

/** As {@link RawCall}, with its query checked by the contract. */
export interface StreamCall<N extends RouteName> extends RawCall {
  readonly query: Query<N>;
}

export type StreamHandler<N extends RouteName> = (call: StreamCall<N>) => Promise<void>;

export type RawHandler = (call: RawCall) => Promise<void>;

/** Adds the lazy `signal`: most requests are answered before anybody could abort them, so it is made when first read. */
export function withSignal<T extends object>(
  fields: T,
  response: ServerResponse,
  closing: AbortSignal,
): T & { readonly signal: AbortSignal } {
  let made: AbortSignal | undefined;
  return Object.defineProperty(fields, "signal", {
    get: () => (made ??= signalOf(response, closing)),
  }) as T & { readonly signal: AbortSignal };
}

function signalOf(response: ServerResponse, closing: AbortSignal): AbortSignal {
  const controller = new AbortController();
  const shutDown = (): void => controller.abort(closing.reason);
  const gone = (): void => {
    closing.removeEventListener("abort", shutDown);
    if (!response.writableFinished) controller.abort(new DSecError("cancelled", "the client went away"));
  };
  if (closing.aborted) shutDown();
  else closing.addEventListener("abort", shutDown, { once: true });
  if (response.closed || response.destroyed) gone();
  else response.once("close", gone);
  return controller.signal;
}
