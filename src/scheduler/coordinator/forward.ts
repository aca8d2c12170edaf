import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { pipeline } from "node:stream/promises";
import { contentRoutes, maxBodyBytes, type RouteName, routePath } from "../../protocol/routes.ts";
import type { RawCall } from "../../wire/server/call.ts";
import { readdress } from "../../wire/server/handover.ts";
import { bodyTooLarge } from "../../wire/server/problems.ts";
import { locate } from "./locate.ts";
import type { Registry } from "./registry.ts";

/** Milliseconds until a node must have begun its answer; a wait takes up to a minute by itself. */
const answerMs = 120_000;

/** Answers that may go on and be silent as long as they like. */
const followed: ReadonlySet<RouteName> = new Set(["logs", "networkLog", "audit"]);

/**
 * Passes a request on to the node of its sandbox and the answer back, both unread and no faster than the other end takes them.
 * A client that goes away cuts the request; an answer that breaks off cuts the client's. A node in this process gets the request itself.
 */
export async function forward(registry: Registry, route: RouteName, call: RawCall): Promise<void> {
  const { request, response, signal } = call;
  const size = Number(request.headers["content-length"] ?? 0);
  // the node keeps watch over the progress of content; everything else is small and answered in time
  const isContent = (contentRoutes as readonly RouteName[]).includes(route);
  const isFollowed = followed.has(route);
  if (size > maxBodyBytes && !isContent) throw bodyTooLarge();
  const { node, ref } = await locate(registry, call.params["ref"] ?? "", signal);
  const path = routePath(route, { ...call.params, ref }) + queryOf(request);
  const headers = { ...passedOn(request.headers), "x-request-id": call.requestId };
  const coding = request.headers["transfer-encoding"];
  const { local } = node;
  if (local !== undefined) {
    const own = { ...headers, authorization: `Bearer ${node.token}` };
    const all = coding === undefined ? own : { ...own, "transfer-encoding": coding };
    local.take(readdress(request, { path, headers: all }), response);
    return;
  }
  const hasBody = size > 0 || coding !== undefined;
  const outgoing = {
    method: request.method ?? "GET",
    path,
    headers,
    body: hasBody ? request : undefined,
    ...(request.headers.trailer === undefined ? {} : { trailers: () => textOf(request.trailers) }),
    signal,
  };
  const answer =
    isFollowed || isContent
      ? await node.client.rawStream(outgoing)
      : await node.client.raw({ ...outgoing, timeoutMs: answerMs });
  response.writeHead(answer.statusCode ?? 502, passedBack(answer.headers));
  if (isFollowed) response.flushHeaders();
  await passBack(answer, response).catch((error: unknown) => {
    // head and part of the body are out: all that is left is to cut the answer
    response.destroy();
    call.log.debug({ err: error, node: node.name }, "a forwarded answer broke off");
  });
}

async function passBack(answer: IncomingMessage, response: ServerResponse): Promise<void> {
  if (answer.headers.trailer === undefined) {
    await pipeline(answer, response);
    return;
  }
  await pipeline(answer, response, { end: false });
  response.addTrailers(textOf(answer.trailers));
  response.end();
}

function textOf(trailers: NodeJS.Dict<string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(trailers).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  );
}

function queryOf({ url = "" }: IncomingMessage): string {
  const at = url.indexOf("?");
  return at === -1 ? "" : url.slice(at);
}

function passedOn({ "content-type": type, "content-length": length, accept, trailer }: IncomingHttpHeaders) {
  return {
    ...(trailer === undefined ? {} : { trailer }),
    ...(type === undefined ? {} : { "content-type": type }),
    ...(length === undefined ? {} : { "content-length": length }),
    ...(accept === undefined ? {} : { accept }),
  };
}

function passedBack({
  connection: _c,
  "keep-alive": _k,
  "transfer-encoding": _t,
  ...headers
}: IncomingHttpHeaders) {
  return headers;
}
