import type { NodeList, NodeRegistration, NodeStatus } from "../../protocol/node.ts";
import { HttpClient } from "../../wire/client/http-client.ts";
import type { LocalServer } from "../../wire/server/handover.ts";
import type { NodeSnapshot, PlacedRecently } from "../core/snapshot.ts";
import { SentPolicies } from "./sent-policies.ts";

export interface NodeOptions extends NodeRegistration {
  /** PEM of the authority behind an https address. */
  readonly ca?: string | Buffer | undefined;
  /** The node's own server, where it lives in this process. */
  readonly local?: LocalServer | undefined;
}

/** Milliseconds that a node which did not answer its last probe is waited for. */
const silentMs = 1000;

/** A node as the coordinator knows it: how to reach it, what it last said, and what was sent there since. */
export class FleetNode {
  readonly name: string;
  readonly address: string;
  readonly token: string;
  readonly ca: string | Buffer | undefined;
  readonly client: HttpClient;
  readonly policies = new SentPolicies();
  readonly #local: LocalServer | undefined;
  #status: NodeStatus | undefined;
  #lastSeen: number | undefined;
  #unreachable: string | undefined;
  readonly #recent = new Set<{ readonly load: PlacedRecently; settledAt: number | undefined }>();

  constructor({ name, address, token, ca, local }: NodeOptions) {
    this.name = name;
    this.address = address;
    this.token = token;
    this.ca = ca;
    this.#local = local;
    this.client = new HttpClient({
      address,
      token,
      peer: "node",
      connectTimeoutMs: 5000,
      ...(ca === undefined ? {} : { ca }),
    });
  }

  /** The node's server, where requests can be handed over to it without a connection. */
  get local(): LocalServer | undefined {
    return this.#local?.closing.aborted === false ? this.#local : undefined;
  }

  /** Whether its last probe was answered. */
  get healthy(): boolean {
    return this.#status !== undefined && this.#unreachable === undefined;
  }

  /** How long to wait for it when others are asked, too: it may be back, but they do not wait long for one that is not. */
  patience(ms: number): number {
    return this.healthy ? ms : Math.min(ms, silentMs);
  }

  /** @param askedAt when the question left: placements that had settled by then are counted in the answer */
  answered(status: NodeStatus, askedAt: number, now: number): void {
    this.#status = status;
    this.#lastSeen = now;
    this.#unreachable = undefined;
    for (const entry of this.#recent)
      if (entry.settledAt !== undefined && entry.settledAt < askedAt) this.#recent.delete(entry);
  }

  failed(message: string): void {
    this.#unreachable = message;
  }

  /** Counts a placement on its way. @returns to be called when the node has answered, with the time */
  placing(load: PlacedRecently): (now: number) => void {
    const entry: { load: PlacedRecently; settledAt: number | undefined } = { load, settledAt: undefined };
    this.#recent.add(entry);
    return (now) => {
      entry.settledAt = now;
    };
  }

  snapshot(): NodeSnapshot {
    return {
      name: this.name,
      status: this.#status,
      unreachable: this.#unreachable,
      recent: [...this.#recent].map(({ load }) => load),
    };
  }

  describe(): NodeList["items"][number] {
    return {
      name: this.name,
      address: this.address,
      health: this.healthy ? "healthy" : "unreachable",
      ...(this.#lastSeen === undefined ? {} : { lastSeen: this.#lastSeen }),
      ...(this.#status === undefined ? {} : { status: this.#status }),
      ...(this.healthy ? {} : { message: this.#unreachable ?? "has not answered yet" }),
    };
  }

  close(): void {
    this.client.close();
  }
}
