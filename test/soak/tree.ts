import { sha256 } from "./mismatch.ts";
import type { Random } from "./random.ts";

export type Node =
  | { readonly type: "file"; readonly mode: number; readonly content: Buffer }
  | { readonly type: "directory"; readonly mode: number };

/** Where the model's files are; what is outside it belongs to the image. */
export const treeRoot = "/work";
const maxNodes = 24;
const names = ["a", "b", "c.txt", "with space", "ünï", "-dash", "'quoted'", "日本", "*", ".hidden"] as const;

/** What should be in the sandbox below {@link treeRoot}: the model of its files. */
export class Tree {
  readonly #nodes = new Map<string, Node>([[treeRoot, { type: "directory", mode: 0o755 }]]);

  get isFull(): boolean {
    return this.#nodes.size >= maxNodes;
  }

  get(path: string): Node | undefined {
    return this.#nodes.get(path);
  }

  set(path: string, node: Node): void {
    this.#nodes.set(path, node);
  }

  paths(type?: Node["type"]): string[] {
    return [...this.#nodes].flatMap(([path, node]) =>
      type === undefined || node.type === type ? [path] : [],
    );
  }

  /** The node and all that is in it. */
  below(path: string): [string, Node][] {
    return [...this.#nodes].filter(([other]) => other === path || other.startsWith(`${path}/`));
  }

  children(path: string): string[] {
    return this.below(path).flatMap(([other]) => {
      const rest = other.slice(path.length + 1);
      return rest === "" || rest.includes("/") ? [] : [rest];
    });
  }

  remove(path: string): void {
    for (const [gone] of this.below(path)) this.#nodes.delete(gone);
  }

  move(from: string, to: string): void {
    const moved = this.below(from);
    this.remove(from);
    for (const [path, node] of moved) this.#nodes.set(to + path.slice(from.length), node);
  }

  /** What `find -exec stat -c '%f %s %n'` and sha256sum say of it, sorted. */
  listing(): string[] {
    return [...this.#nodes]
      .flatMap(([path, node]) =>
        node.type === "file"
          ? [
              `${(0o100000 | node.mode).toString(16)} ${node.content.length} ${path}`,
              `${sha256(node.content)}  ${path}`,
            ]
          : [`${(0o040000 | node.mode).toString(16)} ${path}`],
      )
      .sort();
  }

  /** A path that is not taken, in a directory that is there. */
  freshPath(random: Random): string {
    const directory = random.pick(this.paths("directory"));
    const name = random.pick(names);
    for (let number = 0; ; number++) {
      const path = `${directory}/${name}${number === 0 ? "" : number}`;
      if (!this.#nodes.has(path)) return path;
    }
  }

  /** A file of the tree; most often one that is not there yet. */
  filePath(random: Random): string {
    const files = this.paths("file");
    return files.length > 0 && (this.isFull || random.chance(0.4))
      ? random.pick(files)
      : this.freshPath(random);
  }
}
