/** What a {@link Visitor} runs. */
import { createSocket } from "node:dgram";
import { Resolver } from "node:dns/promises";
import { connect, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { sendFrames } from "./packet-socket.ts";

export type Attempt =
  /** Sends and waits for an answer, then closes. */
  | {
      readonly kind: "tcp";
      readonly host: string;
      readonly port: number;
      readonly send: string;
      /** `latin1` for bytes; then the answer's text is of the same kind. */
      readonly encoding?: "latin1";
      /** Waits for the end, not only for the first piece. */
      readonly whole?: boolean;
    }
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
  | { readonly kind: "udp"; readonly host: string; readonly port: number; readonly send: string }
  /** A question to a name server. */
  | { readonly kind: "query"; readonly server: string; readonly name: string; readonly type?: string }
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
  /** An errno's name, `timeout`, `closed`; undefined when there was an answer. */
  readonly error?: string;
  readonly text?: string;
  readonly addresses?: readonly string[];
  readonly ms: number;
}

type Result = Omit<Outcome, "ms">;
const patienceMs = 4000;
const kept = new Map<string, Socket>();

function codeOf(error: Error): string {
  return "code" in error && typeof error.code === "string" ? error.code : error.message;
}

/** The first piece that comes, or all of it until the end. */
function listen(socket: Socket, whole: boolean, encoding?: BufferEncoding): Promise<Result> {
  return new Promise((resolve) => {
    let text = "";
    const timer = setTimeout(() => resolve({ error: "timeout" }), patienceMs);
    const end = (result: Result) => {
      clearTimeout(timer);
      socket.removeAllListeners("data");
      resolve(result);
    };
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString(encoding);
      if (!whole) end({ text });
    });
    socket.once("error", (error) => end({ error: codeOf(error), ...(text !== "" && { text }) }));
    socket.once("close", () => end(text === "" ? { error: "closed" } : { text }));
  });
}

async function carryOut(attempt: Attempt): Promise<Result> {
  switch (attempt.kind) {
    case "tcp":
    case "open": {
      const socket = connect(attempt.port, attempt.host);
      const { encoding, whole = false } = attempt.kind === "tcp" ? attempt : {};
      socket.write(attempt.send, encoding);
      const result = await listen(socket, whole, encoding);
      socket.on("error", () => undefined);
      if (attempt.kind === "open" && result.error === undefined) kept.set(attempt.as, socket);
      else socket.destroy();
      return result;
    }
    case "use": {
      const socket = kept.get(attempt.as);
      if (socket === undefined || socket.destroyed) return { error: "closed" };
      socket.write(attempt.send);
      return listen(socket, false);
    }
    case "https": {
      const { host, port = 443, serverName, ca, path = "/" } = attempt;
      const socket = connectTls({
        host,
        port,
        ca,
        ...(serverName !== undefined && { servername: serverName }),
        checkServerIdentity: () => undefined,
      });
      socket.write(`GET ${path} HTTP/1.1\r\nHost: ${serverName ?? host}\r\nConnection: close\r\n\r\n`);
      const result = await listen(socket, true);
      socket.on("error", () => undefined).destroy();
      return result;
    }
    case "udp": {
      const socket = createSocket(attempt.host.includes(":") ? "udp6" : "udp4");
      return new Promise((resolve) => {
        const timer = setTimeout(() => end({ error: "timeout" }), 1500);
        const end = (result: Result) => {
          clearTimeout(timer);
          socket.close();
          resolve(result);
        };
        socket.on("error", (error) => end({ error: codeOf(error) }));
        socket.on("message", (message) => end({ text: message.toString() }));
        socket.connect(attempt.port, attempt.host, () => socket.send(attempt.send));
      });
    }
    case "frames":
      sendFrames("eth0", attempt.frames);
      return {};
    case "query": {
      const resolver = new Resolver({ timeout: 1500, tries: 1 });
      resolver.setServers([attempt.server]);
      try {
        const answers: unknown = await resolver.resolve(attempt.name, attempt.type ?? "A");
        return { addresses: Array.isArray(answers) ? answers.map(String) : [] };
      } catch (error) {
        return { error: error instanceof Error ? codeOf(error) : String(error) };
      }
    }
  }
}

process.on("disconnect", () => process.exit());
process.on("message", ({ number, attempt }: { number: number; attempt: Attempt }) => {
  const began = performance.now();
  const tell = (result: Result) =>
    process.send?.({ number, outcome: { ...result, ms: performance.now() - began } });
  carryOut(attempt).then(tell, (error: unknown) =>
    tell({ error: error instanceof Error ? codeOf(error) : String(error) }),
  );
});
process.send?.("up");
