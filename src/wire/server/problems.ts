import type { ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { DSecError, errorTable } from "../../protocol/errors.ts";
import { problemContentType, toProblem } from "../../protocol/problem-codec.ts";

/** Codes that Fastify itself gives, and ours for them. */
const fastifyErrors: Readonly<Record<string, () => DSecError>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: bodyTooLarge,
  FST_ERR_CTP_INVALID_JSON_BODY: () =>
    new DSecError("invalid_argument", "the request body is not valid JSON"),
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () =>
    new DSecError("invalid_argument", "the request body must be application/json"),
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: () =>
    new DSecError("invalid_argument", "the request body is not as long as its content-length"),
  FST_ERR_BAD_URL: () => new DSecError("invalid_argument", "the request path is not a valid URL path"),
};

export function bodyTooLarge(): DSecError {
  return new DSecError("body_too_large", "the request body is larger than this route takes");
}

/** What to tell the client for anything a handler or Fastify threw. */
export function asDSecError(error: unknown): DSecError {
  if (error instanceof DSecError) return error;
  const known = error instanceof Error && "code" in error ? fastifyErrors[String(error.code)]?.() : undefined;
  return known ?? new DSecError("internal", "the server failed in an unexpected way", { cause: error });
}

export function problemHeaders(error: DSecError): Record<string, string> {
  return {
    "content-type": problemContentType,
    ...(error.retryAfterMs === undefined
      ? {}
      : { "retry-after": String(Math.ceil(error.retryAfterMs / 1000)) }),
    ...(error.code === "unauthenticated" ? { "www-authenticate": "Bearer" } : {}),
  };
}

/** Answers with a problem where Fastify is not in charge. Without effect once headers are out: then the connection is cut. */
export function sendProblem(response: ServerResponse, error: DSecError): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const body = JSON.stringify(toProblem(error));
  response.writeHead(errorTable[error.code].status, {
    ...problemHeaders(error),
    "content-length": Buffer.byteLength(body),
  });
  response.end(body);
}

/** Answers an upgrade request, or bytes that are no request, with a problem, and closes the connection. */
export function sendRawProblem(socket: Duplex, error: DSecError): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const body = JSON.stringify(toProblem(error));
  const headers = {
    ...problemHeaders(error),
    "content-length": String(Buffer.byteLength(body)),
    connection: "close",
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const { status } = errorTable[error.code];
  socket.end(`HTTP/1.1 ${status} ${error.code}\r\n${lines.join("")}\r\n${body}`, () => socket.destroy());
}
