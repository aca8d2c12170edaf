import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { canonicalName } from "../../../protocol/domain-name.ts";
import type { DecidedBy, NetworkVerdict } from "../../../protocol/network-decision.ts";
import type { CompiledPolicy } from "../policy/compile.ts";
import { judgeAliases, judgeName } from "../policy/judge.ts";
import { type DnsAnswer, type DnsQuery, encodeAnswer, encodeRefusal, parseQuery } from "./dns-message.ts";
import { tooManyFlows } from "./flow.ts";
import type { GatedSandbox, GatedSandboxes } from "./gated-sandbox.ts";
import type { Upstream } from "./upstream.ts";

export interface ResolverParts {
  readonly sandboxes: GatedSandboxes;
  readonly upstream: Upstream;
  readonly now: () => number;
}

/** Queries of a sandbox that are answered at a time; those beyond get no answer, and are asked again. */
const mostQueries = 128;
const mostConnections = 8;
const idleConnectionMs = 10_000;
/** Milliseconds that an answer's addresses stay open after its time: programs look a name up, and connect later. */
const graceMs = 60_000;
const tcpBacklog = 512;
const longestQuery = 1232;
const notAsked: DnsAnswer = { code: "SERVFAIL", addresses: [], aliases: [], ttl: 0 };
const noRecords: DnsAnswer = { code: "NOERROR", addresses: [], aliases: [], ttl: 0 };
const noSuchName: DnsAnswer = { code: "NXDOMAIN", addresses: [], aliases: [], ttl: 0 };

/**
 * The only name server that sandboxes reach. It answers for names that the asking sandbox's policy allows; for all others it says at once that
 * they do not exist, and why, and asks nobody. What it answers is what the sandbox may then connect to.
 */
export class Resolver {
  readonly #parts: ResolverParts;
  readonly #udp: UdpSocket;
  readonly #tcp: Server;
  readonly #queries = new Map<GatedSandbox, number>();
  readonly #connections = new Map<Socket, GatedSandbox>();

