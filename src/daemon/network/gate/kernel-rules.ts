import { createHash } from "node:crypto";
import { ConnectionTracking } from "../../../backends/linux/connection-tracking.ts";
import type { SetElement } from "../../../backends/linux/nf-elements.ts";
import { type ChainChange, type ElementChange, NfTable } from "../../../backends/linux/nf-tables.ts";
import { LinuxError } from "../../../backends/linux/libc.ts";
import { runProgram } from "../../resources/program.ts";
import { addressBytes } from "../address-range.ts";
import { firewallSet } from "../firewall.ts";
import type { PolicyChains } from "./policy-chain.ts";

/** What the resolver allows a sandbox; without a port, on every port. */
export interface Pin {
  readonly destination: string;
  readonly protocol: "tcp" | "udp";
  readonly port: number | undefined;
}

export interface PinChange {
  /** Those that are there may be added, too. */
  readonly add: readonly Pin[];
  /** Only those that are there. */
  readonly remove: readonly Pin[];
}

/** What is allowed for an address from now on, and who waits for it. */
interface Replacement {
  readonly source: string;
  readonly chains: PolicyChains | undefined;
  readonly pins: () => PinChange;
  /** What {@link pins} gave: they are asked once. */
  pinned?: PinChange;
  readonly done: PromiseWithResolvers<void>;
}

type Change = ElementChange | ChainChange;

/** Addresses whose rules are replaced in one transaction. */
const mostReplacements = 256;
/** Chains kept that nobody needs. */
const mostUnused = 64;
const protocolNumber = { tcp: 6, udp: 17 } as const;
const directions = [
  { set: firewallSet.outgoing, prefix: "out" },
  { set: firewallSet.answers, prefix: "in" },
] as const;

/**
 * The part of the rules that changes while sandboxes live. Sandboxes whose policies say the same of addresses share the
 * chains for it, so that most often what is done for one is to replace an element. What is asked for at the same time is one
 * transaction; no program is started.
 */
export class KernelRules {
  readonly #table: string;
  readonly #netlink: NfTable;
  readonly #tracking: ConnectionTracking;
  /** How many addresses lead to the chains, by the digest of their rules. */
  readonly #users = new Map<string, number>();
  /** Digest of the chains by source address. */
  readonly #inForce = new Map<string, string>();
  /** Those to which no address leads, the oldest first: the next sandbox of a job wants what the last one had. */
  readonly #unused = new Set<string>();
  readonly #waiting: Replacement[] = [];
  #turn: NodeJS.Immediate | undefined;
  #isClosed = false;

  /** @throws LinuxError */
  constructor(table: string) {
    this.#table = table;
    this.#netlink = new NfTable(table);
    this.#tracking = new ConnectionTracking();
  }

