import { createHash } from "node:crypto";
import { type ElementChange, NfTable, type SetElement } from "../../../backends/linux/nf-tables.ts";
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

/** Statements of chains that are to be made or removed, and who waits for them. */
interface Task {
  readonly lines: readonly string[];
  readonly done: PromiseWithResolvers<void>;
}

/** Chains kept that nobody needs. */
const mostUnused = 64;
const protocolNumber = { tcp: 6, udp: 17 } as const;
const directions = [
  { set: firewallSet.outgoing, prefix: "out" },
  { set: firewallSet.answers, prefix: "in" },
] as const;

/**
 * The part of the rules that changes while sandboxes live. Sandboxes whose policies say the same of addresses share the
 * chains for it, so that what is done for each of them is to replace one element, without starting a program.
 */
export class KernelRules {
  readonly #table: string;
  readonly #netlink: NfTable;
  /** Chains by the digest of their statements, with how many addresses lead to them. */
  readonly #chains = new Map<string, { users: number; made: Promise<void> }>();
  /** Digest of the chains by source address. */
  readonly #inForce = new Map<string, string>();
  /** Those to which no address leads, the oldest first: the next sandbox of a job wants what the last one had. */
  readonly #unused = new Set<string>();
  #tasks: Task[] = [];
  #running: Promise<void> | undefined;

  /** @throws LinuxError */
  constructor(table: string) {
    this.#table = table;
    this.#netlink = new NfTable(table);
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
      this.#retain(digest, Promise.resolve());
    }
    await this.#collect();
  }

  /** Removes the chains that an earlier daemon has made and no address leads to. */
  async #collect(): Promise<void> {
    const chains = await runProgram("nft", ["list", "chains", "inet"]);
    const own = chains.split(/^table inet /m).find((table) => table.startsWith(`${this.#table} {`)) ?? "";
    const left = [...own.matchAll(/^\s*chain ((?:out|in)_([0-9a-f]{16})) \{/gm)].flatMap(
      ([, chain = "", digest = ""]) => (this.#chains.has(digest) ? [] : [chain]),
    );
    if (left.length > 0)
      await this.#run(left.map((chain) => `delete chain inet ${this.#table} ${chain}`)).catch(
        () => undefined,
      );
  }

  get descriptor(): number {
    return this.#netlink.descriptor;
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
    const digest = chains === undefined ? undefined : await this.#make(chains);
    try {
      this.#replace(source, digest, pins());
    } finally {
      if (digest !== undefined) this.#release(digest);
    }
  }

  /** Changes pins only. @throws LinuxError */
  pin(source: string, pins: PinChange): void {
    this.#netlink.change(pinChanges(source, pins));
  }

  /** Waits for what was begun. */
  async close(): Promise<void> {
    await this.#running;
    this.#netlink.close();
  }

  #replace(source: string, digest: string | undefined, pins: PinChange): void {
    const before = this.#inForce.get(source);
    const changes = pinChanges(source, pins);
    if (before === digest) {
      this.#netlink.change(changes);
      return;
    }
    const key = addressBytes(source);
    this.#netlink.change([
      ...directions.flatMap(({ set, prefix }): ElementChange[] => [
        { set, change: "delete", elements: before === undefined ? [] : [{ key }] },
        { set, change: "add", elements: digest === undefined ? [] : [{ key, chain: `${prefix}_${digest}` }] },
      ]),
      ...changes,
    ]);
    if (digest === undefined) this.#inForce.delete(source);
    else {
      this.#inForce.set(source, digest);
      this.#retain(digest, Promise.resolve());
    }
    if (before !== undefined) this.#release(before);
  }

  async #make(chains: PolicyChains): Promise<string> {
    const digest = digestOf(chains);
    const made = this.#chains.get(digest)?.made ?? this.#run(statements(this.#table, digest, chains));
    this.#retain(digest, made);
    try {
      await made;
      return digest;
    } catch (error) {
      this.#chains.delete(digest);
      throw error;
    }
  }

  #retain(digest: string, made: Promise<void>): void {
    const chain = this.#chains.get(digest) ?? { users: 0, made };
    chain.users += 1;
    this.#chains.set(digest, chain);
    this.#unused.delete(digest);
  }

  #release(digest: string): void {
    const chain = this.#chains.get(digest);
    if (chain === undefined) return;
    chain.users -= 1;
    if (chain.users > 0) return;
    this.#unused.add(digest);
    const [oldest] = this.#unused;
    if (this.#unused.size > mostUnused && oldest !== undefined) this.#remove(oldest);
  }

  #remove(digest: string): void {
    this.#unused.delete(digest);
    this.#chains.delete(digest);
    // What cannot be removed is in nobody's way: it is made anew where it is needed again.
    this.#run(directions.map(({ prefix }) => `delete chain inet ${this.#table} ${prefix}_${digest}`)).catch(
      () => undefined,
    );
  }

  /** Whoever comes while nft works waits, and then shares the next run. */
  #run(lines: readonly string[]): Promise<void> {
    const task: Task = { lines, done: Promise.withResolvers() };
    this.#tasks.push(task);
    this.#running ??= this.#work().finally(() => {
      this.#running = undefined;
    });
    return task.done.promise;
  }

  async #work(): Promise<void> {
    while (this.#tasks.length > 0) {
      const tasks = this.#tasks;
      this.#tasks = [];
      try {
        await runScript(tasks);
        for (const { done } of tasks) done.resolve();
      } catch {
        // One that the kernel refuses must not fail the others.
        for (const task of tasks) await runScript([task]).then(task.done.resolve, task.done.reject);
      }
    }
  }
}

async function runScript(tasks: readonly Task[]): Promise<void> {
  const input = tasks.flatMap(({ lines }) => lines.map((line) => `${line}\n`)).join("");
  await runProgram("nft", ["-f", "-"], { input });
}

function statements(tableName: string, digest: string, chains: PolicyChains): string[] {
  const table = `inet ${tableName}`;
  const [outgoing, answers] = [`out_${digest}`, `in_${digest}`];
  return [
    ...[outgoing, answers].flatMap((chain) => [
      `add chain ${table} ${chain}`,
      `flush chain ${table} ${chain}`,
    ]),
    ...chains.outgoing.map((statement) => `add rule ${table} ${outgoing} ${statement}`),
    ...chains.answers.map((statement) => `add rule ${table} ${answers} ${statement}`),
  ];
}

const digests = new WeakMap<PolicyChains, string>();

function digestOf(chains: PolicyChains): string {
  const known = digests.get(chains);
  if (known !== undefined) return known;
  const digest = createHash("sha256").update(JSON.stringify(chains)).digest("hex").slice(0, 16);
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
