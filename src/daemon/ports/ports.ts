import type { Duplex } from "node:stream";
import { DSecError } from "../../protocol/errors.ts";
import { contracts } from "../../wire/server/contracts.ts";
import { acceptTunnel, checkTunnel } from "../../wire/server/tunnels.ts";
import type { Upgrade } from "../../wire/server/upgrades.ts";
import { parsePart } from "../../wire/server/validation.ts";
import type { TunnelStream } from "../../wire/tunnel-stream.ts";
import type { Activity } from "../deadlines/activity.ts";
import type { Clock } from "../clock.ts";
import { reach } from "../reach.ts";
import type { SandboxEntry } from "../lifecycle/sandbox-entry.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";
import { within } from "../within.ts";
import { joinTunnel } from "./join-tunnel.ts";

export interface PortsParts {
  readonly clock: Clock;
  readonly sandboxes: Sandboxes;
  readonly activity: Pick<Activity, "used">;
}

/** Of one sandbox. `claimed` counts those that are being opened, too. */
interface OpenTunnels {
  claimed: number;
  readonly streams: Set<TunnelStream>;
}

/** Tunnels of one sandbox at a time: its agent has 4,096 channels for everything. */
const maxTunnels = 1024;
/** Milliseconds that a service may take to accept a connection. */
const dialMs = 10_000;

/** The tunnels to the ports of this node's sandboxes. */
export class Ports {
  readonly #parts: PortsParts;
  readonly #tunnels = new Map<SandboxEntry, OpenTunnels>();

  constructor(parts: PortsParts) {
    this.#parts = parts;
  }

  /** Open tunnels of all sandboxes. */
  get size(): number {
    let size = 0;
    for (const { streams } of this.#tunnels.values()) size += streams.size;
    return size;
  }

  /**
   * Connects to the port inside and joins it to the upgraded connection.
   * @throws DSecError `not_found`, `ambiguous_reference`, `sandbox_not_running`, `port_refused`, `port_timeout`,
   *   `connection_limit`, `invalid_argument`
   */
  async open(upgrade: Upgrade): Promise<void> {
    checkTunnel(upgrade);
    const { ref, port } = parsePart("params", contracts.port.params, upgrade.params);
    const entry = await reach(this.#parts.sandboxes, ref);
    const { guest } = entry.requireRunning();
    const tunnels = this.#claim(entry);
    const service = await this.#dial(entry, guest.dial(port), port);
    if (upgrade.socket.destroyed) {
      service.destroy();
      this.#release(entry);
      return;
    }
    const tunnel = acceptTunnel(upgrade);
    tunnels.streams.add(tunnel);
    tunnel.once("close", () => {
      tunnels.streams.delete(tunnel);
      this.#release(entry);
    });
    const used = (): void => this.#parts.activity.used(entry);
    used();
    tunnel.on("data", used);
    service.on("data", used);
    joinTunnel(tunnel, service);
    // it may have begun to end between the dial and here
    if (entry.record.state !== "running") this.end(entry);
  }

  /** The sandbox is ending: so do its tunnels, and say why. */
  end(entry: SandboxEntry): void {
    for (const tunnel of this.#tunnels.get(entry)?.streams ?? []) tunnel.destroy(notRunning(entry));
  }

  /** The daemon is about to end. */
  close(): void {
    for (const { streams } of this.#tunnels.values())
      for (const tunnel of streams)
        tunnel.destroy(new DSecError("connection_lost", "the daemon is shutting down"));
  }

  /** Also counts a dial that goes on after its time was up. */
  async #dial(entry: SandboxEntry, dialing: Promise<Duplex>, port: number): Promise<Duplex> {
    const outcome = await within(this.#parts.clock, dialMs, dialing).catch((error: unknown) => {
      this.#release(entry);
      if (entry.record.state !== "running") throw notRunning(entry);
      throw error;
    });
    if (outcome !== "late") return outcome.value;
    dialing
      .then(
        (stream) => stream.destroy(),
        () => undefined,
      )
      .finally(() => this.#release(entry));
    throw new DSecError("port_timeout", `port ${port} accepted no connection within ${dialMs} ms`, {
      details: { port },
    });
  }

  #claim(entry: SandboxEntry): OpenTunnels {
    const tunnels = this.#tunnels.get(entry) ?? { claimed: 0, streams: new Set() };
    if (tunnels.claimed >= maxTunnels)
      throw new DSecError("connection_limit", `sandbox ${entry.id} has ${maxTunnels} open connections`, {
        details: { limit: maxTunnels },
      });
    tunnels.claimed += 1;
    this.#tunnels.set(entry, tunnels);
    return tunnels;
  }

  #release(entry: SandboxEntry): void {
    const tunnels = this.#tunnels.get(entry);
    if (tunnels === undefined) return;
    tunnels.claimed -= 1;
    if (tunnels.claimed === 0) this.#tunnels.delete(entry);
  }
}

function notRunning(entry: SandboxEntry): DSecError {
  const { state, endReason } = entry.record;
  return new DSecError("sandbox_not_running", `sandbox ${entry.id} is ${state}`, {
    details: { state, ...(endReason === undefined ? {} : { endReason }) },
  });
}
