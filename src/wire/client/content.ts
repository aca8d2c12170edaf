/** Content of any length to and from a server: in bounded memory, for as long as it moves. */
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage } from "node:http";
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
/** Bytes that are handed over at a time: so few that a slow link shows that it moves. */
const partBytes = 1_048_576;

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
  /** A chunk may be overwritten once the next one is asked for. */
  readonly content: Uint8Array | AsyncIterable<Uint8Array>;
  /** CRC-32 of a content that is not in memory, in hexadecimal; asked for at its end. */
  readonly crc32?: () => string;
}

/** Sends content; resolves with the server's answer to all of it. An upload that fails on the way is never tried again. */
export async function uploadContent<T>(http: HttpClient, route: ContentRoute, call: UploadCall): Promise<T> {
  const { params, query, content, crc32 } = call;
  const watch = new StallWatch(http);
  const signal = call.signal === undefined ? watch.signal : AbortSignal.any([call.signal, watch.signal]);
  const failed = failureOf(http, signal, true);
  const request = {
    method: routes[route].method,
    path: routePath(route, params) + queryString(query),
    headers: crc32 === undefined ? {} : { trailer: fileHeaders.crc32 },
    signal,
  };
  const isWhole = content instanceof Uint8Array;
  const headers = isWhole ? { "content-length": content.length } : request.headers;
  if (isWhole && content.length <= partBytes) {
    watch.arm();
    return answerOf<T>(http.rawStream({ ...request, headers, body: content }), watch, failed);
  }
  // why the source failed tells more than what became of the connection then
  let sourceFailure: unknown;
  let sent: ClientRequest | undefined;
  const body = (outgoing: ClientRequest): void => {
    sent = outgoing;
    writeChunks(outgoing, isWhole ? [content] : content, watch)
      .then((whole) => {
        if (!whole) return;
        if (crc32 !== undefined) outgoing.addTrailers({ [fileHeaders.crc32]: crc32() });
        outgoing.end();
      })
      .catch((error: unknown) => {
        sourceFailure = error;
        outgoing.destroy(error instanceof Error ? error : new Error(String(error)));
      });
  };
  try {
    return await answerOf<T>(http.rawStream({ ...request, headers, body }), watch, failed);
  } catch (error) {
    throw sourceFailure ?? error;
  } finally {
    // it was answered before its end: the connection cannot be used any further
    if (sent?.writableEnded === false) sent.destroy();
  }
}

/** Each chunk is written before the next one is asked for. False when nobody wanted all of them. */
async function writeChunks(
  outgoing: ClientRequest,
  content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  watch: StallWatch,
): Promise<boolean> {
  let isOver = false;
  let goOn: () => void = () => undefined;
  const over = (): void => {
    isOver = true;
    goOn();
  };
  outgoing.once("close", over).once("response", over);
  for await (const chunk of content) {
    if (isOver) return false;
    for (let at = 0; at < chunk.length; at += partBytes) {
      watch.arm();
      await new Promise<void>((resolve) => {
        goOn = resolve;
        outgoing.write(chunk.subarray(at, at + partBytes), () => resolve());
      });
      watch.disarm();
      if (isOver) return false;
    }
  }
  watch.arm();
  return !isOver;
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
