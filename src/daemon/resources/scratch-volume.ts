import { mkdir, open, rm, rmdir, statfs } from "node:fs/promises";
import { isMounted, mount, MountFlag, unmountIfMounted } from "../../backends/linux/mount.ts";
import { DSecError } from "../../protocol/errors.ts";
import { runProgram } from "./program.ts";

/** Part of the free space that the volume may grow to. */
const fractionOfFree = 0.75;
/** Bytes; below it btrfs is of no use. */
const smallest = 256 * 1_048_576;
/**
 * Scratch need not survive a crash of the machine, since no sandbox does: so no flushes, and no copies or checksums of data.
 */
const mountOptions = "nobarrier,nodatacow";

/**
 * Mounts a btrfs that lies in a sparse file, at `mountPoint`, unless it is mounted already. What an earlier boot
 * left in the file is dropped: no sandbox can be using it. The loop device goes away with the last mount.
 *
 * @throws DSecError `backend_unavailable`, `disk_full`
 */
export async function mountScratchVolume(file: string, mountPoint: string): Promise<void> {
  await mkdir(mountPoint, { recursive: true, mode: 0o700 });
  if (isMounted(mountPoint)) return;
  let device = await findLoopDevice(file);
  try {
    if (device === undefined) {
      await makeVolume(file);
      device = await attach(file);
    }
    mount({
      source: device,
      target: mountPoint,
      type: "btrfs",
      flags: MountFlag.noAtime,
      data: mountOptions,
    });
  } catch (error) {
    if (error instanceof DSecError && error.code !== "internal") throw error;
    throw new DSecError("backend_unavailable", "no btrfs can be mounted for scratch", { cause: error });
  } finally {
    // A device in use is detached when its last user, the mount, is gone; one that could not be mounted at once.
    if (device !== undefined) await runProgram("losetup", ["--detach", device]);
  }
}

/** Unmounts the volume and removes its file. */
export async function removeScratchVolume(file: string, mountPoint: string): Promise<void> {
  unmountIfMounted(mountPoint);
  await rmdir(mountPoint);
  await rm(file, { force: true });
}

async function findLoopDevice(file: string): Promise<string | undefined> {
  const found = await runProgram("losetup", ["--associated", file, "--output", "NAME", "--noheadings"]);
  const [device] = found.trim().split("\n");
  return device === "" ? undefined : device;
}

async function makeVolume(file: string): Promise<void> {
  await rm(file, { force: true });
  const handle = await open(file, "wx", 0o600);
  try {
    const { bavail, bsize } = await statfs(file);
    const bytes = Math.floor((bavail * bsize * fractionOfFree) / 1_048_576) * 1_048_576;
    if (bytes < smallest)
      throw new DSecError("disk_full", `less than ${smallest} bytes are free for ${file}`);
    await handle.truncate(bytes);
  } finally {
    await handle.close();
  }
  await runProgram("mkfs.btrfs", [
    "--quiet",
    "--nodiscard",
    "--metadata",
    "single",
    "--data",
    "single",
    file,
  ]);
}

async function attach(file: string): Promise<string> {
  const args = ["--find", "--show", file];
  try {
    // Without direct I/O every page would be cached twice.
    return (await runProgram("losetup", ["--direct-io=on", ...args])).trim();
  } catch (error) {
    if (error instanceof DSecError && error.code === "backend_unavailable") throw error;
    return (await runProgram("losetup", args)).trim();
  }
}
