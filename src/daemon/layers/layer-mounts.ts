import { mkdir, readdir, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { listMounts, unmountIfMounted } from "../../backends/linux/mount.ts";
import { systemClock, type Clock } from "../clock.ts";
import type { StoreProcess } from "./store-process.ts";
import { digestOfName, hexOf } from "./store-paths.ts";

/** Milliseconds for which a mount is taken to be what it was: blobs may be mended, and a mount keeps the files that it was made from. */
const soundMs = 10_000;
/** Mounts that nobody uses and that are kept for the next sandbox of that layer. */
const keptUnused = 32;

interface LayerMount {
  readonly path: string;
  readonly ready: Promise<void>;
  references: number;
  /** Its files are not those of the store any more: good for nobody new. */
  stale: boolean;
  /** By the clock. */
  examinedAt: number;
}

/**
 * The node's mounts of layers, one for each layer in use, so that all sandboxes share its page cache. A layer is mounted at
 * `<directory>/<digest>` from metadata on the node's disk and data in the store. Mounts outlive the daemon; a new one finds them again.
 */
export class LayerMounts {
  readonly #store: StoreProcess;
  readonly #directory: string;
  readonly #clock: Clock;
  /** The unused ones in the order in which they were last used. */
  readonly #mounts = new Map<string, LayerMount>();
  /** On their way out: nobody may mount there yet. */
  readonly #leaving = new Map<string, Promise<void>>();
  /** Until the sandboxes of an earlier daemon are counted, nothing is known to be unused. */
  #counted = false;

  private constructor(store: StoreProcess, directory: string, clock: Clock) {
    this.#store = store;
    this.#directory = directory;
    this.#clock = clock;
  }

  /** @param directory of the mount points; absolute, without symlinks */
  static async open(
    store: StoreProcess,
    directory: string,
    clock: Clock = systemClock,
  ): Promise<LayerMounts> {
    const mounts = new LayerMounts(store, directory, clock);
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const mounted = new Set(listMounts().map((entry) => entry.target));
    for (const name of await readdir(directory)) {
      const path = join(directory, name);
      const digest = digestOfName(name);
      if (!mounted.has(path)) await rmdir(path);
      else if (digest !== undefined)
        mounts.#mounts.set(digest, {
          path,
          ready: Promise.resolve(),
          references: 0,
          stale: false,
          examinedAt: Number.NEGATIVE_INFINITY,
        });
    }
    return mounts;
  }

  /** Layers that are mounted, with how many use each. */
  get all(): readonly { readonly digest: string; readonly references: number }[] {
    return [...this.#mounts].map(([digest, { references }]) => ({ digest, references }));
  }

  /**
   * The directory of a layer, mounted until {@link release} has been called as often.
   *
   * @throws DSecError `layer_corrupt` naming the layer, `layer_store_unavailable`, `backend_unavailable`, `disk_full`
   */
  async acquire(digest: string): Promise<string> {
    await this.#examine(digest);
    let entry = this.#mounts.get(digest);
    if (entry === undefined || entry.stale) {
      const users = entry?.references ?? 0;
      entry = {
        path: this.#path(digest),
        ready: this.#mount(digest, entry !== undefined),
        references: users,
        stale: false,
        examinedAt: this.#clock.now(),
      };
      this.#mounts.set(digest, entry);
    }
    entry.references += 1;
    try {
      await entry.ready;
    } catch (error) {
      // Whoever comes next tries again; those who have an older mount are still counted.
      entry.stale = true;
      const latest = this.#mounts.get(digest);
      if (latest !== undefined) latest.references -= 1;
      if (latest?.stale === true && latest.references === 0) this.#mounts.delete(digest);
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
    if (this.#counted) this.#dropUnused(keptUnused);
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

  /** Unmounts those of `digests` that nobody uses; resolves when they are unmounted. */
  async drop(digests: ReadonlySet<string>): Promise<void> {
    if (this.#counted)
      for (const [digest, entry] of this.#mounts)
        if (entry.references === 0 && digests.has(digest)) this.#leave(digest, entry);
    await Promise.all([...digests].map(async (digest) => this.#leaving.get(digest)));
  }

  /** Every sandbox of an earlier daemon has been adopted: what is unused from now on may be unmounted. */
  counted(): void {
    this.#counted = true;
    this.#dropUnused(keptUnused);
  }

  /** The store's files were lost, and others are in their places: new sandboxes get new mounts, the others keep theirs. */
  renew(): void {
    for (const entry of this.#mounts.values()) entry.stale = true;
  }

  /** Unmounts everything. To be called when no sandbox is left. */
  async close(): Promise<void> {
    this.#dropUnused(0);
    await Promise.all(this.#leaving.values());
    await rmdir(this.#directory);
  }

  #dropUnused(kept: number): void {
    const unused = [...this.#mounts].filter(([, entry]) => entry.references === 0);
    for (const [digest, entry] of unused.slice(0, Math.max(0, unused.length - kept)))
      this.#leave(digest, entry);
  }

  #leave(digest: string, entry: LayerMount): void {
    this.#mounts.delete(digest);
    const left = entry.ready
      .catch(() => undefined)
      .then(async () => this.#unmount(digest, entry.path))
      .finally(() => {
        if (this.#leaving.get(digest) === left) this.#leaving.delete(digest);
      });
    this.#leaving.set(digest, left);
  }

  /** Whoever restores a damaged blob puts another file in its place, which a mount does not see. */
  async #examine(digest: string): Promise<void> {
    const entry = this.#mounts.get(digest);
    const now = this.#clock.now();
    if (entry === undefined || entry.stale || now - entry.examinedAt < soundMs) return;
    entry.examinedAt = now;
    await entry.ready.catch(() => undefined);
    if (!(await this.#store.call("isSound", digest))) entry.stale = true;
  }

  async #unmount(digest: string, path: string): Promise<void> {
    try {
      await this.#store.call("unmount", digest);
    } catch {
      // The store does not answer. Detaching waits for nothing.
      unmountIfMounted(path);
      await rmdir(path).catch(() => undefined);
    }
  }

  async #mount(digest: string, again: boolean): Promise<void> {
    await this.#leaving.get(digest);
    await this.#store.call(again ? "remount" : "mount", digest);
  }

  #path(digest: string): string {
    return join(this.#directory, hexOf(digest));
  }
}
