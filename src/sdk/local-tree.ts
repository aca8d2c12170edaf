/** What comes out of a sandbox, on this machine's disk. Whatever an archive says, nothing is written outside the target. */
import { randomBytes } from "node:crypto";
import type { Stats } from "node:fs";
import {
  type FileHandle,
  link as hardLink,
  lchown,
  lstat,
  lutimes,
  mkdir,
  open,
  rename,
  symlink,
  unlink,
} from "node:fs/promises";
import { DSecError } from "../protocol/errors.ts";
import type { TarEntry } from "../protocol/tar-decode.ts";
import type { TarMember } from "../protocol/tar-member.ts";
import { writeWithHoles } from "./sparse-file.ts";

type Described = Pick<TarMember, "mode" | "uid" | "gid" | "mtimeMs">;

interface OpenDirectory {
  readonly path: Buffer;
  readonly name: string;
  /** To be set when everything in it is done. */
  described: Described | undefined;
}

/**
 * Puts the entries of one archive below a directory. Each step on the way to an entry is looked at and must be a real directory, never
 * a symlink, whoever made it; names with `..` are refused; every file is made beside its place under a name of its own and then
 * renamed, so that nothing that was there is ever written into.
 */
export class LocalTree {
  readonly #owners: boolean;
  /** The way to the entry before; its first is the target itself. */
  #way: OpenDirectory[];

  /** @param target an existing directory @param owners whether owners and set-id bits are kept */
  constructor(target: Buffer, owners: boolean) {
    this.#owners = owners;
    this.#way = [{ path: target, name: "", described: undefined }];
  }

  /** @returns false for what cannot be made here: devices and FIFOs */
  async put(entry: TarEntry): Promise<boolean> {
    const { parent, leaf, path } = await this.#place(entry.name);
    switch (entry.type) {
      case "directory":
        if (leaf !== "") await this.#directory(parent, leaf, entry);
        return true;
      case "file":
        await replaceBy(path, async (draft) => this.#file(draft, entry));
        return true;
      case "symlink":
        await replaceBy(path, async (draft) => {
          await symlink(entry.link ?? Buffer.alloc(0), draft);
          if (this.#owners) await lchown(draft, entry.uid, entry.gid);
          await lutimes(draft, entry.mtimeMs / 1000, entry.mtimeMs / 1000);
        });
        return true;
      case "link": {
        const from = await this.#linked(entry);
        await replaceBy(path, async (draft) => hardLink(from, draft));
        return true;
      }
      default:
        return false;
    }
  }

  /** Everything is there. */
  async end(): Promise<void> {
    await this.#leave(1);
  }

  async #place(name: Buffer): Promise<{ parent: number; leaf: string; path: Buffer }> {
    const parts = partsOf(name);
    const leaf = parts.pop() ?? "";
    let depth = 1;
    while (depth <= parts.length && this.#way[depth]?.name === parts[depth - 1]) depth += 1;
    if (depth <= parts.length) await this.#leave(depth);
    for (const part of parts.slice(depth - 1)) await this.#enter(part);
    const parent = parts.length;
    return { parent, leaf, path: join(this.#at(parent).path, leaf) };
  }

  async #enter(name: string): Promise<void> {
    const path = join(this.#at(this.#way.length - 1).path, name);
    const found = await ifThere(path);
    if (found === undefined) await mkdir(path);
    else if (!found.isDirectory()) throw refused(path, "something else than a directory is in the way");
    this.#way.push({ path, name, described: undefined });
  }

  async #directory(parent: number, leaf: string, entry: TarEntry): Promise<void> {
    if (this.#way[parent + 1]?.name === leaf) {
      await this.#leave(parent + 2);
    } else {
      await this.#leave(parent + 1);
      const isNew = (await ifThere(join(this.#at(parent).path, leaf))) === undefined;
      await this.#enter(leaf);
      // what was there keeps what it is, unless all is to be reproduced
      if (!isNew && !this.#owners) return;
    }
    this.#at(parent + 1).described = entry;
  }

  async #file(draft: Buffer, entry: TarEntry): Promise<void> {
    await using handle = await open(draft, "wx", 0o600);
    await writeWithHoles(handle, entry.content);
    await this.#describe(handle, entry);
  }

  async #describe(handle: FileHandle, { mode, uid, gid, mtimeMs }: Described): Promise<void> {
    if (this.#owners) await handle.chown(uid, gid);
    // after the owner, as changing that takes set-id bits away
    await handle.chmod(mode & (this.#owners ? 0o7777 : 0o1777));
    await handle.utimes(mtimeMs / 1000, mtimeMs / 1000);
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

  /** Deeper ones are done. */
  async #leave(kept: number): Promise<void> {
    for (let last = this.#way.length; last > kept; last -= 1) {
      const { path, described } = this.#at(last - 1);
      this.#way.pop();
      if (described === undefined) continue;
      // a directory can be opened for its description; that it is still one was just seen
      await using handle = await open(path, "r");
      await this.#describe(handle, described);
    }
  }

  #at(depth: number): OpenDirectory {
    const found = this.#way[depth];
    if (found === undefined) throw new RangeError(`the way has no step ${depth}`);
    return found;
  }
}

/** Makes something under a name of its own beside `path`, then renames it. Nothing stays when that fails. */
export async function replaceBy(path: Buffer, make: (draft: Buffer) => Promise<void>): Promise<void> {
  const directory = path.subarray(0, path.lastIndexOf(0x2f) + 1);
  const draft = Buffer.concat([directory, Buffer.from(`.dsec-${randomBytes(8).toString("hex")}.tmp`)]);
  try {
    await make(draft);
    await rename(draft, path);
  } finally {
    // also after a rename, which does nothing between two names of one file
    await unlink(draft).catch(() => undefined);
  }
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
