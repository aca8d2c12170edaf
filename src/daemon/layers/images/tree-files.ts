import {
  chmodSync,
  closeSync,
  constants,
  ftruncateSync,
  lchownSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  rmdirSync,
  symlinkSync,
  unlinkSync,
  writeSync,
  type Stats,
} from "node:fs";
import { isErrno, libcFunction } from "../../../backends/linux/libc.ts";

const mknod = libcFunction<[Uint8Array, number, number]>("mknod", [
  "const void *path",
  "unsigned int mode",
  "unsigned long device",
]);
const setXattr = libcFunction<[Uint8Array, string, Uint8Array, number, number]>("lsetxattr", [
  "const void *path",
  "const char *name",
  "const void *value",
  "size_t size",
  "int flags",
]);
const removeXattr = libcFunction<[Uint8Array, string]>("lremovexattr", [
  "const void *path",
  "const char *name",
]);

const nodeTypes = {
  character: constants.S_IFCHR,
  block: constants.S_IFBLK,
  fifo: constants.S_IFIFO,
} as const;

/**
 * Files below a directory that nobody else writes to, by paths relative to it: bytes, one character each; "" is the directory
 * itself. No call follows a symlink at a path's end, and whoever calls has made sure that there is none before it.
 */
export class TreeFiles {
  readonly #root: string;

  /** @param root absolute */
  constructor(root: string) {
    this.#root = Buffer.from(root).toString("latin1");
  }

  stat(path: string): Stats | undefined {
    try {
      return lstatSync(this.#bytes(path), { throwIfNoEntry: false });
    } catch (error) {
      // a component that is no directory
      if (isErrno(error, "ENOTDIR")) return undefined;
      throw error;
    }
  }

  names(path: string): string[] {
    return readdirSync(this.#bytes(path), { encoding: "buffer" }).map((name) => name.toString("latin1"));
  }

  readlink(path: string): string {
    return readlinkSync(this.#bytes(path), { encoding: "buffer" }).toString("latin1");
  }

  mkdir(path: string): void {
    mkdirSync(this.#bytes(path), { mode: 0o755 });
  }

  symlink(path: string, target: string): void {
    symlinkSync(Buffer.from(target, "latin1"), this.#bytes(path));
  }

  link(path: string, existing: string): void {
    linkSync(this.#bytes(existing), this.#bytes(path));
  }

  node(path: string, type: keyof typeof nodeTypes, device: { major: number; minor: number }): void {
    const { major, minor } = device;
    if (major >= 2 ** 20 || minor >= 2 ** 20)
      throw new RangeError(`no device has the number ${major}:${minor}`);
    // makedev(3)
    const high = (major & ~0xfff) * 2 ** 32 + (minor & ~0xff) * 2 ** 12;
    const number = high + (major & 0xfff) * 256 + (minor & 0xff);
    mknod.about(
      this.#shown(path),
      Buffer.concat([this.#bytes(path), Buffer.alloc(1)]),
      nodeTypes[type] | 0o600,
      number,
    );
  }

  async write(
    path: string,
    size: number,
    content: AsyncIterable<{ at: number; bytes: Buffer }>,
  ): Promise<void> {
    const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
    const fd = openSync(this.#bytes(path), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    try {
      let end = 0;
      for await (const { at, bytes } of content) {
        for (let done = 0; done < bytes.length;)
          done += writeSync(fd, bytes, done, bytes.length - done, at + done);
        end = at + bytes.length;
      }
      if (end < size) ftruncateSync(fd, size);
    } finally {
      closeSync(fd);
    }
  }

  chown(path: string, uid: number, gid: number): void {
    lchownSync(this.#bytes(path), uid, gid);
  }

  /** Of anything but a symlink. */
  chmod(path: string, mode: number): void {
    chmodSync(this.#bytes(path), mode);
  }

  /** @param mtime seconds since the epoch */
  setTime(path: string, mtime: number): void {
    lutimesSync(this.#bytes(path), mtime, mtime);
  }

  /** @throws LinuxError */
  setXattr(path: string, name: string, value: Uint8Array): void {
    setXattr.about(this.#shown(path), this.#terminated(path), name, value, value.length, 0);
  }

  removeXattr(path: string, name: string): void {
    removeXattr.about(this.#shown(path), this.#terminated(path), name);
  }

  unlink(path: string): void {
    unlinkSync(this.#bytes(path));
  }

  rmdir(path: string): void {
    rmdirSync(this.#bytes(path));
  }

  #bytes(path: string): Buffer {
    return Buffer.from(path === "" ? this.#root : `${this.#root}/${path}`, "latin1");
  }

  #terminated(path: string): Buffer {
    return Buffer.concat([this.#bytes(path), Buffer.alloc(1)]);
  }

  #shown(path: string): string {
    return this.#bytes(path).toString();
  }
}
