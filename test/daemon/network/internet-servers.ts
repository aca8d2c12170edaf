/** The servers of the small internet: runs in its namespace, told what to do by {@link Internet}. */
import { execFileSync } from "node:child_process";
import { createSocket } from "node:dgram";
import { readFileSync } from "node:fs";
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { createServer } from "node:net";
import { join } from "node:path";
import { TLSSocket } from "node:tls";
import dns from "dns-packet";
import { isIP } from "node:net";

/** By name. */
export type Zone = Readonly<Record<string, { readonly ttl: number; readonly addresses: readonly string[] }>>;

export type InternetRequest = { readonly type: "configure" } | { readonly type: "zone"; readonly zone: Zone };

/** Something that a server has got. */
export interface Seen {
  readonly kind: "tcp" | "udp" | "http" | "https" | "dns";
  /** The server's address. */
  readonly to: string;
  readonly from: string;
  /** The name that was asked for, the server name, or what was sent. */
  readonly text: string;
}

export type InternetMessage =
  { readonly type: "up" } | { readonly type: "ready" } | { readonly type: "seen"; readonly seen: Seen };

const count = 9;
let zone: Zone = {};

function tell(message: InternetMessage): void {
  process.send?.(message);
}

function saw(kind: Seen["kind"], to: string, from: string, text: string): void {
  tell({ type: "seen", seen: { kind, to, from, text } });
}

/** Tells who answers; `/bytes/N` sends N bytes, `/wait` never answers. */
function answer(request: IncomingMessage, response: ServerResponse): void {
  const { localAddress = "", remoteAddress = "" } = request.socket;
  const name = request.socket instanceof TLSSocket ? request.socket.servername : undefined;
  const isSecure = typeof name === "string" || request.socket instanceof TLSSocket;
  saw(
    isSecure ? "https" : "http",
    localAddress,
    remoteAddress,
    `${request.headers.host ?? ""}${request.url ?? ""}`,
  );
  const bytes = /^\/bytes\/(\d+)$/.exec(request.url ?? "")?.[1];
  if (bytes !== undefined) {
    response.writeHead(200, { "content-length": bytes });
    const chunk = Buffer.alloc(65_536);
    let left = Number(bytes);
    const send = (): void => {
      while (left > 0) {
        const part = chunk.subarray(0, Math.min(left, chunk.length));
        left -= part.length;
        if (!response.write(part)) {
          response.once("drain", send);
          return;
        }
      }
      response.end();
    };
    send();
    return;
  }
  if (request.url === "/wait") {
    response.writeHead(200);
    response.write("first\n");
    return;
  }
  const body: Buffer[] = [];
  request.on("data", (chunk: Buffer) => body.push(chunk));
  request.on("end", () => {
    const got = Buffer.concat(body).toString();
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ server: localAddress, name, host: request.headers.host, body: got }));
  });
}

function answerName(message: Buffer): Buffer {
  const { id, questions } = dns.decode(message);
  const [question] = questions ?? [];
  if (question === undefined)
    return dns.encode({ type: "response", ...(id !== undefined && { id }), flags: 1 });
  const found = zone[question.name.toLowerCase()];
  return dns.encode({
    type: "response",
    ...(id !== undefined && { id }),
    flags: dns.RECURSION_AVAILABLE | (found === undefined ? 3 : 0),
    questions: [question],
    answers: question.type === "A" || question.type === "AAAA" ? recordsOf(question.name, question.type) : [],
  });
}

/** Of a name, and of those that it stands for: what is no address in the zone is a name. */
function recordsOf(name: string, type: "A" | "AAAA"): dns.Answer[] {
  const { addresses, ttl } = zone[name.toLowerCase()] ?? { addresses: [], ttl: 0 };
  return addresses.flatMap((data): dns.Answer[] => {
    if (isIP(data) === 0) return [{ type: "CNAME", name, ttl, data }, ...recordsOf(data, type)];
    return isIP(data) === (type === "A" ? 4 : 6) ? [{ type, name, ttl, data }] : [];
  });
}

async function serve(address: string, directory: string): Promise<void> {
  const listen = async (server: ReturnType<typeof createServer>, port: number): Promise<void> => {
    const { promise, resolve } = Promise.withResolvers<void>();
    server.listen({ port, host: address }, resolve);
    await promise;
  };
  const bind = async (port: number, got: (message: Buffer, from: string) => Buffer): Promise<void> => {
    const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
    socket.on("message", (message, from) => socket.send(got(message, from.address), from.port, from.address));
    const { promise, resolve } = Promise.withResolvers<void>();
    socket.bind(port, address, resolve);
    await promise;
  };
  const tls = {
    key: readFileSync(join(directory, "server.key")),
    cert: readFileSync(join(directory, "server.pem")),
  };
  await listen(createHttpServer(answer), 80);
  await listen(createHttpsServer(tls, answer), 443);
  await listen(
    createServer((socket) => {
      socket.on("error", () => undefined);
      saw("tcp", address, socket.remoteAddress ?? "", "");
      socket.pipe(socket);
    }),
    7,
  );
  for (const port of [7, 443])
    await bind(port, (message, from) => {
      saw("udp", address, from, `${port} ${message.toString()}`);
      return message;
    });
  await bind(53, (message, from) => {
    saw("dns", address, from, dns.decode(message).questions?.[0]?.name ?? "");
    return answerName(message);
  });
  await listen(
    createServer((socket) => {
      socket.on("error", () => undefined);
      socket.once("data", (message: Buffer) => {
        saw(
          "dns",
          address,
          socket.remoteAddress ?? "",
          dns.decode(message.subarray(2)).questions?.[0]?.name ?? "",
        );
        const bytes = answerName(message.subarray(2));
        const length = Buffer.alloc(2);
        length.writeUInt16BE(bytes.length);
        socket.end(Buffer.concat([length, bytes]));
      });
    }),
    53,
  );
}

async function configure(prefix: string, ipv6Network: string, directory: string): Promise<void> {
  const ip = (...args: string[]) => execFileSync("ip", args);
  const addresses = Array.from({ length: count }, (_, index) => `${prefix}.${index + 1}`);
  const ipv6Addresses = addresses.map((_, index) => `${ipv6Network}::${index + 1}`);
  for (const link of ["lo", "eth0"]) ip("link", "set", link, "up");
  for (const address of addresses) ip("address", "add", `${address}/32`, "dev", "eth0");
  ip("route", "add", `${prefix}.254`, "dev", "eth0", "src", `${prefix}.9`);
  ip("route", "add", "default", "via", `${prefix}.254`, "dev", "eth0", "onlink");
  // Unique local: nobody routes them. The last is the way to the node.
  for (const address of ipv6Addresses) ip("-6", "address", "add", `${address}/128`, "dev", "eth0", "nodad");
  ip("-6", "address", "add", `${ipv6Network}::ff/120`, "dev", "eth0", "nodad");
  for (const address of [...addresses, ...ipv6Addresses]) await serve(address, directory);
}

const [prefix = "", ipv6Network = "", directory = ""] = process.argv.slice(2);
process.on("disconnect", () => process.exit());
process.on("message", (request: InternetRequest) => {
  if (request.type === "zone") {
    ({ zone } = request);
    tell({ type: "ready" });
  } else void configure(prefix, ipv6Network, directory).then(() => tell({ type: "ready" }));
});
tell({ type: "up" });
