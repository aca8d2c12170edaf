import { once } from "node:events";
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
export async function peek(socket: Socket, ms: number): Promise<Peeked> {
  const timeout = AbortSignal.timeout(ms);
  let bytes = Buffer.alloc(0);
  try {
    for (;;) {
      const peeked = await understand(bytes);
      if (peeked !== undefined) return peeked;
      const chunk: unknown = socket.read();
      if (Buffer.isBuffer(chunk)) bytes = Buffer.concat([bytes, chunk]);
      else if (socket.readableEnded || socket.destroyed) return { kind: "closed" };
      else {
        const more = new AbortController();
        const signal = AbortSignal.any([timeout, more.signal]);
        try {
          await Promise.race([
            once(socket, "readable", { signal }),
            once(socket, "end", { signal }),
            once(socket, "close", { signal }),
          ]);
        } finally {
          more.abort();
        }
      }
    }
  } catch {
    if (socket.destroyed) return { kind: "closed" };
    return bytes.at(0) === handshake ? { kind: "malformed" } : { kind: "other" };
  } finally {
    if (bytes.length > 0 && !socket.destroyed) socket.unshift(bytes);
  }
}

/** Undefined when it takes more bytes to tell. */
async function understand(bytes: Buffer): Promise<Peeked | undefined> {
  if (bytes.length === 0) return undefined;
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
