import { readFileSync } from "node:fs";
import { isErrno, libcFunction } from "./libc.ts";

/** Flags of mount(2). */
export const MountFlag = {
  readOnly: 1,
  noSuid: 2,
  noDev: 4,
  noExec: 8,
  remount: 32,
  noAtime: 1024,
  bind: 4096,
  recursive: 16_384,
  private: 1 << 18,
  slave: 1 << 19,
} as const;

/** Flags of umount2(2). */
export const UnmountFlag = { force: 1, detach: 2, expire: 4, noFollow: 8 } as const;

const mountFunction = libcFunction<[string | null, string, string | null, number, string | null]>("mount", [
  "const char *source",
  "const char *target",
  "const char *type",
  "unsigned long flags",
  "const char *data",
]);
const unmountFunction = libcFunction<[string, number]>("umount2", ["const char *target", "int flags"]);

export interface MountRequest {
  readonly source?: string;
  readonly target: string;
  readonly type?: string;
  /** Or-ed {@link MountFlag}s. */
  readonly flags?: number;
  /** The file system's own options, comma-separated. At most 4,095 bytes: the kernel cuts what is longer, so longer data is refused. */
  readonly data?: string;
}

const longestData = 4095;

/** mount(2). @throws LinuxError, RangeError when `data` would be cut */
export function mount(request: MountRequest): void {
  const data = request.data ?? null;
  if (data !== null && Buffer.byteLength(data) > longestData)
    throw new RangeError(`mount options of ${request.target} exceed ${longestData} bytes`);
  mountFunction.about(
    request.target,
    request.source ?? null,
    request.target,
    request.type ?? null,
    request.flags ?? 0,
    data,
  );
}

/** umount2(2). @throws LinuxError */
export function unmount(target: string, flags = 0): void {
  unmountFunction.about(target, target, flags);
}

/** Detaches whatever is mounted at `target`; nothing there is no error. Returns whether something was. @throws LinuxError */
export function unmountIfMounted(target: string): boolean {
  try {
    unmount(target, UnmountFlag.detach | UnmountFlag.noFollow);
    return true;
  } catch (error) {
    if (isErrno(error, "EINVAL", "ENOENT")) return false;
    throw error;
  }
}

/** The same, on a thread: the kernel waits there until nobody looks at the mount any more, some milliseconds on a busy machine. */
export async function detachIfMounted(target: string): Promise<void> {
  try {
    await unmountFunction.onThread(target, target, UnmountFlag.detach | UnmountFlag.noFollow);
  } catch (error) {
    if (!isErrno(error, "EINVAL", "ENOENT")) throw error;
  }
}

/** Kernels before 6.15 do not know the option. */
let directIo = true;

/**
 * Mounts an EROFS image straight from its file: no loop device. Always read-only, nosuid is left to what is mounted above. Where the
 * kernel can, data files are read past their own page cache, so that nothing is cached twice.
 *
 * @param devices data files of a multi-device image, in the order in which it was made
 */
export function mountErofs(image: string, target: string, devices: readonly string[] = []): void {
  for (const device of devices) refuseComma(device);
  const attempt = (...more: readonly string[]): void => {
    const options = [...devices.map((device) => `device=${device}`), ...more];
    const flags = MountFlag.readOnly | MountFlag.noDev;
    mount({
      source: image,
      target,
      type: "erofs",
      flags,
      ...(options.length > 0 && { data: options.join(",") }),
    });
  };
  if (!directIo || devices.length === 0) {
    attempt();
    return;
  }
  try {
    attempt("directio");
  } catch (error) {
    if (!isErrno(error, "EINVAL")) throw error;
    attempt();
    directIo = false;
  }
}

function refuseComma(path: string): void {
  if (path.includes(",")) throw new RangeError(`a path in mount options must not contain ',': ${path}`);
}

/**
 * Mounts a tmpfs whose mounts do not spread to other namespaces, nor theirs to it: else each lazy unmount below it would.
 * Small files that come and go cost a tenth of what they do on ext4. Idempotent.
 */
export function mountPrivateTmpfs(target: string): void {
  const flags = MountFlag.noSuid | MountFlag.noDev;
  if (!isMounted(target)) mount({ source: "tmpfs", target, type: "tmpfs", flags, data: "mode=0700" });
  mount({ target, flags: MountFlag.private });
}

export interface MountInfo {
  readonly target: string;
  readonly type: string;
  readonly source: string;
  /** Options of the file system, e.g. `rw,memory` of a cgroup hierarchy. */
  readonly superOptions: string;
  /** The directory of the file system that is mounted. */
  readonly root: string;
}

/** What this process has mounted, in mount order. Some 10 µs a mount. */
export function listMounts(): MountInfo[] {
  return parseMountInfo(readFileSync("/proc/self/mountinfo", "utf8"));
}

/** Parses /proc/<pid>/mountinfo. */
export function parseMountInfo(text: string): MountInfo[] {
  const mounts: MountInfo[] = [];
  for (const line of text.split("\n")) {
    const [before, after] = line.split(" - ");
    if (before === undefined || after === undefined) continue;
    const [, , , root, target] = before.split(" ");
    const [type, source, superOptions] = after.split(" ");
    if (root === undefined || target === undefined || type === undefined) continue;
    mounts.push({
      root: unescapeOctal(root),
      target: unescapeOctal(target),
      type,
      source: unescapeOctal(source ?? ""),
      superOptions: superOptions ?? "",
    });
  }
  return mounts;
}

function unescapeOctal(text: string): string {
  return text.replaceAll(/\\([0-7]{3})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}

/** Whether something is mounted exactly at `target` (an absolute path without symlinks). */
export function isMounted(target: string): boolean {
  return listMounts().some((entry) => entry.target === target);
}
