/** nf_tables: rules of chains, in the terms of the kernel's registers. */
import { attribute, messageFlag, nested, type NetlinkMessage, text } from "./netlink-socket.ts";
import { elementsMessages, nfHeader, nfMessage, type SetElement } from "./nf-elements.ts";

/** Both ends included. */
export interface NfInterval {
  readonly first: number;
  readonly last: number;
}

/** What of a packet, or of its connection, a rule is about. */
export type NfField =
  /** Of the packet, IPv4. */
  | "destination address"
  | "destination port"
  /** Of the connection's other end, whatever has been translated on the way, and in either direction. */
  | "responder address"
  | "responder port"
  | "transport protocol"
  /** 0: as the packet that began the connection; 1: an answer. */
  | "direction";

/** Whether a field is in one of the intervals, which are in order and do not touch. */
export interface NfMatch {
  readonly field: NfField;
  readonly in: readonly NfInterval[];
}

export interface NfRule {
  readonly matches: readonly NfMatch[];
  /** Given to packets that match. */
  readonly mark?: number;
  readonly verdict: "accept" | { readonly jump: string } | { readonly goto: string };
}

const message = { newRule: 6, newSet: 9 } as const;
const append = 0x800;
/** Sixteen bytes; every field is loaded into it, and compared there. */
const register = 1;
const verdictRegister = 0;
const verdictCode = { accept: 1, jump: -3, goto: -4 } as const;
const payloadBase = { network: 1, transport: 2 } as const;
const replyDirection = 1;
const metaKey = { mark: 3, transportProtocol: 16 } as const;
const connectionKey = { direction: 1, sourcePort: 11, sourceAddress: 19 } as const;
/** As nft shows them. */
const dataType = { protocol: 12, port: 13, address: 7, other: 0 } as const;
const setFlag = { anonymous: 1, constant: 2, interval: 4 } as const;
/** The kernel replaces `%d`. */
const anonymousName = text("__set%d");
const highest = { 1: 0xff, 2: 0xffff, 4: 0xffff_ffff } as const;

interface Load {
  readonly bytes: 1 | 2 | 4;
  readonly type: number;
  readonly expression: Buffer;
}

function expression(name: string, ...attributes: readonly Buffer[]): Buffer {
  return nested(1, attribute(1, text(name)), nested(2, ...attributes));
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value >>> 0);
  return bytes;
}

function payload(base: number, offset: number, length: number): Buffer {
  const numbers = [register, base, offset, length];
  return expression("payload", ...numbers.map((value, index) => attribute(index + 1, u32(value))));
}

function ofConnection(key: number, direction?: number): Buffer {
  const parts = [attribute(1, u32(register)), attribute(2, u32(key))];
  if (direction !== undefined) parts.push(attribute(3, Buffer.from([direction])));
  return expression("ct", ...parts);
}

const loads: Readonly<Record<NfField, Load>> = {
  "destination address": {
    bytes: 4,
    type: dataType.address,
    expression: payload(payloadBase.network, 16, 4),
  },
  "destination port": { bytes: 2, type: dataType.port, expression: payload(payloadBase.transport, 2, 2) },
  "responder address": {
    bytes: 4,
    type: dataType.address,
    expression: ofConnection(connectionKey.sourceAddress, replyDirection),
  },
  "responder port": {
    bytes: 2,
    type: dataType.port,
    expression: ofConnection(connectionKey.sourcePort, replyDirection),
  },
  "transport protocol": {
    bytes: 1,
    type: dataType.protocol,
    expression: expression("meta", attribute(1, u32(register)), attribute(2, u32(metaKey.transportProtocol))),
  },
  direction: { bytes: 1, type: dataType.other, expression: ofConnection(connectionKey.direction) },
};

/** Makes rules, and the sets that they look things up in; each set goes with its rule. */
export class RuleEncoder {
  readonly #table: Buffer;
  #sets = 0;

  /** Numbers sets, so one is for one transaction. */
  constructor(table: string) {
    this.#table = attribute(1, text(table));
  }

