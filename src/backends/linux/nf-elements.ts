/** nf_tables: messages, and those that change elements of sets and maps. */
import { attribute, messageFlag, nested, type NetlinkMessage, text } from "./netlink-socket.ts";

const subsystem = 10;
const inet = 1;
const message = { newElements: 12, deleteElements: 14 } as const;
const jumpVerdict = -3;
const intervalEnd = 1;
const isNested = 0x8000;
const headerBytes = 4;
const flagBytes = 8;
const noVerdict = Buffer.alloc(0);
/** Elements in a message: an attribute ends at 65,535 bytes. */
const elementsInMessage = 400;

export interface SetElement {
  /** Each field of several padded to four bytes. */
  readonly key: Buffer;
  /** The chain to jump to, where the set is a verdict map. */
  readonly chain?: string;
  /** Of a set of intervals: what begins here is not in it. */
  readonly isEnd?: boolean;
}

/** Of the family inet. */
export function nfHeader(): Buffer {
  return Buffer.from([inet, 0, 0, 0]);
}

export function nfMessage(name: string, type: number, flags: number, body: Buffer): NetlinkMessage {
  return { name, type: (subsystem << 8) | type, flags, body };
}

/** A transaction is between two of them. */
export function nfMarker(which: "begin" | "end"): NetlinkMessage {
  const type = which === "begin" ? 16 : 17;
  return {
    name: `transaction ${which}`,
    type,
    flags: 0,
    body: Buffer.from([0, 0, 0, subsystem]),
    silent: true,
  };
}

/** @param into attributes that say which set of which table */
export function elementsMessages(
  name: string,
  change: "add" | "delete",
  into: readonly Buffer[],
  elements: readonly SetElement[],
): NetlinkMessage[] {
  const messages: NetlinkMessage[] = [];
  for (let start = 0; start < elements.length; start += elementsInMessage) {
    const listed = elements.slice(start, start + elementsInMessage);
    const body = Buffer.concat([nfHeader(), ...into, nested(3, encodeElements(listed))]);
    messages.push(
      change === "add"
        ? nfMessage(name, message.newElements, messageFlag.create, body)
        : nfMessage(name, message.deleteElements, 0, body),
    );
  }
  return messages;
}

/** There may be tens of thousands: into one buffer. */
function encodeElements(elements: readonly SetElement[]): Buffer {
  const verdicts = elements.map(({ chain }) => (chain === undefined ? noVerdict : jumpTo(chain)));
  const sizes = elements.map(
    ({ key, isEnd }, index) =>
      3 * headerBytes +
      aligned(key.length) +
      (verdicts[index]?.length ?? 0) +
      (isEnd === true ? flagBytes : 0),
  );
  const buffer = Buffer.alloc(sizes.reduce((sum, size) => sum + size, 0));
  let at = 0;
  elements.forEach(({ key, isEnd }, index) => {
    const [size = 0, verdict = noVerdict] = [sizes[index], verdicts[index]];
    const end = at + size;
    at = writeHeader(buffer, at, size, 1 | isNested);
    at = writeHeader(buffer, at, 2 * headerBytes + aligned(key.length), 1 | isNested);
    at = writeHeader(buffer, at, headerBytes + key.length, 1);
    key.copy(buffer, at);
    at += aligned(key.length);
    at += verdict.copy(buffer, at);
    if (isEnd === true) {
      at = writeHeader(buffer, at, flagBytes, 3);
      buffer.writeUInt32BE(intervalEnd, at);
    }
    at = end;
  });
  return buffer;
}

function writeHeader(buffer: Buffer, at: number, length: number, type: number): number {
  buffer.writeUInt16LE(length, at);
  return buffer.writeUInt16LE(type, at + 2);
}

function aligned(length: number): number {
  return (length + 3) & ~3;
}

function jumpTo(chain: string): Buffer {
  const code = Buffer.alloc(4);
  code.writeInt32BE(jumpVerdict);
  return nested(2, nested(2, attribute(1, code), attribute(2, text(chain))));
}
