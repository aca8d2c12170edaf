import type { NetworkProbe, NetworkProbeResult, NetworkVerdict } from "../../../protocol/network-decision.ts";
import { addressBytes } from "../../../protocol/cidr.ts";
import { canonicalName } from "../../../protocol/domain-name.ts";
import { isIP } from "node:net";
import { type Firewall, newFlows } from "../firewall.ts";
import type { CompiledPolicy } from "../policy/compile.ts";
import { judge } from "../policy/judge.ts";
import { unchecked } from "./flow.ts";
import type { Decided, GatedSandbox, GatedSandboxes } from "./gated-sandbox.ts";
import { KernelRules, type PinChange } from "./kernel-rules.ts";
import { Pins } from "./pins.ts";
import { type PolicyChains, policyChains } from "./policy-chain.ts";
import { Proxy } from "./proxy.ts";
import { Refusals } from "./refusals.ts";
import { Resolver } from "./resolver.ts";
import type { NameServer } from "./name-server.ts";
import { TokenBucket } from "./token-bucket.ts";
import { Upstream } from "./upstream.ts";

export interface GateParts {
  readonly firewall: Firewall;
  readonly nameServers?: readonly NameServer[] | undefined;
  readonly now: () => number;
  readonly linkName: (number: number) => string;
  readonly decided: (sandbox: string, decision: Decided) => void;
}

/** How a sandbox is reached. */
export interface Attachment {
  readonly id: string;
  readonly source: string;
  readonly link: string;
}

const expiryMs = 5000;
const ipv6Bytes = 16;

class Entry implements GatedSandbox {
  readonly id: string;
  readonly source: string;
  readonly link: string;
  policy: CompiledPolicy;
  readonly pins: Pins;
  readonly begun: TokenBucket;
  isGone = false;
  /** Changes go one after the other. */
  changing: Promise<unknown> = Promise.resolve();
  readonly decided: (decision: Decided) => void;

  constructor(
    { id, source, link }: Attachment,
    policy: CompiledPolicy,
    parts: GateParts,
    kernel: KernelRules,
  ) {
    this.id = id;
    this.source = source;
    this.link = link;
    this.policy = policy;
    this.pins = new Pins(source, kernel);
    this.begun = new TokenBucket(newFlows(parts.firewall.maxFlows), parts.now());
    this.decided = (decision) => parts.decided(id, decision);
  }
}

const noPins: PinChange = { add: [], remove: [] };

/** Everything between sandboxes and the network: the kernel's rules for each, the resolver, the proxy, the log of refusals. */
export class Gate implements GatedSandboxes {
  readonly #parts: GateParts;
  readonly #kernel: KernelRules;
  readonly #upstream: Upstream;
  readonly #byId = new Map<string, Entry>();
  readonly #bySource = new Map<string, Entry>();
  readonly #byLink = new Map<string, Entry>();
  readonly #rendered = new WeakMap<CompiledPolicy, { readonly chains: PolicyChains | undefined }>();
  #resolver: Resolver | undefined;
  #proxy: Proxy | undefined;
  #refusals: Refusals | undefined;
  #expiry: NodeJS.Timeout | undefined;

  private constructor(parts: GateParts) {
    this.#parts = parts;
    this.#kernel = new KernelRules(parts.firewall.table);
    this.#upstream = new Upstream({ servers: parts.nameServers, now: parts.now });
  }

