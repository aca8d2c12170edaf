import { chmodSync, readFileSync } from "node:fs";
import { readdir, statfs } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import {
  createSubvolume,
  destroyQuotaGroup,
  destroySubvolume,
  enableQuotas,
  fileSystemUuid,
  limitSubvolume,
  startCommit,
  subvolumeId,
} from "../../backends/linux/subvolume.ts";
import { DSecError } from "../../protocol/errors.ts";
import type { Scratch, ScratchDirectory } from "./scratch.ts";
import { isPresent } from "./presence.ts";

/** Bytes: a write or a new file reserves up to this much for metadata, so that it is refused this far below the limit. */
const reservation = 1_048_576;
/** Removed subvolumes, and bytes they held, after which the file system is asked to commit, so that it frees them. */
const commitAfter = { count: 64, bytes: 256 * 1_048_576 };

/** Scratch on btrfs: a subvolume with a quota for each sandbox. Nothing is spawned, and nothing waits for the disk. */
export class BtrfsScratch implements Scratch {
  readonly limited = true;
  readonly #root: string;
  readonly #backing: string | undefined;
  readonly #release: () => Promise<void>;
  readonly #quotaGroups: string;
  readonly #removed = { count: 0, bytes: 0, groups: new Set<bigint>() };

  /**
   * @param options.root a directory on btrfs that holds nothing but scratch directories
   * @param options.backing a path on the file system that holds the volume's file, if it lies in one
   * @param options.release called by {@link close} when no directory is left
   * @throws LinuxError when quotas cannot be turned on
   */
  constructor(options: { root: string; backing?: string; release?: () => Promise<void> }) {
    this.#root = options.root;
    this.#backing = options.backing;
    this.#release = options.release ?? (async () => undefined);
    enableQuotas(this.#root);
    this.#quotaGroups = `/sys/fs/btrfs/${fileSystemUuid(this.#root)}/qgroups`;
  }

  async create(id: string, bytes: number): Promise<ScratchDirectory> {
    try {
      createSubvolume(this.#root, id);
    } catch (error) {
      if (isErrno(error, "ENOSPC"))
        throw new DSecError("disk_full", "the scratch file system is full", { cause: error });
      if (!isErrno(error, "EEXIST")) throw error;
      await destroySubvolume(this.#root, id);
      createSubvolume(this.#root, id);
    }
    const path = join(this.#root, id);
    try {
      limitSubvolume(path, bytes);
      chmodSync(path, 0o700);
      return this.#directory(id);
    } catch (error) {
      await destroySubvolume(this.#root, id);
      throw error;
    }
  }

  async find(id: string): Promise<ScratchDirectory | undefined> {
    return (await isPresent(join(this.#root, id))) ? this.#directory(id) : undefined;
  }

  async list(): Promise<string[]> {
    return readdir(this.#root);
  }

  async disk(): Promise<{ totalBytes: number; availableBytes: number }> {
    const volume = await statfs(this.#root);
    const backing = this.#backing === undefined ? volume : await statfs(this.#backing);
    return {
      totalBytes: volume.blocks * volume.bsize,
      // The volume's file is sparse: others may fill the disk below it.
      availableBytes: Math.min(volume.bavail * volume.bsize, backing.bavail * backing.bsize),
    };
  }

  async close(): Promise<void> {
    if ((await this.list()).length === 0) await this.#release();
  }

  #directory(id: string): ScratchDirectory {
    const path = join(this.#root, id);
    const subvolume = subvolumeId(path);
    const group = join(this.#quotaGroups, `0_${subvolume}`);
    const used = () => readNumber(group, "referenced") + readNumber(group, "rsv_data");
    return {
      path,
      prefersDirectWrites: true,
      usage: async () => used(),
      full: async () => {
        const limit = readNumber(group, "max_referenced");
        return limit - used() < Math.min(reservation, limit / 8);
      },
      destroy: () => this.#destroy(id, subvolume, readNumber(group, "referenced")),
    };
  }

  async #destroy(id: string, subvolume: bigint, bytes: number): Promise<void> {
    try {
      await destroySubvolume(this.#root, id);
    } catch (error) {
      if (isErrno(error, "ENOENT")) return;
      throw error;
    }
    const removed = this.#removed;
    removed.groups.add(subvolume);
    removed.count += 1;
    removed.bytes += bytes;
    if (removed.count < commitAfter.count && removed.bytes < commitAfter.bytes) return;
    removed.count = 0;
    removed.bytes = 0;
    await startCommit(this.#root);
    this.#forgetQuotaGroups();
  }

  /** Newer kernels forget the groups of removed subvolumes themselves. */
  #forgetQuotaGroups(): void {
    for (const group of this.#removed.groups) {
      try {
        destroyQuotaGroup(this.#root, group);
      } catch (error) {
        if (isErrno(error, "EBUSY")) continue;
        if (!isErrno(error, "ENOENT")) throw error;
      }
      this.#removed.groups.delete(group);
    }
  }
}

/** A value of a quota group, as the kernel counts it now; 0 when the group is gone. */
function readNumber(group: string, name: string): number {
  try {
    return Number(readFileSync(join(group, name), "latin1"));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return 0;
    throw error;
  }
}
