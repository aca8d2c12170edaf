import { mkdir, readdir, rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import type { Scratch, ScratchDirectory } from "./scratch.ts";
import { isPresent } from "./presence.ts";

/** Scratch on any file system, without limits and without figures: only for those who asked for it. */
export class PlainScratch implements Scratch {
  readonly limited = false;
  readonly #root: string;

  /** @param root a directory that holds nothing but scratch directories */
  constructor(root: string) {
    this.#root = root;
  }

  async create(id: string): Promise<ScratchDirectory> {
    const directory = this.#directory(id);
    await directory.destroy();
    await mkdir(directory.path, { mode: 0o700 });
    return directory;
  }

  async find(id: string): Promise<ScratchDirectory | undefined> {
    return (await isPresent(join(this.#root, id))) ? this.#directory(id) : undefined;
  }

  async list(): Promise<string[]> {
    return readdir(this.#root);
  }

  async disk(): Promise<{ totalBytes: number; availableBytes: number }> {
    const { blocks, bavail, bsize } = await statfs(this.#root);
    return { totalBytes: blocks * bsize, availableBytes: bavail * bsize };
  }

  async close(): Promise<void> {}

  #directory(id: string): ScratchDirectory {
    const path = join(this.#root, id);
    return {
      path,
      prefersDirectWrites: false,
      usage: async () => 0,
      full: async () => false,
      destroy: () => rm(path, { recursive: true, force: true, maxRetries: 3 }),
    };
  }
}
