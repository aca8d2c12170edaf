import { isErrno } from "../../../backends/linux/libc.ts";
import { imageInvalid } from "./image-error.ts";
import type { LayerMember } from "./layer-archive.ts";
import { LowerView } from "./lower-view.ts";
import { baseName, joinPath, memberPath, parentOf } from "./member-path.ts";
import { printable } from "./tar-header.ts";
import { TreeFiles } from "./tree-files.ts";

const whiteoutPrefix = ".wh.";
const opaqueMarker = ".wh..wh..opq";
/** Other names with this prefix are AUFS's own business. */
const metaPrefix = ".wh..wh.";
const opaqueXattr = "trusted.overlay.opaque";
/** What overlayfs reads out of layers: an image must not say such things. */
const overlayXattr = /^(?:trusted|user)\.overlay\./;
/** Members of one layer. */
const mostMembers = 4_000_000;
/** Of one file: holes cost no disk, but time. */
const mostFileBytes = 2 ** 40;
/** The kernel's own limit. */
const mostLinks = 40;

/**
 * Consecutive layers of an image as one tree. Where further layers lie below, what is gone from them becomes a whiteout, and what
 * hides a directory of theirs becomes opaque, as overlayfs wants it. No path of an archive leads out of the tree: every
 * component is looked at before it is gone through, and nobody else writes here meanwhile.
 */
export class LayerTree {
  readonly #files: TreeFiles;
  readonly #lower: LowerView;
  /** Every directory of the tree that has been seen, with the time it is to have. */
  readonly #directories = new Map<string, number>([["", 0]]);
  readonly #opaque = new Set<string>();
  /** Names of directories' extended attributes, since a later layer's replace them. */
  readonly #xattrs = new Map<string, readonly string[]>();
  /** What the layer that is being added has brought, since its whiteouts do not concern it. */
  #current = new Set<string>();

  /**
   * @param root an empty directory
   * @param lower what the layers below show; undefined where there are none
   */
  constructor(root: string, lower: string | undefined) {
    this.#files = new TreeFiles(root);
    this.#lower = new LowerView(lower);
    this.#describeImplicit("");
  }

