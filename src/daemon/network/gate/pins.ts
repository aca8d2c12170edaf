import type { CompiledPolicy } from "../policy/compile.ts";
import { judge } from "../policy/judge.ts";
import type { KernelRules, Pin, PinChange } from "./kernel-rules.ts";

/** Addresses that a sandbox's resolver has given it at a time; the oldest go first. */
const mostAddresses = 1024;
/** Ports of a rule for which each gets a pin of its own. */
const mostPorts = 32;
const protocols = ["tcp", "udp"] as const;

interface PinnedAddress {
  /** When the answer ends, by name. Milliseconds. */
  readonly names: Map<string, number>;
  /** What is in force in the kernel, by key. */
  pins: Map<string, Pin>;
}

/** What the resolver has answered one sandbox: which addresses may be reached, by which names, until when. */
export class Pins {
  readonly #source: string;
  readonly #kernel: Pick<KernelRules, "pin">;
  readonly #addresses = new Map<string, PinnedAddress>();

  constructor(source: string, kernel: Pick<KernelRules, "pin">) {
    this.#source = source;
    this.#kernel = kernel;
  }

  /** Takes up an answer. When it returns, the kernel lets through what the policy allows of it. @throws LinuxError */
  add(policy: CompiledPolicy, name: string, addresses: readonly string[], until: number): void {
    const add: Pin[] = [];
    for (const address of addresses) {
      const known = this.#addresses.get(address) ?? { names: new Map<string, number>(), pins: new Map() };
      known.names.set(name, Math.max(until, known.names.get(name) ?? 0));
      // The newest last.
      this.#addresses.delete(address);
      this.#addresses.set(address, known);
      for (const [key, pin] of wanted(policy, address, known.names.keys())) {
        if (known.pins.has(key)) continue;
        known.pins.set(key, pin);
        add.push(pin);
      }
    }
    const remove: Pin[] = [];
    for (const [address, { pins }] of this.#addresses) {
      if (this.#addresses.size <= mostAddresses) break;
      this.#addresses.delete(address);
      remove.push(...pins.values());
    }
    if (add.length + remove.length > 0) this.#kernel.pin(this.#source, { add, remove });
  }

  /** The names that were answered with an address and have not expired. */
  namesOf(address: string, now: number): string[] {
    const names = this.#addresses.get(address)?.names ?? new Map<string, number>();
    return [...names].flatMap(([name, until]) => (until > now ? [name] : []));
  }

  /** A name by which an address was once given, for people to read. */
  lastNameOf(address: string): string | undefined {
    return [...(this.#addresses.get(address)?.names.keys() ?? [])].at(-1);
  }

  /** Ends what has expired. @throws LinuxError */
  expire(policy: CompiledPolicy, now: number): void {
    const expired = [...this.#addresses].flatMap(([address, { names }]) =>
      [...names.values()].some((until) => until <= now) ? [address] : [],
    );
    if (expired.length > 0) this.#kernel.pin(this.#source, this.#adapt(expired, policy, now));
  }

  /** What has to change in the kernel when the policy does. The caller carries it out. */
  change(policy: CompiledPolicy, now: number): PinChange {
    return this.#adapt([...this.#addresses.keys()], policy, now);
  }

  /** All of it, to be removed. */
  clear(): readonly Pin[] {
    const all = [...this.#addresses.values()].flatMap(({ pins }) => [...pins.values()]);
    this.#addresses.clear();
    return all;
  }

  #adapt(addresses: readonly string[], policy: CompiledPolicy, now: number): PinChange {
    const add: Pin[] = [];
    const remove: Pin[] = [];
    for (const address of addresses) {
      const known = this.#addresses.get(address);
      if (known === undefined) continue;
      for (const [name, until] of known.names) if (until <= now) known.names.delete(name);
      const next = wanted(policy, address, known.names.keys());
      for (const [key, pin] of known.pins) if (!next.has(key)) remove.push(pin);
      for (const [key, pin] of next) if (!known.pins.has(key)) add.push(pin);
      known.pins = next;
      if (known.names.size === 0) this.#addresses.delete(address);
    }
    return { add, remove };
  }
}

/** What the kernel must let through for an address of these names: for TCP up to the proxy, which judges again. */
function wanted(policy: CompiledPolicy, address: string, names: Iterable<string>): Map<string, Pin> {
  const pins = new Map<string, Pin>();
  const want = (protocol: Pin["protocol"], port: number | undefined) =>
    pins.set(`${protocol} ${port}`, { destination: address, protocol, port });
  for (const name of names) {
    const terms = [...policy.names.find(name)];
    for (const { action, protocol: only, ports } of terms) {
      if (action === "deny") continue;
      for (const protocol of protocols) {
        if (only !== undefined && only !== protocol) continue;
        const listed = portsOf(ports);
        if (listed === undefined) {
          // Nobody looks into UDP again, so that what is denied of it must not be let through here.
          const isPartlyDenied = terms.some(
            (term) => term.action === "deny" && (term.protocol ?? protocol) === protocol,
          );
          const isClosed = isClosedOnEveryPort(policy, address, protocol, name);
          if (!isClosed && (protocol === "tcp" || !isPartlyDenied)) want(protocol, undefined);
          continue;
        }
        for (const port of listed)
          if (judge(policy, { address, port, protocol, name }).allowed) want(protocol, port);
      }
    }
  }
  return pins;
}

function isClosedOnEveryPort(
  policy: CompiledPolicy,
  address: string,
  protocol: Pin["protocol"],
  name: string,
): boolean {
  const { allowed, by } = judge(policy, { address, port: undefined, protocol, name });
  // Rules about ports say nothing without one: then it is the default that refuses.
  return !allowed && by.kind !== "default";
}

function portsOf(ranges: CompiledPolicy["domains"][number]["ports"]): number[] | undefined {
  const count = (ranges ?? []).reduce((sum, { from, to }) => sum + to - from + 1, 0);
  if (ranges === undefined || count > mostPorts) return undefined;
  return ranges.flatMap(({ from, to }) => Array.from({ length: to - from + 1 }, (_, index) => from + index));
}
