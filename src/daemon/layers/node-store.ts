import { mkdir, rmdir, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { listMounts, mountErofs, unmountIfMounted } from "../../backends/linux/mount.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { LayerHeat } from "../../protocol/layer.ts";
import type { ResolvedImage } from "../provisioner.ts";
import { HeatRecord } from "./heat-record.ts";
import { measureHeat } from "./layer-heat.ts";
import { LayerStore, openLayerStore } from "./layer-store.ts";
import { NodeLeases } from "./leases.ts";
import type { Blob, LayerManifest } from "./manifest.ts";
import { MetadataCache } from "./metadata-cache.ts";
import type { NodeStoreOptions, StoreOperations } from "./store-operations.ts";
import { hexOf } from "./store-paths.ts";
import { requireStore } from "./store-presence.ts";
import { bringBack } from "./trash.ts";

/** Bytes of metadata kept of layers that are not mounted; it is some half per cent of a layer. */
const keptMetadataBytes = 4 * 1024 ** 3;

/** Of statfs(2). */
const fuseType = 0x6573_5546;

/** A node's work with a store. Whatever it calls may block for as long as the store does. */
export class NodeStore implements StoreOperations {
  readonly #options: NodeStoreOptions;
  readonly #metadata: MetadataCache;
  readonly #heats: HeatRecord;
  readonly #onProgress: () => void;
  #opened: { readonly store: LayerStore; readonly leases: NodeLeases } | undefined;
  /** On their way to being mounted. */
  readonly #arriving = new Set<string>();
  /** Of mounted layers: which files their blobs are. */
  readonly #identities = new Map<string, string>();

  /** @param onProgress called while a call gets on */
  constructor(options: NodeStoreOptions, onProgress: () => void) {
    this.#options = options;
    this.#metadata = new MetadataCache(options.metadata, keptMetadataBytes);
    this.#heats = new HeatRecord(options.heat);
    this.#onProgress = onProgress;
  }

  async resolve(reference: string): Promise<ResolvedImage | undefined> {
    return this.#withStore(async ({ store }) => {
      const found = await store.resolve(reference);
      // A store that has vanished looks like an empty one.
      if (found === undefined) await this.#check();
      return found;
    });
  }

  async mount(digest: string): Promise<void> {
    const path = this.#path(digest);
    if (await isMountPoint(path)) return;
    await this.#withStore(async ({ store, leases }) => {
      this.#arriving.add(digest);
      try {
        // The lease before the look: a prune looks for leases after it has set aside.
        await leases.add(digest);
        const manifest = await store.manifest(digest);
        await this.#mountAt(path, manifest, store);
        this.#identities.set(digest, await identityOf(manifest.data, store));
      } catch (error) {
        await rmdir(path).catch(() => undefined);
        await leases.drop(digest).catch(() => undefined);
        throw mountError(digest, error);
      } finally {
        this.#arriving.delete(digest);
      }
    });
  }

  async isSound(digest: string): Promise<boolean> {
    return this.#withStore(async ({ store }) => {
      const found = await identityOf((await store.manifest(digest)).data, store);
      const known = this.#identities.get(digest) ?? found;
      this.#identities.set(digest, known);
      return known === found;
    });
  }

  async unmount(digest: string): Promise<void> {
    const path = this.#path(digest);
    // With the mount its part of the page cache goes.
    if (await isMountPoint(path))
      await this.heat(digest)
        .then(async () => this.#heats.save())
        .catch(() => undefined);
    unmountIfMounted(path);
    this.#identities.delete(digest);
    await rmdir(path).catch(ignoreMissing);
    // Where the store is away the next refresh does it.
    await this.#open()
      .then(async ({ leases }) => leases.drop(digest))
      .catch(() => undefined);
  }

  async remount(digest: string): Promise<void> {
    unmountIfMounted(this.#path(digest));
    await this.mount(digest);
  }

  async refresh(): Promise<void> {
    await this.#withStore(async ({ leases }) => {
      await leases.refresh();
      await leases.keepOnly(new Set([...this.#mounted(), ...this.#arriving]));
    });
  }

  async heat(digest: string): Promise<LayerHeat> {
    return this.#heats.add(digest, await measureHeat(this.#path(digest), this.#onProgress));
  }

  async heats(): Promise<Readonly<Record<string, LayerHeat>>> {
    // a full disk is no reason not to tell
    await this.#heats.save().catch(() => undefined);
    return Object.fromEntries(await this.#heats.all());
  }

  async close(): Promise<void> {
    await this.#withStore(({ leases }) => leases.close());
  }

  #path(digest: string): string {
    return join(this.#options.mounts, hexOf(digest));
  }

  #mounted(): string[] {
    const prefix = `${this.#options.mounts}/`;
    return listMounts().flatMap(({ target }) =>
      target.startsWith(prefix) ? [`sha256:${target.slice(prefix.length)}`] : [],
    );
  }

  async #mountAt(path: string, { metadata, data }: LayerManifest, store: LayerStore): Promise<void> {
    for (const blob of [metadata, ...data]) {
      const { size } = await stat(store.blobPath(blob.digest)).catch(async (error: unknown) => {
        if (!isErrno(error, "ENOENT") || !(await bringBack(store.paths, store.blobPath(blob.digest))))
          throw error;
        return stat(store.blobPath(blob.digest));
      });
      if (size !== blob.bytes) throw new Error(`blob ${blob.digest} has ${size} bytes, not ${blob.bytes}`);
    }
    const image = await this.#metadata.copyOf(metadata, store.blobPath(metadata.digest), this.#onProgress);
    await mkdir(path, { recursive: true });
    mountErofs(
      image,
      path,
      data.map((blob) => store.blobPath(blob.digest)),
    );
  }

  /** @throws DSecError `layer_store_unavailable` when the work failed and the store cannot be read at all */
  async #withStore<T>(work: (opened: { store: LayerStore; leases: NodeLeases }) => Promise<T>): Promise<T> {
    const opened = await this.#open();
    try {
      return await work(opened);
    } catch (error) {
      if (error instanceof DSecError && error.code !== "layer_corrupt") throw error;
      await this.#check();
      throw error;
    }
  }

  async #open() {
    if (this.#opened !== undefined) return this.#opened;
    const { directory, create, owner } = this.#options;
    if (!create) await this.#check();
    try {
      const store = create ? await openLayerStore(directory) : new LayerStore(directory);
      this.#opened = { store, leases: await NodeLeases.open(store.paths, owner) };
      return this.#opened;
    } catch (cause) {
      throw new DSecError("layer_store_unavailable", `the layer store ${directory} cannot be opened`, {
        cause,
      });
    }
  }

  async #check(): Promise<void> {
    await requireStore(this.#options.directory);
  }
}

