import type { IncomingMessage } from "node:http";
import type { WebSocket } from "ws";
import { DSecError } from "../protocol/errors.ts";
import { maxExecFrame } from "../protocol/exec-frames.ts";
import { routePath } from "../protocol/routes.ts";
import { type Address, parseAddress } from "../wire/address.ts";
import {
  cancelledError,
  connectionError,
  type Progress,
  timeoutError,
} from "../wire/client/connection-error.ts";
import { refuseProblem } from "../wire/client/response.ts";
import { withRetries } from "../wire/client/retry.ts";
import type { Connection } from "./open-connection.ts";

/** What an exec needs of a WebSocket. The types of `ws` do not show in the package's own. */
export interface ExecSocket {
  readonly readyState: number;
  readonly OPEN: number;
  on(event: "message", listener: (data: Buffer, binary: boolean) => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "close", listener: () => void): unknown;
  send(frame: Buffer): void;
  pause(): void;
  resume(): void;
  pong(): void;
  close(code: number): void;
  terminate(): void;
}

/** Milliseconds for connection and upgrade: a sandbox may have to be resumed first. */
const handshakeMs = 60_000;
const keepAliveMs = 15_000;

/** To start an exec. @throws as {@link openSocket} */
export async function openExecSocket(
  connection: Connection,
  ref: string,
  signal: AbortSignal | undefined,
): Promise<ExecSocket> {
  return openSocket(connection, routePath("exec", { ref }), signal);
}

/** To attach to one. @throws as {@link openSocket}, `unsupported` when it is not recorded */
export async function openAttachSocket(
  connection: Connection,
  ref: string,
  exec: string,
  signal: AbortSignal | undefined,
): Promise<ExecSocket> {
  return openSocket(connection, routePath("attach", { ref, exec }), signal);
}

/**
 * Opens the WebSocket of an exec, on which nothing has been sent yet. Until its first frame nothing has happened, so it is tried again when the connection fails.
 * @throws DSecError the server's problem (`not_found`, `sandbox_not_running`…), `coordinator_unreachable`, `cancelled`; never ambiguous
 */
async function openSocket(
  connection: Connection,
  path: string,
  signal: AbortSignal | undefined,
): Promise<ExecSocket> {
  const { WebSocket } = await import("ws");
  const url = socketUrl(parseAddress(connection.address), path);
  return withRetries(true, signal, async () => {
    const socket = new WebSocket(url, {
      headers: { authorization: `Bearer ${connection.token}` },
      perMessageDeflate: false,
      skipUTF8Validation: true,
      followRedirects: false,
      maxPayload: maxExecFrame + 1024,
      ...(connection.ca === undefined ? {} : { ca: connection.ca }),
    });
    // a link that dies without a word is noticed within half a minute
    socket.once("upgrade", (response) => response.socket.setKeepAlive(true, keepAliveMs));
    await opened(socket, connection.address, signal);
    return socket;
  });
}

function opened(socket: WebSocket, address: string, signal: AbortSignal | undefined): Promise<void> {
  const progress: Progress = { peer: "coordinator", address, connected: false, changes: false };
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      reject(cancelledError(signal?.reason, progress));
      socket.terminate();
    };
    const settle = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      socket.off("error", fail);
    };
    const fail = (error: unknown): void => {
      settle();
      // terminating a socket that connects makes it emit one more error
      socket.on("error", () => undefined);
      reject(handshakeError(error, progress));
    };
    const timer = setTimeout(() => {
      fail(timeoutError(handshakeMs, { ...progress, connected: true }));
      socket.terminate();
    }, handshakeMs);
    socket.once("open", () => {
      settle();
      resolve();
    });
    socket.on("error", fail);
    socket.once("unexpected-response", (request, response: IncomingMessage) => {
      const unexpected = new DSecError("protocol_error", "the server answered an upgrade without one");
      void refuseProblem(response)
        .then(() => fail(unexpected), fail)
        .finally(() => request.destroy());
    });
    if (signal?.aborted === true) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  });
}

/** A connection that stood and broke is told from one that never did by its errno. */
function handshakeError(error: unknown, progress: Progress): DSecError {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  const connected = code === "ECONNRESET" || code === "EPIPE" || code === undefined;
  return connectionError(error, { ...progress, connected });
}

function socketUrl(address: Address, path: string): string {
  if (address.kind === "unix") return `ws+unix:${address.path}:${path}`;
  const host = address.host.includes(":") ? `[${address.host}]` : address.host;
  return `${address.tls ? "wss" : "ws"}://${host}:${address.port}${path}`;
}
