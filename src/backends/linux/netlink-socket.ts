/** Netlink: messages to the kernel and its answers. Every call is synchronous; the kernel carries a message out before it returns. */
import { closeDescriptor, isErrno, libcFunction, LinuxError } from "./libc.ts";
import { setOption, SOCK_CLOEXEC, socket } from "./socket.ts";

const sendFunction = libcFunction<[number, Uint8Array, number, number]>("send", [
  "int fd",
  "const void *buffer",
  "size_t length",
  "int flags",
]);
const receiveFunction = libcFunction<[number, Uint8Array, number, number]>("recv", [
  "int fd",
  "void *buffer",
  "size_t length",
  "int flags",
]);

const netlinkFamily = 16;
const rawSocket = 3;
const doNotWait = 0x40;
const socketLevel = 1;
/** SO_SNDBUFFORCE: past the limit for users. */
const sendBuffer = 32;
const errorMessage = 2;
const headerBytes = 16;
const answerBytes = 65_536;

export const netlinkProtocol = { route: 0, netfilter: 12 } as const;
export const messageFlag = {
  request: 0x1,
  acknowledge: 0x4,
  replace: 0x100,
  exclusive: 0x200,
  create: 0x400,
} as const;

/** A message without its header's length and sequence number. */
export interface NetlinkMessage {
  /** For errors, e.g. `RTM_NEWLINK dsec_1a`. */
  readonly name: string;
  readonly type: number;
  readonly flags: number;
  readonly body: Buffer;
  /** Not to be acknowledged: it only marks the begin or the end of others. */
  readonly silent?: boolean;
}

/** A message of the kernel. */
export interface ReceivedMessage {
  readonly type: number;
  readonly sequence: number;
  readonly body: Buffer;
}

/** A socket to the network namespace in which the calling thread is when it is made. */
export class NetlinkSocket {
  /** -1 when closed: what comes later must not reach whoever has the number by then. */
  #fd: number;
  readonly #buffer = Buffer.allocUnsafe(answerBytes);
  #sequence = 0;

  /** @param protocol of {@link netlinkProtocol} @throws LinuxError */
  constructor(protocol: number) {
    this.#fd = socket(netlinkFamily, rawSocket | SOCK_CLOEXEC, protocol);
  }

  /** Sends the messages in one call; the kernel carries out each in turn. @throws LinuxError of the first that failed */
  request(...messages: readonly NetlinkMessage[]): void {
    const first = this.#sequence + 1;
    const bytes = Buffer.concat(messages.map((message) => this.#encode(message)));
    sendFunction(this.#fd, bytes, bytes.length, 0);
    const waiting = new Set(messages.flatMap(({ silent }, index) => (silent === true ? [] : [index])));
    let failure: LinuxError | undefined;
    while (waiting.size > 0) {
      const answers = this.receive();
      // A transaction that fails as a whole is answered once, and not for each of its messages.
      if (answers.length === 0) break;
      for (const { type, sequence, body } of answers) {
        const message = messages[sequence - first];
        if (type !== errorMessage || message === undefined)
          throw new Error(`unexpected netlink message ${type}`);
        waiting.delete(sequence - first);
        const errno = -body.readInt32LE(0);
        if (errno !== 0) failure ??= new LinuxError(message.name, errno);
      }
    }
    if (failure !== undefined) throw failure;
    if (waiting.size > 0) throw new Error("the kernel does not answer a netlink message");
  }

  /** What the kernel has sent so far, of one datagram; empty when there is none. @throws LinuxError ENOBUFS when some was lost */
  receive(): ReceivedMessage[] {
    const length = this.#receiveNow();
    const received: ReceivedMessage[] = [];
    for (let at = 0; at + headerBytes <= length;) {
      const end = at + this.#buffer.readUInt32LE(at);
      if (end < at + headerBytes || end > length) break;
      received.push({
        type: this.#buffer.readUInt16LE(at + 4),
        sequence: this.#buffer.readUInt32LE(at + 8),
        body: Buffer.from(this.#buffer.subarray(at + headerBytes, end)),
      });
      at = (end + 3) & ~3;
    }
    return received;
  }

  /** Makes room for requests of so many bytes. @throws LinuxError */
  reserve(bytes: number): void {
    const value = Buffer.alloc(4);
    value.writeInt32LE(bytes);
    setOption(this.#fd, socketLevel, sendBuffer, value, value.length);
  }

  get descriptor(): number {
    return this.#fd;
  }

  /** Idempotent. Later calls fail with EBADF. */
  close(): void {
    if (this.#fd === -1) return;
    closeDescriptor(this.#fd);
    this.#fd = -1;
  }

  #receiveNow(): number {
    try {
      return receiveFunction(this.#fd, this.#buffer, this.#buffer.length, doNotWait);
    } catch (error) {
      if (isErrno(error, "EAGAIN")) return 0;
      throw error;
    }
  }

  #encode({ type, flags, body, silent }: NetlinkMessage): Buffer {
    const header = Buffer.alloc(headerBytes);
    header.writeUInt32LE(headerBytes + body.length, 0);
    header.writeUInt16LE(type, 4);
    header.writeUInt16LE(flags | messageFlag.request | (silent === true ? 0 : messageFlag.acknowledge), 6);
    this.#sequence += 1;
    header.writeUInt32LE(this.#sequence, 8);
    const padding = Buffer.alloc(-body.length & 3);
    return Buffer.concat([header, body, padding]);
  }
}

/** An attribute: type, payload, padded to four bytes. */
export function attribute(type: number, ...payload: readonly Buffer[]): Buffer {
  const length = 4 + payload.reduce((sum, part) => sum + part.length, 0);
  const buffer = Buffer.alloc((length + 3) & ~3);
  buffer.writeUInt16LE(length, 0);
  buffer.writeUInt16LE(type, 2);
  Buffer.concat(payload).copy(buffer, 4);
  return buffer;
}

/** An attribute made of attributes. */
export function nested(type: number, ...parts: readonly Buffer[]): Buffer {
  const isNested = 0x8000;
  return attribute(type | isNested, ...parts);
}

/** A string with its terminating zero. */
export function text(value: string): Buffer {
  return Buffer.from(`${value}\0`);
}

/** The attributes of a message's body, by type. Those of an odd length are left out, like what follows them. */
export function attributesOf(body: Buffer): Map<number, Buffer> {
  const found = new Map<number, Buffer>();
  for (let at = 0; at + 4 <= body.length;) {
    const length = body.readUInt16LE(at);
    if (length < 4 || at + length > body.length) break;
    found.set(body.readUInt16LE(at + 2) & 0x3fff, body.subarray(at + 4, at + length));
    at += (length + 3) & ~3;
  }
  return found;
}
