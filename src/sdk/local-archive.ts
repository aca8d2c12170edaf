/** A file or a tree of this machine as a tar archive. */
import { constants } from "node:fs";
import { type FileHandle, lstat, open, readdir, readlink } from "node:fs/promises";
import type { Stats } from "node:fs";
import { DSecError } from "../protocol/errors.ts";
import { encodeTarHeader, tarEnd } from "../protocol/tar-encode.ts";
import { type TarMember, tarPadding } from "../protocol/tar-member.ts";

export interface ArchiveTotals {
  entries: number;
  /** Of the files. */
  bytes: number;
  readonly skipped: { readonly name: string; readonly errno: string }[];
  skippedCount: number;
}

/** Bytes of one read. */
const chunkBytes = 524_288;
/** Bytes of small things that are sent together. */
const batchBytes = 65_536;
/** How many of those that were left out are named. */
export const maxSkipped = 100;

const slash = Buffer.from("/");

/** Writes the members of one archive. A chunk may be overwritten once the next one is asked for. */
export class LocalArchive {
  readonly totals: ArchiveTotals = { entries: 0, bytes: 0, skipped: [], skippedCount: 0 };
  /** The first name of files that have several, by device and inode. */
  readonly #linked = new Map<string, Buffer>();
  #batch: Buffer[] = [];
  #batchBytes = 0;

  /**
   * @param path of a file, a directory or a symlink, which is not followed
   * @param name of it in the archive
   */
  async *chunks(path: Buffer, name: Buffer): AsyncGenerator<Buffer, void, undefined> {
    yield* this.#entry(path, name);
    yield* this.#put(tarEnd);
    yield* this.#flush();
  }

  async *#entry(path: Buffer, name: Buffer): AsyncGenerator<Buffer, void, undefined> {
    const stats = await lstat(path);
    if (stats.isDirectory()) yield* this.#directory(path, name, stats);
    else if (stats.isFile()) yield* this.#file(path, name, stats);
    else if (stats.isSymbolicLink()) {
      const link = await readlink(path, { encoding: "buffer" });
      yield* this.#member({ ...memberOf(name, stats), type: "symlink", link });
    } else {
      this.totals.skippedCount += 1;
      if (this.totals.skipped.length < maxSkipped)
        this.totals.skipped.push({ name: name.toString(), errno: "ENOTSUP" });
    }
  }

  async *#directory(path: Buffer, name: Buffer, stats: Stats): AsyncGenerator<Buffer, void, undefined> {
    const inside = Buffer.concat([name, slash]);
    yield* this.#member({ ...memberOf(inside, stats), type: "directory" });
    for (const base of await readdir(path, { encoding: "buffer" })) {
      yield* this.#entry(Buffer.concat([path, slash, base]), Buffer.concat([inside, base]));
    }
  }

  async *#file(path: Buffer, name: Buffer, seen: Stats): AsyncGenerator<Buffer, void, undefined> {
    const earlier = seen.nlink > 1 ? await this.#earlierName(path, name) : undefined;
    if (earlier !== undefined) {
      yield* this.#member({ ...memberOf(name, seen), type: "link", link: earlier });
      return;
    }
    await using handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const stats = await handle.stat();
    yield* this.#member({ ...memberOf(name, stats), size: stats.size });
    yield* this.#content(handle, name, stats.size);
    this.totals.bytes += stats.size;
    yield* this.#put(Buffer.alloc(tarPadding(stats.size)));
  }

  async *#content(handle: FileHandle, name: Buffer, size: number): AsyncGenerator<Buffer, void, undefined> {
    for await (const chunk of fileChunks(handle, size, name)) yield* this.#put(chunk);
  }

  async #earlierName(path: Buffer, name: Buffer): Promise<Buffer | undefined> {
    // as whole numbers: inode numbers of some file systems have 64 bits
    const { dev, ino } = await lstat(path, { bigint: true });
    const key = `${dev}:${ino}`;
    const earlier = this.#linked.get(key);
    if (earlier === undefined) this.#linked.set(key, name);
    return earlier;
  }

  *#member(member: TarMember): Generator<Buffer, void, undefined> {
    this.totals.entries += 1;
    yield* this.#put(encodeTarHeader(member));
  }

  *#put(bytes: Buffer): Generator<Buffer, void, undefined> {
    if (bytes.length >= batchBytes) {
      yield* this.#flush();
      yield bytes;
      return;
    }
    this.#batch.push(Buffer.from(bytes));
    this.#batchBytes += bytes.length;
    if (this.#batchBytes >= batchBytes) yield* this.#flush();
  }

  *#flush(): Generator<Buffer, void, undefined> {
    if (this.#batchBytes > 0) yield Buffer.concat(this.#batch);
    this.#batch = [];
    this.#batchBytes = 0;
  }
}

/**
 * Exactly `size` bytes of a file, read ahead by one chunk. A chunk may be overwritten once the next one is asked for.
 * @throws DSecError `file_error` when it has become shorter meanwhile
 */
export async function* fileChunks(
  handle: FileHandle,
  size: number,
  name: Buffer,
): AsyncGenerator<Buffer, void, undefined> {
  const length = Math.min(chunkBytes, size);
  let left = size;
  const read = async (into: Buffer): Promise<Buffer> => {
    const { bytesRead } = await handle.read(into, 0, Math.min(into.length, left));
    if (bytesRead === 0)
      throw new DSecError("file_error", `${name.toString()} became shorter while it was read`);
    left -= bytesRead;
    return into.subarray(0, bytesRead);
  };
  const first = Buffer.allocUnsafeSlow(length);
  // a file that fits one chunk needs no second
  let spare = size > length ? Buffer.allocUnsafeSlow(length) : first;
  let current = first;
  let next = size > 0 ? read(first) : undefined;
  try {
    while (next !== undefined) {
      const chunk = await next;
      next = left > 0 ? read(spare) : undefined;
      [current, spare] = [spare, current];
      yield chunk;
    }
  } finally {
    // whoever closes the file must not do so under a read
    await next?.catch(() => undefined);
  }
}

function memberOf(name: Buffer, { mode, uid, gid, mtimeMs }: Stats): TarMember {
  return { type: "file", name, mode: mode & 0o7777, uid, gid, mtimeMs, size: 0 };
}
