import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { DSecError } from "../../protocol/errors.ts";
import { type RouteName, routePath } from "../../protocol/routes.ts";
import { parseAddress } from "../../wire/address.ts";
import { connectionError } from "../../wire/client/connection-error.ts";
import { connectEvent, openSocket } from "../../wire/client/half-open-socket.ts";
import { readdress } from "../../wire/server/handover.ts";
import type { Upgrade } from "../../wire/server/upgrades.ts";
import type { FleetNode } from "./fleet-node.ts";
import { locate } from "./locate.ts";
import type { Registry } from "./registry.ts";

/** Milliseconds the node has to answer the upgrade: it may have to resume the sandbox first. */
const answerMs = 60_000;

/** Headers of the handshake that are the client's and the node's business. */
const passedOn = [
  "upgrade",
  "connection",
  "sec-websocket-key",
  "sec-websocket-version",
  "sec-websocket-protocol",
  "sec-websocket-extensions",
];

/**
 * Hands the connection of an exec, an attachment or a tunnel over to the sandbox's node: sends the upgrade request there, then joins the two sockets. The node's
 * 101 or refusal passes through like everything after it. Half-closes, errors and back-pressure pass too; nothing is
 * kept here but what the sockets hold. A node in this process gets the client's socket itself.
 */
export async function splice(registry: Registry, route: RouteName, upgrade: Upgrade): Promise<void> {
  const { request, socket: client, head, params, closing } = upgrade;
  const located = locate(registry, params["ref"] ?? "");
  const { node, ref } = located instanceof Promise ? await located : located;
  const path = routePath(route, { ...params, ref });
  const given = passedOn.flatMap((name) => {
    const value = request.headers[name];
    return typeof value === "string" ? [[name, value] as const] : [];
  });
  const headers = { host: node.name, authorization: `Bearer ${node.token}`, ...Object.fromEntries(given) };
  if (node.local !== undefined) {
    node.local.takeUpgrade(readdress(request, { path, headers }), client, head);
    return;
  }
  const upstream = await connect(node);
  if (client.destroyed) {
    upstream.destroy();
    return;
  }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  upstream.write(`GET ${path} HTTP/1.1\r\n${lines.join("")}\r\n`);
  if (head.length > 0) upstream.write(head);
  join(client, upstream, closing);
}

/** Resolves with a connected socket that may be half-closed. */
function connect(node: FleetNode): Promise<Socket> {
  const address = parseAddress(node.address);
  const socket = openSocket(address, node.ca);
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      socket.destroy();
      const progress = { peer: "node", address: node.address, connected: false, changes: false } as const;
      reject(connectionError(error, progress));
    };
    socket.setTimeout(answerMs, () => fail(new Error(`no connection within ${answerMs} ms`)));
    socket.once("error", fail);
    socket.once(connectEvent(address), () => {
      socket.off("error", fail);
      resolve(socket);
    });
  });
}

/** Each end's bytes, its end and its failure become the other's. */
function join(client: Duplex, upstream: Socket, closing: AbortSignal): void {
  const cut = (): void => {
    client.destroy();
    upstream.destroy();
  };
  // until the node's first byte its silence is a failure; afterwards a command may be silent as long as it likes
  upstream.setTimeout(answerMs, cut);
  upstream.once("data", () => upstream.setTimeout(0));
  upstream.on("error", cut);
  client.on("error", cut);
  client.on("close", cut);
  upstream.on("close", () => {
    closing.removeEventListener("abort", cut);
    if (upstream.errored !== null || client.writableFinished) client.destroy();
    else {
      // what the node sent last may still be on its way to the client
      client.once("finish", () => client.destroy());
      if (!client.writableEnded) client.end();
    }
  });
  closing.addEventListener("abort", cut, { once: true });
  if (closing.aborted) cut();
  client.pipe(upstream);
  upstream.pipe(client);
}

/** Refuses what is not a WebSocket upgrade before a node is bothered. @throws DSecError `invalid_argument` */
export function checkWebSocket({ request }: Upgrade): void {
  if (request.headers.upgrade?.toLowerCase() !== "websocket")
    throw new DSecError("invalid_argument", "this is answered by an upgrade to WebSocket only");
}
