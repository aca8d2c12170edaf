import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { isErrno } from "../../backends/linux/libc.ts";
import { DSecError } from "../../protocol/errors.ts";
import { noConfig } from "../layers/images/image-manifest.ts";
import type { PreparedSandbox } from "../provisioner.ts";
import { throwIfCancelled } from "../resources/program.ts";
import type { SandboxGate } from "./sandbox-gate.ts";
import type { NetworkLease, SandboxNetwork } from "./sandbox-network.ts";

/** Journaled: changes compatibly only. */
export const JoinedRecord = z.strictObject({ joinedLink: z.string() });
export type JoinedRecord = z.infer<typeof JoinedRecord>;

/**
 * Links into network namespaces that backends make. Their rules are in force before there is a link. A file for each says whose it is,
 * so that a sweep spares it before its sandbox is adopted.
 */
export class JoinedLinks {
  readonly #network: SandboxNetwork;
  readonly #gate: SandboxGate;
  readonly #directory: string;
  readonly #held = new Set<string>();

  /** @param directory made if need be; removed by {@link close} */
  constructor(network: SandboxNetwork, gate: SandboxGate, directory: string) {
    this.#network = network;
    this.#gate = gate;
    this.#directory = directory;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  }

  /** Whether no sandbox has one, not even one that is yet to be adopted. */
  get isEmpty(): boolean {
    return this.#held.size === 0 && readdirSync(this.#directory).length === 0;
  }

  /** @throws DSecError `conflict`, `cancelled`, `no_capacity`, `backend_unavailable`; nothing is left behind */
  async prepare(id: string, signal: AbortSignal): Promise<PreparedSandbox> {
    throwIfCancelled(signal);
    this.#claim(id);
    let lease: NetworkLease | undefined;
    try {
      lease = this.#network.reserve();
      writeFileSync(this.#file(id), lease.link);
      await this.#gate.attach(id, lease);
      throwIfCancelled(signal);
      return this.#prepared(id, lease);
    } catch (error) {
      await this.#release(id, lease)();
      if (error instanceof DSecError) throw error;
      throw new DSecError("backend_unavailable", `the network of ${id} cannot be prepared`, { cause: error });
    }
  }

  /** Takes up the link of a sandbox that an earlier daemon made. @throws DSecError */
  async adopt(id: string, { joinedLink }: JoinedRecord): Promise<PreparedSandbox> {
    const lease = this.#network.adopt(joinedLink);
    if (lease === undefined)
      throw new DSecError("agent_lost", `the link of ${id}, ${joinedLink}, is not of this node`);
    this.#claim(id);
    try {
      await this.#gate.attach(id, lease);
    } catch (error) {
      this.#held.delete(id);
      throw error;
    }
    return this.#prepared(id, lease);
  }

  /** Names of the links of kept sandboxes; what is known of others is forgotten. */
  sweep(keep: ReadonlySet<string>): string[] {
    const links: string[] = [];
    for (const id of readdirSync(this.#directory)) {
      if (!keep.has(id) && !this.#held.has(id)) rmSync(this.#file(id), { force: true });
      else links.push(readIfThere(this.#file(id)));
    }
    return links;
  }

  /** To be called when it is empty. */
  close(): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #claim(id: string): void {
    if (this.#held.has(id)) throw new DSecError("conflict", `${id} is prepared already`);
    this.#held.add(id);
  }

  #prepared(id: string, lease: NetworkLease): PreparedSandbox {
    const release = this.#release(id, lease);
    const record: JoinedRecord = { joinedLink: lease.link };
    let isReleased = false;
    let releasing: Promise<void> | undefined;
    return {
      record,
      config: noConfig,
      root: { type: "none" },
      link: {
        address: lease.address,
        nameServer: lease.gateway,
        join: async (namespace) => {
          // A start that was given up may come this far; by now the address may be another's.
          if (isReleased) throw new DSecError("cancelled", `the start of ${id} was given up`);
          await this.#network.join(lease, namespace);
        },
      },
      started: async () => {},
      prefersDirectWrites: false,
      diskUsage: async () => 0,
      diskFull: async () => false,
      release: () => {
        isReleased = true;
        releasing ??= release().finally(() => {
          releasing = undefined;
        });
        return releasing;
      },
    };
  }

  /** Called again after a failure, it goes on where it failed. */
  #release(id: string, lease: NetworkLease | undefined): () => Promise<void> {
    const steps: (() => void | Promise<void>)[] = [
      async () => this.#gate.detach(id),
      // Before the address is given back: whoever gets it next must not share it.
      async () => (lease === undefined ? undefined : this.#network.disconnect(lease)),
      () => lease?.release(),
      () => rmSync(this.#file(id), { force: true }),
      () => void this.#held.delete(id),
    ];
    return async () => {
      for (let step = steps[0]; step !== undefined; step = steps[0]) {
        await step();
        steps.shift();
      }
    };
  }

  #file(id: string): string {
    return join(this.#directory, id);
  }
}

function readIfThere(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (isErrno(error, "ENOENT")) return "";
    throw error;
  }
}
