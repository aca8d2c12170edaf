import { networkInterfaces } from "node:os";
import { parseRule } from "../../../src/protocol/network-rule-text.ts";
import type { NetworkDecision } from "../../../src/protocol/network-decision.ts";
import { type CompiledPolicy, compilePolicy } from "../../../src/daemon/network/policy/compile.ts";
import { protectedRanges } from "../../../src/daemon/network/policy/protected-ranges.ts";
import { SandboxGate } from "../../../src/daemon/network/sandbox-gate.ts";
import { SandboxNetwork } from "../../../src/daemon/network/sandbox-network.ts";
import { temporaryNode, type TemporaryNode } from "../temporary-node.ts";
import type { Internet } from "./internet.ts";
import { Visitor } from "./visitor.ts";

const never = new AbortController().signal;

/** Somebody in a sandbox's place. */
export interface Guest {
  readonly id: string;
  readonly address: string;
  readonly link: string;
  readonly netnsPath: string;
  readonly visitor: Visitor;
}

/** The network of a node, with the gate that guards it, and sandboxes that are network namespaces only. */
export class GatedNetwork implements AsyncDisposable {
  readonly node: TemporaryNode;
  readonly network: SandboxNetwork;
  /** The one that is open. */
  gate: SandboxGate;
  readonly gateway: string;
  readonly #scope: AsyncDisposableStack;
  readonly #maxFlows: number | undefined;
  /** Why the gate's thread has ended, each time. */
  readonly interruptions: Error[];
  #guests = 0;

  private constructor(
    node: TemporaryNode,
    network: SandboxNetwork,
    gate: SandboxGate,
    interruptions: Error[],
    scope: AsyncDisposableStack,
    maxFlows: number | undefined,
  ) {
    this.node = node;
    this.network = network;
    this.gate = gate;
    this.gateway = network.firewall.gateway;
    this.interruptions = interruptions;
    this.#scope = scope;
    this.#maxFlows = maxFlows;
  }

  static async open(internet: Internet, { maxFlows }: { maxFlows?: number } = {}): Promise<GatedNetwork> {
    await using scope = new AsyncDisposableStack();
    const node = scope.use(await temporaryNode());
    const { runDir, instance, networkRange: range } = node;
    const limit = maxFlows === undefined ? {} : { maxFlows };
    const network = await SandboxNetwork.open({ runDir, instance, range, ...limit });
    scope.defer(() => network.close({ everything: true }));
    const interruptions: Error[] = [];
    const gate = await openGate(network, internet, interruptions);
    const gated = new GatedNetwork(node, network, gate, interruptions, scope.move(), maxFlows);
    gated.#scope.defer(() => gated.gate.close());
    return gated;
  }

  /** As a daemon that ends and one that begins: `work` is done in between. */
  async reopen(internet: Internet, work: () => Promise<void>): Promise<void> {
    await this.gate.close();
    const { runDir, instance, networkRange: range } = this.node;
    await work();
    const limit = this.#maxFlows === undefined ? {} : { maxFlows: this.#maxFlows };
    const again = await SandboxNetwork.open({ runDir, instance, range, ...limit });
    await again.close({ everything: false });
    this.gate = await openGate(this.network, internet, this.interruptions);
  }

  /** `allow example.test`, `deny 10.0.0.0/8:80`… */
  policy(rules: readonly string[], fallback: "deny" | "allow" = "deny"): CompiledPolicy {
    const parsed = rules.map((rule) => {
      const [action, text = ""] = rule.split(/ (.*)/s);
      if (action !== "allow" && action !== "deny") throw new Error(`'${rule}' is no rule`);
      return parseRule(action, text);
    });
    const own = Object.values(networkInterfaces()).flatMap((list) =>
      (list ?? []).map(({ address }) => address),
    );
    return compilePolicy(
      { default: fallback, rules: parsed },
      { registries: new Map(), protectedRanges: protectedRanges(own, [this.node.networkRange]) },
    );
  }

  /** A sandbox whose policy is in force before it is there. */
  async enter(policy?: CompiledPolicy): Promise<Guest> {
    this.#guests += 1;
    const id = `guest-${this.#guests}`;
    if (policy !== undefined) await this.gate.set(id, policy);
    const lease = await this.network.acquire(never);
    this.#scope.defer(() => lease.release());
    await this.gate.attach(id, lease);
    this.#scope.defer(() => this.gate.remove(id));
    const visitor = this.#scope.use(await Visitor.enter(lease.netnsPath));
    const { address, link, netnsPath } = lease;
    return { id, address, link, netnsPath, visitor };
  }

  /** The sandbox's log so far. */
  async decisions(guest: Guest): Promise<NetworkDecision[]> {
    const decisions: NetworkDecision[] = [];
    const query = { since: undefined, follow: false };
    for await (const decision of this.gate.decisions(guest.id, query, never)) decisions.push(decision);
    return decisions;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#scope.disposeAsync();
  }
}

function openGate(
  { firewall }: SandboxNetwork,
  internet: Internet,
  interruptions: Error[],
): Promise<SandboxGate> {
  return SandboxGate.open({
    firewall,
    nameServers: [internet.nameServer],
    random: Math.random,
    interrupted: (reason) => void interruptions.push(reason),
  });
}
