/** Somebody in a sandbox's place who tries what he is told, and says how it went. */
import { connect as connectTls } from "node:tls";
import type { Duplex } from "node:stream";
import dns from "dns-packet";
import type { Place, Probe } from "./probe.ts";

interface Disguise {
  /** Another source address. */
  readonly from?: string;
}

export type Attempt =
  /** Sends and waits for an answer, then closes. */
  | ({
      readonly kind: "tcp";
      readonly host: string;
      readonly port: number;
      readonly send: string;
      /** `latin1` for bytes; then the answer's text is of the same kind. */
      readonly encoding?: "latin1";
      /** Waits for the end, not only for the first piece. */
      readonly whole?: boolean;
      /** Milliseconds to wait for a connection, where silence is what is expected. */
      readonly waits?: number;
    } & Disguise)
  /** Ethernet frames, in hexadecimal, as they are. */
  | { readonly kind: "frames"; readonly frames: readonly string[] }
  /** A GET over TLS. */
  | {
      readonly kind: "https";
      readonly host: string;
      readonly serverName?: string;
      readonly port?: number;
      readonly ca: string;
      readonly path?: string;
    }
  | ({
      readonly kind: "udp";
      readonly host: string;
      readonly port: number;
      readonly send: string;
      /** It is sent, and no answer waited for. */
      readonly unanswered?: boolean;
    } & Disguise)
  /** An echo request, by what needs no privilege. */
  | ({ readonly kind: "ping"; readonly host: string } & Disguise)
  /** A packet of its own making. */
  | { readonly kind: "raw"; readonly host: string; readonly protocol: number }
  /** At most 512 TCP ports. */
  | { readonly kind: "scan"; readonly host: string; readonly first: number; readonly last: number }
  /** A question to a name server. */
  | {
      readonly kind: "query";
      readonly server: string;
      readonly name: string;
      readonly type?: dns.RecordType;
      readonly over?: "udp" | "tcp";
    }
  /** Opens a connection and keeps it under a name. */
  | {
      readonly kind: "open";
      readonly as: string;
      readonly host: string;
      readonly port: number;
      readonly send: string;
    }
  /** Sends over one that is kept. */
  | { readonly kind: "use"; readonly as: string; readonly send: string };

export interface Outcome {
  /** An errno's name, `timeout`, `closed`; `ENOTFOUND`, `ENODATA`, `ESERVFAIL` of a query; undefined when there was an answer. */
  readonly error?: string;
  readonly text?: string;
  readonly addresses?: readonly string[];
}

/** The machine may be busy. */
const patienceMs = 10_000;
const againMs = 1000;
/** Type, code, checksum (the kernel's), identifier (the kernel's), sequence number. */
const echoRequest = Buffer.from([8, 0, 0, 0, 0, 0, 0, 1, ...Buffer.from("hello")]);
const failures: ReadonlyMap<number, string> = new Map([
  [2, "ESERVFAIL"],
  [3, "ENOTFOUND"],
]);

export class Visitor implements Disposable {
  readonly #place: Place;
  readonly #probes = new Set<Probe>();
  readonly #kept = new Map<string, Probe>();

  constructor(place: Place) {
    this.#place = place;
  }

