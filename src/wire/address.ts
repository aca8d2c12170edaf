import { DSecError } from "../protocol/errors.ts";

/** Where a server listens and a client connects. */
export type Address =
  | { readonly kind: "unix"; readonly path: string }
  | { readonly kind: "tcp"; readonly host: string; readonly port: number; readonly tls: boolean };

/** A Unix socket's path must fit sun_path with its terminator. */
const maxSocketPathBytes = 107;

/**
 * Reads `unix:/path`, `http://127.0.0.1:port` (loopback only: there is no encryption) or `https://host:port`.
 * @throws DSecError `invalid_argument`
 */
export function parseAddress(text: string): Address {
  if (text.startsWith("unix:")) return unixAddress(text, text.slice("unix:".length));
  let url: URL;
  try {
    url = new URL(text);
  } catch (cause) {
    throw invalid(text, "must be unix:/path, http://127.0.0.1:port or https://host:port", cause);
  }
  const tls = url.protocol === "https:";
  if (!tls && url.protocol !== "http:") throw invalid(text, `knows no scheme ${url.protocol}//`);
  if (
    url.username !== "" ||
    url.password !== "" ||
    url.search !== "" ||
    url.hash !== "" ||
    url.pathname !== "/"
  )
    throw invalid(text, "must consist of scheme, host and port only");
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  if (!tls && !isLoopback(host))
    throw invalid(text, "is not a loopback address: other hosts need TLS (https://)");
  return { kind: "tcp", host, port: url.port === "" ? (tls ? 443 : 80) : Number(url.port), tls };
}

export function formatAddress(address: Address): string {
  if (address.kind === "unix") return `unix:${address.path}`;
  const host = address.host.includes(":") ? `[${address.host}]` : address.host;
  return `${address.tls ? "https" : "http"}://${host}:${address.port}`;
}

function unixAddress(text: string, path: string): Address {
  if (!path.startsWith("/") || path.includes("\0")) throw invalid(text, "needs an absolute path after unix:");
  if (Buffer.byteLength(path) > maxSocketPathBytes)
    throw invalid(text, `has a path longer than ${maxSocketPathBytes} bytes, which no Unix socket can have`);
  return { kind: "unix", path };
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

function invalid(text: string, why: string, cause?: unknown): DSecError {
  return new DSecError(
    "invalid_argument",
    `address ${JSON.stringify(text)} ${why}`,
    cause === undefined ? {} : { cause },
  );
}
