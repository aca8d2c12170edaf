import { closeSync } from "node:fs";
import { DSecError } from "../../protocol/errors.ts";
import { throwIfCancelled } from "../resources/program.ts";
import type { AddressAllocator } from "./address-allocator.ts";
import type { AddressRange } from "./address-range.ts";
import type { LinkNames } from "./link-name.ts";
import type { NamespaceMaker } from "./namespace-maker.ts";

/** Ready members: refilled up to `size` when fewer than `low` are left, in batches. */
const ready = { size: 64, low: 32, batch: 16 };
/** Those who may wait for a member at once. */
const longestQueue = 4096;

/** A network namespace that is ready: its link is up, nothing is in it. */
export interface PoolMember {
  /** Of the namespace; whoever took the member closes it. */
  readonly fd: number;
  readonly link: string;
  readonly number: number;
  readonly address: string;
}

interface Waiter {
  readonly resolve: (member: PoolMember) => void;
  readonly reject: (error: Error) => void;
}

/**
 * Network namespaces made in advance. A member that was handed out never comes back: it ends with its sandbox. None has a
 * name in the file system, so that those of a killed daemon end with its descriptors.
 */
export class NamespacePool {
  readonly #range: AddressRange;
  readonly #names: LinkNames;
  readonly #addresses: AddressAllocator;
  readonly #maker: NamespaceMaker;
  readonly #ready: PoolMember[] = [];
  readonly #waiters = new Set<Waiter>();
  #refilling: Promise<void> | undefined;
  #closed = false;

  constructor(range: AddressRange, names: LinkNames, addresses: AddressAllocator, maker: NamespaceMaker) {
    this.#range = range;
    this.#names = names;
    this.#addresses = addresses;
    this.#maker = maker;
  }

  /** Begins to make members in advance; the first {@link take} does so, too. */
  fill(): void {
    this.#refill();
  }

  /** Members that are ready. */
  get size(): number {
    return this.#ready.length;
  }

  /** @throws DSecError `cancelled`, `no_capacity` when no address is left, `backend_unavailable` when none can be made */
  async take(signal: AbortSignal): Promise<PoolMember> {
    throwIfCancelled(signal);
    if (this.#closed) throw closed();
    const member = this.#ready.shift();
    this.#refill();
    return member ?? this.#wait(signal);
  }

  /** Ends all that were not handed out. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#refilling;
    this.#failWaiters(closed());
    for (const member of this.#ready.splice(0)) this.#discard(member);
  }

  #wait(signal: AbortSignal): Promise<PoolMember> {
    if (this.#waiters.size >= longestQueue)
      return Promise.reject(new DSecError("no_capacity", "too many sandboxes wait for a network"));
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiters.delete(waiter);
        reject(new DSecError("cancelled", "cancelled", { cause: signal.reason }));
      };
      const waiter: Waiter = {
        resolve: (member) => {
          signal.removeEventListener("abort", leave);
          resolve(member);
        },
        reject: (error) => {
          signal.removeEventListener("abort", leave);
          reject(error);
        },
      };
      signal.addEventListener("abort", leave, { once: true });
      this.#waiters.add(waiter);
    });
  }

  #refill(): void {
    if (this.#refilling !== undefined || this.#closed) return;
    if (this.#ready.length >= ready.low && this.#waiters.size === 0) return;
    this.#refilling = this.#makeBatches()
      .catch((error: unknown) => this.#failWaiters(error instanceof Error ? error : new Error(String(error))))
      .finally(() => {
        this.#refilling = undefined;
        // Whoever came while the last batch was being handed out.
        if (this.#waiters.size > 0) this.#refill();
      });
  }

  async #makeBatches(): Promise<void> {
    while (!this.#closed && this.#missing() > 0)
      await this.#makeBatch(Math.min(ready.batch, this.#missing()));
  }

  #missing(): number {
    return ready.size + this.#waiters.size - this.#ready.length;
  }

  async #makeBatch(count: number): Promise<void> {
    const numbers = this.#takeNumbers(count);
    const plans = numbers.map((number) => ({
      link: this.#names.nameOf(number),
      address: this.#range.addressAt(number),
    }));
    const made = await this.#maker.make(plans).catch((error: unknown) => {
      for (const number of numbers) this.#addresses.release(number);
      throw error;
    });
    let failure: string | undefined;
    for (const [index, number] of numbers.entries()) {
      const result = made[index];
      const plan = plans[index];
      if (result === undefined || plan === undefined) continue;
      if ("fd" in result) this.#offer({ fd: result.fd, number, ...plan });
      // A sandbox of an earlier daemon has the link, and so the address: the number stays taken until it lets go.
      else if (result.failure.code === "EEXIST") this.#addresses.release(number);
      else {
        this.#addresses.release(number);
        failure ??= result.failure.message;
      }
    }
    if (failure !== undefined) {
      throw new DSecError("backend_unavailable", "no network namespace can be made", {
        cause: new Error(failure),
      });
    }
  }

  /** As many as there are, at least one. @throws DSecError `no_capacity` */
  #takeNumbers(count: number): number[] {
    const numbers = [this.#addresses.take()];
    try {
      while (numbers.length < count) numbers.push(this.#addresses.take());
    } catch (error) {
      if (!(error instanceof DSecError) || error.code !== "no_capacity") throw error;
    }
    return numbers;
  }

  #offer(member: PoolMember): void {
    const [waiter] = this.#waiters;
    if (this.#closed) this.#discard(member);
    else if (waiter === undefined) this.#ready.push(member);
    else {
      this.#waiters.delete(waiter);
      waiter.resolve(member);
    }
  }

  #discard(member: PoolMember): void {
    closeSync(member.fd);
    this.#addresses.release(member.number);
  }

  #failWaiters(error: Error): void {
    for (const waiter of this.#waiters) waiter.reject(error);
    this.#waiters.clear();
  }
}

function closed(): DSecError {
  return new DSecError("cancelled", "the network is closed");
}