  async try(attempt: Attempt): Promise<Outcome> {
    switch (attempt.kind) {
      case "tcp": {
        const { host, port, encoding = "utf8", whole = false, waits } = attempt;
        const talk = (probe: Probe) => {
          probe.write(attempt.send, encoding);
          return heard(probe, probe, { whole, encoding });
        };
        return this.#speak(["tcp", host, port, ...disguised(attempt)], talk, waits);
      }
      case "open":
        return this.#speak(["tcp", attempt.host, attempt.port], async (probe) => {
          probe.write(attempt.send);
          const outcome = await heard(probe, probe);
          if (outcome.error === undefined) this.#kept.set(attempt.as, probe);
          return outcome;
        });
      case "use": {
        const probe = this.#kept.get(attempt.as);
        if (probe === undefined || probe.destroyed) return { error: "closed" };
        probe.write(attempt.send);
        return heard(probe, probe);
      }
      case "https":
        return this.#speak(["tcp", attempt.host, attempt.port ?? 443], (probe) => getOverTls(probe, attempt));
      case "udp":
        return this.#speak(["udp", attempt.host, attempt.port, ...disguised(attempt)], (probe) => {
          if (attempt.unanswered !== true) return asked(probe, attempt.send);
          probe.end(attempt.send);
          return ended(probe);
        });
      case "ping":
        return this.#speak(["icmp", attempt.host, 0, ...disguised(attempt)], (probe) =>
          asked(probe, echoRequest),
        );
      case "raw":
        return this.#speak(["raw", attempt.host, attempt.protocol], (probe) => asked(probe, echoRequest));
      case "frames":
        return this.#speak(["frames", "eth0"], (probe) => {
          probe.end(attempt.frames.map((frame) => `${frame}\n`).join(""));
          return ended(probe);
        });
      case "scan":
        return this.#speak(["scan", attempt.host, attempt.first, attempt.last], (probe) =>
          heard(probe, probe, { whole: true }),
        );
      case "query":
        return this.#query(attempt);
    }
  }

  /** Serves a port that answers with what it gets, until the end. */
  async listen(port: number): Promise<void> {
    const error = await (await this.#start(["listen", port])).up;
    if (error !== undefined) throw new Error(`cannot listen on ${port}: ${error}`);
  }

  [Symbol.dispose](): void {
    for (const probe of this.#probes) probe.destroy();
  }

  async #start(argv: readonly (string | number)[]): Promise<Probe> {
    const probe = await this.#place(argv.map(String));
    this.#probes.add(probe);
    void probe.over.then(() => this.#probes.delete(probe));
    return probe;
  }

  async #speak(
    argv: readonly (string | number)[],
    work: (probe: Probe) => Promise<Outcome>,
    waits = patienceMs,
  ): Promise<Outcome> {
    const probe = await this.#start(argv);
    try {
      const error = await withPatience(waits, probe.up, () => "timeout");
      return error === undefined ? await work(probe) : { error };
    } finally {
      if (![...this.#kept.values()].includes(probe)) probe.destroy();
    }
  }

  #query({ server, name, type = "A", over = "udp" }: Extract<Attempt, { kind: "query" }>): Promise<Outcome> {
    const question = dns.encode({
      type: "query",
      id: 7,
      flags: dns.RECURSION_DESIRED,
      questions: [{ name, type }],
    });
    return this.#speak([over, server, 53], async (probe) => {
      const ask = () =>
        probe.write(over === "udp" ? question : Buffer.concat([lengthOf(question), question]));
      ask();
      // As resolvers do, since datagrams get lost.
      const again = over === "udp" ? setInterval(ask, againMs) : undefined;
      const { error, text = "" } = await heard(probe, probe, { encoding: "latin1" });
      clearInterval(again);
      return error === undefined
        ? said(Buffer.from(text, "latin1").subarray(over === "udp" ? 0 : 2))
        : { error };
    });
  }
}

function disguised({ from }: Disguise): string[] {
  return from === undefined ? [] : ["from", from];
}

function lengthOf(message: Buffer): Buffer {
  return Buffer.from([message.length >> 8, message.length & 0xff]);
}

function said(message: Buffer): Outcome {
  const { answers = [] } = dns.decode(message);
  const error = failures.get((message.at(3) ?? 0) & 0xf);
  if (error !== undefined) return { error };
  const addresses = answers.flatMap((answer) => (answer.type === "A" ? [answer.data] : []));
  return addresses.length === 0 ? { error: "ENODATA" } : { addresses };
}

async function withPatience<T>(ms: number, promise: Promise<T>, otherwise: () => T): Promise<T> {
  const { promise: late, resolve } = Promise.withResolvers<T>();
  const timer = setTimeout(() => resolve(otherwise()), ms);
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function ended(probe: Probe): Promise<Outcome> {
  const error = await withPatience(patienceMs, probe.over, () => "timeout");
  return error === undefined ? {} : { error };
}

function asked(probe: Probe, question: string | Uint8Array): Promise<Outcome> {
  probe.write(question);
  return heard(probe, probe);
}

/** The first piece that comes, or all of it until the end. */
function heard(
  probe: Probe,
  stream: Duplex,
  { whole = false, encoding = "utf8" }: { whole?: boolean; encoding?: BufferEncoding } = {},
): Promise<Outcome> {
  return new Promise((resolve) => {
    let text = "";
    const end = (outcome: Outcome): void => {
      clearTimeout(timer);
      stream.removeListener("data", take).removeListener("error", fail).removeListener("end", close);
      resolve(outcome);
    };
    const timer = setTimeout(() => end({ error: "timeout" }), patienceMs);
    const take = (chunk: Buffer): void => {
      text += chunk.toString(encoding);
      if (!whole) end({ text });
    };
    const close = async (): Promise<void> => {
      const error = await probe.over;
      end(text === "" ? { error: error ?? "closed" } : { text, ...(error !== undefined && { error }) });
    };
    const fail = (error: Error): void => end({ error: codeOf(error), ...(text !== "" && { text }) });
    stream.on("data", take).once("error", fail).once("end", close);
    if (stream.readableEnded) void close();
  });
}

function getOverTls(
  probe: Probe,
  { host, serverName, ca, path = "/" }: Extract<Attempt, { kind: "https" }>,
): Promise<Outcome> {
  const socket = connectTls({
    socket: probe,
    ca,
    ...(serverName !== undefined && { servername: serverName }),
    checkServerIdentity: () => undefined,
  });
  socket.write(`GET ${path} HTTP/1.1\r\nHost: ${serverName ?? host}\r\nConnection: close\r\n\r\n`);
  return heard(probe, socket, { whole: true }).finally(() => socket.on("error", () => undefined).destroy());
}

function codeOf(error: Error): string {
  return "code" in error && typeof error.code === "string" ? error.code : error.message;
}
