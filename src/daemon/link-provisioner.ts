import { mkdir, realpath } from "node:fs/promises";
import type { Json } from "../backends/backend.ts";
import { DSecError } from "../protocol/errors.ts";
import { JoinedRecord } from "./network/joined-links.ts";
import { Networking, type NetworkingOptions } from "./network/networking.ts";
import type { SandboxPolicies } from "./network/sandbox-policies.ts";
import { findingOf, need, openPart, type Part } from "./node-part.ts";
import type { PreparedSandbox, Provisioner } from "./provisioner.ts";
import type { Finding } from "./resources/open-scratch.ts";

/** What a node prepares whose backends have roots of their own: links, and what may pass them. */
export class LinkProvisioner implements Provisioner {
  /** It needs none. */
  readonly missingStore = undefined;
  readonly #network: Part<Networking>;

  private constructor(network: Part<Networking>) {
    this.#network = network;
  }

  /** What cannot be had here is no error: {@link report} says so, and sandboxes have loopback only. */
  static async open(options: NetworkingOptions): Promise<LinkProvisioner> {
    if (process.geteuid?.() !== 0)
      return new LinkProvisioner({
        error: new DSecError("permission_denied", "the network of sandboxes takes namespaces, and so root"),
      });
    await mkdir(options.runDir, { recursive: true });
    const runDir = await realpath(options.runDir);
    return new LinkProvisioner(
      await openPart("network of sandboxes", () => Networking.open({ ...options, runDir }, false)),
    );
  }

  report(): readonly Finding[] {
    return "error" in this.#network ? [findingOf(this.#network.error)] : [];
  }

  pools(): Readonly<Record<string, number>> {
    return {};
  }

  get policies(): SandboxPolicies | undefined {
    return "value" in this.#network ? this.#network.value.gate : undefined;
  }

  async resolve(): Promise<undefined> {
    return undefined;
  }

  async prepare(): Promise<never> {
    throw new DSecError("backend_unavailable", "this node prepares no roots: it does not offer runc");
  }

  async link(id: string, signal: AbortSignal): Promise<PreparedSandbox> {
    return need(this.#network).joined.prepare(id, signal);
  }

  async adopt(id: string, record: Json): Promise<PreparedSandbox> {
    const joined = JoinedRecord.safeParse(record);
    if (joined.success) return need(this.#network).joined.adopt(id, joined.data);
    throw new DSecError("agent_lost", `${id} was made when this node offered runc`);
  }

  async sweep(
    keep: ReadonlySet<string>,
    signal: AbortSignal,
  ): Promise<{ readonly kind: string; readonly name: string }[]> {
    if ("error" in this.#network) return [];
    const swept = await this.#network.value.sweep(keep, new Set(), signal);
    return swept.map((name) => ({ kind: "link", name }));
  }

  async layers(): Promise<[]> {
    return [];
  }

  async releaseLayers(): Promise<[]> {
    return [];
  }

  async disk(): Promise<never> {
    throw new DSecError("unsupported", "this node has no scratch file system: it does not offer runc");
  }

  async close(): Promise<void> {
    if ("error" in this.#network) return;
    await this.#network.value.close(this.#network.value.joined.isEmpty);
  }
}
