import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { mkdir, realpath } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { isErrno } from "../backends/linux/libc.ts";
import type { Json, PreparedNetwork } from "../backends/backend.ts";
import { DSecError } from "../protocol/errors.ts";
import type { LayerHeat, LayerQuery, NodeLayer } from "../protocol/layer.ts";
import { ImageConfig } from "./layers/images/image-manifest.ts";
import { LayerMounts } from "./layers/layer-mounts.ts";
import { usesOfLayers } from "./layers/layer-uses.ts";
import { NodeLayers } from "./layers/node-layers.ts";
import { OverlayRoots } from "./layers/overlay-root.ts";
import { JoinedRecord } from "./network/joined-links.ts";
import { Networking, type NetworkingOptions } from "./network/networking.ts";
import type { NetworkLease } from "./network/sandbox-network.ts";
import type { SandboxPolicies } from "./network/sandbox-policies.ts";
import { findingOf, need, openPart, type Part } from "./node-part.ts";
import type { ComposedRoot, PreparedSandbox, Provisioner, ResolvedImage } from "./provisioner.ts";
import { openScratch, type Finding } from "./resources/open-scratch.ts";
import { throwIfCancelled } from "./resources/program.ts";
import type { Scratch, ScratchDirectory } from "./resources/scratch.ts";

export interface LocalProvisionerOptions extends NetworkingOptions {
  /** Of the node; the host's unless given. */
  readonly name?: string;
  readonly dataDir: string;
  /** Directory of the layer store, or `rclone:REMOTE:PATH`. One that is not `<dataDir>/layers` must be there. */
  readonly layerStore: string;
  /** Whether sandboxes may run without a disk limit where none can be enforced. */
  readonly allowUnlimitedDisk?: boolean;
}

const SandboxRecord = z.object({
  layers: z.array(z.string()),
  link: z.string().optional(),
  config: ImageConfig,
});

/** File beside a sandbox's root that names its link, so that a sweep spares it before the sandbox is adopted. */
const linkFile = "link";

type SandboxRecord = z.infer<typeof SandboxRecord>;

/** What a sandbox has of the node. */
interface Assets {
  /** Layers to be released. */
  readonly layers: string[];
  scratch?: ScratchDirectory | undefined;
  lease?: NetworkLease | undefined;
}

/** Prepares sandboxes on this machine: EROFS layers, btrfs scratch, an overlay of both, a network namespace. */
export class LocalProvisioner implements Provisioner {
  readonly #store: NodeLayers;
  readonly #layers: Part<LayerMounts>;
  readonly #roots: Part<OverlayRoots>;
  readonly #scratch: Part<Scratch>;
  readonly #network: Part<Networking>;
  readonly #findings: readonly Finding[];
  /** Why there is no layer store where one should be; undefined also where it is there and does not answer. */
  readonly missingStore: DSecError | undefined;
  /** Layers by id of what is being prepared, is prepared or was adopted, and is not yet released. */
  readonly #held = new Map<string, readonly string[]>();

  private constructor(
    store: NodeLayers,
    parts: {
      layers: Part<LayerMounts>;
      roots: Part<OverlayRoots>;
      scratch: Part<Scratch>;
      network: Part<Networking>;
    },
    findings: readonly Finding[],
    missingStore?: DSecError,
  ) {
    this.missingStore = missingStore;
    this.#store = store;
    this.#layers = parts.layers;
    this.#roots = parts.roots;
    this.#scratch = parts.scratch;
    this.#network = parts.network;
    this.#findings = findings;
  }

  /** What cannot be had here is no error: {@link report} names it, and {@link prepare} throws it. */
  static async open(options: LocalProvisionerOptions): Promise<LocalProvisioner> {
    await mkdir(options.runDir, { recursive: true });
    // The kernel lists mounts by their real paths.
    const runDir = await realpath(options.runDir);
    const { name = hostname(), dataDir, layerStore } = options;
    const store = new NodeLayers({ name, dataDir, runDir, layerStore });
    if (process.geteuid?.() !== 0) {
      const error = new DSecError(
        "permission_denied",
        "preparing sandboxes takes mounts and namespaces, and so root",
      );
      return new LocalProvisioner(
        store,
        { layers: { error }, roots: { error }, scratch: { error }, network: { error } },
        [findingOf(error)],
      );
    }
    const layers = await openPart("layer mounts", () =>
      LayerMounts.open(store.store, join(runDir, "layers")),
    );
    if ("value" in layers) store.onRenewed(() => layers.value.renew());
    const [absence, roots, scratch, network] = await Promise.all([
      store.start(),
      openPart("roots of sandboxes", () => OverlayRoots.open(runDir)),
      openPart("scratch file system", () =>
        openScratch({
          dataDir: options.dataDir,
          runDir,
          allowUnlimited: options.allowUnlimitedDisk ?? false,
        }),
      ),
      openPart("network of sandboxes", () => Networking.open({ ...options, runDir }, true)),
    ]);
    const findings = [layers, roots, scratch, network].flatMap((part) =>
      "error" in part ? [findingOf(part.error)] : [],
    );
    if (absence !== undefined) findings.push({ ...findingOf(absence), level: "warning" });
    if ("value" in scratch) findings.push(...scratch.value.findings);
    const opened = "value" in scratch ? { value: scratch.value.scratch } : scratch;
    const missing = absence?.details?.["missing"] === true ? absence : undefined;
    return new LocalProvisioner(store, { layers, roots, scratch: opened, network }, findings, missing);
  }

