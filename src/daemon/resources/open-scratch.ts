import { mkdir, statfs } from "node:fs/promises";
import { join } from "node:path";
import type { BackendReport } from "../../protocol/node.ts";
import { DSecError } from "../../protocol/errors.ts";
import { BtrfsScratch } from "./btrfs-scratch.ts";
import { PlainScratch } from "./plain-scratch.ts";
import { mountScratchVolume, removeScratchVolume } from "./scratch-volume.ts";
import type { Scratch } from "./scratch.ts";

export type Finding = BackendReport["findings"][number];

export const btrfsMagic = 0x9123_683e;

export interface ScratchOptions {
  readonly dataDir: string;
  readonly runDir: string;
  /** Whether scratch without limits is better than none. */
  readonly allowUnlimited: boolean;
}

/**
 * Opens the node's scratch: a directory of `dataDir` where that is btrfs, else a btrfs in a file there.
 *
 * @returns with a finding when limits are off
 * @throws DSecError `backend_unavailable`, `disk_full`
 */
export async function openScratch(
  options: ScratchOptions,
): Promise<{ scratch: Scratch; findings: Finding[] }> {
  const directory = join(options.dataDir, "scratch");
  try {
    await mkdir(options.dataDir, { recursive: true });
    if ((await statfs(options.dataDir)).type === btrfsMagic) {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      return { scratch: new BtrfsScratch({ root: directory }), findings: [] };
    }
    const file = join(options.dataDir, "scratch.btrfs");
    const mountPoint = join(options.runDir, "scratch");
    await mountScratchVolume(file, mountPoint);
    const scratch = new BtrfsScratch({
      root: mountPoint,
      backing: options.dataDir,
      release: () => removeScratchVolume(file, mountPoint),
    });
    return { scratch, findings: [] };
  } catch (error) {
    if (!options.allowUnlimited) {
      if (error instanceof DSecError) throw error;
      throw new DSecError("backend_unavailable", "disk limits cannot be enforced here", { cause: error });
    }
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const message = `disk limits are off: ${error instanceof Error ? error.message : String(error)}`;
    return {
      scratch: new PlainScratch(directory),
      findings: [{ level: "warning", message, fix: "a kernel with btrfs and loop devices, and btrfs-progs" }],
    };
  }
}
