import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { readFile } from "node:fs/promises";
import { connect, isIPv6 } from "node:net";
import { type DnsAnswer, encodeQuestion, parseAnswer } from "./dns-message.ts";
import { type NameServer, parseNameServer } from "./name-server.ts";

export interface UpstreamParts {
  /** Instead of those of the node. */
  readonly servers?: readonly NameServer[] | undefined;
  readonly now: () => number;
}

const attemptMs = 2000;
const rounds = 2;
/** Questions under way at a time. */
const mostQuestions = 512;
/** Answers kept. */
const mostAnswers = 4096;
/** Seconds that an answer serves: less would have every sandbox of a burst ask, more would outlive what it says. */
const ttlSeconds = { least: 30, most: 3600, failure: 2 } as const;
const longestTcpAnswer = 65_535;

const failed: DnsAnswer = { code: "SERVFAIL", addresses: [], aliases: [], ttl: ttlSeconds.failure };

/** Asks the node's name servers for IPv4 addresses. The same question at the same time is asked once; answers serve for their time. */
export class Upstream {
  readonly #parts: UpstreamParts;
  readonly #answers = new Map<string, { readonly answer: DnsAnswer; readonly until: number }>();
  readonly #asking = new Map<string, Promise<DnsAnswer>>();
  readonly #closing = new AbortController();

  constructor(parts: UpstreamParts) {
    this.#parts = parts;
  }

  /** Never rejects: what cannot be asked is SERVFAIL. @param name in canonical form */
  async ask(name: string): Promise<DnsAnswer> {
    const now = this.#parts.now();
    const known = this.#answers.get(name);
    if (known !== undefined && known.until > now)
      return { ...known.answer, ttl: Math.max(1, Math.ceil((known.until - now) / 1000)) };
    const asking = this.#asking.get(name) ?? this.#begin(name);
    return asking;
  }

  /** Whether nobody need be asked for a name. */
  isKnown(name: string): boolean {
    return this.#asking.has(name) || (this.#answers.get(name)?.until ?? 0) > this.#parts.now();
  }

  close(): void {
    this.#closing.abort();
  }

  #begin(name: string): Promise<DnsAnswer> {
    if (this.#asking.size >= mostQuestions) return Promise.resolve(failed);
    const asking = this.#askAll(name)
      .catch(() => failed)
      .then((answer) => this.#keep(name, answer))
      .finally(() => this.#asking.delete(name));
    this.#asking.set(name, asking);
    return asking;
  }

  #keep(name: string, answer: DnsAnswer): DnsAnswer {
    const ttl =
      answer.code === "NOERROR" && answer.addresses.length > 0
        ? Math.min(ttlSeconds.most, Math.max(ttlSeconds.least, answer.ttl))
        : ttlSeconds.failure;
    const kept = { ...answer, ttl };
    this.#answers.delete(name);
    this.#answers.set(name, { answer: kept, until: this.#parts.now() + ttl * 1000 });
    const [oldest] = this.#answers.keys();
    if (this.#answers.size > mostAnswers && oldest !== undefined) this.#answers.delete(oldest);
    return kept;
  }

  async #askAll(name: string): Promise<DnsAnswer> {
    const servers = this.#parts.servers ?? (await nodeServers());
    for (let round = 0; round < rounds; round += 1) {
      for (const server of servers) {
        const answer = await this.#askOne(server, name).catch(() => failed);
        if (answer.code !== "SERVFAIL") return answer;
        if (this.#closing.signal.aborted) return failed;
      }
    }
    return failed;
  }

  async #askOne(server: NameServer, name: string): Promise<DnsAnswer> {
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(attemptMs)]);
    const answer = await askByUdp(server, name, signal);
    return answer === "truncated" ? askByTcp(server, name, signal) : answer;
  }
}

/** From a port of its own each: who cannot see the question has to guess the port and the id. */
async function askByUdp(
  server: NameServer,
  name: string,
  signal: AbortSignal,
): Promise<DnsAnswer | "truncated"> {
  const { promise, resolve, reject } = Promise.withResolvers<DnsAnswer | "truncated">();
  const id = randomInt(65_536);
  const socket = createSocket(isIPv6(server.address) ? "udp6" : "udp4");
  const abort = () => reject(new Error("the name server does not answer", { cause: signal.reason }));
  signal.addEventListener("abort", abort, { once: true });
  try {
    socket.on("error", reject);
    socket.on("message", (message) => {
      const answer = parseAnswer(message, id, name);
      if (answer !== undefined) resolve(answer);
    });
    // A connected socket gets only what comes from there.
    socket.connect(server.port, server.address, () => socket.send(encodeQuestion(id, name)));
    return await promise;
  } finally {
    signal.removeEventListener("abort", abort);
    socket.close();
  }
}

async function askByTcp(server: NameServer, name: string, signal: AbortSignal): Promise<DnsAnswer> {
  const id = randomInt(65_536);
  const question = encodeQuestion(id, name);
  const length = Buffer.alloc(2);
  length.writeUInt16BE(question.length);
  const socket = connect({ host: server.address, port: server.port, signal });
  try {
    socket.write(Buffer.concat([length, question]));
    let received = Buffer.alloc(0);
    for await (const chunk of socket) {
      if (!Buffer.isBuffer(chunk)) continue;
      received = Buffer.concat([received, chunk]);
      if (received.length > longestTcpAnswer) break;
      if (received.length < 2 || received.length < 2 + received.readUInt16BE(0)) continue;
      const answer = parseAnswer(received.subarray(2, 2 + received.readUInt16BE(0)), id, name);
      if (answer === undefined || answer === "truncated") break;
      return answer;
    }
    return failed;
  } finally {
    socket.destroy();
  }
}

/** Read anew each time: it changes with the network that the node is in. */
async function nodeServers(): Promise<NameServer[]> {
  const text = await readFile("/etc/resolv.conf", "utf8").catch(() => "");
  return [...text.matchAll(/^\s*nameserver\s+(\S+)/gm)].flatMap(([, address = ""]) => {
    const server = parseNameServer(address);
    return server === undefined ? [] : [server];
  });
}
