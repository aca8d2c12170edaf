import { connect as connectPlain, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import type { Address } from "../address.ts";

/** Milliseconds of silence after which TCP asks whether the other end still is there. */
const probeAfterMs = 15_000;

/** A connection to a server that may be half-closed; `secureConnect` (TLS) or `connect` tells that it stands. */
export function openSocket(address: Address, ca: string | Buffer | undefined): Socket {
  if (address.kind === "unix") return connectPlain({ path: address.path, allowHalfOpen: true });
  const { host, port } = address;
  const socket = address.tls
    ? connectTls(tlsOptions(host, port, ca))
    : connectPlain({ host, port, allowHalfOpen: true, noDelay: true });
  return socket.setKeepAlive(true, probeAfterMs);
}

/** The event by which the socket tells that it stands. */
export function connectEvent(address: Address): "connect" | "secureConnect" {
  return address.kind === "tcp" && address.tls ? "secureConnect" : "connect";
}

// the types of tls.connect lack allowHalfOpen, so that it must not be a literal
function tlsOptions(host: string, port: number, ca: string | Buffer | undefined) {
  return {
    host,
    port,
    allowHalfOpen: true,
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(ca === undefined ? {} : { ca }),
  };
}
