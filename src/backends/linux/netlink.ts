/** rtnetlink: links, addresses, routes and neighbours, by messages to the kernel. IPv4 addresses are four bytes. */
import { closeDescriptor, libcFunction, LinuxError } from "./libc.ts";

const socketFunction = libcFunction<[number, number, number]>("socket", [
  "int domain",
  "int type",
  "int protocol",
]);
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

const addressFamily = { inet: 2, inet6: 10, netlink: 16 } as const;
const rawSocket = 3;
const closeOnExec = 0o2_000_000;
const errorMessage = 2;
const headerBytes = 16;
const flag = { request: 0x1, acknowledge: 0x4, replace: 0x100, exclusive: 0x200, create: 0x400 } as const;

/** A message without its header's length and sequence number. */
export interface NetlinkMessage {
  /** For errors, e.g. `RTM_NEWLINK dsec_1a`. */
  readonly name: string;
  readonly type: number;
  readonly flags: number;
  readonly body: Buffer;
}

/** A socket to the network namespace in which the calling thread is when it is made. */
export class NetlinkSocket {
  readonly #fd: number;
  #sequence = 0;

  /** @throws LinuxError */
  constructor() {
    this.#fd = socketFunction(addressFamily.netlink, rawSocket | closeOnExec, 0);
  }

