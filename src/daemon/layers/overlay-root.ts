import { chmodSync, existsSync, mkdirSync, rmdirSync, rmSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { detachIfMounted, mountPrivateTmpfs, unmountIfMounted } from "../../backends/linux/mount.ts";
import { maxLowerLayers, mountOverlay } from "../../backends/linux/overlay-mount.ts";

/**
 * `redirect_dir` and `metacopy`: renaming a directory, or changing owners and modes below one, copies no content.
 * `volatile`: nothing is ever flushed, since scratch does not survive a crash; such an upper cannot be mounted a
 * second time, and it never is: the sandbox's own mount lives as long as the sandbox. `index=off`: the work directory stays empty.
 */
const overlayOptions = ["redirect_dir=on", "metacopy=on", "index=off", "xino=auto", "volatile"];

/** What a runtime mounts on. It lies below the lowest layer, so that a base's own are seen, and nothing is made in the sandbox's upper. */
const mountPoints = ["dev", "proc", "sys"];

/** Layers that one root can be composed of: what the kernel takes, less the mount points. */
export const maxLayers = maxLowerLayers - 1;

/** Composes the roots of sandboxes: shared layers below, a sandbox's own writes above. */
export class OverlayRoots {
  readonly #directory: string;
  readonly #skeleton: string;

  private constructor(directory: string, skeleton: string) {
    this.#directory = directory;
    this.#skeleton = skeleton;
  }

  /** @param runDir absolute, without symlinks */
  static async open(runDir: string): Promise<OverlayRoots> {
    const roots = new OverlayRoots(join(runDir, "sandboxes"), join(runDir, "skeleton"));
    for (const directory of mountPoints) await mkdir(join(roots.#skeleton, directory), { recursive: true });
    await mkdir(roots.#directory, { recursive: true, mode: 0o700 });
    mountPrivateTmpfs(roots.#directory);
    return roots;
  }

  /** Of everything about a sandbox that does not outlive the boot. */
  pathOf(id: string): string {
    return join(this.#directory, id);
  }

  /** Where {@link mount} mounts. */
  rootOf(id: string): string {
    return join(this.pathOf(id), "root");
  }

  get directory(): string {
    return this.#directory;
  }

  /**
   * Mounts a root at {@link rootOf}.
   *
   * @param layers different directories from the base upwards, at most {@link maxLayers}
   * @param scratch an empty directory
   * @throws LinuxError
   */
  mount(id: string, layers: readonly string[], scratch: string): void {
    const target = this.rootOf(id);
    // A daemon that was killed may have left an attempt at the same sandbox.
    if (existsSync(target)) this.remove(id);
    const upper = join(scratch, "upper");
    const work = join(scratch, "work");
    mkdirSync(target, { recursive: true, mode: 0o700 });
    mkdirSync(upper);
    // The root directory's own mode is the upper's, whatever the layers say.
    chmodSync(upper, 0o755);
    mkdirSync(work);
    mountOverlay(
      { lower: [...layers.toReversed(), this.#skeleton], upper, work, options: overlayOptions },
      target,
    );
  }

  /** Takes a root out of the daemon's view; in a sandbox that has started it lives on. Idempotent. */
  async detach(id: string): Promise<void> {
    await detachIfMounted(this.rootOf(id));
  }

  /** Removes all that is below {@link pathOf}. Idempotent. */
  remove(id: string): void {
    unmountIfMounted(this.rootOf(id));
    try {
      // Fails where something is still mounted: what is removed below must never be a sandbox's files.
      rmdirSync(this.rootOf(id));
    } catch (error) {
      if (!isErrno(error, "ENOENT")) throw error;
    }
    rmSync(this.pathOf(id), { recursive: true, force: true });
  }

  /** To be called when no sandbox is left. */
  close(): void {
    unmountIfMounted(this.#directory);
    rmSync(this.#skeleton, { recursive: true, force: true });
    rmdirSync(this.#directory);
  }
}
