import type { IncomingMessage, OutgoingHttpHeaders } from "node:http";
import { DSecError } from "../../protocol/errors.ts";
import { portTokenHeader, portTokenParameter } from "../../protocol/tunnel.ts";

/** Headers of a connection, not of a message. */
const hopByHop: ReadonlySet<string> = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/** What the client may not tell a service, or not in these words. */
const replaced: ReadonlySet<string> = new Set([
  "host",
  "expect",
  "forwarded",
  "x-forwarded-for",
  "x-forwarded-host",
  "x-forwarded-port",
  "x-forwarded-prefix",
  "x-forwarded-proto",
  "x-request-id",
  portTokenHeader,
]);

/** Answers of one sandbox must not change how browsers treat the API server, which serves them all. */
const originWide: ReadonlySet<string> = new Set([
  "alt-svc",
  "clear-site-data",
  "service-worker-allowed",
  "strict-transport-security",
]);

export interface ForwardedFrom {
  readonly port: number;
  readonly requestId: string;
  /** Path below which the service's paths begin. */
  readonly prefix: string;
  /** The `authorization` header is the service's business. */
  readonly passAuthorization: boolean;
}

/** The headers of a request as the service gets them. @throws DSecError `invalid_argument` for a body in a coding that is not undone here */
export function headersInward(request: IncomingMessage, from: ForwardedFrom): OutgoingHttpHeaders {
  const { headers, socket } = request;
  const coding = headers["transfer-encoding"];
  if (coding !== undefined && coding.toLowerCase() !== "chunked")
    throw new DSecError("invalid_argument", `the transfer coding ${JSON.stringify(coding)} is not supported`);
  const dropped = new Set([
    ...namedBy(headers.connection),
    ...(from.passAuthorization ? [] : ["authorization"]),
  ]);
  // an address with a token in it may have led to this request
  if (headers.referer?.includes(`${portTokenParameter}=`) === true) dropped.add("referer");
  const passed = collect(
    request.rawHeaders,
    (name) => !hopByHop.has(name) && !replaced.has(name) && !dropped.has(name),
  );
  const address = socket.remoteAddress;
  return {
    ...passed,
    host: `localhost:${from.port}`,
    "x-request-id": from.requestId,
    "x-forwarded-proto": "encrypted" in socket ? "https" : "http",
    "x-forwarded-prefix": from.prefix,
    ...(headers.host === undefined ? {} : { "x-forwarded-host": headers.host }),
    ...(address === undefined ? {} : { "x-forwarded-for": address }),
    ...(coding === undefined ? {} : { "transfer-encoding": "chunked" }),
  };
}

/** The headers of a service's answer as the client gets them. */
export function headersOutward(response: IncomingMessage): OutgoingHttpHeaders {
  const { headers } = response;
  const dropped = new Set(namedBy(headers.connection));
  // a body in a coding of its connection is as long as it turns out to be
  if (headers["transfer-encoding"] !== undefined) dropped.add("content-length");
  return collect(
    response.rawHeaders,
    (name) => !hopByHop.has(name) && !originWide.has(name) && !dropped.has(name),
  );
}

/** Both sides' words for the upgrade; the rest is as for any other message. */
export function upgradeHeaders({ headers }: IncomingMessage): OutgoingHttpHeaders {
  return { connection: "Upgrade", ...(headers.upgrade === undefined ? {} : { upgrade: headers.upgrade }) };
}

/** Splits the credential off a query; the rest stays byte for byte. */
export function withoutToken(rest: string): { readonly path: string; readonly tokens: readonly string[] } {
  const at = rest.indexOf("?");
  if (at === -1) return { path: rest, tokens: [] };
  const parts = rest.slice(at + 1).split("&");
  const isToken = (part: string): boolean => part.startsWith(`${portTokenParameter}=`);
  const tokens = parts.filter(isToken).map((part) => part.slice(portTokenParameter.length + 1));
  const kept = parts.filter((part) => !isToken(part));
  if (tokens.length === 0) return { path: rest, tokens };
  return { path: rest.slice(0, at) + (kept.length === 0 ? "" : `?${kept.join("&")}`), tokens };
}

function namedBy(connection: string | undefined): string[] {
  return (connection ?? "").split(",").map((name) => name.trim().toLowerCase());
}

/** By name; one that is repeated stays so. */
function collect(raw: readonly string[], isPassed: (name: string) => boolean): OutgoingHttpHeaders {
  const collected = new Map<string, string[]>();
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const name = (raw[at] ?? "").toLowerCase();
    if (!isPassed(name)) continue;
    const values = collected.get(name) ?? [];
    values.push(raw[at + 1] ?? "");
    collected.set(name, values);
  }
  return Object.fromEntries(
    [...collected].map(([name, values]) => [name, values.length === 1 ? values[0] : values]),
  );
}
