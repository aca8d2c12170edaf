import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chmod, link, lstat, mkdir, rename, rm } from "node:fs/promises";
import { createServer as createHttpServer, type RequestListener, type Server } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { connect } from "node:net";
import { basename, dirname, join } from "node:path";
import { DSecError } from "../../protocol/errors.ts";
import { type Address, formatAddress } from "../address.ts";

export interface TlsFiles {
  /** PEM. */
  readonly cert: string | Buffer;
  readonly key: string | Buffer;
}

/** A listening server. */
export interface Listener {
  readonly server: Server;
  /** As a client would give it: with the port that port 0 became. */
  readonly address: string;
  /** Stops accepting and removes the socket; connections go on. */
  stop(): Promise<void>;
}

/** Longer than clients keep idle connections, so that they close them and never lose a request in the race. */
const keepAliveMs = 75_000;
/** Silence after which TCP asks whether a client still is there. */
const probeAfterMs = 15_000;
/** Bytes of a request or an answer that wait here for a slow reader. */
const bufferBytes = 262_144;
/** A burst of creates or execs waits here; beyond it a Unix socket refuses with EAGAIN. */
const backlog = 4096;

/**
 * Listens on `address`. A Unix socket gets mode 0600, its parent directory is made with 0700 where missing, and a socket
 * left by a dead process is replaced.
 * @throws DSecError `already_running`, `address_in_use`, `permission_denied`, `invalid_argument`
 */
export async function listen(
  address: Address,
  handler: RequestListener,
  tls: TlsFiles | undefined,
  prepare: (server: Server) => void,
): Promise<Listener> {
  const server = makeServer(address, handler, tls);
  prepare(server);
  try {
    return address.kind === "unix"
      ? await listenOnSocket(server, address.path)
      : await listenOnPort(server, address);
  } catch (error) {
    server.close();
    throw listenError(error, formatAddress(address));
  }
}

function makeServer(address: Address, handler: RequestListener, tls: TlsFiles | undefined): Server {
  const probes = { keepAlive: true, keepAliveInitialDelay: probeAfterMs };
  const options = {
    keepAliveTimeout: keepAliveMs,
    headersTimeout: 30_000,
    highWaterMark: bufferBytes,
    // an upload takes as long as it takes
    requestTimeout: 0,
    noDelay: true,
    ...probes,
  };
  if (address.kind === "unix" || !address.tls) return createHttpServer(options, handler);
  if (tls === undefined)
    throw new DSecError(
      "invalid_argument",
      `listening on ${formatAddress(address)} needs a certificate and its key`,
    );
  return createHttpsServer({ ...options, ...tls }, handler);
}

async function listenOnPort(server: Server, address: Address & { kind: "tcp" }): Promise<Listener> {
  server.listen({ host: address.host, port: address.port, backlog });
  await once(server, "listening");
  const bound = server.address();
  const port = typeof bound === "object" && bound !== null ? bound.port : address.port;
  return { server, address: formatAddress({ ...address, port }), stop: async () => closeServer(server) };
}

/**
 * Binds inside a private directory, sets the mode, then links the socket to its place: at no moment can another user
 * connect, and two processes that start at once cannot both win.
 */
async function listenOnSocket(server: Server, path: string): Promise<Listener> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const privateDir = join(dirname(path), `.${randomBytes(3).toString("hex")}`);
  const draft = join(privateDir, "s");
  await mkdir(privateDir, { mode: 0o700 });
  try {
    server.listen({ path: draft, backlog });
    await once(server, "listening");
    await chmod(draft, 0o600);
    await publish(draft, path);
  } finally {
    await rm(privateDir, { recursive: true, force: true });
  }
  const { ino } = await lstat(path);
  const stop = async (): Promise<void> => {
    const present = await lstat(path).catch(() => undefined);
    if (present?.ino === ino) await rm(path, { force: true });
    await closeServer(server);
  };
  return { server, address: `unix:${path}`, stop };
}

async function publish(draft: string, path: string): Promise<void> {
  for (let attempt = 0; attempt < 5; attempt += 1) {
    try {
      await link(draft, path);
      return;
    } catch (error) {
      if (errnoOf(error) !== "EEXIST") throw error;
    }
    await removeStale(path);
  }
  throw new DSecError("address_in_use", `other processes keep taking ${path}`);
}

async function removeStale(path: string): Promise<void> {
  const before = await lstat(path).catch(() => undefined);
  if (before === undefined) return;
  if (!before.isSocket()) throw new DSecError("address_in_use", `${path} exists and is not a socket`);
  if (await answers(path)) throw new DSecError("already_running", `a process already listens on ${path}`);
  const aside = join(dirname(path), `.${basename(path)}.${randomBytes(3).toString("hex")}`);
  await rename(path, aside).catch(() => undefined);
  const moved = await lstat(aside).catch(() => undefined);
  // another starting process may have put its live socket there since the check
  if (moved !== undefined && moved.ino !== before.ino) await link(aside, path).catch(() => undefined);
  await rm(aside, { force: true });
}

async function answers(path: string): Promise<boolean> {
  const socket = connect({ path });
  try {
    await once(socket, "connect");
    return true;
  } catch (error) {
    if (errnoOf(error) === "ECONNREFUSED" || errnoOf(error) === "ENOENT") return false;
    throw error;
  } finally {
    socket.destroy();
  }
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
  });
}

function listenError(error: unknown, address: string): unknown {
  const code = errnoOf(error);
  if (code === "EADDRINUSE")
    return new DSecError("address_in_use", `${address} is in use by another process`, { cause: error });
  if (code === "EACCES" || code === "EPERM" || code === "EROFS")
    return new DSecError("permission_denied", `listening on ${address} is not permitted`, { cause: error });
  if (code === "EADDRNOTAVAIL" || code === "ENOTFOUND")
    return new DSecError("invalid_argument", `this machine has no address ${address}`, { cause: error });
  return error;
}

function errnoOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}
