import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import type { NetworkVerdict } from "../../../protocol/network-decision.ts";
import { openTransparentListener } from "../../../backends/linux/transparent-listener.ts";
import { addressBytes } from "../address-range.ts";
import { Flow, tooManyFlows, unchecked } from "./flow.ts";
import type { GatedSandbox, GatedSandboxes } from "./gated-sandbox.ts";
import { HttpProxy } from "./http-proxy.ts";
import { peek, type Peeked } from "./peek.ts";

export interface ProxyParts {
  readonly sandboxes: GatedSandboxes;
  readonly now: () => number;
}

/** Connections of a sandbox at a time, and of all. */
const most = { perSandbox: 1024, inAll: 16_384 } as const;
/** Milliseconds a client has to say what it wants. Where the address alone is enough, one that waits for its server gets less. */
const peekMs = { named: 10_000, anyName: 1500 } as const;
const connectMs = 15_000;
/** A fatal TLS alert: access denied. */
const accessDenied = Buffer.from([0x15, 3, 1, 0, 2, 2, 49]);

/**
 * Takes the connections of sandboxes to addresses that were resolved for them, reads whom they are for, and passes them on where that is
 * allowed. Nothing is decrypted.
 */
export class Proxy {
  readonly #parts: ProxyParts;
  readonly #server: Server;
  readonly #http: HttpProxy;
  readonly #flows = new Map<GatedSandbox, Set<Flow>>();
  #size = 0;

  private constructor(parts: ProxyParts) {
    this.#parts = parts;
    this.#http = new HttpProxy({ now: parts.now, connectMs });
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (socket) => {
      socket.on("error", () => undefined);
      this.#take(socket);
    });
  }

  /** @throws LinuxError */
  static async open(address: string, port: number, parts: ProxyParts): Promise<Proxy> {
    const proxy = new Proxy(parts);
    proxy.#server.listen({ fd: openTransparentListener(addressBytes(address), port) });
    await once(proxy.#server, "listening");
    // Of one connection that could not be taken.
    proxy.#server.on("error", () => undefined);
    return proxy;
  }

  /** Connections that are open. */
  get size(): number {
    return this.#size;
  }

  /** Ends the connections that the sandbox's policy no longer allows. Returns how many. */
  judgeAgain(sandbox: GatedSandbox): number {
    let cut = 0;
    for (const flow of this.#flows.get(sandbox) ?? []) {
      const verdict = flow.judgeAgain();
      if (verdict === undefined || verdict.allowed) continue;
      flow.decided("cut", verdict);
      flow.cut();
      cut += 1;
    }
    return cut;
  }

  /** Ends all of a sandbox's connections. */
  drop(sandbox: GatedSandbox): void {
    for (const flow of this.#flows.get(sandbox) ?? []) flow.cut();
  }

  close(): void {
    this.#server.close();
    for (const sandbox of this.#flows.keys()) this.drop(sandbox);
    this.#http.close();
  }

  #take(client: Socket): void {
    const { remoteAddress = "", localAddress = "", localPort = 0 } = client;
    const sandbox = this.#parts.sandboxes.bySource(remoteAddress);
    if (sandbox === undefined) {
      client.resetAndDestroy();
      return;
    }
    const own = this.#flows.get(sandbox) ?? new Set();
    const flow = new Flow(sandbox, client, localAddress, localPort);
    if (own.size >= most.perSandbox || this.#size >= most.inAll) {
      flow.decided("connect", tooManyFlows);
      flow.cut();
      return;
    }
    this.#flows.set(sandbox, own.add(flow));
    this.#size += 1;
    client.once("close", () => {
      own.delete(flow);
      this.#size -= 1;
      if (own.size === 0 && this.#flows.get(sandbox) === own) this.#flows.delete(sandbox);
    });
    this.#judge(flow).catch(() => flow.cut());
  }

  async #judge(flow: Flow): Promise<void> {
    const peeked = await peek(flow.client, flow.judgeAddress().allowed ? peekMs.anyName : peekMs.named);
    if (peeked.kind === "closed") {
      flow.cut();
      return;
    }
    if (peeked.kind === "http") {
      this.#http.take(flow);
      return;
    }
    const verdict = this.#verdict(flow, peeked);
    const said = peeked.kind === "tls" ? peeked.serverName : undefined;
    flow.decided("name", verdict, said);
    if (verdict.allowed) {
      flow.allowAs(said);
      this.#passOn(flow);
    } else if (peeked.kind === "tls") flow.client.end(accessDenied, () => flow.client.destroy());
    else flow.cut();
  }

  #verdict(flow: Flow, peeked: Exclude<Peeked, { kind: "http" | "closed" }>): NetworkVerdict {
    const byAddress = flow.judgeAddress();
    const orElse = (reason: Parameters<typeof unchecked>[0]) =>
      byAddress.allowed ? byAddress : unchecked(reason);
    switch (peeked.kind) {
      case "malformed":
        return unchecked("malformed");
      case "other":
        return orElse("no_name");
      case "tls":
        if (peeked.encrypted) return orElse("encrypted_server_name");
        if (peeked.serverName === undefined) return orElse("no_server_name");
        return flow.judgeName(peeked.serverName, this.#parts.now());
    }
  }

  #passOn(flow: Flow): void {
    const { client, address, port } = flow;
    const server = connect({ host: address, port, allowHalfOpen: true, noDelay: true });
    flow.own(server);
    const timer = setTimeout(() => server.destroy(new Error("no answer")), connectMs);
    server.once("close", () => clearTimeout(timer));
    // As if the client had got no answer, or a refusal, itself.
    server.once("error", () => client.resetAndDestroy());
    client.once("close", () => server.destroy());
    server.once("connect", () => {
      clearTimeout(timer);
      // It has gone away meanwhile; that it is closed is told a moment later.
      if (client.destroyed) {
        server.destroy();
        return;
      }
      // Half an end each: either side may go on after the other is done. An error of either has ended both.
      client.pipe(server);
      server.pipe(client);
    });
  }
}
