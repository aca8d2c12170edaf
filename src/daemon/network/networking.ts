import { join } from "node:path";
import { JoinedLinks } from "./joined-links.ts";
import type { NameServer } from "./gate/name-server.ts";
import { SandboxGate } from "./sandbox-gate.ts";
import { SandboxNetwork } from "./sandbox-network.ts";

export interface NetworkingOptions {
  /** Absolute, without symlinks. */
  readonly runDir: string;
  /** Names what is machine-wide: the nftables table, the links. */
  readonly instance: string;
  /** IPv4 range of the sandboxes, e.g. `10.213.0.0/16`. */
  readonly networkRange: string;
  /** Connections of a sandbox that its node keeps track of at a time. */
  readonly maxFlows?: number;
  /** Name servers to be asked for sandboxes, instead of the node's own. */
  readonly nameServers?: readonly NameServer[] | undefined;
  /** Called when sandboxes' way to the network is interrupted by an error, and is being opened again. */
  readonly interrupted?: (reason: Error) => void;
}

/** What the sandboxes of a node have of the network: links, and what may pass them. */
export class Networking {
  readonly network: SandboxNetwork;
  readonly gate: SandboxGate;
  /** Of sandboxes whose namespaces their backend makes. */
  readonly joined: JoinedLinks;

  private constructor(network: SandboxNetwork, gate: SandboxGate, joined: JoinedLinks) {
    this.network = network;
    this.gate = gate;
    this.joined = joined;
  }

  /**
   * @param pooled whether namespaces are made in advance
   * @throws DSecError `config_invalid`, `address_in_use` naming what lies in the range, `backend_unavailable`
   */
  static async open(options: NetworkingOptions, pooled: boolean): Promise<Networking> {
    const { runDir, instance, networkRange: range, maxFlows, nameServers } = options;
    const { interrupted = () => undefined } = options;
    const limit = maxFlows === undefined ? {} : { maxFlows };
    const network = await SandboxNetwork.open({ runDir, instance, range, pooled, ...limit });
    try {
      const { firewall } = network;
      const gate = await SandboxGate.open({ firewall, nameServers, interrupted, random: Math.random });
      return new Networking(network, gate, new JoinedLinks(network, gate, join(runDir, "links")));
    } catch (error) {
      await network.close({ everything: false });
      throw error;
    }
  }

  /** Removes the links that nobody has. @param keep ids @param links names of other links that are kept. Returns their names. */
  async sweep(keep: ReadonlySet<string>, links: ReadonlySet<string>, signal: AbortSignal): Promise<string[]> {
    const swept = await this.network.sweep(new Set([...links, ...this.joined.sweep(keep)]), signal);
    await this.gate.reconcile();
    return swept;
  }

  /** @param everything whether no sandbox is left: then no rule stays in force */
  async close(everything: boolean): Promise<void> {
    await this.gate.close();
    await this.network.close({ everything });
    if (everything) this.joined.close();
  }
}
