import dns from "dns-packet";
import { canonicalName } from "../../../protocol/domain-name.ts";

/** Longest UDP message to somebody who has not said that it may be longer. */
const plainUdpBytes = 512;
/** Longest UDP message at all: fits every link. */
const longestUdpBytes = 1232;
const longestChain = 16;
/** RFC 8914: blocked by the operator. */
const blocked = 15;
const extendedError = 15;
const longestReason = 200;

export type ResponseCode = "NOERROR" | "FORMERR" | "SERVFAIL" | "NXDOMAIN" | "NOTIMP" | "REFUSED";
const responseCodes: Readonly<Record<ResponseCode, number>> = {
  NOERROR: 0,
  FORMERR: 1,
  SERVFAIL: 2,
  NXDOMAIN: 3,
  NOTIMP: 4,
  REFUSED: 5,
};

export interface DnsQuery {
  readonly id: number;
  /** As asked. */
  readonly name: string;
  readonly type: dns.RecordType;
  readonly flags: number;
  /** Whether the answer may say why. */
  readonly extended: boolean;
  /** Longest answer by UDP. */
  readonly udpBytes: number;
}

/** Addresses of a name, as an upstream server gave them. */
export interface DnsAnswer {
  readonly code: ResponseCode;
  readonly addresses: readonly string[];
  /** The names it stands for, canonical, in the order of the chain. */
  readonly aliases: readonly string[];
  /** Seconds: the least of all records on the way. */
  readonly ttl: number;
}

/** A query for one name; the code of the refusal where it cannot be answered, undefined where it is no query. */
export function parseQuery(
  message: Buffer,
): DnsQuery | { readonly id: number; readonly refusal: ResponseCode } | undefined {
  const headerBytes = 12;
  const isAnswer = message.length > 2 && (message.readUInt8(2) & 0x80) !== 0;
  if (message.length < headerBytes || isAnswer) return undefined;
  const id = message.readUInt16BE(0);
  const parsed = decode(message);
  if (parsed === undefined) return { id, refusal: "FORMERR" };
  const [question, ...more] = parsed.questions ?? [];
  if (question === undefined || more.length > 0) return { id, refusal: "FORMERR" };
  const isPlain = (message.readUInt8(2) & 0x78) === 0 && (question.class ?? "IN") === "IN";
  if (!isPlain) return { id, refusal: "NOTIMP" };
  const option = (parsed.additionals ?? []).find((record) => record.type === "OPT");
  const said = option?.type === "OPT" ? option.udpPayloadSize : plainUdpBytes;
  return {
    id,
    name: question.name,
    type: question.type,
    flags: message.readUInt16BE(2),
    extended: option !== undefined,
    udpBytes: Math.min(longestUdpBytes, Math.max(plainUdpBytes, said)),
  };
}

/**
 * The answer to a query: addresses, and nothing else of what the upstream said.
 *
 * @param options.reason told to those who understand it
 * @param options.udp whether it must fit a datagram; what does not is cut, and marked so
 */
export function encodeAnswer(
  query: DnsQuery,
  answer: DnsAnswer,
  options: { reason?: string | undefined; udp: boolean },
): Buffer {
  const encode = (addresses: readonly string[], flags: number) => {
    const message = dns.encode({
      type: "response",
      id: query.id,
      flags,
      questions: [{ name: query.name, type: query.type, class: "IN" }],
      answers: addresses.map((data) => ({ type: "A", name: query.name, class: "IN", ttl: answer.ttl, data })),
      additionals: query.extended ? [optionRecord] : [],
    });
    return query.extended && options.reason !== undefined ? withReason(message, options.reason) : message;
  };
  const desired = query.flags & dns.RECURSION_DESIRED;
  const flags = desired | dns.RECURSION_AVAILABLE | responseCodes[answer.code];
  const whole = encode(answer.addresses, flags);
  if (!options.udp || whole.length <= query.udpBytes) return whole;
  return encode([], flags | dns.TRUNCATED_RESPONSE);
}

/** The answer to what is no usable query. */
export function encodeRefusal(id: number, code: ResponseCode): Buffer {
  return dns.encode({ type: "response", id, flags: responseCodes[code] });
}

/** A question to an upstream server. */
export function encodeQuestion(id: number, name: string): Buffer {
  return dns.encode({
    type: "query",
    id,
    flags: dns.RECURSION_DESIRED,
    questions: [{ type: "A", name, class: "IN" }],
    additionals: [optionRecord],
  });
}

/**
 * Reads an upstream server's answer: the addresses at the end of the chain of aliases that begins at the name.
 *
 * @returns `truncated` when it has to be asked by TCP; undefined when it is no answer to this question
 */
export function parseAnswer(message: Buffer, id: number, name: string): DnsAnswer | "truncated" | undefined {
  const parsed = decode(message);
  const [question] = parsed?.questions ?? [];
  if (parsed === undefined || parsed.type !== "response" || parsed.id !== id || question === undefined)
    return undefined;
  if (canonicalName(question.name) !== name || question.type !== "A") return undefined;
  if ((message.readUInt16BE(2) & dns.TRUNCATED_RESPONSE) !== 0) return "truncated";
  const rcode = message.readUInt8(3) & 0xf;
  if (rcode !== responseCodes.NOERROR)
    return {
      code: rcode === responseCodes.NXDOMAIN ? "NXDOMAIN" : "SERVFAIL",
      addresses: [],
      aliases: [],
      ttl: 0,
    };
  const answers = parsed.answers ?? [];
  const aliases: string[] = [];
  let at = name;
  let ttl = Number.POSITIVE_INFINITY;
  for (let hops = 0; hops < longestChain; hops += 1) {
    const alias = answers.find((record) => record.type === "CNAME" && canonicalName(record.name) === at);
    if (alias?.type !== "CNAME") break;
    ttl = Math.min(ttl, alias.ttl ?? 0);
    at = canonicalName(alias.data) ?? "";
    aliases.push(at);
  }
  const addresses: string[] = [];
  for (const record of answers) {
    if (record.type !== "A" || canonicalName(record.name) !== at) continue;
    ttl = Math.min(ttl, record.ttl ?? 0);
    addresses.push(record.data);
  }
  return { code: "NOERROR", addresses, aliases, ttl: Number.isFinite(ttl) ? ttl : 0 };
}

function decode(message: Buffer): dns.DecodedPacket | undefined {
  try {
    return dns.decode(message);
  } catch {
    return undefined;
  }
}

const optionRecord: dns.OptAnswer = {
  type: "OPT",
  name: ".",
  udpPayloadSize: longestUdpBytes,
  extendedRcode: 0,
  ednsVersion: 0,
  flags: 0,
  flag_do: false,
  options: [],
};

/** Adds an extended error to a message that ends with an empty OPT record. */
function withReason(message: Buffer, reason: string): Buffer {
  const text = Buffer.from(reason).subarray(0, longestReason);
  const option = Buffer.alloc(8);
  option.writeUInt16BE(6 + text.length, 0);
  option.writeUInt16BE(extendedError, 2);
  option.writeUInt16BE(2 + text.length, 4);
  option.writeUInt16BE(blocked, 6);
  return Buffer.concat([message.subarray(0, -2), option, text]);
}
