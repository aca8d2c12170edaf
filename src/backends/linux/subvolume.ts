/** btrfs subvolumes with a limit of their own, by ioctl: no process is spawned. */
import { closeSync, openSync } from "node:fs";
import { ioctl, ioctlOnThread, isErrno } from "./libc.ts";

const request = {
  createSubvolume: 0x5000_940e,
  destroySubvolume: 0x5000_940f,
  inodeLookup: 0xd000_9412,
  startSync: 0x8008_9418,
  fileSystemInfo: 0x8400_941f,
  quotaControl: 0xc010_9428,
  quotaGroupCreate: 0x4010_942a,
  quotaGroupLimit: 0x8030_942b,
} as const;

const longestName = 255;
const enableQuota = 1n;
const enableSimpleQuota = 4n;
const limitReferenced = 1n;
const firstFreeObject = 256n;

function volumeArguments(name: string): Buffer {
  if (name.includes("/") || Buffer.byteLength(name) > longestName)
    throw new RangeError(`not a name: ${name}`);
  const args = Buffer.alloc(4096);
  args.write(name, 8);
  return args;
}

/** Runs `work` with a descriptor of the directory. */
function withDirectory<T>(path: string, work: (fd: number) => T): T {
  const fd = openSync(path, "r");
  try {
    return work(fd);
  } finally {
    closeSync(fd);
  }
}

/** Makes an empty subvolume, owned by the caller, mode 0755. @throws LinuxError */
export function createSubvolume(parent: string, name: string): void {
  withDirectory(parent, (fd) =>
    ioctl("BTRFS_IOC_SUBVOL_CREATE", fd, request.createSubvolume, volumeArguments(name)),
  );
}

/**
 * Removes a subvolume with all it holds. The file system frees the space in the background, but forgetting what is cached of it
 * can take the call tens of milliseconds: it runs on another thread.
 *
 * @throws LinuxError
 */
export async function destroySubvolume(parent: string, name: string): Promise<void> {
  await onThread("BTRFS_IOC_SNAP_DESTROY", parent, request.destroySubvolume, volumeArguments(name));
}

/** An ioctl on a directory that may take long. */
async function onThread(name: string, directory: string, code: number, args: Buffer): Promise<void> {
  const fd = openSync(directory, "r");
  try {
    await ioctlOnThread(name, fd, code, args);
  } finally {
    closeSync(fd);
  }
}

/** The number that a subvolume has on its file system, never reused. @throws LinuxError */
export function subvolumeId(path: string): bigint {
  const args = Buffer.alloc(4096);
  args.writeBigUInt64LE(firstFreeObject, 8);
  withDirectory(path, (fd) => ioctl("BTRFS_IOC_INO_LOOKUP", fd, request.inodeLookup, args));
  return args.readBigUInt64LE(0);
}

/** Sets how many bytes a subvolume may hold. Quotas must be on. @throws LinuxError */
export function limitSubvolume(path: string, bytes: number): void {
  const args = Buffer.alloc(48);
  args.writeBigUInt64LE(limitReferenced, 8);
  args.writeBigUInt64LE(BigInt(bytes), 16);
  // Group 0 means the one of the subvolume that the descriptor lies in.
  withDirectory(path, (fd) => ioctl("BTRFS_IOC_QGROUP_LIMIT", fd, request.quotaGroupLimit, args));
}

/**
 * Turns quotas on: simple ones, which cost next to nothing, or (Linux before 6.7) full ones. Idempotent.
 *
 * @throws LinuxError
 */
export function enableQuotas(mountPoint: string): void {
  withDirectory(mountPoint, (fd) => {
    const control = (command: bigint) => {
      const args = Buffer.alloc(16);
      args.writeBigUInt64LE(command, 0);
      ioctl("BTRFS_IOC_QUOTA_CTL", fd, request.quotaControl, args);
    };
    try {
      control(enableSimpleQuota);
    } catch (error) {
      if (!isErrno(error, "EINVAL", "EOPNOTSUPP", "ENOTTY")) throw error;
      control(enableQuota);
    }
  });
}

/** Forgets the quota group of a subvolume that is gone. @throws LinuxError EBUSY while the subvolume is being cleaned away */
export function destroyQuotaGroup(mountPoint: string, id: bigint): void {
  const args = Buffer.alloc(16);
  args.writeBigUInt64LE(id, 8);
  withDirectory(mountPoint, (fd) => ioctl("BTRFS_IOC_QGROUP_CREATE", fd, request.quotaGroupCreate, args));
}

/** Has the file system begin a commit, after which its cleaner frees what removed subvolumes held. @throws LinuxError */
export async function startCommit(mountPoint: string): Promise<void> {
  await onThread("BTRFS_IOC_START_SYNC", mountPoint, request.startSync, Buffer.alloc(8));
}

/** The UUID under which /sys/fs/btrfs shows the file system. @throws LinuxError */
export function fileSystemUuid(mountPoint: string): string {
  const args = Buffer.alloc(1024);
  withDirectory(mountPoint, (fd) => ioctl("BTRFS_IOC_FS_INFO", fd, request.fileSystemInfo, args));
  return args.toString("hex", 16, 32).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
