/** What comes out of a sandbox, on this machine's disk. Whatever an archive says, nothing is written outside the target. */
import { constants, type Stats } from "node:fs";
import { lchown, lstat, lutimes, mkdir, open, symlink } from "node:fs/promises";
import { DSecError } from "../protocol/errors.ts";
import type { TarEntry } from "../protocol/tar-decode.ts";
import { describe, type Description, linkAs, replaceBy, writeNew } from "./local-file.ts";
import { writeWithHoles } from "./sparse-file.ts";

interface OpenDirectory {
  readonly path: Buffer;
  readonly name: string;
  /** Whether it was made here. */
  readonly isNew: boolean;
}

/** Entries that are being made at a time. */
const width = 8;
/** Bytes of files that are taken in whole, to be made while the next ones come. */
const smallBytes = 65_536;
/** Directories whose description waits. */
const maxDescribed = 10_000;
const directoryFlags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/**
 * Puts the entries of one archive below a directory. Each step on the way to an entry is looked at and must be a real directory, never
 * a symlink, whoever made it; names with `..` are refused; every file is made beside its place under a name of its own and then
 * renamed, so that nothing that was there is ever written into. Disposal waits for what is still being made.
 */
export class LocalTree implements AsyncDisposable {
  readonly #owners: boolean;
  /** The way to the entry before; its first is the target itself. */
  #way: OpenDirectory[];
  /** What is being made, by path, the oldest first. Nothing is looked at or made twice at a time under one path. */
  readonly #making = new Map<string, Promise<void>>();
  /** What directories are to be once nothing more comes into them, by path. */
  readonly #described = new Map<string, Description & { readonly path: Buffer }>();
  #failure: { readonly error: unknown } | undefined;

  /** @param target an existing directory @param owners whether owners and set-id bits are kept */
  constructor(target: Buffer, owners: boolean) {
    this.#owners = owners;
    this.#way = [{ path: target, name: "", isNew: false }];
  }

  /** @returns false for what cannot be made here: devices and FIFOs @throws also why an entry before could not be made */
  async put(entry: TarEntry): Promise<boolean> {
    const { parent, leaf, path } = await this.#place(entry.name);
    switch (entry.type) {
      case "directory":
        if (leaf !== "") await this.#directory(parent, leaf, entry);
        return true;
      case "file":
        await this.#file(path, entry);
        return true;
      case "symlink":
        await this.#make(path, async () => this.#symlink(path, entry));
        return true;
      case "link": {
        await this.#settled();
        const from = await this.#linked(entry);
        await this.#make(path, async () => linkAs(from, path));
        return true;
      }
      default:
        return false;
    }
  }

  /** Everything is there. */
  async end(): Promise<void> {
    this.#way.length = 1;
    await this.#describe();
    await this.#settled();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#making.values());
  }

