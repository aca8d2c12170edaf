import type { IncomingMessage } from "node:http";
import { Readable } from "node:stream";
import { DSecError } from "../protocol/errors.ts";
import { type PortClient, unusable } from "../wire/client/port-client.ts";

/** What `fetch` takes of the web's. Redirects are answers like others: they may lead out of the sandbox. */
export type FetchInit = Pick<RequestInit, "method" | "headers" | "body" | "signal">;

/** Statuses whose answers have no body, as the web's Response wants it. */
const bodiless: ReadonlySet<number> = new Set([101, 103, 204, 205, 304]);
/** Bytes of an answer that wait for its reader. */
const highWaterMark = 65_536;

/** One HTTP request to a port of a sandbox; bodies stream both ways. */
export async function fetchPort(
  http: PortClient,
  ref: string,
  port: number,
  path: string,
  { signal, ...init }: FetchInit,
): Promise<Response> {
  const request = webRequest(port, path, init);
  const body = await bodyOf(request, init.body);
  const { pathname, search, host } = new URL(request.url);
  const response = await http.request({
    ref,
    port,
    method: request.method,
    path: pathname + search,
    headers: {
      host,
      ...Object.fromEntries(request.headers),
      ...(body instanceof Uint8Array ? { "content-length": body.length } : {}),
      ...(body instanceof Readable ? { "transfer-encoding": "chunked" } : {}),
    },
    body,
    signal: signal ?? undefined,
  });
  try {
    return webResponse(response, request.method);
  } catch (cause) {
    response.destroy();
    throw unusable(port, cause);
  }
}

/** The platform's own Request reads methods, headers and bodies as every caller of `fetch` expects. */
function webRequest(port: number, path: string, init: Omit<FetchInit, "signal">): Request {
  if (!path.startsWith("/"))
    throw new DSecError("invalid_argument", `path: ${JSON.stringify(path)} does not begin with "/"`);
  try {
    return new Request(`http://localhost:${port}${path}`, { ...init, duplex: "half" });
  } catch (cause) {
    throw new DSecError("invalid_argument", "this is no valid HTTP request", { cause });
  }
}

/** What has a length is sent with it: small servers know no other way. */
async function bodyOf(
  request: Request,
  given: FetchInit["body"],
): Promise<Readable | Uint8Array | undefined> {
  if (request.body === null) return undefined;
  const isWhole =
    typeof given === "string" ||
    given instanceof ArrayBuffer ||
    ArrayBuffer.isView(given) ||
    given instanceof URLSearchParams ||
    given instanceof Blob;
  return isWhole ? new Uint8Array(await request.arrayBuffer()) : Readable.fromWeb(request.body);
}

function webResponse(response: IncomingMessage, method: string): Response {
  const status = response.statusCode ?? 0;
  const headers = new Headers();
  const { rawHeaders, statusMessage = "" } = response;
  for (let at = 0; at + 1 < rawHeaders.length; at += 2)
    headers.append(rawHeaders[at] ?? "", rawHeaders[at + 1] ?? "");
  const init = { status, statusText: statusMessage, headers };
  if (method === "HEAD" || bodiless.has(status)) {
    response.resume();
    return new Response(null, init);
  }
  const strategy = new ByteLengthQueuingStrategy({ highWaterMark });
  return new Response(Readable.toWeb(response, { strategy }), init);
}
