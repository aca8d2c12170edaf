/** A file or a tree of this machine as a tar archive. */
import type { Stats } from "node:fs";
import { lstat, open, readdir } from "node:fs/promises";
import { encodeTarHeader, tarEnd } from "../protocol/tar-encode.ts";
import { tarPadding, type TarType } from "../protocol/tar-member.ts";
import { fileChunks } from "./file-chunks.ts";
import { type LocalEntry, lookAt, readFlags } from "./local-entry.ts";
import { readAhead } from "./read-ahead.ts";

export interface ArchiveTotals {
  entries: number;
  /** Of the files. */
  bytes: number;
  readonly skipped: { readonly name: string; readonly errno: string }[];
  skippedCount: number;
}

/** Bytes of small things that are sent together. */
const batchBytes = 131_072;
/** Files of one directory that are looked at ahead of their turn. */
const aheadWidth = 8;
/** How many of those that were left out are named. */
export const maxSkipped = 100;

const slash = Buffer.from("/");

/** Where something is, and its name in the archive. */
interface Place {
  readonly path: Buffer;
  readonly name: Buffer;
}

type FileEntry = Extract<LocalEntry, { readonly type: "file" }>;

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
    // directories wait until all files beside them are done: only files are looked at ahead
    const waiting: Place[] = [{ path, name }];
    for (let place = waiting.pop(); place !== undefined; place = waiting.pop()) {
      const entry = await lookAt(place.path, false);
      if (entry.type === "file") yield* this.#file(place, entry);
      else yield* this.#put(...this.#headerOf(place.name, entry));
      if (entry.type !== "directory") continue;
      const { files, others } = await placesIn(place);
      waiting.push(...others);
      const look = async (file: Place) => ({ file, found: await lookAt(file.path, true) });
      for await (const { file, found } of readAhead(files, aheadWidth, look)) {
        if (found.type !== "file") yield* this.#put(...this.#headerOf(file.name, found));
        else if (found.content === undefined || found.stats.nlink > 1) yield* this.#file(file, found);
        else yield* this.#put(...this.#whole(file.name, found.stats, found.content));
      }
    }
    yield* this.#put(tarEnd);
    if (this.#batchBytes > 0) yield Buffer.concat(this.#batch);
  }

  /** Of everything but files. Nothing for what archives do not have. */
  #headerOf(name: Buffer, entry: Exclude<LocalEntry, FileEntry>): Buffer[] {
    if (entry.type !== "other") {
      const isDirectory = entry.type === "directory";
      const full = isDirectory ? Buffer.concat([name, slash]) : name;
      return [this.#header(entry.type, full, entry.stats, isDirectory ? {} : { link: entry.link })];
    }
    this.totals.skippedCount += 1;
    if (this.totals.skipped.length < maxSkipped)
      this.totals.skipped.push({ name: name.toString(), errno: "ENOTSUP" });
    return [];
  }

  async *#file({ path, name }: Place, entry: FileEntry): AsyncGenerator<Buffer, void, undefined> {
    const earlier = entry.stats.nlink > 1 ? await this.#earlierName(path, name) : undefined;
    if (earlier !== undefined) {
      yield* this.#put(this.#header("link", name, entry.stats, { link: earlier }));
      return;
    }
    if (entry.content !== undefined) {
      yield* this.#put(...this.#whole(name, entry.stats, entry.content));
      return;
    }
    await using handle = await open(path, readFlags);
    const stats = await handle.stat();
    yield* this.#put(this.#header("file", name, stats, { size: stats.size }));
    for await (const chunk of fileChunks(handle, stats.size, path)) {
      if (chunk.length >= batchBytes) {
        yield* this.#flush();
        yield chunk;
      } else yield* this.#put(Buffer.from(chunk));
    }
    this.totals.bytes += stats.size;
    yield* this.#put(Buffer.alloc(tarPadding(stats.size)));
  }

  #whole(name: Buffer, stats: Stats, content: Buffer): Buffer[] {
    this.totals.bytes += content.length;
    const header = this.#header("file", name, stats, { size: content.length });
    return [header, content, Buffer.alloc(tarPadding(content.length))];
  }

  async #earlierName(path: Buffer, name: Buffer): Promise<Buffer | undefined> {
    // as whole numbers: inode numbers of some file systems have 64 bits
    const { dev, ino } = await lstat(path, { bigint: true });
    const key = `${dev}:${ino}`;
    const earlier = this.#linked.get(key);
    if (earlier === undefined) this.#linked.set(key, name);
    return earlier;
  }

  #header(
    type: TarType,
    name: Buffer,
    { mode, uid, gid, mtimeMs }: Stats,
    { size = 0, link }: { readonly size?: number; readonly link?: Buffer },
  ): Buffer {
    this.totals.entries += 1;
    const member = { type, name, mode: mode & 0o7777, uid, gid, mtimeMs, size };
    return encodeTarHeader(link === undefined ? member : { ...member, link });
  }

  /** Small things, which wait until it is worth to send them. */
  *#put(...parts: readonly Buffer[]): Generator<Buffer, void, undefined> {
    for (const part of parts) {
      this.#batch.push(part);
      this.#batchBytes += part.length;
    }
    if (this.#batchBytes >= batchBytes) yield* this.#flush();
  }

  *#flush(): Generator<Buffer, void, undefined> {
    if (this.#batchBytes > 0) yield Buffer.concat(this.#batch);
    this.#batch = [];
    this.#batchBytes = 0;
  }
}

async function placesIn({ path, name }: Place): Promise<{ files: Place[]; others: Place[] }> {
  const files: Place[] = [];
  const others: Place[] = [];
  for (const entry of await readdir(path, { encoding: "buffer", withFileTypes: true })) {
    const place = {
      path: Buffer.concat([path, slash, entry.name]),
      name: Buffer.concat([name, slash, entry.name]),
    };
    (entry.isFile() ? files : others).push(place);
  }
  return { files, others };
}
