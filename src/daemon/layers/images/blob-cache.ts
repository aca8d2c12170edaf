import { mkdir, readdir, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import { hexOf } from "../store-paths.ts";

/** Milliseconds for which a blob is taken to be somebody's who is at work with it. */
const freshMs = 3_600_000;

/**
 * Blobs of images as they were fetched, by digest: an import that was interrupted does not fetch them again, and images share
 * those of their bases. Bounded: the ones that were not used for longest go first.
 */
export class BlobCache {
  readonly directory: string;
  readonly #mostBytes: number;

  constructor(directory: string, mostBytes: number) {
    this.directory = directory;
    this.#mostBytes = mostBytes;
  }

  async open(): Promise<void> {
    await mkdir(join(this.directory, "sha256"), { recursive: true, mode: 0o700 });
  }

  path(digest: string): string {
    return join(this.directory, "sha256", hexOf(digest));
  }

  /** Bytes that are there of a blob; 0 where it is not. */
  async bytesOf(digest: string): Promise<number> {
    return (await stat(this.path(digest)).catch(() => undefined))?.size ?? 0;
  }

  /** Says that they are in use. */
  async touch(digests: readonly string[], now: number): Promise<void> {
    for (const digest of digests)
      await utimes(this.path(digest), now / 1000, now / 1000).catch(() => undefined);
  }

  async remove(digest: string): Promise<void> {
    await rm(this.path(digest), { force: true });
  }

  /** @param now milliseconds since the epoch */
  async trim(now: number): Promise<void> {
    const folder = join(this.directory, "sha256");
    const blobs = [];
    for (const name of await readdir(folder)) {
      const path = join(folder, name);
      const found = await stat(path).catch(() => undefined);
      if (found !== undefined) blobs.push({ path, bytes: found.size, usedAt: found.mtimeMs });
    }
    let bytes = blobs.reduce((sum, blob) => sum + blob.bytes, 0);
    for (const blob of blobs.sort((a, b) => a.usedAt - b.usedAt)) {
      if (bytes <= this.#mostBytes || now - blob.usedAt < freshMs) break;
      await rm(blob.path, { force: true });
      bytes -= blob.bytes;
    }
  }
}