  encode(chain: string, { matches, mark, verdict }: NfRule): NetlinkMessage[] {
    const messages: NetlinkMessage[] = [];
    const expressions = matches.flatMap((match) => this.#match(match, messages));
    if (mark !== undefined) expressions.push(...setMark(mark));
    expressions.push(
      expression("immediate", attribute(1, u32(verdictRegister)), nested(2, verdictOf(verdict))),
    );
    const body = Buffer.concat([
      nfHeader(),
      this.#table,
      attribute(2, text(chain)),
      nested(4, ...expressions),
    ]);
    messages.push(nfMessage(`rule of ${chain}`, message.newRule, messageFlag.create | append, body));
    return messages;
  }

  #match({ field, in: intervals }: NfMatch, messages: NetlinkMessage[]): Buffer[] {
    const { bytes, expression: load } = loads[field];
    const [only] = intervals;
    if (intervals.length === 1 && only !== undefined) return [load, comparison(only, bytes)];
    const id = attribute(4, u32(this.#set(field, intervals, messages)));
    return [load, expression("lookup", attribute(1, anonymousName), attribute(2, u32(register)), id)];
  }

  #set(field: NfField, intervals: readonly NfInterval[], messages: NetlinkMessage[]): number {
    const { bytes, type } = loads[field];
    this.#sets += 1;
    const id = u32(this.#sets);
    const flags = setFlag.anonymous | setFlag.constant | setFlag.interval;
    const parts = [
      nfHeader(),
      this.#table,
      attribute(2, anonymousName),
      attribute(3, u32(flags)),
      attribute(4, u32(type)),
      attribute(5, u32(bytes)),
      attribute(10, id),
    ];
    messages.push(nfMessage("set of a rule", message.newSet, messageFlag.create, Buffer.concat(parts)));
    const into = [this.#table, attribute(2, anonymousName), attribute(4, id)];
    messages.push(...elementsMessages("set of a rule", "add", into, boundaries(intervals, bytes)));
    return this.#sets;
  }
}

function comparison({ first, last }: NfInterval, bytes: Load["bytes"]): Buffer {
  const [from, to] = [first, last].map((value) => attribute(1, numberOf(value, bytes)));
  const equal = attribute(2, u32(0));
  const source = attribute(1, u32(register));
  if (first === last) return expression("cmp", source, equal, nested(3, from ?? Buffer.alloc(0)));
  return expression(
    "range",
    source,
    equal,
    nested(3, from ?? Buffer.alloc(0)),
    nested(4, to ?? Buffer.alloc(0)),
  );
}

/** A set of intervals is where each begins, and where what is not in it begins again. */
function boundaries(intervals: readonly NfInterval[], bytes: Load["bytes"]): SetElement[] {
  const elements: SetElement[] = [];
  if (intervals[0]?.first !== 0) elements.push({ key: numberOf(0, bytes), isEnd: true });
  for (const { first, last } of intervals) {
    elements.push({ key: numberOf(first, bytes) });
    if (last < highest[bytes]) elements.push({ key: numberOf(last + 1, bytes), isEnd: true });
  }
  return elements;
}

function numberOf(value: number, bytes: Load["bytes"]): Buffer {
  const buffer = Buffer.alloc(bytes);
  buffer.writeUIntBE(value, 0, bytes);
  return buffer;
}

function setMark(mark: number): Buffer[] {
  // Of this machine's byte order, unlike what is read from packets.
  const value = Buffer.alloc(4);
  value.writeUInt32LE(mark);
  return [
    expression("immediate", attribute(1, u32(register)), nested(2, attribute(1, value))),
    expression("meta", attribute(2, u32(metaKey.mark)), attribute(3, u32(register))),
  ];
}

function verdictOf(verdict: NfRule["verdict"]): Buffer {
  if (verdict === "accept") return nested(2, attribute(1, u32(verdictCode.accept)));
  const [code, chain] =
    "jump" in verdict ? [verdictCode.jump, verdict.jump] : [verdictCode.goto, verdict.goto];
  return nested(2, attribute(1, u32(code)), attribute(2, text(chain)));
}