  /** Takes up what is in force by address, and ends what names were pinned: nobody knows them any more. @throws DSecError */
  async load(): Promise<void> {
    const flush = [firewallSet.pins, firewallSet.widePins].map(
      (set) => `flush set inet ${this.#table} ${set}\n`,
    );
    await runProgram("nft", ["-f", "-"], { input: flush.join("") });
    const text = await runProgram("nft", ["list", "map", "inet", this.#table, firewallSet.outgoing]);
    for (const [, source = "", digest = ""] of text.matchAll(/([\d.]+) : jump out_([0-9a-f]{16})/g)) {
      this.#inForce.set(source, digest);
      this.#retain(digest);
    }
    await this.#collect();
  }

  /** Removes the chains that an earlier daemon has made and no address leads to. */
  async #collect(): Promise<void> {
    const chains = await runProgram("nft", ["list", "chains", "inet"]);
    const own = chains.split(/^table inet /m).find((table) => table.startsWith(`${this.#table} {`)) ?? "";
    const left = [...own.matchAll(/^\s*chain ((?:out|in)_([0-9a-f]{16})) \{/gm)].flatMap(
      ([, chain = "", digest = ""]) => (this.#users.has(digest) ? [] : [chain]),
    );
    this.#delete(left);
  }

  get descriptors(): number[] {
    return [this.#netlink.descriptor, this.#tracking.descriptor];
  }

  /** The addresses for which something is allowed. */
  sources(): string[] {
    return [...this.#inForce.keys()];
  }

  /**
   * Replaces what is allowed for an address, as one step.
   *
   * @param chains undefined: nothing is allowed by address
   * @param pins asked for at that step
   * @throws LinuxError, DSecError: nothing has changed
   */
  async replace(source: string, chains: PolicyChains | undefined, pins: () => PinChange): Promise<void> {
    const done = Promise.withResolvers<void>();
    this.#waiting.push({ source, chains, pins, done });
    this.#turn ??= setImmediate(() => this.#nextTurn());
    return done.promise;
  }

  /**
   * Takes everything away from an address, and has the kernel forget its connections: some would stay for days, and count as
   * those of whoever has the address next.
   * @throws LinuxError
   */
  async leave(source: string, pins: () => PinChange): Promise<void> {
    await this.replace(source, undefined, pins);
    if (this.#isClosed) return;
    try {
      this.#tracking.forget(addressBytes(source));
    } catch (error) {
      // An older kernel cannot: they end by themselves, some after days.
      if (!(error instanceof LinuxError)) throw error;
    }
  }

  /** Changes pins only. @throws LinuxError */
  pin(source: string, pins: PinChange): void {
    this.#netlink.change(pinChanges(source, pins));
  }

  /** Carries out what was begun. */
  async close(): Promise<void> {
    this.#isClosed = true;
    while (this.#waiting.length > 0) this.#nextTurn();
    clearImmediate(this.#turn);
    this.#netlink.close();
    this.#tracking.close();
  }

  #nextTurn(): void {
    this.#turn = undefined;
    this.#carryOut(this.#waiting.splice(0, mostReplacements));
    if (this.#waiting.length > 0) this.#turn ??= setImmediate(() => this.#nextTurn());
    this.#prune();
  }

  #carryOut(replacements: readonly Replacement[]): void {
    const undo: (() => void)[] = [];
    try {
      this.#netlink.change(replacements.flatMap((replacement) => this.#changes(replacement, undo)));
      for (const { done } of replacements) done.resolve();
    } catch (error) {
      for (const step of undo.toReversed()) step();
      // One that the kernel refuses must not fail the others.
      if (replacements.length > 1) for (const replacement of replacements) this.#carryOut([replacement]);
      else for (const { done } of replacements) done.reject(error);
    }
  }

  /** @param undo takes how to forget again what is kept in mind of it */
  #changes(replacement: Replacement, undo: (() => void)[]): Change[] {
    const { source, chains } = replacement;
    const digest = chains === undefined ? undefined : digestOf(chains);
    const before = this.#inForce.get(source);
    const pins = pinChanges(source, (replacement.pinned ??= replacement.pins()));
    if (before === digest) return pins;
    const made = digest === undefined || this.#users.has(digest) ? [] : chainsNamed(digest, chains);
    const key = addressBytes(source);
    if (digest !== undefined) {
      this.#retain(digest);
      if (made.length > 0) undo.push(() => this.#forget(digest));
      undo.push(() => this.#release(digest));
    }
    if (before !== undefined) {
      this.#release(before);
      undo.push(() => this.#retain(before));
    }
    this.#note(source, digest);
    undo.push(() => this.#note(source, before));
    return [
      ...made,
      ...directions.flatMap(({ set, prefix }): Change[] => [
        { set, change: "delete", elements: before === undefined ? [] : [{ key }] },
        { set, change: "add", elements: digest === undefined ? [] : [{ key, chain: `${prefix}_${digest}` }] },
      ]),
      ...pins,
    ];
  }

  #note(source: string, digest: string | undefined): void {
    if (digest === undefined) this.#inForce.delete(source);
    else this.#inForce.set(source, digest);
  }

  #retain(digest: string): void {
    this.#users.set(digest, (this.#users.get(digest) ?? 0) + 1);
    this.#unused.delete(digest);
  }

  #release(digest: string): void {
    const users = (this.#users.get(digest) ?? 1) - 1;
    this.#users.set(digest, users);
    if (users === 0) this.#unused.add(digest);
  }

  #forget(digest: string): void {
    this.#users.delete(digest);
    this.#unused.delete(digest);
  }

  /** Removes the chains that have not been used for longest, once there are twice as many as are kept. */
  #prune(): void {
    if (this.#unused.size <= 2 * mostUnused) return;
    const oldest = [...this.#unused].slice(0, this.#unused.size - mostUnused);
    for (const digest of oldest) this.#forget(digest);
    this.#delete(oldest.flatMap((digest) => directions.map(({ prefix }) => `${prefix}_${digest}`)));
  }

  /** What cannot be removed is in nobody's way: it is made anew where it is needed again. */
  #delete(chains: readonly string[]): void {
    try {
      this.#netlink.change(chains.map((chain) => ({ chain, change: "delete" })));
    } catch (error) {
      if (!(error instanceof LinuxError)) throw error;
    }
  }
}

function chainsNamed(digest: string, chains: PolicyChains | undefined): ChainChange[] {
  if (chains === undefined) return [];
  return [
    { chain: `out_${digest}`, change: "add", rules: chains.outgoing },
    { chain: `in_${digest}`, change: "add", rules: chains.answers },
  ];
}

const digests = new WeakMap<PolicyChains, string>();
/** Of what is made of rules: another version of this program must not take chains of this one for its own. */
const format = 2;

function digestOf(chains: PolicyChains): string {
  const known = digests.get(chains);
  if (known !== undefined) return known;
  const digest = createHash("sha256")
    .update(JSON.stringify([format, chains]))
    .digest("hex")
    .slice(0, 16);
  digests.set(chains, digest);
  return digest;
}

function pinChanges(source: string, { add, remove }: PinChange): ElementChange[] {
  const changes = [
    ["delete", remove],
    ["add", add],
  ] as const;
  return changes.flatMap(([change, pins]) => {
    const [wide, narrow] = [pins.filter(isWide), pins.filter((pin) => !isWide(pin))];
    const elements = (some: readonly Pin[]) => some.map((pin) => elementOf(source, pin));
    return [
      { set: firewallSet.pins, change, elements: elements(narrow) },
      { set: firewallSet.widePins, change, elements: elements(wide) },
    ];
  });
}

function isWide({ port }: Pin): boolean {
  return port === undefined;
}

function elementOf(source: string, { destination, protocol, port }: Pin): SetElement {
  const numbers = Buffer.alloc(port === undefined ? 4 : 8);
  numbers.writeUInt8(protocolNumber[protocol]);
  if (port !== undefined) numbers.writeUInt16BE(port, 4);
  return { key: Buffer.concat([addressBytes(source), addressBytes(destination), numbers]) };
}
