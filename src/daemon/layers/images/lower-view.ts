import type { Stats } from "node:fs";
import { joinPath } from "./member-path.ts";
import { TreeFiles } from "./tree-files.ts";

/** What the layers below a tree show. */
export class LowerView {
  readonly #files: TreeFiles | undefined;

  /** @param root where they are mounted; undefined where there are none */
  constructor(root: string | undefined) {
    this.#files = root === undefined ? undefined : new TreeFiles(root);
  }

  get exists(): boolean {
    return this.#files !== undefined;
  }

  /** What is at a path, which leads through directories only: a symlink is not what the path's next part belongs to. */
  stat(path: string): Stats | undefined {
    if (this.#files === undefined) return undefined;
    let at = "";
    for (const name of path.split("/").slice(0, -1)) {
      at = joinPath(at, name);
      if (this.#files.stat(at)?.isDirectory() !== true) return undefined;
    }
    return this.#files.stat(path);
  }
}
