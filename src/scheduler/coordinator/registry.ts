import { DSecError } from "../../protocol/errors.ts";
import type { NodeRegistration } from "../../protocol/node.ts";
import { parseAddress } from "../../wire/address.ts";
import { FleetNode, type NodeOptions } from "./fleet-node.ts";
import type { Store } from "./store.ts";

/** Milliseconds after which a node that neither registers nor answers is forgotten. */
const forgottenAfterMs = 86_400_000;

/** The nodes of the fleet: those this coordinator was started with, and those that registered, also before a restart. */
export class Registry {
  readonly #store: Store;
  readonly #now: () => number;
  readonly #nodes = new Map<string, FleetNode>();
  readonly #static = new Set<string>();
  readonly #registeredAt = new Map<string, number>();
  readonly #listeners = new Set<(node: FleetNode) => void>();
  readonly #ca: string | Buffer | undefined;

  constructor(
    fixed: readonly NodeOptions[],
    store: Store,
    options: { now: () => number; ca?: string | Buffer | undefined },
  ) {
    this.#store = store;
    this.#now = options.now;
    this.#ca = options.ca;
    for (const stored of store.nodes()) {
      this.#nodes.set(stored.name, new FleetNode({ ...stored, ca: this.#ca }));
      this.#registeredAt.set(stored.name, stored.registeredAt);
    }
    for (const given of fixed) {
      this.#nodes.get(given.name)?.close();
      this.#nodes.set(given.name, new FleetNode({ ca: this.#ca, ...given }));
      this.#static.add(given.name);
    }
  }

  get(name: string): FleetNode | undefined {
    return this.#nodes.get(name);
  }

  /** By name. */
  all(): FleetNode[] {
    return [...this.#nodes.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  get size(): number {
    return this.#nodes.size;
  }

  /**
   * Takes in a node, or renews it; a changed address or token replaces the old one.
   * @throws DSecError `conflict` for a node that the coordinator was started with, `invalid_argument`
   */
  register(registration: NodeRegistration): void {
    const { name, address, token } = registration;
    parseAddress(address);
    const known = this.#nodes.get(name);
    const same = known?.address === address && known.token === token;
    if (this.#static.has(name)) {
      if (same) return;
      throw new DSecError("conflict", `the coordinator was started with a node ${name} at another address`);
    }
    const registeredAt = this.#now();
    this.#store.putNode({ ...registration, registeredAt });
    this.#registeredAt.set(name, registeredAt);
    if (same) return;
    known?.close();
    const node = new FleetNode({ ...registration, ca: this.#ca });
    this.#nodes.set(name, node);
    for (const listener of this.#listeners) listener(node);
  }

  /** Tells of nodes that are new or replaced. Returns its dispose. */
  onNode(listener: (node: FleetNode) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Forgets registered nodes that have been silent for a day. */
  sweep(): void {
    const before = this.#now() - forgottenAfterMs;
    for (const node of this.#nodes.values()) {
      const seen = Math.max(node.describe().lastSeen ?? 0, this.#registeredAt.get(node.name) ?? 0);
      if (this.#static.has(node.name) || node.healthy || seen >= before) continue;
      node.close();
      this.#nodes.delete(node.name);
      this.#registeredAt.delete(node.name);
      this.#store.deleteNode(node.name);
    }
  }

  close(): void {
    for (const node of this.#nodes.values()) node.close();
  }
}
