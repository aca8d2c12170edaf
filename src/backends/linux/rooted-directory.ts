/** Files in a foreign root: whatever symlinks it holds, nothing outside it is touched. */
import { chmodSync, closeSync, constants, unlinkSync, writeFileSync } from "node:fs";
import { isErrno, libcFunction } from "./libc.ts";

const sysOpenat2 = 437;
const AT_FDCWD = -100;
const RESOLVE_NO_MAGICLINKS = 0x02;
const RESOLVE_IN_ROOT = 0x10;
const O_PATH = 0o10_000_000;
const O_CLOEXEC = 0o2_000_000;
const openHowBytes = 24;

const openat2 = libcFunction<[number, number, string, Uint8Array, number]>(
  "openat2",
  ["long number", "int directory", "const char *path", "void *how", "unsigned long size"],
  "syscall",
);

/** A directory opened below a root, to be closed by its user. */
export class RootedDirectory implements Disposable {
  readonly #fd: number;

  /**
   * @param root a directory; symlinks inside, absolute ones too, resolve within it
   * @throws LinuxError ENOENT, ENOTDIR, ELOOP
   */
  constructor(root: string, path: string) {
    const rootFd = open(AT_FDCWD, root, 0);
    try {
      this.#fd = open(rootFd, path, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
    } finally {
      closeSync(rootFd);
    }
  }

  /**
   * Puts a file in place of whatever non-directory has that name; what was there is neither opened nor followed. Not atomic:
   * for roots that nobody lives in yet.
   *
   * @throws Error EISDIR when a directory has the name
   */
  replaceFile(name: string, content: string, mode = 0o644): void {
    const path = this.#pathOf(name);
    try {
      unlinkSync(path);
    } catch (error) {
      if (!isErrno(error, "ENOENT")) throw error;
    }
    writeFileSync(path, content, { flag: "wx" });
    // Whatever this process's umask is.
    chmodSync(path, mode);
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd);
  }

  #pathOf(name: string): string {
    if (name === "" || name.includes("/")) throw new RangeError(`not a file name: ${name}`);
    return `/proc/self/fd/${this.#fd}/${name}`;
  }
}

function open(directory: number, path: string, resolve: number): number {
  const how = Buffer.alloc(openHowBytes);
  how.writeBigUInt64LE(BigInt(O_PATH | O_CLOEXEC | constants.O_DIRECTORY), 0);
  how.writeBigUInt64LE(BigInt(resolve), 16);
  return openat2.about(path, sysOpenat2, directory, path, how, openHowBytes);
}