  private constructor(parts: ResolverParts) {
    this.#parts = parts;
    this.#udp = createSocket({ type: "udp4", recvBufferSize: 1_048_576 });
    this.#udp.on("message", (message, from) => {
      // Forged: nobody could be answered there.
      if (from.port === 0) return;
      void this.#answer(message, from.address, true).then((answer) => {
        if (answer !== undefined) this.#udp.send(answer, from.port, from.address, () => undefined);
      });
    });
    this.#tcp = createServer((socket) => void this.#serve(socket));
  }

  /** @throws Error EADDRINUSE */
  static async open(address: string, port: number, parts: ResolverParts): Promise<Resolver> {
    const resolver = new Resolver(parts);
    try {
      resolver.#udp.bind(port, address);
      await once(resolver.#udp, "listening");
      resolver.#udp.on("error", () => undefined);
      resolver.#tcp.listen({ port, host: address, backlog: tcpBacklog });
      await once(resolver.#tcp, "listening");
      resolver.#tcp.on("error", () => undefined);
      return resolver;
    } catch (error) {
      resolver.close();
      throw error;
    }
  }

  /** What would be answered under a policy. */
  async probe(policy: CompiledPolicy, name: string): Promise<{ answer: DnsAnswer; verdict: NetworkVerdict }> {
    const verdict = judgeName(policy, name);
    const canonical = canonicalName(name);
    if (!verdict.allowed || canonical === undefined) return { answer: noSuchName, verdict };
    const answer = await this.#parts.upstream.ask(canonical);
    const found = judgeAliases(policy, name, answer.aliases);
    return { answer: found.allowed ? answer : noSuchName, verdict: found };
  }

  close(): void {
    for (const socket of this.#connections.keys()) socket.destroy();
    this.#tcp.close();
    try {
      this.#udp.close();
    } catch {
      // Never bound.
    }
  }

  async #answer(message: Buffer, source: string, udp: boolean): Promise<Buffer | undefined> {
    const query = parseQuery(message);
    if (query === undefined) return undefined;
    if ("refusal" in query) return encodeRefusal(query.id, query.refusal);
    const sandbox = this.#parts.sandboxes.bySource(source);
    if (sandbox === undefined) return encodeRefusal(query.id, "REFUSED");
    const running = this.#queries.get(sandbox) ?? 0;
    if (running >= mostQueries) return undefined;
    this.#queries.set(sandbox, running + 1);
    try {
      return await this.#answerTo(sandbox, query, udp);
    } catch {
      return encodeRefusal(query.id, "SERVFAIL");
    } finally {
      const left = (this.#queries.get(sandbox) ?? 1) - 1;
      if (left > 0) this.#queries.set(sandbox, left);
      else this.#queries.delete(sandbox);
    }
  }

  async #answerTo(sandbox: GatedSandbox, query: DnsQuery, udp: boolean): Promise<Buffer> {
    const { name, type } = query;
    const verdict = judgeName(sandbox.policy, name);
    const canonical = canonicalName(name);
    const log = { stage: "query", protocol: udp ? "udp" : "tcp", name: canonical ?? name } as const;
    const refuse = ({ by }: NetworkVerdict): Buffer => {
      sandbox.decided({ ...log, allowed: false, by });
      const reason = `refused by the sandbox's network policy: ${describe(by)}`;
      return encodeAnswer(query, noSuchName, { reason, udp });
    };
    if (!verdict.allowed || canonical === undefined) return refuse(verdict);
    // Sandboxes have no IPv6 addresses, and other records could carry keys for what the proxy must read (ECH), or data.
    if (type !== "A") return encodeAnswer(query, noRecords, { udp });
    const { upstream, now } = this.#parts;
    if (!upstream.isKnown(canonical) && !sandbox.begun.take(now())) {
      sandbox.decided({ ...log, ...tooManyFlows });
      return encodeAnswer(query, notAsked, { reason: "more questions than the sandbox may ask", udp });
    }
    const answer = await upstream.ask(canonical);
    // The policy may be another by now.
    const after = judgeAliases(sandbox.policy, name, answer.aliases);
    if (!after.allowed) return refuse(after);
    sandbox.decided({ ...log, allowed: true, by: after.by });
    if (sandbox.isGone) return encodeAnswer(query, noSuchName, { udp });
    if (answer.addresses.length > 0) {
      const until = this.#parts.now() + answer.ttl * 1000 + graceMs;
      sandbox.pins.add(sandbox.policy, canonical, answer.addresses, until);
    }
    return encodeAnswer(query, answer, { udp });
  }

  async #serve(socket: Socket): Promise<void> {
    const sandbox = this.#parts.sandboxes.bySource(socket.remoteAddress ?? "");
    const own = [...this.#connections.values()].filter((owner) => owner === sandbox).length;
    socket.on("error", () => undefined);
    if (sandbox === undefined || own >= mostConnections) {
      socket.destroy();
      return;
    }
    this.#connections.set(socket, sandbox);
    socket.setTimeout(idleConnectionMs, () => socket.destroy());
    const gone = new AbortController();
    socket.once("close", () => gone.abort());
    try {
      let received = Buffer.alloc(0);
      for await (const chunk of socket) {
        if (!Buffer.isBuffer(chunk)) continue;
        received = Buffer.concat([received, chunk]);
        while (received.length >= 2) {
          const length = received.readUInt16BE(0);
          if (length > longestQuery) return;
          if (received.length < 2 + length) break;
          const answer = await this.#answer(
            received.subarray(2, 2 + length),
            socket.remoteAddress ?? "",
            false,
          );
          received = received.subarray(2 + length);
          if (answer === undefined) return;
          const header = Buffer.alloc(2);
          header.writeUInt16BE(answer.length);
          if (!socket.write(Buffer.concat([header, answer])))
            await once(socket, "drain", { signal: gone.signal });
        }
      }
    } catch {
      // The sandbox has gone away.
    } finally {
      this.#connections.delete(socket);
      socket.destroy();
    }
  }
}

function describe(by: DecidedBy): string {
  switch (by.kind) {
    case "rule":
      return by.text;
    case "default":
      return "no rule allows it";
    case "protected":
      return by.range;
    case "unchecked":
      return by.reason;
    case "limit":
      return `too many ${by.limit}`;
  }
}
