/** The records of kernel/event.h. */
import type { AuditEvent } from "../../protocol/audit-event.ts";
import { formatAddress } from "../../protocol/cidr.ts";

/** What the reader tells: an event of a sandbox, or something of its own. */
export const recordKinds = { exec: 1, connect: 2, exit: 3, ready: 4, lost: 5, done: 6 } as const;

export type EventKind = "exec" | "connect" | "exit";
const eventKinds = new Map<number, EventKind>([
  [recordKinds.exec, "exec"],
  [recordKinds.connect, "connect"],
  [recordKinds.exit, "exit"],
]);

export interface RecordHead {
  readonly kind: number;
  /** What the sandbox was added under. */
  readonly token: number;
}

const requestBytes = 24;
const familyInet = 2;
const protocols = new Map<number, "tcp" | "udp" | "icmp">([
  [1, "icmp"],
  [6, "tcp"],
  [17, "udp"],
  [58, "icmp"],
]);

/** A sandbox by the first process of its process namespace. */
export interface AuditedNamespace {
  /** Inode number. */
  readonly namespace: number;
  /** Clock ticks since boot at which its first process started. */
  readonly startTime: number;
}

export function encodeRequest(
  action: "add" | "remove",
  { namespace, startTime }: AuditedNamespace,
  token: number,
): Buffer {
  const request = Buffer.alloc(requestBytes);
  request.writeUInt32LE(action === "add" ? 1 : 0, 0);
  request.writeUInt32LE(namespace, 4);
  request.writeBigUInt64LE(BigInt(startTime), 8);
  request.writeUInt32LE(token, 16);
  return request;
}

export function headOf(record: Buffer): RecordHead {
  return { kind: record.readUInt32LE(0), token: record.readUInt32LE(4) };
}

export function eventKindOf(kind: number): EventKind | undefined {
  return eventKinds.get(kind);
}

/** Milliseconds since the epoch, of an event. */
export function timeOf(record: Buffer): number {
  return Number(record.readBigUInt64LE(8)) / 1e6;
}

/** Events since the sandbox was added that were not told, of a `lost` record. */
export function lostOf(record: Buffer): number {
  return Number(record.readBigUInt64LE(8));
}

/** @param record of kind exec, connect or exit */
export function decodeEvent(
  record: Buffer,
  origin: { readonly sandbox: string; readonly sequence: number; readonly time: number },
): AuditEvent {
  const process = {
    ...origin,
    pid: record.readUInt32LE(20),
    nodePid: record.readUInt32LE(16),
    parentPid: record.readUInt32LE(24),
    uid: record.readUInt32LE(28),
    command: textOf(record.subarray(32, 48)),
  };
  switch (eventKindOf(record.readUInt32LE(0))) {
    case "exec":
      return { ...process, kind: "exec", ...programOf(record) };
    case "connect":
      return { ...process, kind: "connect", ...peerOf(record) };
    default:
      return { ...process, kind: "exit", ...exitOf(record.readUInt32LE(48)) };
  }
}

function programOf(record: Buffer) {
  const pathEnd = 56 + record.readUInt16LE(48);
  const argumentsEnd = pathEnd + record.readUInt16LE(50);
  const argv = record.toString("utf8", pathEnd, argumentsEnd).split("\0");
  // each ends in a null, the last too unless it was cut
  if (argv.at(-1) === "") argv.pop();
  return {
    path: textOf(record.subarray(56, pathEnd)),
    argv,
    truncated: record.readUInt32LE(52) !== 0,
  };
}

function peerOf(record: Buffer) {
  const bytes = record.subarray(56, record.readUInt16LE(48) === familyInet ? 60 : 72);
  return {
    protocol: protocols.get(record.readUInt32LE(52)) ?? ("other" as const),
    address: formatAddress([...bytes]),
    port: record.readUInt16LE(50),
  };
}

/** Of wait(2). */
function exitOf(status: number): { signal: number } | { exitCode: number } {
  const signal = status & 0x7f;
  return signal === 0 ? { exitCode: (status >> 8) & 0xff } : { signal };
}

/** Up to the first null. */
function textOf(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString("utf8", 0, end === -1 ? bytes.length : end);
}
