import { lstat, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expectBytes, expectEqual } from "./mismatch.ts";
import type { Operation } from "./operation.ts";
import { type Node, treeRoot } from "./tree.ts";
import type { World } from "./world.ts";

/** A tree of our own, copied into a directory that is not there, or joined with the one at the root. */
async function upload({ sandbox, tree, random }: World): Promise<void> {
  if (tree.isFull) return;
  await using local = await scratch();
  const target = random.chance(0.7) ? tree.freshPath(random) : treeRoot;
  const made: [string, Node][] = [["", { type: "directory", mode: 0o755 }]];
  if (random.chance(0.5)) made.push(["/sub", { type: "directory", mode: 0o700 }]);
  for (const folder of made.map(([path]) => path))
    for (let number = random.int(3); number > 0; number--)
      made.push([
        `${folder}/up ${number}`,
        { type: "file", mode: random.pick([0o644, 0o600, 0o755]), content: random.bytes(random.int(5000)) },
      ]);
  for (const [path, node] of made) await writeLocal(join(local.path, "tree", path), node);
  const result = await sandbox.files.upload(join(local.path, "tree"), target);
  expectEqual("left out of an upload", result.skippedCount, 0);
  for (const [path, node] of made) tree.set(target + path, node);
}

async function download({ sandbox, tree, random }: World): Promise<void> {
  await using local = await scratch();
  const source = random.pick(tree.paths());
  const result = await sandbox.files.download(source, join(local.path, "got"));
  expectEqual("left out of a download", result.skippedCount, 0);
  const known = tree.below(source).map(([path, node]) => [path.slice(source.length), node] as const);
  const found = await localPaths(join(local.path, "got"));
  expectEqual(`${source}, downloaded`, found.sort(), known.map(([path]) => path).sort());
  for (const [path, node] of known) {
    const { mode } = await lstat(join(local.path, "got", path));
    expectEqual(`mode of ${path}, downloaded`, mode & 0o7777, node.mode);
    if (node.type === "file")
      expectBytes(`${path}, downloaded`, await readFile(join(local.path, "got", path)), node.content);
  }
}

async function writeLocal(path: string, node: Node): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  if (node.type === "directory") await mkdir(path, { mode: node.mode, recursive: true });
  else await writeFile(path, node.content, { mode: node.mode });
}

/** Relative to `root`, which is the empty one. */
async function localPaths(root: string, below = ""): Promise<string[]> {
  const path = root + below;
  if (!(await lstat(path)).isDirectory()) return [below];
  const deeper = await Promise.all(
    (await readdir(path)).map(async (name) => localPaths(root, `${below}/${name}`)),
  );
  return [below, ...deeper.flat()];
}

async function scratch(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), "dsec-soak-"));
  return { path, [Symbol.asyncDispose]: async () => rm(path, { recursive: true, force: true }) };
}

export const treeOperations: readonly Operation[] = [
  { name: "files: upload a tree", weight: 3, run: upload },
  { name: "files: download a tree", weight: 3, run: download },
];
