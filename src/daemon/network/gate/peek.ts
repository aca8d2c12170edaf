import type { Socket } from "node:net";
import { Readable } from "node:stream";
import { getExtensionData, readTlsClientHello } from "read-tls-client-hello";

/** What the first bytes of a connection say of whom it is for. */
export type Peeked =
  | { readonly kind: "tls"; readonly serverName: string | undefined; readonly encrypted: boolean }
  | { readonly kind: "http" }
  /** Neither; also when the client said nothing in time. */
  | { readonly kind: "other" }
  /** Begins like TLS and cannot be read. */
  | { readonly kind: "malformed" }
  /** The client went away before. */
  | { readonly kind: "closed" };

const handshake = 0x16;
const recordHeaderBytes = 5;
const longestRecord = 16_384 + 256;
/** Enough for the longest method of HTTP and the blank after it. */
const methodBytes = 24;
const method = /^[A-Za-z!#$%&'*+.^_`|~-]{1,23} /;
const serverNameExtension = 0;
const encryptedHelloExtension = 0xfe0d;

/**
 * Reads what a client says first, and puts it back: the socket is paused afterwards, and gives all of it again.
 *
 * @param socket paused
 * @param ms for all of it
 */
export function peek(socket: Socket, ms: number): Promise<Peeked> {
  const { promise, resolve } = Promise.withResolvers<Peeked>();
  let bytes: Buffer = Buffer.alloc(0);
  const end = (peeked: Peeked): void => {
    clearTimeout(timer);
    for (const [event, listener] of listeners) socket.off(event, listener);
    if (bytes.length > 0 && !socket.destroyed) socket.unshift(bytes);
    resolve(socket.destroyed ? { kind: "closed" } : peeked);
  };
  const look = (): void => {
    const chunk: unknown = socket.read();
    if (!Buffer.isBuffer(chunk)) return;
    bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk]);
    const seen = understand(bytes);
    if (seen === undefined) return;
    // What comes meanwhile waits behind it, and no more time is needed.
    clearTimeout(timer);
    for (const [event, listener] of listeners) socket.off(event, listener);
    if (seen instanceof Promise) void seen.then(end);
    else end(seen);
  };
  const gone = (): void => end({ kind: "closed" });
  const listeners = [
    ["readable", look],
    ["end", gone],
    ["close", gone],
  ] as const;
  const timer = setTimeout(() => end({ kind: bytes.at(0) === handshake ? "malformed" : "other" }), ms);
  for (const [event, listener] of listeners) socket.on(event, listener);
  return promise;
}

/** Undefined when it takes more bytes to tell. */
function understand(bytes: Buffer): Peeked | Promise<Peeked> | undefined {
  if (bytes.at(0) === handshake) {
    if (bytes.length < recordHeaderBytes) return undefined;
    const length = bytes.readUInt16BE(3);
    if (bytes.at(1) !== 3 || length > longestRecord) return { kind: "malformed" };
    if (bytes.length < recordHeaderBytes + length) return undefined;
    return readHello(bytes.subarray(0, recordHeaderBytes + length));
  }
  const text = bytes.subarray(0, methodBytes).toString("latin1");
  if (method.test(text)) return { kind: "http" };
  return bytes.length < methodBytes && !/[^A-Za-z!#$%&'*+.^_`|~-]/.test(text) ? undefined : { kind: "other" };
}

/** One that is split over several records is malformed: no client in use does that unless to hide its name. */
async function readHello(record: Buffer): Promise<Peeked> {
  try {
    const hello = await readTlsClientHello(Readable.from([record], { objectMode: false }));
    const names = hello.extensions.filter(({ id }) => id === serverNameExtension);
    if (names.length > 1) return { kind: "malformed" };
    return {
      kind: "tls",
      serverName: getExtensionData(hello, serverNameExtension)?.serverName,
      encrypted: hello.extensions.some(({ id }) => id === encryptedHelloExtension),
    };
  } catch {
    return { kind: "malformed" };
  }
}
