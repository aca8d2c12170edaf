import { readdir, readFile, readlink } from "node:fs/promises";
import { AddressRange, addressBytes } from "../../../src/daemon/network/address-range.ts";
import { defaultMaxFlows, type Firewall, firewallOf } from "../../../src/daemon/network/firewall.ts";
import { LinkNames } from "../../../src/daemon/network/link-name.ts";
import type {
  NetworkDecision,
  NetworkProbe,
  NetworkProbeResult,
} from "../../../src/protocol/network-decision.ts";
import type { PolicyPushResult } from "../../../src/protocol/policy-push.ts";
import { containerNode } from "../container-fixture.ts";
import type { TestDaemon } from "../daemon-fixture.ts";
import type { TemporaryNode } from "../temporary-node.ts";
import { Guest, policyOf } from "./guest.ts";
import { Internet } from "./internet.ts";
import type { NetworkedEngine } from "./networked-engines.ts";
import { buildProbe, inNamespace, inSandbox, installProbe } from "./probe.ts";
import { Visitor } from "./visitor.ts";

interface Parts {
  readonly internet: Internet;
  readonly node: TemporaryNode;
  readonly spec: NetworkedEngine["spec"];
  readonly start: () => Promise<TestDaemon>;
  readonly program: string;
}

/** An internet, and a daemon with real sandboxes of one engine. */
export class EngineNetwork implements AsyncDisposable {
  readonly internet: Internet;
  readonly gateway: string;
  readonly firewall: Firewall;
  /** The one that runs. */
  daemon: TestDaemon;
  readonly #parts: Parts;
  readonly #scope: AsyncDisposableStack;
  #neighbour: Promise<Guest> | undefined;
  readonly #visitors = new DisposableStack();

  private constructor(parts: Parts, daemon: TestDaemon, scope: AsyncDisposableStack) {
    const { instance, networkRange: range } = parts.node;
    this.internet = parts.internet;
    this.gateway = AddressRange.parse(range).gateway;
    const { prefix: linkPrefix } = new LinkNames(instance);
    const { gateway } = this;
    this.firewall = firewallOf({ table: instance, linkPrefix, gateway, range, maxFlows: defaultMaxFlows });
    this.daemon = daemon;
    this.#parts = parts;
    this.#scope = scope;
  }

  static async open({ spec, options }: NetworkedEngine): Promise<EngineNetwork> {
    const scope = new AsyncDisposableStack();
    try {
      const internet = scope.use(await Internet.start());
      const program = await buildProbe(scope);
      const { node, start: startWith } = await containerNode((work) => scope.defer(work));
      const { address, port } = internet.nameServer;
      const start = () => startWith({ ...options(), nameServers: [`${address}:${port}`] });
      return new EngineNetwork({ internet, node, spec, start, program }, await start(), scope);
    } catch (error) {
      await scope.disposeAsync();
      throw error;
    }
  }

  /** A sandbox whose policy is in force before it is there. */
  async enter(rules: readonly string[] = [], fallback: "deny" | "allow" = "deny"): Promise<Guest> {
    const { node, spec, program } = this.#parts;
    const { id, address = "" } = await this.daemon.place({
      ...spec,
      networkPolicy: policyOf(rules, fallback),
    });
    await installProbe(this.daemon, id, await readFile(program));
    const netnsPath = await networkNamespaceOf(this.daemon, id);
    const { internet, gateway } = this;
    return new Guest({
      id,
      address,
      gateway,
      internet,
      netnsPath,
      link: new LinkNames(node.instance).nameOf(addressBytes(address).readUInt16BE(2)),
      visitor: this.#visitors.use(new Visitor(inSandbox(() => this.daemon, id))),
      almighty: this.#visitors.use(new Visitor(inNamespace(netnsPath, program))),
      decisions: () => this.#decisions(id),
    });
  }

  /** One that may do nothing and is not attacked from: the same for all who ask. */
  neighbour(): Promise<Guest> {
    this.#neighbour ??= this.enter();
    return this.#neighbour;
  }

  /** Replaces the policy of a sandbox that runs. Returns how many connections that has ended. */
  async push({ id }: Guest, rules: readonly string[], fallback: "deny" | "allow" = "deny"): Promise<number> {
    const body = { given: { policy: policyOf(rules, fallback) }, to: { refs: [id] } };
    const { items } = await this.daemon.http.json<PolicyPushResult>("applyPolicy", { body });
    const [change] = items;
    if (change?.outcome !== "changed") throw new Error(`${id}: ${JSON.stringify(change)}`);
    return change.cut;
  }

  /** What the node says would become of a connection. */
  async test({ id }: Guest, probe: NetworkProbe): Promise<NetworkProbeResult> {
    return this.daemon.http.json("testNetwork", { params: { ref: id }, body: probe });
  }

  /** The daemon leaves its sandboxes, and another takes them up; `work` is done in between. */
  async reopen(work: () => Promise<void>): Promise<void> {
    await this.daemon.leave();
    await work();
    this.daemon = await this.#parts.start();
    await this.daemon.running.recovered;
  }

  /** How often the thread has failed that names are reached through. */
  async interruptions(): Promise<number> {
    const line = /^dsec_network_interruptions_total (\d+)$/m.exec(await this.daemon.metrics());
    return Number(line?.[1]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Their connections would keep namespaces that the daemon ends.
    this.#visitors.dispose();
    await this.#scope.disposeAsync();
  }

  async #decisions(id: string): Promise<NetworkDecision[]> {
    const decisions: NetworkDecision[] = [];
    const lines = await this.daemon.http.lines<NetworkDecision>("networkLog", { params: { ref: id } });
    for await (const decision of lines) decisions.push(decision);
    return decisions;
  }
}

/** Where this machine has the network namespace of a sandbox. */
async function networkNamespaceOf(daemon: TestDaemon, id: string): Promise<string> {
  const { stdout } = await daemon.run(id, ["readlink", "/proc/self/ns/net"]);
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const path = `/proc/${pid}/ns/net`;
    if ((await readlink(path).catch(() => "")) === stdout.trim()) return path;
  }
  throw new Error(`no process of ${id} on this machine`);
}
