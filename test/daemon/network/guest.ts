import type dns from "dns-packet";
import type { NetworkDecision } from "../../../src/protocol/network-decision.ts";
import { parseRule } from "../../../src/protocol/network-rule-text.ts";
import type { NetworkPolicy } from "../../../src/protocol/network-policy.ts";
import type { Internet } from "./internet.ts";
import type { Outcome, Visitor } from "./visitor.ts";

export interface GuestParts {
  readonly id: string;
  readonly address: string;
  /** The node's address towards its sandboxes, and their name server's. */
  readonly gateway: string;
  readonly internet: Internet;
  readonly visitor: Visitor;
  readonly almighty: Visitor;
  readonly netnsPath: string;
  /** Name of the node's end of the sandbox's link. */
  readonly link: string;
  /** The sandbox's log so far. */
  readonly decisions: () => Promise<NetworkDecision[]>;
}

/** Somebody in a sandbox, or in a sandbox's place. */
export class Guest {
  readonly id: string;
  readonly address: string;
  readonly gateway: string;
  /** Root as the sandbox has him. */
  readonly visitor: Visitor;
  /** Root with every capability, at the sandbox's end of its link. */
  readonly almighty: Visitor;
  /** On this machine. */
  readonly netnsPath: string;
  readonly link: string;
  readonly decisions: () => Promise<NetworkDecision[]>;
  readonly #internet: Internet;

  constructor(parts: GuestParts) {
    this.id = parts.id;
    this.address = parts.address;
    this.gateway = parts.gateway;
    this.visitor = parts.visitor;
    this.almighty = parts.almighty;
    this.netnsPath = parts.netnsPath;
    this.link = parts.link;
    this.decisions = parts.decisions;
    this.#internet = parts.internet;
  }

  /** Asks the node's resolver. */
  query(name: string, type: dns.RecordType = "A"): Promise<Outcome> {
    return this.visitor.try({ kind: "query", server: this.gateway, name, type });
  }

  /** Speaks to the echo port of a host. */
  echo(host: string, kind: "tcp" | "udp" = "tcp"): Promise<Outcome> {
    return this.visitor.try({ kind, host, port: 7, send: "hello" });
  }

  /** Asks a server of the internet, by number, for something of a host. */
  http(server: number, host: string, path = "/"): Promise<Outcome> {
    const send = `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
    return this.visitor.try({ kind: "tcp", host: this.#internet.address(server), port: 80, send });
  }

  https(server: number, serverName?: string): Promise<Outcome> {
    const [host, ca] = [this.#internet.address(server), this.#internet.caCertificate];
    return this.visitor.try({ kind: "https", host, ca, ...(serverName !== undefined && { serverName }) });
  }
}

/** `allow example.test`, `deny 10.0.0.0/8:80`… */
export function policyOf(rules: readonly string[], fallback: "deny" | "allow" = "deny"): NetworkPolicy {
  const parsed = rules.map((rule) => {
    const [action, text = ""] = rule.split(/ (.*)/s);
    if (action !== "allow" && action !== "deny") throw new Error(`'${rule}' is no rule`);
    return parseRule(action, text);
  });
  return { default: fallback, rules: parsed };
}