  async #place(name: Buffer): Promise<{ parent: number; leaf: string; path: Buffer }> {
    const parts = partsOf(name);
    const leaf = parts.pop() ?? "";
    let depth = 1;
    while (depth <= parts.length && this.#way[depth]?.name === parts[depth - 1]) depth += 1;
    if (depth <= parts.length) this.#way.length = depth;
    for (const part of parts.slice(depth - 1)) await this.#enter(part);
    const parent = parts.length;
    return { parent, leaf, path: join(this.#at(parent).path, leaf) };
  }

  /** @param mode of one that is made */
  async #enter(name: string, mode?: number): Promise<void> {
    const path = join(this.#at(this.#way.length - 1).path, name);
    await this.#making.get(keyOf(path));
    const found = await ifThere(path);
    if (found === undefined) await mkdir(path, { mode });
    else if (!found.isDirectory()) throw refused(path, "something else than a directory is in the way");
    this.#way.push({ path, name, isNew: found === undefined });
  }

  async #directory(parent: number, leaf: string, entry: TarEntry): Promise<void> {
    if (this.#way[parent + 1]?.name !== leaf) {
      this.#way.length = parent + 1;
      // until it is described it is nobody else's
      await this.#enter(leaf, 0o700);
    }
    const { path, isNew } = this.#at(parent + 1);
    // what was there keeps what it is, unless all is to be reproduced
    if (!isNew && !this.#owners) return;
    const { mode, uid, gid, mtimeMs } = entry;
    this.#described.set(keyOf(path), { path, mode, uid, gid, mtimeMs });
    if (this.#described.size >= maxDescribed) await this.#describe();
  }

  async #file(path: Buffer, entry: TarEntry): Promise<void> {
    const owners = this.#owners;
    if (entry.size > smallBytes) {
      await this.#making.get(keyOf(path));
      await replaceBy(path, async (draft) => {
        await using handle = await open(draft, "wx", 0o600);
        await writeWithHoles(handle, entry.content);
        await describe(handle.fd, entry, owners);
      });
      return;
    }
    const content = Buffer.allocUnsafe(entry.size);
    let filled = 0;
    for await (const chunk of entry.content) filled += chunk.copy(content, filled);
    await this.#make(path, async () =>
      replaceBy(path, async (draft) => writeNew(draft, content, entry, owners)),
    );
  }

  async #symlink(path: Buffer, { link = Buffer.alloc(0), uid, gid, mtimeMs }: TarEntry): Promise<void> {
    await replaceBy(path, async (draft) => {
      await symlink(link, draft);
      if (this.#owners) await lchown(draft, uid, gid);
      await lutimes(draft, mtimeMs / 1000, mtimeMs / 1000);
    });
  }

  /** The path of the file that an entry is another name of. */
  async #linked({ name, link = Buffer.alloc(0) }: TarEntry): Promise<Buffer> {
    let path = this.#at(0).path;
    const parts = partsOf(link);
    for (const [index, part] of parts.entries()) {
      path = join(path, part);
      const found = await ifThere(path);
      const isLast = index === parts.length - 1;
      if (isLast ? found?.isDirectory() === false : found?.isDirectory() === true) continue;
      throw refused(name, "it is another name of something that is not there");
    }
    return path;
  }

  /** Begins it when there is room. @throws why something before could not be made */
  async #make(path: Buffer, work: () => Promise<void>): Promise<void> {
    const key = keyOf(path);
    await this.#making.get(key);
    while (this.#making.size >= width) {
      const [oldest] = this.#making.values();
      await oldest;
    }
    if (this.#failure !== undefined) throw this.#failure.error;
    const made = work()
      .catch((error: unknown) => {
        this.#failure ??= { error };
      })
      .finally(() => this.#making.delete(key));
    this.#making.set(key, made);
  }

  async #settled(): Promise<void> {
    await Promise.all(this.#making.values());
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  /** Sets what the directories are to be, except of those on the way, where more may come. The deepest first: one may be closed to us then. */
  async #describe(): Promise<void> {
    await this.#settled();
    const onWay = new Set(this.#way.map(({ path }) => keyOf(path)));
    const ready = [...this.#described].filter(([key]) => !onWay.has(key));
    for (const [key, { path, ...description }] of ready.toSorted(([a], [b]) => b.length - a.length)) {
      this.#described.delete(key);
      // that it is a directory, and its parents too, was seen when it was entered
      await using handle = await open(path, directoryFlags);
      await describe(handle.fd, description, this.#owners);
    }
  }

  #at(depth: number): OpenDirectory {
    const found = this.#way[depth];
    if (found === undefined) throw new RangeError(`the way has no step ${depth}`);
    return found;
  }
}

/** Bytes in a string. */
function keyOf(path: Buffer): string {
  return path.toString("latin1");
}

/** The names of a path that stays inside, as bytes in strings. */
function partsOf(name: Buffer): string[] {
  const text = name.toString("latin1");
  const parts = text.split("/").filter((part) => part !== "" && part !== ".");
  if (text === "" || text.startsWith("/") || text.includes("\0") || parts.includes(".."))
    throw refused(name, "its name leads out of the target");
  return parts;
}

function join(directory: Buffer, part: string): Buffer {
  return part === "" ? directory : Buffer.concat([directory, Buffer.from(`/${part}`, "latin1")]);
}

async function ifThere(path: Buffer): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

function refused(name: Buffer, reason: string): DSecError {
  const entry = name.toString();
  return new DSecError("file_error", `${entry} is refused: ${reason}`, {
    details: { entry, errno: "EINVAL" },
  });
}