  /** What does not hold on this machine, and what mends it. */
  report(): readonly Finding[] {
    return this.#findings;
  }

  /** What is held ready, by kind. */
  pools(): Readonly<Record<string, number>> {
    return "value" in this.#network ? { network_namespaces: this.#network.value.network.ready } : {};
  }

  /** Who may reach what; undefined where sandboxes cannot have a network. */
  get policies(): SandboxPolicies | undefined {
    return "value" in this.#network ? this.#network.value.gate : undefined;
  }

  resolve(reference: string): Promise<ResolvedImage | undefined> {
    return this.#store.resolve(reference);
  }

  async prepare(
    id: string,
    root: ComposedRoot,
    options: { diskBytes: number; network: boolean },
    signal: AbortSignal,
  ): Promise<PreparedSandbox> {
    throwIfCancelled(signal);
    const [mounts, roots, scratch] = [need(this.#layers), need(this.#roots), need(this.#scratch)];
    if (this.#held.has(id)) throw new DSecError("conflict", `${id} is prepared already`);
    this.#held.set(id, root.layers);
    const assets: Assets = { layers: [] };
    try {
      if (options.network) {
        const { network, gate } = need(this.#network);
        assets.lease = await network.acquire(signal);
        await gate.attach(id, assets.lease);
      }
      const paths: string[] = [];
      for (const layer of root.layers) {
        paths.push(await mounts.acquire(layer));
        assets.layers.push(layer);
      }
      assets.scratch = await scratch.create(id, options.diskBytes);
      throwIfCancelled(signal);
      roots.mount(id, paths, assets.scratch.path);
      if (assets.lease !== undefined) writeFileSync(join(roots.pathOf(id), linkFile), assets.lease.link);
      return this.#prepared(id, recordOf(root, assets), assets);
    } catch (error) {
      await this.#releaseOf(id, assets)();
      if (error instanceof DSecError) throw error;
      throw isDiskFull(error)
        ? new DSecError("disk_full", `${options.diskBytes} bytes are too few for a sandbox`, { cause: error })
        : new DSecError("backend_unavailable", `the root of ${id} cannot be prepared`, { cause: error });
    }
  }

  async link(id: string, signal: AbortSignal): Promise<PreparedSandbox> {
    return need(this.#network).joined.prepare(id, signal);
  }

  async adopt(id: string, record: Json): Promise<PreparedSandbox> {
    const joined = JoinedRecord.safeParse(record);
    if (joined.success) return need(this.#network).joined.adopt(id, joined.data);
    const parsed = SandboxRecord.parse(record);
    const [mounts, roots, scratch] = [need(this.#layers), need(this.#roots), need(this.#scratch)];
    if (this.#held.has(id)) throw new DSecError("conflict", `${id} is prepared already`);
    this.#held.set(id, parsed.layers);
    const assets: Assets = { layers: [] };
    try {
      // The daemon may have been killed between the start and the unmount that follows it.
      await roots.detach(id);
      assets.layers.push(...parsed.layers.filter((layer) => mounts.adopt(layer)));
      assets.scratch = await scratch.find(id);
      if (parsed.link !== undefined) {
        const { network, gate } = need(this.#network);
        assets.lease = network.adopt(parsed.link);
        if (assets.lease !== undefined) await gate.attach(id, assets.lease);
      }
      return this.#prepared(id, parsed, assets);
    } catch (error) {
      // It may run still: a sweep removes the rest, when nothing runs in it any more.
      for (const layer of assets.layers) mounts.release(layer);
      assets.lease?.release();
      this.#held.delete(id);
      throw error;
    }
  }

  async sweep(
    keep: ReadonlySet<string>,
    signal: AbortSignal,
  ): Promise<{ readonly kind: string; readonly name: string }[]> {
    const removed: { kind: string; name: string }[] = [];
    const isKept = (id: string) => keep.has(id) || this.#held.has(id);
    const links = new Set<string>();
    if ("value" in this.#roots) {
      const roots = this.#roots.value;
      for (const id of readdirSync(roots.directory)) {
        throwIfCancelled(signal);
        if (isKept(id)) {
          links.add(readLink(roots.pathOf(id)));
          continue;
        }
        roots.remove(id);
        removed.push({ kind: "root", name: id });
        await nextTurn();
      }
    }
    if ("value" in this.#scratch) {
      const scratch = this.#scratch.value;
      for (const id of await scratch.list()) {
        throwIfCancelled(signal);
        if (isKept(id)) continue;
        await (await scratch.find(id))?.destroy();
        removed.push({ kind: "scratch", name: id });
      }
    }
    if ("value" in this.#network) {
      const swept = await this.#network.value.sweep(keep, links, signal);
      removed.push(...swept.map((name) => ({ kind: "link", name })));
    }
    if ("value" in this.#layers) this.#layers.value.counted();
    return removed;
  }

  async layers({ heat, digest: wanted }: LayerQuery): Promise<Omit<NodeLayer, "node">[]> {
    const mounted = "value" in this.#layers ? this.#layers.value.all.map(({ digest }) => digest) : [];
    const asked = wanted === undefined ? undefined : new Set(wanted);
    const isAsked = (digest: string): boolean => asked?.has(digest) ?? true;
    const heats = heat ? await this.#store.heats(mounted.filter(isAsked)) : new Map<string, LayerHeat>();
    return usesOfLayers(new Set(mounted), this.#held, heats).filter(({ digest }) => isAsked(digest));
  }

  async releaseLayers(digests: readonly string[]): Promise<Omit<NodeLayer, "node">[]> {
    if ("value" in this.#layers) await this.#layers.value.drop(new Set(digests));
    return this.layers({ heat: false, digest: [...digests] });
  }

  async disk(): Promise<{ totalBytes: number; availableBytes: number }> {
    return need(this.#scratch).disk();
  }

  /** Where no sandbox is left, nothing stays mounted and no rule in force; else all that they need stays. */
  async close(): Promise<void> {
    const scratch = "value" in this.#scratch ? this.#scratch.value : undefined;
    const joined = "value" in this.#network ? this.#network.value.joined : undefined;
    const everything =
      this.#held.size === 0 && (joined?.isEmpty ?? true) && ((await scratch?.list()) ?? []).length === 0;
    if ("value" in this.#network) {
      await this.#network.value.close(everything);
    }
    if (everything && "value" in this.#layers) await this.#layers.value.close();
    await this.#store.close(everything);
    if (!everything) return;
    if ("value" in this.#roots) this.#roots.value.close();
    await scratch?.close();
  }

  #prepared(id: string, record: SandboxRecord, assets: Assets): PreparedSandbox {
    const { scratch, lease } = assets;
    const release = this.#releaseOf(id, assets);
    let releasing: Promise<void> | undefined;
    return {
      record: JSON.parse(JSON.stringify(record)) as Json,
      config: record.config,
      root: { type: "directory", path: need(this.#roots).rootOf(id) },
      ...(lease !== undefined && { network: networkOf(lease) }),
      started: async () => {
        await need(this.#roots).detach(id);
        lease?.detach();
      },
      prefersDirectWrites: scratch?.prefersDirectWrites ?? false,
      diskUsage: async () => (await scratch?.usage()) ?? 0,
      diskFull: async () => (await scratch?.full()) ?? false,
      release: () => {
        releasing ??= release().finally(() => {
          releasing = undefined;
        });
        return releasing;
      },
    };
  }

  /** Gives everything back, in the reverse order; called again after a failure, it goes on where it failed. */
  #releaseOf(id: string, assets: Assets): () => Promise<void> {
    const steps: (() => void | Promise<void>)[] = [
      () => need(this.#roots).remove(id),
      () => assets.scratch?.destroy(),
      ...assets.layers.map((layer) => () => need(this.#layers).release(layer)),
      async () => {
        if (assets.lease !== undefined) await need(this.#network).gate.detach(id);
      },
      () => assets.lease?.release(),
      () => void this.#held.delete(id),
    ];
    return async () => {
      for (let step = steps[0]; step !== undefined; step = steps[0]) {
        await step();
        steps.shift();
      }
    };
  }
}

function recordOf(root: ComposedRoot, { lease }: Assets): SandboxRecord {
  const { layers, config } = root;
  return { layers: [...layers], config, ...(lease !== undefined && { link: lease.link }) };
}

const quotaExceeded = 122;

function isDiskFull(error: unknown): boolean {
  // Node has no name for EDQUOT.
  return (
    isErrno(error, "ENOSPC", "EDQUOT") ||
    (error instanceof Error && "errno" in error && error.errno === -quotaExceeded)
  );
}

function networkOf({ netnsPath, address, gateway }: NetworkLease): PreparedNetwork {
  return { netnsPath, address, nameServer: gateway };
}

function readLink(directory: string): string {
  try {
    return readFileSync(join(directory, linkFile), "utf8");
  } catch (error) {
    if (isErrno(error, "ENOENT")) return "";
    throw error;
  }
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