  /** Sends the messages in one call; the kernel carries out each in turn. @throws LinuxError of the first that failed */
  request(...messages: readonly NetlinkMessage[]): void {
    const first = this.#sequence + 1;
    const encoded = messages.map(({ type, flags, body }) => {
      const header = Buffer.alloc(headerBytes);
      header.writeUInt32LE(headerBytes + body.length, 0);
      header.writeUInt16LE(type, 4);
      header.writeUInt16LE(flags | flag.request | flag.acknowledge, 6);
      this.#sequence += 1;
      header.writeUInt32LE(this.#sequence, 8);
      return Buffer.concat([header, body]);
    });
    const bytes = Buffer.concat(encoded);
    sendFunction(this.#fd, bytes, bytes.length, 0);
    const answer = Buffer.alloc(4096);
    let failure: LinuxError | undefined;
    for (let answered = 0; answered < messages.length; answered += 1) {
      receiveFunction(this.#fd, answer, answer.length, 0);
      const message = messages[answer.readUInt32LE(8) - first];
      if (answer.readUInt16LE(4) !== errorMessage || message === undefined)
        throw new Error(`unexpected netlink message ${answer.readUInt16LE(4)}`);
      const errno = -answer.readInt32LE(headerBytes);
      if (errno !== 0) failure ??= new LinuxError(message.name, errno);
    }
    if (failure !== undefined) throw failure;
  }

  close(): void {
    closeDescriptor(this.#fd);
  }
}

function attribute(type: number, ...payload: readonly Buffer[]): Buffer {
  const length = 4 + payload.reduce((sum, part) => sum + part.length, 0);
  const buffer = Buffer.alloc((length + 3) & ~3);
  buffer.writeUInt16LE(length, 0);
  buffer.writeUInt16LE(type, 2);
  Buffer.concat(payload).copy(buffer, 4);
  return buffer;
}

function uint32(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeUInt32LE(value);
  return buffer;
}

function text(value: string): Buffer {
  return Buffer.from(`${value}\0`);
}

const linkFlag = { up: 0x1, noArp: 0x80 } as const;

function linkInfo(index: number, flags = 0, change = 0): Buffer {
  const buffer = Buffer.alloc(16);
  buffer.writeInt32LE(index, 4);
  buffer.writeUInt32LE(flags, 8);
  buffer.writeUInt32LE(change, 12);
  return buffer;
}

/** One end of a veth pair. */
export interface LinkEnd {
  readonly name: string;
  /** Six bytes. Given, so that no system service replaces it. */
  readonly mac: Buffer;
}

/**
 * Makes a veth pair: `end` here, `peer` in the namespace of the descriptor. One queue each: the default is one for each CPU.
 */
export function newVethPair(end: LinkEnd, peer: LinkEnd, peerNamespace: number): NetlinkMessage {
  const common = ({ name, mac }: LinkEnd) => [
    attribute(3, text(name)),
    attribute(1, mac),
    attribute(31, uint32(1)),
    attribute(32, uint32(1)),
  ];
  const peerInfo = attribute(1, linkInfo(0), ...common(peer), attribute(28, uint32(peerNamespace)));
  return {
    name: `RTM_NEWLINK ${peer.name}`,
    type: 16,
    flags: flag.create | flag.exclusive,
    body: Buffer.concat([
      linkInfo(0),
      ...common(end),
      attribute(18, attribute(1, text("veth")), attribute(2, peerInfo)),
    ]),
  };
}

/** Keeps IPv6 from giving the link an address of its own accord. To be sent before {@link linkUp}. */
export function noAutomaticAddress(index: number): NetlinkMessage {
  const inet6 = attribute(addressFamily.inet6, attribute(8, Buffer.from([1])));
  return {
    name: "RTM_NEWLINK addrgenmode",
    type: 16,
    flags: 0,
    body: Buffer.concat([linkInfo(index), attribute(26, inet6)]),
  };
}

/** @param options.arp false: neighbours are those that were set */
export function linkUp(index: number, options: { arp: boolean }): NetlinkMessage {
  const flags = options.arp ? linkFlag.up : linkFlag.up | linkFlag.noArp;
  return { name: "RTM_NEWLINK up", type: 16, flags: 0, body: linkInfo(index, flags, flags) };
}

export function deleteLink(name: string): NetlinkMessage {
  return {
    name: `RTM_DELLINK ${name}`,
    type: 17,
    flags: 0,
    body: Buffer.concat([linkInfo(0), attribute(3, text(name))]),
  };
}

/** Adds an address (/32) to a link; no error when it has it. */
export function newAddress(index: number, address: Buffer): NetlinkMessage {
  return {
    name: "RTM_NEWADDR",
    type: 20,
    flags: flag.create | flag.replace,
    body: addressBody(index, address),
  };
}

export function deleteAddress(index: number, address: Buffer): NetlinkMessage {
  return { name: "RTM_DELADDR", type: 21, flags: 0, body: addressBody(index, address) };
}

function addressBody(index: number, address: Buffer): Buffer {
  const header = Buffer.from([addressFamily.inet, 32, 0, 0]);
  return Buffer.concat([header, uint32(index), attribute(2, address), attribute(1, address)]);
}

export interface Route {
  readonly destination: Buffer;
  readonly prefixLength: number;
  /** The link it leads to; without one, the destination is unreachable. */
  readonly link?: number;
  /** The source address of what is sent there. */
  readonly source?: Buffer;
}

/** Who made a route, as `ip route` shows it (`proto 213`). */
const routeProtocol = 213;

/** Adds a route to the main table, or replaces it. */
export function newRoute(route: Route): NetlinkMessage {
  return { name: "RTM_NEWROUTE", type: 24, flags: flag.create | flag.replace, body: routeBody(route) };
}

export function deleteRoute(route: Route): NetlinkMessage {
  return { name: "RTM_DELROUTE", type: 25, flags: 0, body: routeBody(route) };
}

function routeBody(route: Route): Buffer {
  const [mainTable, linkScope, globalScope, unicast, unreachable] = [254, 253, 0, 1, 7];
  const scopeAndType = route.link === undefined ? [globalScope, unreachable] : [linkScope, unicast];
  return Buffer.concat([
    Buffer.from([addressFamily.inet, route.prefixLength, 0, 0, mainTable, routeProtocol, ...scopeAndType]),
    uint32(0),
    attribute(1, route.destination),
    ...(route.link === undefined ? [] : [attribute(4, uint32(route.link))]),
    ...(route.source === undefined ? [] : [attribute(7, route.source)]),
  ]);
}

/** A neighbour that needs no ARP and does not count against the kernel's limit of neighbours. */
export function permanentNeighbour(link: number, address: Buffer, mac: Buffer): NetlinkMessage {
  const permanent = 0x80;
  const header = Buffer.alloc(12);
  header.writeUInt8(addressFamily.inet, 0);
  header.writeInt32LE(link, 4);
  header.writeUInt16LE(permanent, 8);
  return {
    name: "RTM_NEWNEIGH",
    type: 28,
    flags: flag.create | flag.replace,
    body: Buffer.concat([header, attribute(1, address), attribute(2, mac)]),
  };
}
