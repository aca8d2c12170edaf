import { createHash } from "node:crypto";
import { posix } from "node:path";
import { crc32 } from "node:zlib";
import type {
  ContentSink,
  GuestArchiveResult,
  GuestContentOptions,
  GuestExtractOptions,
  GuestFileInfo,
  GuestFiles,
  GuestPath,
  GuestReadOptions,
  GuestWriteOptions,
} from "../../agent/guest.ts";
import { DSecError } from "../../protocol/errors.ts";
import { readTar } from "../../protocol/tar-decode.ts";
import { encodeTarHeader, tarEnd } from "../../protocol/tar-encode.ts";
import { tarPadding } from "../../protocol/tar-member.ts";
import type { Timers } from "./timers.ts";

interface Entry {
  /** Undefined for a directory. */
  readonly content?: Buffer;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeMs: number;
}

/** However large the disk limit: these files are in the daemon's memory. */
const MOST_BYTES = 67_108_864;
const CHUNK = 32_768;

const messages = {
  ENOENT: "No such file or directory",
  ENOTDIR: "Not a directory",
  EISDIR: "Is a directory",
  EEXIST: "File exists",
  ENOTEMPTY: "Directory not empty",
  EINVAL: "Invalid argument",
  EDQUOT: "Disk quota exceeded",
  EBADMSG: "Content or size does not match",
  EOPNOTSUPP: "Operation not supported",
} as const;

/** Files and directories in memory; no symlinks and no permissions. */
export class SimulatedFiles implements GuestFiles {
  readonly #entries = new Map<string, Entry>();
  readonly #limitBytes: number;
  readonly #timers: Timers;
  #usedBytes = 0;

