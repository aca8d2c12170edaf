/** rtnetlink: links, addresses, routes and neighbours, by messages to the kernel. IPv4 addresses are four bytes. */
import {
  attribute,
  messageFlag as flag,
  type NetlinkMessage,
  netlinkProtocol,
  NetlinkSocket,
  text,
} from "./netlink-socket.ts";

const addressFamily = { inet: 2, inet6: 10 } as const;

/** A socket that carries the messages of this module. @throws LinuxError */
export function openRouteSocket(): NetlinkSocket {
  return new NetlinkSocket(netlinkProtocol.route);
}

function uint32(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeUInt32LE(value);
  return buffer;
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

/**
 * Keeps IPv6 from giving the link an address of its own accord. To be sent before {@link linkUp}.
 *
 * @param options.forwarding whether IPv4 packets that come in by the link may leave by another, whatever holds for the rest of the machine
 */
export function configureLink(index: number, options: { forwarding: boolean }): NetlinkMessage {
  const inet6 = attribute(addressFamily.inet6, attribute(8, Buffer.from([1])));
  const forwarding = attribute(1, uint32(1));
  const inet = options.forwarding ? [attribute(addressFamily.inet, attribute(1, forwarding))] : [];
  return {
    name: "RTM_NEWLINK configuration",
    type: 16,
    flags: 0,
    body: Buffer.concat([linkInfo(index), attribute(26, ...inet, inet6)]),
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
  /** The next hop. */
  readonly via?: Buffer;
  /** The source address of what is sent there. */
  readonly source?: Buffer;
  /** `local`: the destination is this machine. */
  readonly type?: "local";
  /** Its routing table, if not the main one. */
  readonly table?: number;
}

/** Who made a route, as `ip route` shows it (`proto 213`). */
const routeProtocol = 213;

/** Adds a route to its table, or replaces it. */
export function newRoute(route: Route): NetlinkMessage {
  return { name: "RTM_NEWROUTE", type: 24, flags: flag.create | flag.replace, body: routeBody(route) };
}

export function deleteRoute(route: Route): NetlinkMessage {
  return { name: "RTM_DELROUTE", type: 25, flags: 0, body: routeBody(route) };
}

const mainTable = 254;

function routeBody(route: Route): Buffer {
  const { destination, prefixLength, link, via, source, table = mainTable } = route;
  return Buffer.concat([
    Buffer.from([addressFamily.inet, prefixLength, 0, 0, 0, routeProtocol, ...scopeAndType(route)]),
    uint32(0),
    attribute(15, uint32(table)),
    ...(prefixLength === 0 ? [] : [attribute(1, destination)]),
    ...(link === undefined ? [] : [attribute(4, uint32(link))]),
    ...(via === undefined ? [] : [attribute(5, via)]),
    ...(source === undefined ? [] : [attribute(7, source)]),
  ]);
}

function scopeAndType({ link, via, type }: Route): [number, number] {
  const [globalScope, linkScope, hostScope] = [0, 253, 254];
  const [unicast, local, unreachable] = [1, 2, 7];
  if (link === undefined) return [globalScope, unreachable];
  if (type === "local") return [hostScope, local];
  return [via === undefined ? linkScope : globalScope, unicast];
}

/** A rule that has packets with a mark look into a routing table. */
export interface MarkRule {
  readonly mark: number;
  readonly table: number;
  /** The lowest goes first. */
  readonly priority: number;
}

/** @throws LinuxError EEXIST */
export function newMarkRule(rule: MarkRule): NetlinkMessage {
  return { name: "RTM_NEWRULE", type: 32, flags: flag.create | flag.exclusive, body: ruleBody(rule) };
}

export function deleteMarkRule(rule: MarkRule): NetlinkMessage {
  return { name: "RTM_DELRULE", type: 33, flags: 0, body: ruleBody(rule) };
}

function ruleBody({ mark, table, priority }: MarkRule): Buffer {
  const toTable = 1;
  return Buffer.concat([
    Buffer.from([addressFamily.inet, 0, 0, 0, 0, 0, 0, toTable]),
    uint32(0),
    attribute(6, uint32(priority)),
    attribute(10, uint32(mark)),
    attribute(16, uint32(0xffff_ffff)),
    attribute(15, uint32(table)),
    attribute(21, Buffer.from([routeProtocol])),
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
