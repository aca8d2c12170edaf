import { createHash } from "node:crypto";
import { createReadStream, rmdirSync } from "node:fs";
import { mkdir, readdir, rmdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { listMounts, mountErofs, unmountIfMounted } from "../../backends/linux/mount.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { LayerStore } from "./layer-store.ts";

/** Mounts that nobody uses and that are kept for the next sandbox of that layer. */
const keptUnused = 32;

interface LayerMount {
  readonly path: string;
  readonly ready: Promise<void>;
  references: number;
}

/**
 * The node's mounts of layers, one for each layer in use, so that all sandboxes share its page cache. A layer is mounted
 * at `<directory>/<digest>` straight from the store's files. Mounts outlive the daemon; a new one finds them again.
 */
export class LayerMounts {
  readonly #store: LayerStore;
  readonly #directory: string;
  /** The unused ones in the order in which they were last used. */
  readonly #mounts = new Map<string, LayerMount>();

  private constructor(store: LayerStore, directory: string) {
    this.#store = store;
    this.#directory = directory;
  }

  /** @param directory of the mount points; absolute, without symlinks */
  static async open(store: LayerStore, directory: string): Promise<LayerMounts> {
    const mounts = new LayerMounts(store, directory);
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const mounted = new Set(listMounts().map((entry) => entry.target));
    for (const name of await readdir(directory)) {
      const path = join(directory, name);
      if (mounted.has(path))
        mounts.#mounts.set(`sha256:${name}`, { path, ready: Promise.resolve(), references: 0 });
      else await rmdir(path);
    }
    return mounts;
  }

  /**
   * The directory of a layer, mounted until {@link release} has been called as often.
   *
   * @throws DSecError `layer_corrupt` naming the layer
   */
  async acquire(digest: string): Promise<string> {
    let entry = this.#mounts.get(digest);
    if (entry === undefined) {
      const path = this.#path(digest);
      entry = { path, ready: this.#mount(digest, path), references: 0 };
      this.#mounts.set(digest, entry);
    }
    entry.references += 1;
    try {
      await entry.ready;
    } catch (error) {
      // Whoever comes next tries again.
      if (this.#mounts.get(digest) === entry) this.#mounts.delete(digest);
      throw error;
    }
    return entry.path;
  }

  release(digest: string): void {
    const entry = this.#mounts.get(digest);
    if (entry === undefined || entry.references === 0) return;
    entry.references -= 1;
    if (entry.references > 0) return;
    this.#mounts.delete(digest);
    this.#mounts.set(digest, entry);
    this.#dropUnused(keptUnused);
  }

  /**
   * Counts a sandbox of an earlier daemon among a layer's users. It has the layer also where the mount is gone.
   *
   * @returns whether it is to be released
   */
  adopt(digest: string): boolean {
    const entry = this.#mounts.get(digest);
    if (entry !== undefined) entry.references += 1;
    return entry !== undefined;
  }

  /** Unmounts everything. To be called when no sandbox is left. */
  close(): void {
    this.#dropUnused(0);
    rmdirSync(this.#directory);
  }

  #dropUnused(kept: number): void {
    const unused = [...this.#mounts].filter(([, entry]) => entry.references === 0);
    for (const [digest, entry] of unused.slice(0, Math.max(0, unused.length - kept))) {
      this.#mounts.delete(digest);
      unmountIfMounted(entry.path);
      rmdirSync(entry.path);
    }
  }

  #path(digest: string): string {
    return join(this.#directory, digest.slice("sha256:".length));
  }

  async #mount(digest: string, path: string): Promise<void> {
    const manifest = await this.#store.manifest(digest);
    const blobs = [manifest.metadata, ...manifest.data];
    try {
      for (const blob of blobs) {
        const { size } = await stat(this.#store.blobPath(blob.digest));
        if (size !== blob.bytes) throw new Error(`blob ${blob.digest} has ${size} bytes, not ${blob.bytes}`);
      }
      // A damaged image would make the kernel report errors inside sandboxes. It is small, unlike the data.
      await verifyDigest(this.#store.blobPath(manifest.metadata.digest), manifest.metadata.digest);
      await mkdir(path, { recursive: true });
      const [metadata = "", ...data] = blobs.map((blob) => this.#store.blobPath(blob.digest));
      mountErofs(metadata, path, data);
    } catch (error) {
      await rmdir(path).catch(() => undefined);
      if (isErrno(error, "EPERM", "ENODEV", "ENOTBLK")) {
        throw new DSecError("backend_unavailable", "EROFS images cannot be mounted from files here", {
          cause: error,
        });
      }
      throw new DSecError("layer_corrupt", `layer ${digest} cannot be mounted`, { cause: error });
    }
  }
}

async function verifyDigest(path: string, digest: string): Promise<void> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(path)) {
    if (chunk instanceof Uint8Array) hash.update(chunk);
  }
  const found = `sha256:${hash.digest("hex")}`;
  if (found !== digest) throw new Error(`the image's digest is ${found}`);
}