  constructor(limitBytes: number, timers: Timers) {
    this.#limitBytes = Math.min(limitBytes, MOST_BYTES);
    this.#timers = timers;
    for (const path of ["/", "/etc", "/root", "/tmp"]) {
      this.#entries.set(path, {
        mode: path === "/tmp" ? 0o1777 : 0o755,
        uid: 0,
        gid: 0,
        mtimeMs: timers.now(),
      });
    }
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  isDirectory(path: string): boolean {
    const entry = this.#entries.get(normal(path));
    return entry !== undefined && entry.content === undefined;
  }

  async read(
    path: GuestPath,
    range: { offset?: number; length?: number },
    sink: ContentSink,
    { begun, signal }: GuestReadOptions = {},
  ): Promise<GuestFileInfo> {
    const entry = this.#get(path);
    if (entry.content === undefined) throw failure("EISDIR", path);
    begun?.(info(path, entry));
    const offset = range.offset ?? 0;
    const end = Math.min(entry.content.length, offset + (range.length ?? Infinity));
    for (let at = offset; at < end; at += CHUNK) {
      signal?.throwIfAborted();
      await sink(Buffer.from(entry.content.subarray(at, Math.min(end, at + CHUNK))));
    }
    return info(path, entry);
  }

  async write(
    path: GuestPath,
    content: AsyncIterable<Uint8Array>,
    options: GuestWriteOptions,
  ): Promise<void> {
    const target = this.#inDirectory(path);
    const chunks: Uint8Array[] = [];
    let size = 0;
    for await (const chunk of content) {
      options.signal?.throwIfAborted();
      size += chunk.length;
      if (this.#usedBytes + size > this.#limitBytes) throw failure("EDQUOT", path);
      chunks.push(Uint8Array.from(chunk));
    }
    const bytes = Buffer.concat(chunks);
    const sizeDiffers = options.size !== undefined && options.size !== size;
    if (sizeDiffers || !agrees(bytes, options)) throw failure("EBADMSG", path);
    const old = this.#entries.get(target);
    if (old !== undefined && old.content === undefined) throw failure("EISDIR", path);
    this.#usedBytes += size - (old?.content?.length ?? 0);
    this.#entries.set(target, {
      content: bytes,
      mode: options.mode ?? old?.mode ?? 0o644,
      uid: options.uid ?? old?.uid ?? 0,
      gid: options.gid ?? old?.gid ?? 0,
      mtimeMs: options.mtimeMs ?? this.#timers.now(),
    });
  }

  async archive(
    path: GuestPath,
    { name, begun, signal }: GuestReadOptions & { readonly name: Uint8Array },
    sink: ContentSink,
  ): Promise<GuestArchiveResult> {
    const top = normal(path);
    begun?.(info(path, this.#get(path)));
    const below = top === "/" ? "/" : `${top}/`;
    let bytes = 0;
    const found = [...this.#entries]
      .filter(([key]) => key === top || key.startsWith(below))
      .toSorted(([one], [other]) => (one < other ? -1 : 1));
    for (const [key, { content, ...entry }] of found) {
      signal?.throwIfAborted();
      const isFile = content !== undefined;
      const inside = key === top ? "" : `/${key.slice(below.length)}`;
      const size = content?.length ?? 0;
      const entryName = Buffer.concat([name, Buffer.from(`${inside}${isFile ? "" : "/"}`)]);
      await sink(encodeTarHeader({ ...entry, name: entryName, type: isFile ? "file" : "directory", size }));
      if (content !== undefined) await sink(Buffer.concat([content, Buffer.alloc(tarPadding(size))]));
      bytes += size;
    }
    await sink(tarEnd);
    return { entries: found.length, bytes, skipped: [], skippedCount: 0 };
  }

  async extract(
    path: GuestPath,
    content: AsyncIterable<Uint8Array>,
    { owners, uid = 0, gid = 0, signal, ...check }: GuestExtractOptions,
  ): Promise<GuestArchiveResult> {
    const chunks: Uint8Array[] = [];
    const skipped: { path: Buffer; errno: string }[] = [];
    let entries = 0;
    let bytes = 0;
    for await (const { type, name, content: file, ...member } of readTar(kept(content, chunks))) {
      signal?.throwIfAborted();
      const relative = posix.normalize(name.toString());
      if (relative.startsWith("..") || relative.startsWith("/")) throw failure("EINVAL", name);
      const target = posix.join(normal(path), relative);
      const owner = owners ? { uid: member.uid, gid: member.gid } : { uid, gid };
      if (type === "directory") await this.mkdir(target, { parents: true, mode: member.mode });
      else if (type !== "file") skipped.push({ path: name, errno: "EOPNOTSUPP" });
      else {
        await this.mkdir(posix.dirname(target), { parents: true });
        await this.write(target, file, { ...member, ...owner });
      }
      entries += 1;
      bytes += member.size;
    }
    if (!agrees(Buffer.concat(chunks), check)) throw failure("EBADMSG", path);
    return { entries, bytes, skipped, skippedCount: skipped.length };
  }

  async stat(path: GuestPath): Promise<GuestFileInfo> {
    return info(path, this.#get(path));
  }

  async list(path: GuestPath): Promise<GuestFileInfo[]> {
    if (this.#get(path).content !== undefined) throw failure("ENOTDIR", path);
    const parent = normal(path);
    return [...this.#entries]
      .filter(([name]) => name !== "/" && posix.dirname(name) === parent)
      .map(([name, entry]) => info(posix.basename(name), entry));
  }

  async mkdir(path: GuestPath, options: { parents: boolean; mode?: number }): Promise<void> {
    const target = normal(path);
    if (this.#entries.has(target)) {
      if (options.parents && this.isDirectory(target)) return;
      throw failure("EEXIST", path);
    }
    if (options.parents) await this.mkdir(posix.dirname(target), { parents: true });
    this.#inDirectory(path);
    this.#entries.set(target, { mode: options.mode ?? 0o755, uid: 0, gid: 0, mtimeMs: this.#timers.now() });
  }

  async remove(path: GuestPath, options: { recursive: boolean }): Promise<void> {
    this.#get(path);
    const target = normal(path);
    if (target === "/") throw failure("EINVAL", path);
    const below = [...this.#entries.keys()].filter((name) => name.startsWith(`${target}/`));
    if (below.length > 0 && !options.recursive) throw failure("ENOTEMPTY", path);
    for (const name of [target, ...below]) {
      this.#usedBytes -= this.#entries.get(name)?.content?.length ?? 0;
      this.#entries.delete(name);
    }
  }

  async rename(from: GuestPath, to: GuestPath): Promise<void> {
    const moved = this.#get(from);
    const source = normal(from);
    const target = this.#inDirectory(to);
    if (source === "/" || target.startsWith(`${source}/`)) throw failure("EINVAL", to);
    if (source === target) return;
    if (this.#entries.has(target)) {
      if (moved.content !== undefined && this.isDirectory(target)) throw failure("EISDIR", to);
      await this.remove(to, { recursive: false });
    }
    const moving = [...this.#entries].filter(([name]) => name === source || name.startsWith(`${source}/`));
    for (const [name, entry] of moving) {
      this.#entries.delete(name);
      this.#entries.set(target + name.slice(source.length), entry);
    }
  }

  #get(path: GuestPath): Entry {
    const entry = this.#entries.get(normal(path));
    if (entry === undefined) throw failure("ENOENT", path);
    return entry;
  }

  /** The normal path, given that its directory exists. */
  #inDirectory(path: GuestPath): string {
    const target = normal(path);
    const parent = this.#entries.get(posix.dirname(target));
    if (parent === undefined) throw failure("ENOENT", path);
    if (parent.content !== undefined) throw failure("ENOTDIR", path);
    return target;
  }
}

async function* kept(content: AsyncIterable<Uint8Array>, chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  for await (const chunk of content) {
    chunks.push(Uint8Array.from(chunk));
    yield chunk;
  }
}

function agrees(bytes: Buffer, { sha256, checkAtEnd }: GuestContentOptions): boolean {
  const digest = createHash("sha256").update(bytes).digest();
  if (sha256 !== undefined && !digest.equals(sha256)) return false;
  if (checkAtEnd === undefined) return true;
  const value = checkAtEnd.value();
  return checkAtEnd.kind === "sha256" ? digest.equals(value) : value.readUInt32LE(0) === crc32(bytes);
}

/** Names here are text. */
function textOf(path: GuestPath): string {
  return typeof path === "string" ? path : Buffer.from(path).toString();
}

function normal(given: GuestPath): string {
  const path = textOf(given);
  if (!path.startsWith("/")) throw failure("EINVAL", path);
  const normalized = posix.normalize(path);
  return normalized.length > 1 && normalized.endsWith("/") ? normalized.slice(0, -1) : normalized;
}

function info(name: GuestPath, entry: Entry): GuestFileInfo {
  return {
    name: Buffer.from(name),
    type: entry.content === undefined ? "directory" : "file",
    mode: entry.mode,
    uid: entry.uid,
    gid: entry.gid,
    size: entry.content?.length ?? 0,
    mtimeMs: entry.mtimeMs,
  };
}

function failure(errno: keyof typeof messages, given: GuestPath): DSecError {
  const path = textOf(given);
  return new DSecError("file_error", `${path}: ${messages[errno]}`, { details: { errno, path } });
}
