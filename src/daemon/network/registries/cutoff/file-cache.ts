import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, rmSync, statSync, utimesSync } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import { isErrno } from "../../../../backends/linux/libc.ts";
import { DSecError } from "../../../../protocol/errors.ts";

const chunkBytes = 262_144;
const partial = ".part";

/** A file that is there, or on its way. */
export interface CachedFile {
  /** Bytes, where known. */
  readonly length: number | undefined;
  /** From the beginning, as far as it has come, then as it comes. To be read once. */
  readonly content: () => AsyncGenerator<Buffer>;
  /** Lets go of it, read or not. Idempotent. */
  readonly close: () => Promise<void>;
}

/**
 * Files of a registry on disk, the least recently used go first. A file is fetched once, however many ask for it, and they read it while it
 * comes. What lies under an address never changes.
 */
export class FileCache {
  readonly #directory: string;
  readonly #maxBytes: number;
  /** By name, the least recently used first. */
  readonly #files = new Map<string, number>();
  readonly #downloads = new Map<string, Promise<Download>>();
  #bytes = 0;

  constructor(directory: string, maxBytes: number) {
    this.#directory = directory;
    this.#maxBytes = maxBytes;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const found = readdirSync(directory).flatMap((name) => {
      const path = join(directory, name);
      if (!name.endsWith(partial)) return [{ name, ...sizeAndAge(path) }];
      rmSync(path, { force: true });
      return [];
    });
    for (const { name, size } of found.toSorted((a, b) => a.usedMs - b.usedMs)) {
      this.#files.set(name, size);
      this.#bytes += size;
    }
    this.#evict();
  }

  /** @param fetch is called where the file is not there */
  async get(address: string, fetch: () => Promise<IncomingMessage>): Promise<CachedFile> {
    const name = createHash("sha256").update(address).digest("hex");
    const size = this.#files.get(name);
    if (size !== undefined) {
      this.#files.delete(name);
      this.#files.set(name, size);
      const path = join(this.#directory, name);
      const handle = await openIfThere(path);
      if (handle !== undefined) {
        const now = new Date();
        utimesSync(path, now, now);
        return { length: size, content: () => readTo(handle, () => size), close: () => handle.close() };
      }
      this.#forget(name);
    }
    const download = this.#downloads.get(name) ?? this.#begin(name, fetch);
    // Undefined where it is just being put in its place, or away.
    return (await (await download).view()) ?? this.get(address, fetch);
  }

  #begin(name: string, fetch: () => Promise<IncomingMessage>): Promise<Download> {
    const path = join(this.#directory, `${name}${partial}`);
    const room = {
      take: (bytes: number) => this.#take(bytes),
      keep: async (bytes: number) => {
        await rename(path, join(this.#directory, name));
        this.#files.set(name, bytes);
      },
      giveBack: async (bytes: number) => {
        this.#bytes -= bytes;
        await rm(path, { force: true });
      },
    };
    const begun = Download.begin(path, fetch, room);
    this.#downloads.set(name, begun);
    void begun
      .then(({ done }) => done)
      .catch(() => undefined)
      .finally(() => this.#downloads.delete(name));
    return begun;
  }

  /** Makes room for what has come of a download. @throws DSecError `disk_full` */
  #take(bytes: number): void {
    this.#bytes += bytes;
    this.#evict();
    if (this.#bytes > this.#maxBytes)
      throw new DSecError("disk_full", "there is no room for what is fetched from the registry at once");
  }

  #evict(): void {
    for (const name of this.#files.keys()) {
      if (this.#bytes <= this.#maxBytes) return;
      rmSync(join(this.#directory, name), { force: true });
      this.#forget(name);
    }
  }

  #forget(name: string): void {
    this.#bytes -= this.#files.get(name) ?? 0;
    this.#files.delete(name);
  }
}

type Handle = Awaited<ReturnType<typeof open>>;

/** What a download asks of the cache. */
interface Room {
  /** @throws DSecError `disk_full` */
  readonly take: (bytes: number) => void;
  /** Puts the whole file in its place: before its readers see its end, so that who asks next finds it. */
  readonly keep: (bytes: number) => Promise<void>;
  /** Removes what came of one that failed. */
  readonly giveBack: (bytes: number) => Promise<void>;
}

/** A file on its way to the disk. */
class Download {
  readonly #path: string;
  readonly #length: number | undefined;
  readonly done: Promise<void>;
  written = 0;
  #more = Promise.withResolvers<void>();

  private constructor(path: string, answer: IncomingMessage, handle: Handle, room: Room) {
    this.#path = path;
    const told = Number(answer.headers["content-length"]);
    this.#length = Number.isSafeInteger(told) ? told : undefined;
    this.done = this.#run(answer, handle, room);
    this.done.catch(() => undefined);
  }

  static async begin(path: string, fetch: () => Promise<IncomingMessage>, room: Room): Promise<Download> {
    const answer = await fetch();
    const handle = await open(path, "wx", 0o600).catch((error: unknown) => {
      answer.destroy();
      throw error;
    });
    return new Download(path, answer, handle, room);
  }

  async view(): Promise<CachedFile | undefined> {
    const handle = await openIfThere(this.#path);
    if (handle === undefined) return undefined;
    return {
      length: this.#length,
      content: () =>
        readTo(handle, async (at) => {
          while (this.written <= at) {
            const settled = await Promise.race([
              this.#more.promise.then(() => false),
              this.done.then(() => true),
            ]);
            if (settled) break;
          }
          return this.written;
        }),
      close: () => handle.close(),
    };
  }

  async #run(answer: IncomingMessage, handle: Handle, room: Room): Promise<void> {
    try {
      await this.#write(answer, handle, room);
      await room.keep(this.written);
    } catch (error) {
      await room.giveBack(this.written);
      throw error;
    }
  }

  async #write(answer: IncomingMessage, handle: Handle, room: Room): Promise<void> {
    try {
      for await (const chunk of answer as AsyncIterable<Buffer>) {
        await handle.writeFile(chunk);
        this.written += chunk.length;
        room.take(chunk.length);
        this.#more.resolve();
        this.#more = Promise.withResolvers();
      }
      if (this.#length !== undefined && this.written !== this.#length)
        throw new DSecError("connection_lost", "the registry's file broke off");
    } finally {
      answer.destroy();
      await handle.close();
    }
  }
}

async function openIfThere(path: string): Promise<Handle | undefined> {
  return open(path).catch((error: unknown) => {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  });
}

/** Reads up to `end`, which may move on while it is read. */
async function* readTo(
  handle: Handle,
  end: (at: number) => number | Promise<number>,
): AsyncGenerator<Buffer> {
  for (let at = 0, limit = await end(0); at < limit; limit = await end(at)) {
    const piece = Buffer.allocUnsafe(Math.min(chunkBytes, limit - at));
    const { bytesRead } = await handle.read(piece, 0, piece.length, at);
    if (bytesRead === 0) throw new DSecError("connection_lost", "the file ends before its end");
    at += bytesRead;
    yield piece.subarray(0, bytesRead);
  }
}

function sizeAndAge(path: string): { size: number; usedMs: number } {
  const { size, mtimeMs } = statSync(path);
  return { size, usedMs: mtimeMs };
}