  /** @throws DSecError `image_invalid` */
  async addLayer(members: AsyncIterable<LayerMember>): Promise<void> {
    this.#current = new Set();
    for await (const member of members) {
      if (this.#current.size > mostMembers) throw imageInvalid("a layer has too many members");
      if (member.size > mostFileBytes)
        throw imageInvalid(`'${printable(member.name)}' of a layer is too large`);
      try {
        await this.#add(member);
      } catch (error) {
        if (
          !(error instanceof RangeError) &&
          !isErrno(error, "ENAMETOOLONG", "ELOOP", "EMLINK", "EINVAL", "E2BIG", "ERANGE", "EFBIG")
        )
          throw error;
        throw imageInvalid(`'${printable(member.name)}' of a layer cannot be unpacked`, error);
      }
    }
  }

  /** To be called after the last layer: only now do directories keep their times. */
  finish(): void {
    for (const [path, mtime] of this.#directories) this.#files.setTime(path, mtime);
  }

  async #add(member: LayerMember): Promise<void> {
    const given = memberPath(member.name);
    if (given === "") {
      if (member.type !== "directory") throw imageInvalid("a layer has something else in place of its root");
      // as docker: the root of a container is not the image's to describe
      return;
    }
    const name = baseName(given);
    if (name === opaqueMarker) {
      this.#makeOpaque(this.#directory(parentOf(given)));
      return;
    }
    if (name.startsWith(metaPrefix)) return;
    const parent = this.#directory(parentOf(given));
    if (name.startsWith(whiteoutPrefix)) {
      const hidden = name.slice(whiteoutPrefix.length);
      if (hidden === "" || hidden === "." || hidden === "..")
        throw imageInvalid(`'${printable(member.name)}' of a layer hides nothing that can be named`);
      this.#whiteOut(joinPath(parent, hidden));
      return;
    }
    const path = joinPath(parent, name);
    if (member.type === "directory") this.#addDirectory(path, member);
    else await this.#addFile(path, member);
  }

  #addDirectory(path: string, member: LayerMember): void {
    if (this.#files.stat(path)?.isDirectory() !== true) this.#makeDirectory(path);
    this.#describeDirectory(path, member);
    this.#current.add(path);
  }

  async #addFile(path: string, member: LayerMember): Promise<void> {
    if (member.type === "link") {
      const target = this.#linkTarget(member);
      if (target === path) return;
      this.#removeTree(path);
      this.#files.link(path, target);
      this.#describeFile(path, {
        ...member,
        type: this.#files.stat(path)?.isSymbolicLink() ? "symlink" : "file",
      });
      return;
    }
    this.#removeTree(path);
    if (member.type === "symlink") {
      if (member.link === "") throw imageInvalid(`the symlink '${printable(path)}' leads to nothing`);
      this.#files.symlink(path, member.link);
    } else if (member.type === "file") await this.#files.write(path, member.size, member.content);
    else if (member.type !== "directory") this.#files.node(path, member.type, member.device);
    this.#describeFile(path, member);
  }

  #describeFile(path: string, member: LayerMember): void {
    this.#files.chown(path, member.uid, member.gid);
    if (member.type !== "symlink") this.#files.chmod(path, member.mode);
    for (const [name, value] of member.xattrs) this.#setXattr(path, name, value, member.type);
    this.#files.setTime(path, member.mtime);
    this.#current.add(path);
  }

  #linkTarget(member: LayerMember): string {
    const target = memberPath(member.link);
    const parent = this.#existingDirectory(parentOf(target));
    const path = parent === undefined ? "" : joinPath(parent, baseName(target));
    const found = path === "" ? undefined : this.#files.stat(path);
    if (found === undefined || found.isDirectory())
      throw imageInvalid(
        `'${printable(member.name)}' of a layer is a hard link to '${printable(member.link)}', which is no file of it`,
      );
    return path;
  }

  #describeDirectory(path: string, member: LayerMember): void {
    this.#files.chown(path, member.uid, member.gid);
    this.#files.chmod(path, member.mode);
    for (const name of this.#xattrs.get(path) ?? []) this.#files.removeXattr(path, name);
    const set = [...member.xattrs].filter(([name, value]) => this.#setXattr(path, name, value, "directory"));
    if (set.length > 0)
      this.#xattrs.set(
        path,
        set.map(([name]) => name),
      );
    else this.#xattrs.delete(path);
    this.#directories.set(path, member.mtime);
  }

  /** @returns whether it is set: as under docker, `user.` attributes are left out where nothing can have them */
  #setXattr(path: string, name: string, value: Buffer, type: LayerMember["type"]): boolean {
    if (overlayXattr.test(name)) return false;
    if (name.startsWith("user.") && type !== "file" && type !== "directory") return false;
    this.#files.setXattr(path, name, value);
    return true;
  }

  #whiteOut(path: string): void {
    if (this.#current.has(path)) {
      // what this layer brings stays, and hides what is below
      if (this.#files.stat(path)?.isDirectory() === true) this.#makeOpaque(path);
      return;
    }
    this.#removeTree(path);
    if (this.#below(path) === undefined) return;
    this.#files.node(path, "character", { major: 0, minor: 0 });
    this.#files.setTime(path, 0);
  }

  #makeOpaque(path: string): void {
    this.#removeEarlier(path);
    if (this.#below(path)?.isDirectory() !== true || this.#opaque.has(path)) return;
    this.#files.setXattr(path, opaqueXattr, Buffer.from("y"));
    this.#opaque.add(path);
  }

  /** What is in a directory from earlier layers goes. */
  #removeEarlier(path: string): void {
    for (const name of this.#files.names(path)) {
      const child = joinPath(path, name);
      if (!this.#current.has(child)) this.#removeTree(child);
      else if (this.#files.stat(child)?.isDirectory() === true) this.#removeEarlier(child);
    }
  }

  /** A directory in place of what is there and is none. */
  #makeDirectory(path: string): void {
    const replaces = this.#files.stat(path) !== undefined;
    if (replaces) this.#removeTree(path);
    this.#files.mkdir(path);
    this.#directories.set(path, 0);
    // What stood here hid the directory of the same name below it.
    if (replaces) this.#makeOpaque(path);
  }

  /** The directory of that path, without symlinks, made where it is not there. */
  #directory(path: string): string {
    if (this.#directories.has(path)) return path;
    return (
      this.#walk(path, (next) => {
        this.#makeDirectory(next);
        this.#describeImplicit(next);
        this.#current.add(next);
        return true;
      }) ?? ""
    );
  }

  #existingDirectory(path: string): string | undefined {
    return this.#directories.has(path) ? path : this.#walk(path, () => false);
  }

  /** Goes down to a directory, through symlinks of the same layer, whose root is the tree's. @param missing whether it has made the directory */
  #walk(path: string, missing: (path: string) => boolean): string | undefined {
    const pending = path.split("/").reverse();
    let at = "";
    for (let links = 0; pending.length > 0;) {
      const name = pending.pop() ?? "";
      if (name === "" || name === ".") continue;
      if (name === "..") {
        at = at.includes("/") ? parentOf(at) : "";
        continue;
      }
      const next = joinPath(at, name);
      if (this.#directories.has(next)) {
        at = next;
        continue;
      }
      const found = this.#files.stat(next);
      if (found?.isSymbolicLink() === true && this.#current.has(next)) {
        if (++links > mostLinks)
          throw imageInvalid(`'${printable(path)}' in a layer goes through too many links`);
        const target = this.#files.readlink(next);
        if (target.startsWith("/")) at = "";
        pending.push(...target.split("/").reverse());
        continue;
      }
      if (!missing(next)) return undefined;
      at = next;
    }
    return at;
  }

  /** A directory that no archive describes is like the one below it. */
  #describeImplicit(path: string): void {
    const below = this.#below(path);
    const like = below?.isDirectory() === true ? below : { mode: 0o755, uid: 0, gid: 0, mtimeMs: 0 };
    this.#files.chown(path, like.uid, like.gid);
    this.#files.chmod(path, like.mode & 0o7777);
    this.#directories.set(path, like.mtimeMs / 1000);
  }

  /** What the layers below show at a path, unless the tree hides it. */
  #below(path: string) {
    if (!this.#lower.exists) return undefined;
    for (let above = path; above !== "";) {
      above = parentOf(above);
      if (this.#opaque.has(above)) return undefined;
    }
    return this.#lower.stat(path);
  }

  #removeTree(path: string): void {
    const found = this.#files.stat(path);
    if (found === undefined) return;
    this.#current.delete(path);
    if (!found.isDirectory()) {
      this.#files.unlink(path);
      return;
    }
    for (const name of this.#files.names(path)) this.#removeTree(joinPath(path, name));
    this.#files.rmdir(path);
    this.#directories.delete(path);
    this.#opaque.delete(path);
    this.#xattrs.delete(path);
  }
}