  /** @throws Error what is in the way, e.g. a port in use */
  static async open(parts: GateParts): Promise<Gate> {
    const gate = new Gate(parts);
    const { gateway, resolverPort, proxyPort, logGroup } = parts.firewall;
    const { now, linkName } = parts;
    try {
      await gate.#kernel.load();
      gate.#resolver = await Resolver.open(gateway, resolverPort, {
        sandboxes: gate,
        upstream: gate.#upstream,
        now,
      });
      gate.#proxy = await Proxy.open(gateway, proxyPort, { sandboxes: gate, now });
      gate.#refusals = new Refusals(logGroup, { sandboxes: gate, linkName });
      gate.#expiry = setInterval(() => gate.#expire(), expiryMs);
      return gate;
    } catch (error) {
      await gate.close();
      throw error;
    }
  }

  /** What the end of this thread does not close: descriptors belong to the process. {@link close} does. */
  get descriptors(): number[] {
    return [
      ...this.#kernel.descriptors,
      ...(this.#refusals === undefined ? [] : [this.#refusals.descriptor]),
    ];
  }

  bySource(source: string): GatedSandbox | undefined {
    return this.#bySource.get(source);
  }

  byLink(link: string): GatedSandbox | undefined {
    return this.#byLink.get(link);
  }

  /** Puts a policy in force for an address that nobody uses yet, or that an earlier daemon has left in use. @throws LinuxError, DSecError */
  async attach(attachment: Attachment, policy: CompiledPolicy): Promise<void> {
    const before = this.#bySource.get(attachment.source);
    if (before !== undefined) await this.detach(before.id);
    const entry = new Entry(attachment, policy, this.#parts, this.#kernel);
    this.#byId.set(entry.id, entry);
    this.#bySource.set(entry.source, entry);
    this.#byLink.set(entry.link, entry);
    await this.#queue(entry, async () => {
      await this.#kernel.replace(entry.source, this.#chains(policy), () => noPins);
    });
  }

  /**
   * Replaces a policy, as one step. Returns how many connections it has ended.
   * @throws LinuxError, DSecError: the policy before is still in force
   */
  async set(id: string, policy: CompiledPolicy): Promise<number> {
    const entry = this.#byId.get(id);
    if (entry === undefined) return 0;
    return this.#queue(entry, async () => {
      if (entry.isGone) return 0;
      await this.#kernel.replace(entry.source, this.#chains(policy), () => {
        entry.policy = policy;
        return entry.pins.change(policy, this.#parts.now());
      });
      return this.#proxy?.judgeAgain(entry) ?? 0;
    });
  }

  /** Takes everything away from a sandbox's address. Idempotent. @throws LinuxError */
  async detach(id: string): Promise<void> {
    const entry = this.#byId.get(id);
    if (entry === undefined) return;
    entry.isGone = true;
    this.#byId.delete(id);
    if (this.#bySource.get(entry.source) === entry) this.#bySource.delete(entry.source);
    if (this.#byLink.get(entry.link) === entry) this.#byLink.delete(entry.link);
    this.#proxy?.drop(entry);
    await this.#queue(entry, async () => {
      await this.#kernel.leave(entry.source, () => ({ add: [], remove: entry.pins.clear() }));
    });
  }

  /** Takes everything away from the addresses that no sandbox has: an earlier daemon has left them in force. */
  async reconcile(): Promise<void> {
    for (const source of this.#kernel.sources())
      if (!this.#bySource.has(source)) await this.#kernel.leave(source, () => noPins);
  }

  /** What would become of a connection. */
  async test(policy: CompiledPolicy, { host, port, protocol }: NetworkProbe): Promise<NetworkProbeResult> {
    const verdictOf = (address: string, name?: string): NetworkVerdict & { address: string } => {
      const verdict = judge(policy, { address, port, protocol, name });
      const isOut = verdict.allowed && addressBytes(address)?.length === ipv6Bytes;
      return { address, ...(isOut ? unchecked("ipv6") : verdict) };
    };
    if (isIP(host) !== 0) {
      const verdict = verdictOf(host);
      return { allowed: verdict.allowed, addresses: [verdict] };
    }
    const resolved = await this.#resolver?.probe(policy, host);
    if (resolved === undefined) return { allowed: false, addresses: [], unresolved: "closed" };
    const { answer, verdict } = resolved;
    const addresses = answer.addresses.map((address) => verdictOf(address, canonicalName(host)));
    return {
      allowed: addresses.some(({ allowed }) => allowed),
      name: verdict,
      addresses,
      ...(verdict.allowed && addresses.length === 0 && { unresolved: answer.code }),
    };
  }

  async close(): Promise<void> {
    clearInterval(this.#expiry);
    this.#refusals?.close();
    this.#resolver?.close();
    this.#proxy?.close();
    this.#upstream.close();
    await this.#kernel.close();
  }

  #chains(policy: CompiledPolicy): PolicyChains | undefined {
    const known = this.#rendered.get(policy);
    if (known !== undefined) return known.chains;
    const chains = policyChains(policy, this.#parts.firewall.directMark);
    this.#rendered.set(policy, { chains });
    return chains;
  }

  #queue<T>(entry: Entry, work: () => Promise<T>): Promise<T> {
    const done = entry.changing.catch(() => undefined).then(work);
    entry.changing = done;
    return done;
  }

  #expire(): void {
    const now = this.#parts.now();
    for (const entry of this.#byId.values()) entry.pins.expire(entry.policy, now);
  }
}
