import { closeSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { DSecError } from "../../protocol/errors.ts";
import { throwIfCancelled } from "../resources/program.ts";
import { AddressAllocator } from "./address-allocator.ts";
import { AddressRange } from "./address-range.ts";
import { applyFirewall, defaultMaxFlows, type Firewall, firewallOf, removeFirewall } from "./firewall.ts";
import { LinkNames } from "./link-name.ts";
import { NamespaceMaker } from "./namespace-maker.ts";
import { NamespacePool } from "./namespace-pool.ts";
import { findRangeConflict } from "./node-routes.ts";

const linkDirectory = "/sys/class/net";
/** Links removed at a time by a sweep. */
const sweepBatch = 32;

export interface NetworkOptions {
  readonly runDir: string;
  /** Names the nftables table and, in short, the links. */
  readonly instance: string;
  /** IPv4, e.g. `10.213.0.0/16`. */
  readonly range: string;
  /** Connections of a sandbox that the kernel keeps track of at a time. */
  readonly maxFlows?: number;
  /** Whether namespaces are made in advance; else the first is when it is asked for. */
  readonly pooled?: boolean;
}

/** A sandbox's connection to its node. */
export interface NetworkLease {
  /** Valid until {@link detach}; empty where the namespace is not the daemon's. */
  readonly netnsPath: string;
  readonly address: string;
  /** The node's address, as the sandbox reaches it. */
  readonly gateway: string;
  /** Name of the host's end. */
  readonly link: string;
  /** Closes the daemon's descriptor: the namespace then lives as long as processes are in it. Idempotent. */
  detach(): void;
  /** Detaches, and gives the address back. Idempotent. */
  release(): void;
}

/**
 * The network of a node's sandboxes: a namespace and a veth pair for each, rules that let out what policies allow, one range of addresses.
 * The rules are in force before the first link exists, and stay when the daemon leaves sandboxes behind.
 */
export class SandboxNetwork {
  readonly firewall: Firewall;
  readonly #options: NetworkOptions;
  readonly #names: LinkNames;
  readonly #range: AddressRange;
  readonly #addresses: AddressAllocator;
  readonly #maker: NamespaceMaker;
  readonly #pool: NamespacePool;

  private constructor(
    options: NetworkOptions,
    firewall: Firewall,
    names: LinkNames,
    range: AddressRange,
    maker: NamespaceMaker,
  ) {
    this.firewall = firewall;
    this.#options = options;
    this.#names = names;
    this.#range = range;
    this.#maker = maker;
    this.#addresses = new AddressAllocator(range, (number) =>
      existsSync(join(linkDirectory, names.nameOf(number))),
    );
    this.#pool = new NamespacePool(range, names, this.#addresses, maker);
    if (options.pooled !== false) this.#pool.fill();
  }

  /** Namespaces made in advance that are ready. */
  get ready(): number {
    return this.#pool.size;
  }

  /**
   * Puts the rules in force and begins to make namespaces.
   *
   * @throws DSecError `config_invalid`, `address_in_use` naming what lies in the range, `backend_unavailable`
   */
  static async open(options: NetworkOptions): Promise<SandboxNetwork> {
    const range = AddressRange.parse(options.range);
    const names = new LinkNames(options.instance);
    const firewall = firewallOf({
      table: options.instance,
      linkPrefix: names.prefix,
      gateway: range.gateway,
      range: range.toString(),
      maxFlows: options.maxFlows ?? defaultMaxFlows,
    });
    await mkdir(options.runDir, { recursive: true });
    const claimFile = join(options.runDir, "network-range");
    const claimed = readIfThere(claimFile);
    if (claimed !== range.toString()) {
      if (claimed !== undefined)
        await withMaker(AddressRange.parse(claimed), firewall, (maker) => maker.unclaimRange());
      const conflict = findRangeConflict(range, names.prefix);
      if (conflict !== undefined) {
        throw new DSecError(
          "address_in_use",
          `the range ${range.toString()} for sandboxes overlaps ${conflict.description}: choose another with --network-range`,
        );
      }
    }
    await applyFirewall(firewall);
    const maker = new NamespaceMaker(range, firewall.proxyMark);
    try {
      writeFileSync(claimFile, range.toString());
      await maker.claimRange();
      return new SandboxNetwork(options, firewall, names, range, maker);
    } catch (error) {
      await maker.close();
      throw error;
    }
  }

  /** A namespace for a sandbox. @throws DSecError `cancelled`, `no_capacity`, `backend_unavailable` */
  async acquire(signal: AbortSignal): Promise<NetworkLease> {
    const member = await this.#pool.take(signal);
    return this.#lease(member.number, member.fd);
  }

  /** An address, and the name of a link that {@link join} makes. @throws DSecError `no_capacity` */
  reserve(): NetworkLease {
    for (;;) {
      const number = this.#addresses.take();
      const lease = this.#lease(number, undefined);
      if (!existsSync(join(linkDirectory, lease.link))) return lease;
      // A sandbox of an earlier daemon has it. Allocation passes it over from now on, until it is gone.
      lease.release();
    }
  }

  /** Makes the link of a reservation, into a namespace that is there. @param namespace descriptor @throws DSecError `backend_unavailable`; no link is left */
  async join({ link, address }: NetworkLease, namespace: number): Promise<void> {
    await this.#maker.join({ link, address }, namespace);
  }

  /** Removes a link that {@link join} made: its namespace may outlive the sandbox. Idempotent. */
  async disconnect({ link }: NetworkLease): Promise<void> {
    await this.#maker.deleteLinks([link]);
  }

  /** Takes up the connection of a sandbox that an earlier daemon made; undefined when the link is none of this instance's. */
  adopt(link: string): NetworkLease | undefined {
    const number = this.#names.numberOf(link);
    if (number === undefined || number >= this.#range.size) return undefined;
    this.#addresses.hold(number);
    return this.#lease(number, undefined);
  }

  /** Removes the instance's links that neither a lease, nor the pool, nor `keep` has. Returns their names. */
  async sweep(keep: ReadonlySet<string>, signal: AbortSignal): Promise<string[]> {
    const left = readdirSync(linkDirectory).filter((link) => {
      const number = this.#names.numberOf(link);
      return number !== undefined && !keep.has(link) && !this.#addresses.isUsed(number);
    });
    for (let start = 0; start < left.length; start += sweepBatch) {
      throwIfCancelled(signal);
      await this.#maker.deleteLinks(left.slice(start, start + sweepBatch));
    }
    return left;
  }

  /** Ends the pool. With `everything`, also removes the rules and the node's address: only when no sandbox is left. */
  async close(options: { everything: boolean }): Promise<void> {
    await this.#pool.close();
    if (options.everything) {
      await this.#maker.unclaimRange();
      await removeFirewall(this.#options.instance);
      rmSync(join(this.#options.runDir, "network-range"), { force: true });
    }
    await this.#maker.close();
  }

  #lease(number: number, fd: number | undefined): NetworkLease {
    let open = fd;
    let released = false;
    const detach = () => {
      if (open !== undefined) closeSync(open);
      open = undefined;
    };
    return {
      netnsPath: fd === undefined ? "" : `/proc/${process.pid}/fd/${fd}`,
      address: this.#range.addressAt(number),
      gateway: this.#range.gateway,
      link: this.#names.nameOf(number),
      detach,
      release: () => {
        detach();
        if (!released) this.#addresses.release(number);
        released = true;
      },
    };
  }
}

async function withMaker(
  range: AddressRange,
  { proxyMark }: Firewall,
  work: (maker: NamespaceMaker) => Promise<void>,
): Promise<void> {
  const maker = new NamespaceMaker(range, proxyMark);
  try {
    await work(maker);
  } finally {
    await maker.close();
  }
}

function readIfThere(path: string): string | undefined {
  return existsSync(path) ? readFileSync(path, "utf8") : undefined;
}
