import { networkInterfaces } from "node:os";
import type { NetworkDecision } from "../../../src/protocol/network-decision.ts";
import { type CompiledPolicy, compilePolicy } from "../../../src/daemon/network/policy/compile.ts";
import { protectedRanges } from "../../../src/daemon/network/policy/protected-ranges.ts";
import { SandboxGate } from "../../../src/daemon/network/sandbox-gate.ts";
import { SandboxNetwork } from "../../../src/daemon/network/sandbox-network.ts";
import { temporaryNode, type TemporaryNode } from "../temporary-node.ts";
import { Guest, policyOf } from "./guest.ts";
import { Internet } from "./internet.ts";
import { buildProbe, inNamespace } from "./probe.ts";
import { Visitor } from "./visitor.ts";

const never = new AbortController().signal;

interface Parts {
  readonly internet: Internet;
  readonly node: TemporaryNode;
  readonly network: SandboxNetwork;
  readonly gate: SandboxGate;
  /** Why the gate's thread has ended, each time. */
  readonly interruptions: Error[];
  readonly program: string;
  readonly limit: { readonly maxFlows?: number };
}

/**
 * An internet, and the network of a node with the gate that guards it. Its sandboxes are network namespaces only: for what is the
 * same for every engine, and for parts that no sandbox sees.
 */
export class GatedNetwork implements AsyncDisposable {
  readonly internet: Internet;
  readonly node: TemporaryNode;
  readonly network: SandboxNetwork;
  /** The one that is open. */
  gate: SandboxGate;
  readonly gateway: string;
  /** Why the gate's thread has ended, each time. */
  readonly interruptions: Error[];
  readonly #program: string;
  readonly #limit: Parts["limit"];
  readonly #scope: AsyncDisposableStack;
  #guests = 0;

  private constructor(parts: Parts, scope: AsyncDisposableStack) {
    this.internet = parts.internet;
    this.node = parts.node;
    this.network = parts.network;
    this.gate = parts.gate;
    this.gateway = parts.network.firewall.gateway;
    this.interruptions = parts.interruptions;
    this.#program = parts.program;
    this.#limit = parts.limit;
    this.#scope = scope;
  }

  static async open(limit: Parts["limit"] = {}): Promise<GatedNetwork> {
    await using scope = new AsyncDisposableStack();
    const internet = scope.use(await Internet.start());
    const program = await buildProbe(scope);
    const node = scope.use(await temporaryNode());
    const { runDir, instance, networkRange: range } = node;
    const network = await SandboxNetwork.open({ runDir, instance, range, ...limit });
    scope.defer(() => network.close({ everything: true }));
    const interruptions: Error[] = [];
    const gate = await openGate(network, internet, interruptions);
    const parts = { internet, node, network, gate, interruptions, program, limit };
    const gated = new GatedNetwork(parts, scope.move());
    gated.#scope.defer(() => gated.gate.close());
    return gated;
  }

  /** As a daemon that ends and one that begins: `work` is done in between. */
  async reopen(work: () => Promise<void>): Promise<void> {
    await this.gate.close();
    const { runDir, instance, networkRange: range } = this.node;
    await work();
    const again = await SandboxNetwork.open({ runDir, instance, range, ...this.#limit });
    await again.close({ everything: false });
    this.gate = await openGate(this.network, this.internet, this.interruptions);
  }

  /** `allow example.test`, `deny 10.0.0.0/8:80`… */
  policy(rules: readonly string[], fallback: "deny" | "allow" = "deny"): CompiledPolicy {
    const own = Object.values(networkInterfaces()).flatMap((list) =>
      (list ?? []).map(({ address }) => address),
    );
    return compilePolicy(policyOf(rules, fallback), {
      registries: new Map(),
      protectedRanges: protectedRanges(own, [this.node.networkRange]),
    });
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
    const visitor = this.#scope.use(new Visitor(inNamespace(lease.netnsPath, this.#program)));
    const { gateway, internet } = this;
    const decisions = async () => this.#decisions(id);
    return new Guest({ ...lease, id, gateway, internet, visitor, almighty: visitor, decisions });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#scope.disposeAsync();
  }

  async #decisions(id: string): Promise<NetworkDecision[]> {
    const decisions: NetworkDecision[] = [];
    const query = { since: undefined, follow: false };
    for await (const decision of this.gate.decisions(id, query, never)) decisions.push(decision);
    return decisions;
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
