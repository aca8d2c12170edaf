/** Ethernet frames, written byte by byte: what no honest program sends. */
import { isIPv6 } from "node:net";
import { addressBytes as parsedAddress } from "../../../src/protocol/cidr.ts";

export const etherType = { ipv4: 0x0800, arp: 0x0806, vlan: 0x8100, ipv6: 0x86dd } as const;
export const ipProtocol = {
  icmp: 1,
  ipip: 4,
  tcp: 6,
  udp: 17,
  ipv6: 41,
  gre: 47,
  esp: 50,
  sctp: 132,
} as const;
export const tcpFlag = { fin: 1, syn: 2, rst: 4, psh: 8, ack: 16, urg: 32 } as const;

/** Of the two ends of a sandbox's link, which follow from its address. */
export function macsOf(address: string): { readonly host: Buffer; readonly inside: Buffer } {
  return {
    host: Buffer.concat([Buffer.from([0x02, 0xd5]), bytesOf(address)]),
    inside: Buffer.concat([Buffer.from([0x02, 0xd6]), bytesOf(address)]),
  };
}

export function ethernet(from: Buffer, to: Buffer, type: number, payload: Buffer): string {
  return Buffer.concat([to, from, u16(type), payload]).toString("hex");
}

/** @param operation 1 asks, 2 answers */
export function arp(
  operation: 1 | 2,
  sender: readonly [Buffer, string],
  target: readonly [Buffer, string],
): Buffer {
  const header = Buffer.from([0, 1, 8, 0, 6, 4, 0, operation]);
  return Buffer.concat([header, sender[0], bytesOf(sender[1]), target[0], bytesOf(target[1])]);
}

export interface Ipv4Header {
  readonly source: string;
  readonly destination: string;
  readonly protocol: number;
  readonly options?: Buffer;
  /** In bytes. */
  readonly fragmentAt?: number;
  readonly moreFragments?: boolean;
  readonly id?: number;
}

export function ipv4(header: Ipv4Header, payload: Buffer): Buffer {
  const { options = Buffer.alloc(0), fragmentAt = 0, moreFragments = false, id = 1 } = header;
  const bytes = Buffer.alloc(20 + options.length);
  bytes.writeUInt8(0x40 | (bytes.length / 4), 0);
  bytes.writeUInt16BE(bytes.length + payload.length, 2);
  bytes.writeUInt16BE(id, 4);
  bytes.writeUInt16BE((moreFragments ? 0x2000 : 0) | (fragmentAt / 8), 6);
  bytes.writeUInt8(64, 8);
  bytes.writeUInt8(header.protocol, 9);
  bytesOf(header.source).copy(bytes, 12);
  bytesOf(header.destination).copy(bytes, 16);
  options.copy(bytes, 20);
  bytes.writeUInt16BE(checksum(bytes), 10);
  return Buffer.concat([bytes, payload]);
}

export function ipv6(source: string, destination: string, nextHeader: number, payload: Buffer): Buffer {
  const header = Buffer.alloc(8);
  header.writeUInt8(0x60, 0);
  header.writeUInt16BE(payload.length, 4);
  header.writeUInt8(nextHeader, 6);
  header.writeUInt8(64, 7);
  return Buffer.concat([header, bytesOf(source), bytesOf(destination), payload]);
}

interface Ends {
  readonly source: string;
  readonly destination: string;
  readonly from: number;
  readonly to: number;
}

export function udp({ source, destination, from, to }: Ends, payload: Buffer): Buffer {
  const datagram = Buffer.concat([u16(from), u16(to), u16(8 + payload.length), u16(0), payload]);
  datagram.writeUInt16BE(transportSum(source, destination, ipProtocol.udp, datagram), 6);
  return datagram;
}

/** @param flags sum of {@link tcpFlag} */
export function tcp(
  { source, destination, from, to }: Ends,
  flags: number,
  payload = Buffer.alloc(0),
): Buffer {
  const header = Buffer.alloc(20);
  header.writeUInt16BE(from, 0);
  header.writeUInt16BE(to, 2);
  header.writeUInt32BE(1000, 4);
  header.writeUInt32BE((flags & tcpFlag.ack) === 0 ? 0 : 2000, 8);
  header.writeUInt8(5 << 4, 12);
  header.writeUInt8(flags, 13);
  header.writeUInt16BE(64_000, 14);
  const segment = Buffer.concat([header, payload]);
  segment.writeUInt16BE(transportSum(source, destination, ipProtocol.tcp, segment), 16);
  return segment;
}

function transportSum(source: string, destination: string, protocol: number, segment: Buffer): number {
  const length = isIPv6(source) ? [0, 0, ...u16(segment.length), 0, 0] : [...u16(segment.length)];
  const pseudo = Buffer.from([0, protocol, ...length]);
  return checksum(Buffer.concat([bytesOf(source), bytesOf(destination), pseudo, segment]));
}

function checksum(bytes: Buffer): number {
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 2) sum += (bytes.at(at) ?? 0) * 256 + (bytes.at(at + 1) ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + Math.floor(sum / 0x10000);
  return ~sum & 0xffff;
}

function u16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value);
  return bytes;
}

function bytesOf(address: string): Buffer {
  return Buffer.from(parsedAddress(address) ?? []);
}
