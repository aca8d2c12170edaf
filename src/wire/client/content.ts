/** Content of any length to and from a server: in bounded memory, for as long as it moves. */
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { Readable } from "node:stream";
import { DSecError } from "../../protocol/errors.ts";
import { fileHeaders } from "../../protocol/file-headers.ts";
import { type ContentRoute, routePath, routes } from "../../protocol/routes.ts";
import { cancelledError, connectionError } from "./connection-error.ts";
import { type HttpClient, queryString, type QueryValue } from "./http-client.ts";
import { readJson, refuseProblem } from "./response.ts";
import { withRetries } from "./retry.ts";

export interface ContentCall {
  readonly params: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, QueryValue>>;
  readonly signal?: AbortSignal | undefined;
}

/** Milliseconds without a byte after which a server that does not say so itself is given up. */
const stallMs = 90_000;

/** An answer with content. */
export interface ContentAnswer {
  readonly headers: IncomingHttpHeaders;
  /** To be read to its end, or left early, which cuts the connection. */
  readonly chunks: AsyncGenerator<Buffer, void, undefined>;
  /** What came after the content. */
  readonly trailers: () => NodeJS.Dict<string>;
}

/** Asks for content; rejects with the server's problem before any of it comes. */
export async function downloadContent(
  http: HttpClient,
  route: ContentRoute,
  { params, query, signal }: ContentCall,
): Promise<ContentAnswer> {
  const path = routePath(route, params) + queryString(query);
  const failed = failureOf(http, signal, false);
  const response = await withRetries(true, signal, async () =>
    http.rawStream({ method: routes[route].method, path, headers: {}, signal }),
  );
  try {
    await refuseProblem(response);
  } catch (error) {
    response.destroy();
    throw failed(error);
  }
  async function* chunks(): AsyncGenerator<Buffer, void, undefined> {
    let stalled: NodeJS.Timeout | undefined;
    const watch = (): void => {
      stalled = setTimeout(() => response.destroy(stallError(http)), stallMs);
    };
    try {
      watch();
      for await (const chunk of response as AsyncIterable<Buffer>) {
        clearTimeout(stalled);
        yield chunk;
        watch();
      }
    } catch (error) {
      throw failed(error);
    } finally {
      clearTimeout(stalled);
      response.destroy();
    }
  }
  return { headers: response.headers, chunks: chunks(), trailers: () => response.trailers };
}

export interface UploadCall extends ContentCall {
  /** What is handed over must not be changed afterwards. */
  readonly content: Uint8Array | AsyncIterable<Uint8Array>;
  /** SHA-256 of a content that is not in memory, in hexadecimal; asked for at its end. */
  readonly sha256?: () => string;
}

/** Sends content; resolves with the server's answer to all of it. An upload that fails on the way is never tried again. */
export async function uploadContent<T>(http: HttpClient, route: ContentRoute, call: UploadCall): Promise<T> {
  const { params, query, content, sha256 } = call;
  const watch = new StallWatch(http);
  const signal = call.signal === undefined ? watch.signal : AbortSignal.any([call.signal, watch.signal]);
  const failed = failureOf(http, signal, true);
  const request = {
    method: routes[route].method,
    path: routePath(route, params) + queryString(query),
    headers: sha256 === undefined ? {} : { trailer: fileHeaders.sha256 },
    ...(sha256 === undefined ? {} : { trailers: () => ({ [fileHeaders.sha256]: sha256() }) }),
    signal,
  };
  if (content instanceof Uint8Array) {
    const headers = { ...request.headers, "content-length": content.length };
    watch.arm();
    return answerOf<T>(http.rawStream({ ...request, headers, body: content }), watch, failed);
  }
  const body = Readable.from(watch.each(content), { highWaterMark: 2 });
  // without a listener it would be thrown; what matters of it is told by the request, or by the source
  body.on("error", () => undefined);
  try {
    return await answerOf<T>(http.rawStream({ ...request, body }), watch, failed);
  } catch (error) {
    // why the source failed tells more than what became of the connection then
    throw watch.sourceFailure ?? error;
  } finally {
    body.destroy();
  }
}

async function answerOf<T>(
  answer: Promise<IncomingMessage>,
  watch: StallWatch,
  failed: (error: unknown) => DSecError,
): Promise<T> {
  try {
    const response = await answer;
    try {
      return (await readJson(response)) as T;
    } finally {
      response.destroy();
    }
  } catch (error) {
    throw failed(error);
  } finally {
    watch.disarm();
  }
}

/** Gives up when what was handed over is not taken, and at the end when no answer comes. */
class StallWatch {
  readonly #controller = new AbortController();
  readonly #http: HttpClient;
  sourceFailure: unknown;
  #timer: NodeJS.Timeout | undefined;

  constructor(http: HttpClient) {
    this.#http = http;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  arm(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#controller.abort(stallError(this.#http)), stallMs);
  }

  disarm(): void {
    clearTimeout(this.#timer);
  }

  async #next(source: AsyncIterator<Uint8Array>): Promise<IteratorResult<Uint8Array>> {
    try {
      return await source.next();
    } catch (error) {
      this.sourceFailure = error;
      throw error;
    }
  }

  async *each(content: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
    const source = content[Symbol.asyncIterator]();
    try {
      for (;;) {
        const next = await this.#next(source);
        this.arm();
        if (next.done === true) return;
        yield next.value;
        this.disarm();
      }
    } finally {
      await source.return?.();
    }
  }
}

function failureOf({ peer, address }: HttpClient, signal: AbortSignal | undefined, changes: boolean) {
  const progress = { peer, address, connected: true, changes };
  return (error: unknown): DSecError =>
    signal?.aborted === true && !(error instanceof DSecError)
      ? cancelledError(signal.reason, progress)
      : connectionError(error, progress);
}

function stallError({ peer }: HttpClient): DSecError {
  return new DSecError("transfer_stalled", `nothing moved to or from the ${peer} for ${stallMs} ms`, {
    details: { stallMs },
  });
}
