import { createHash } from "node:crypto";
import { hostname } from "node:os";
import { join } from "node:path";
import { DSecError } from "../../protocol/errors.ts";
import type { LayerHeat } from "../../protocol/layer.ts";
import { mapBounded } from "../bounded.ts";
import { systemClock, type Clock } from "../clock.ts";
import type { ResolvedImage } from "../provisioner.ts";
import { within } from "../within.ts";
import { RcloneMount } from "./rclone-mount.ts";
import { StoreProcess } from "./store-process.ts";

export interface NodeLayersOptions {
  /** Of the node. */
  readonly name: string;
  /** Absolute. */
  readonly dataDir: string;
  /** Absolute, without symlinks. */
  readonly runDir: string;
  /** Directory of the layer store, or `rclone:REMOTE:PATH`. */
  readonly layerStore: string;
  readonly clock?: Clock;
  /** In [0, 1). */
  readonly random?: () => number;
}

const remoteStore = "rclone:";

/** Whether it is an object store, which nodes only read. */
export function isRemoteStore(layerStore: string): boolean {
  return layerStore.startsWith(remoteStore);
}

/** Whether it is the node's own, which is made where it is not there; another one must be. */
export function isOwnStore(layerStore: string, dataDir: string): boolean {
  return layerStore === join(dataDir, "layers");
}

/** Milliseconds between two looks at a remote for a name that it did not have. */
const forgetMs = 2000;
/** Milliseconds between two signs of life in the store. */
const refreshMs = 600_000;
/** Milliseconds that the daemon's start waits for the store: for a process to begin, and one look. */
const startMs = 5000;

/** Milliseconds for looks at mounted layers: those of millions of files take longer than anybody waits. */
const lookMs = 30_000;
/** So that one is looked at while the answer about another is on its way. */
const parallelLooks = 4;

/** The store as this node uses it. */
export class NodeLayers {
  readonly store: StoreProcess;
  readonly #clock: Clock;
  readonly #remote: RcloneMount | undefined;
  #disarm: () => void = () => undefined;
  #forgotAt = 0;
  #renewed: () => void = () => undefined;

  constructor(options: NodeLayersOptions) {
    const { name, dataDir, runDir, layerStore, clock = systemClock, random = Math.random } = options;
    this.#clock = clock;
    // The same after a restart, and no other node's: names may be given twice by mistake.
    const place = createHash("sha256").update(dataDir).digest("hex").slice(0, 12);
    const isRemote = isRemoteStore(layerStore);
    const directory = isRemote ? join(runDir, "layer-store") : layerStore;
    this.store = new StoreProcess(
      {
        directory,
        create: isOwnStore(layerStore, dataDir),
        mounts: join(runDir, "layers"),
        metadata: join(dataDir, "layer-metadata"),
        heat: join(dataDir, "layer-heat.json"),
        owner: `${name}+${hostname()}+${place}`,
      },
      { clock, random },
    );
    if (!isRemote) return;
    this.#remote = new RcloneMount({
      remote: layerStore.slice(remoteStore.length),
      directory,
      cache: join(dataDir, "layer-cache"),
      clock,
      random,
      onRenewed: () => this.#renewed(),
    });
  }

  /** @param renewed called when the store was lost, and with it every file that is open there */
  onRenewed(renewed: () => void): void {
    this.#renewed = renewed;
  }

  /** Begins to give signs of life. @returns why the store cannot be used, where that is known soon */
  async start(): Promise<DSecError | undefined> {
    const outcome = await within(this.#clock, startMs, this.#begin());
    // Not known to be the store's fault: whoever needs it will hear.
    return outcome === "late" ? undefined : outcome.value;
  }

  async resolve(reference: string): Promise<ResolvedImage | undefined> {
    const found = await this.store.call("resolve", reference);
    const now = this.#clock.now();
    if (found !== undefined || this.#remote === undefined || now - this.#forgotAt < forgetMs) return found;
    this.#forgotAt = now;
    await this.#remote.forget();
    return this.store.call("resolve", reference);
  }

  /** What was seen of layers' heat, by digest. @param mounted are looked at now, as many as there is time for: who was not for longest first */
  async heats(mounted: readonly string[]): Promise<Map<string, LayerHeat>> {
    const before = await this.store.call("heats");
    const seenAt = (digest: string): number => before[digest]?.sampledAt ?? 0;
    const end = this.#clock.now() + lookMs;
    await mapBounded(
      mounted.toSorted((a, b) => seenAt(a) - seenAt(b)),
      parallelLooks,
      async (digest) => {
        // One that was unmounted meanwhile was looked at just before.
        if (this.#clock.now() < end) await this.store.call("heat", digest).catch(() => undefined);
      },
    );
    return new Map(Object.entries(await this.store.call("heats")));
  }

  /** @param unused whether no layer is mounted any more */
  async close(unused: boolean): Promise<void> {
    this.#disarm();
    // Where the store is away its leases end a day later.
    if (unused) await this.store.call("close").catch(() => undefined);
    this.store.close();
    if (unused) await this.#remote?.stop();
    else this.#remote?.leave();
  }

  async #begin(): Promise<DSecError | undefined> {
    try {
      await this.#remote?.start();
    } catch (error) {
      return unavailable(error);
    }
    return this.#refresh();
  }

  async #refresh(): Promise<DSecError | undefined> {
    this.#disarm();
    this.#disarm = this.#clock.after(refreshMs, () => void this.#refresh());
    try {
      await this.store.call("refresh");
      return undefined;
    } catch (error) {
      return unavailable(error);
    }
  }
}

function unavailable(error: unknown): DSecError {
  if (error instanceof DSecError) return error;
  return new DSecError("layer_store_unavailable", "the layer store cannot be used", { cause: error });
}
