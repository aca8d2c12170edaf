import type { IncomingMessage } from "node:http";
import { DSecError } from "../../protocol/errors.ts";
import { routePath } from "../../protocol/routes.ts";
import { tunnelUpgrade } from "../../protocol/tunnel.ts";
import { parseAddress } from "../address.ts";
import { TunnelStream } from "../tunnel-stream.ts";
import {
  cancelledError,
  connectionError,
  type Peer,
  type Progress,
  timeoutError,
} from "./connection-error.ts";
import { connectEvent, openSocket } from "./half-open-socket.ts";
import { refuseProblem } from "./response.ts";
import { withRetries } from "./retry.ts";

/** The server that leads to sandboxes. */
export interface TunnelServer {
  /** `unix:/path`, `http://127.0.0.1:port` or `https://host:port`. */
  readonly address: string;
  readonly token: string;
  readonly ca: string | Buffer | undefined;
  readonly peer: Peer;
}

/** Milliseconds for connection and upgrade: the sandbox may have to be taken up first. */
const handshakeMs = 60_000;

const http = process.getBuiltinModule("node:http");

/**
 * Opens a connection to a TCP port of a sandbox, also one that listens on its loopback only. Until it stands nothing has been sent, so
 * it is tried again when a connection on the way fails.
 * @throws DSecError `port_refused`, `port_timeout`, `sandbox_not_running`, `connection_limit`, `not_found`, `invalid_argument`,
 *   `coordinator_unreachable`, `cancelled`…; never ambiguous
 */
export async function openTunnel(
  server: TunnelServer,
  ref: string,
  port: number,
  signal: AbortSignal | undefined,
): Promise<TunnelStream> {
  if (!Number.isInteger(port) || port < 1 || port > 65_535)
    throw new DSecError("invalid_argument", `port: ${port} is not a port from 1 to 65535`);
  return withRetries(true, signal, async () =>
    attempt(server, routePath("port", { ref, port: String(port) }), signal),
  );
}

function attempt(server: TunnelServer, path: string, signal: AbortSignal | undefined): Promise<TunnelStream> {
  const address = parseAddress(server.address);
  const progress: { -readonly [K in keyof Progress]: Progress[K] } = {
    peer: server.peer,
    address: server.address,
    connected: false,
    changes: false,
  };
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(cancelledError(signal.reason, progress));
      return;
    }
    const socket = openSocket(address, server.ca);
    socket.once(connectEvent(address), () => (progress.connected = true));
    const request = http.request({
      path,
      headers: {
        host: address.kind === "unix" ? "localhost" : address.host,
        authorization: `Bearer ${server.token}`,
        connection: "Upgrade",
        upgrade: tunnelUpgrade,
      },
      createConnection: () => socket,
    });
    const fail = (error: DSecError): void => {
      settle();
      reject(error);
      request.destroy();
      socket.destroy();
    };
    const abort = (): void => fail(cancelledError(signal?.reason, progress));
    const timer = setTimeout(() => fail(timeoutError(handshakeMs, progress)), handshakeMs);
    const settle = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    };
    signal?.addEventListener("abort", abort, { once: true });
    request.on("error", (error) => fail(connectionError(error, progress)));
    request.once("upgrade", (_response: IncomingMessage, upgraded, head: Buffer) => {
      settle();
      resolve(new TunnelStream(upgraded, "client", head));
    });
    request.once("response", (response: IncomingMessage) => {
      const unexpected = new DSecError("protocol_error", "the server answered an upgrade without one");
      void refuseProblem(response)
        .then(() => unexpected)
        .catch((error: unknown) => connectionError(error, progress))
        .then(fail);
    });
    request.end();
  });
}