/** Tells which files blobs are. In FUSE file systems an inode's number may differ from look to look. */
async function identityOf(blobs: readonly Blob[], store: LayerStore): Promise<string> {
  const files = blobs.map(async ({ digest }) => {
    const path = store.blobPath(digest);
    const [found, { type }] = await Promise.all([stat(path), statfs(path)]).catch((error: unknown) => {
      if (isErrno(error, "ENOENT")) return [undefined, { type: 0 }] as const;
      throw error;
    });
    if (found === undefined) return "none";
    return [type === fuseType ? "" : `${found.dev}:${found.ino}`, found.size, found.mtimeMs].join(" ");
  });
  return (await Promise.all(files)).join("\n");
}

/** Whether something is mounted at `path`; asks neither the store nor the list of all mounts. */
async function isMountPoint(path: string): Promise<boolean> {
  try {
    const [at, above] = await Promise.all([stat(path), stat(join(path, ".."))]);
    return at.dev !== above.dev;
  } catch (error) {
    if (isErrno(error, "ENOENT")) return false;
    throw error;
  }
}

function mountError(digest: string, error: unknown): DSecError {
  if (error instanceof DSecError) return error;
  if (isErrno(error, "EPERM", "ENODEV", "ENOTBLK"))
    return new DSecError("backend_unavailable", "EROFS images cannot be mounted from files here", {
      cause: error,
    });
  if (isErrno(error, "ENOSPC", "EDQUOT"))
    return new DSecError("disk_full", `no room for the metadata of layer ${digest}`, { cause: error });
  return new DSecError("layer_corrupt", `layer ${digest} cannot be mounted`, { cause: error });
}

function ignoreMissing(error: unknown): void {
  if (!isErrno(error, "ENOENT")) throw error;
}
