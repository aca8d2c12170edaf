import { createReadStream, createWriteStream } from "node:fs";
import { mkdir, readdir, rename, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { listMounts } from "../../backends/linux/mount.ts";
import { digestOfFile } from "./file-digest.ts";
import type { Blob } from "./manifest.ts";
import { digestOfName, hexOf } from "./store-paths.ts";

/** A node's copies of layers' metadata, so that names, modes and links are looked up on its own disk. */
export class MetadataCache {
  readonly #directory: string;
  readonly #keptBytes: number;
  #attempts = 0;

  /** @param keptBytes of metadata of layers that are not mounted */
  constructor(directory: string, keptBytes: number) {
    this.#directory = directory;
    this.#keptBytes = keptBytes;
  }

  /**
   * The path of a copy of `blob` with the right content: a damaged image would make the kernel report errors inside of
   * sandboxes. It is read at every call, being small and local.
   *
   * @param source the blob in the store
   * @param onProgress called as bytes arrive
   * @throws Error when the source's content is not the blob's; Node's errors of files
   */
  async copyOf(blob: Blob, source: string, onProgress: () => void): Promise<string> {
    const path = join(this.#directory, hexOf(blob.digest));
    const found = await digestOfFile(path).catch(() => undefined);
    if (found?.digest === blob.digest) {
      const now = Date.now() / 1000;
      await utimes(path, now, now);
      return path;
    }
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    await this.#makeRoom(blob.bytes);
    const partial = join(this.#directory, `partial-${process.pid}-${++this.#attempts}`);
    try {
      const copied = createReadStream(source, { highWaterMark: 1_048_576 }).on("data", onProgress);
      await pipeline(copied, createWriteStream(partial, { mode: 0o600 }));
      const { digest } = await digestOfFile(partial);
      if (digest !== blob.digest) throw new Error(`metadata ${blob.digest} has the content of ${digest}`);
      await rename(partial, path);
    } finally {
      await rm(partial, { force: true });
    }
    return path;
  }

  /** Removes what no mount uses, the longest unused first, until `bytes` more are no more than are kept. */
  async #makeRoom(bytes: number): Promise<void> {
    const mounted = new Set(listMounts().map(({ source }) => source));
    const unused: { path: string; size: number; mtimeMs: number }[] = [];
    for (const name of await readdir(this.#directory)) {
      const path = join(this.#directory, name);
      // Left by a process that was killed, unless it is this one's.
      if (digestOfName(name) === undefined && !name.startsWith(`partial-${process.pid}-`))
        await rm(path, { force: true });
      else if (!mounted.has(path)) {
        const found = await stat(path).catch(() => undefined);
        if (found !== undefined) unused.push({ path, size: found.size, mtimeMs: found.mtimeMs });
      }
    }
    unused.sort((a, b) => a.mtimeMs - b.mtimeMs);
    let total = bytes + unused.reduce((sum, { size }) => sum + size, 0);
    for (const { path, size } of unused) {
      if (total <= this.#keptBytes) return;
      await rm(path, { force: true });
      total -= size;
    }
  }
}
