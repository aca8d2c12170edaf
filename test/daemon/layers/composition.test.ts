import { mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { unmountIfMounted } from "../../../src/backends/linux/mount.ts";
import { mountOverlay } from "../../../src/backends/linux/overlay-mount.ts";
import { compose, resolveUpperParts, type Composition } from "../../../src/daemon/layers/composition.ts";
import { openLayerStore, type LayerStore } from "../../../src/daemon/layers/layer-store.ts";
import { OverlayRoots } from "../../../src/daemon/layers/overlay-root.ts";
import type { ResolvedImage } from "../../../src/daemon/provisioner.ts";
import type { LayerKind } from "../../../src/protocol/sandbox.ts";
import { temporaryNode, tracesOf, type TemporaryNode } from "../temporary-node.ts";
import { openMounts } from "./mounts-fixture.ts";

let node: TemporaryNode;
let store: LayerStore;

beforeEach(async () => {
  node = await temporaryNode();
  store = await openLayerStore(node.layerStore);
});

afterEach(async () => {
  const traces = await tracesOf(node);
  await node[Symbol.asyncDispose]();
  if (traces.length > 0) throw new Error(`left behind:\n${traces.join("\n")}`);
});

/** Files by path: text. A path that ends with / is an empty directory. */
type Tree = Readonly<Record<string, string>>;

let trees = 0;

async function plant(files: Tree): Promise<string> {
  const root = join(node.directory, `tree-${(trees += 1)}`);
  await mkdir(root);
  for (const [path, text] of Object.entries(files)) {
    await mkdir(path.endsWith("/") ? join(root, path) : dirname(join(root, path)), { recursive: true });
    if (!path.endsWith("/")) await writeFile(join(root, path), text);
  }
  return root;
}

async function build(reference: string, kind: LayerKind, files: Tree): Promise<string> {
  return (await store.build({ reference, kind, from: await plant(files) })).digest;
}

/** Builds a layer of what `change` does to a tree: with the whiteouts and opaque directories that the kernel makes of it. */
async function buildChanges(
  reference: string,
  kind: LayerKind,
  below: Tree,
  change: (root: string) => Promise<void>,
): Promise<void> {
  const scratch = await plant({ "upper/": "", "work/": "", "root/": "" });
  const root = join(scratch, "root");
  const upper = join(scratch, "upper");
  mountOverlay({ lower: [await plant(below)], upper, work: join(scratch, "work") }, root);
  try {
    await change(root);
  } finally {
    unmountIfMounted(root);
  }
  await store.build({ reference, kind, from: upper });
}

const resolve = (reference: string): Promise<ResolvedImage | undefined> => store.resolve(reference);

async function composed(
  image: string,
  workspace: string | undefined,
  ...toolkits: string[]
): Promise<Composition> {
  const base = await resolve(image);
  if (base === undefined) throw new Error(`no ${image}`);
  return compose(base, await resolveUpperParts({ workspace, toolkits }, resolve));
}

/** Mounts a root as sandboxes have it, for as long as `look` takes. */
async function withRoot({ layers }: Composition, look: (root: string) => Promise<void>): Promise<void> {
  const mounts = await openMounts(node, join(node.directory, "mounts"));
  const roots = await OverlayRoots.open(node.directory);
  const scratch = await plant({});
  const paths: string[] = [];
  for (const layer of layers) paths.push(await mounts.acquire(layer));
  roots.mount("n-one", paths, scratch);
  try {
    await look(roots.rootOf("n-one"));
  } finally {
    roots.remove("n-one");
    roots.close();
    for (const layer of layers) mounts.release(layer);
    await mounts.close();
  }
}

test("the base is at the bottom, then the workspace, then the toolkits in the order given; directories merge", async () => {
  await build("os:1", "base", { "opt/os": "os", "opt/all": "os", "opt/work": "os", "etc/os": "os" });
  await build("repo:1", "workspace", { "opt/repo": "repo", "opt/all": "repo", "opt/work": "repo" });
  await build("lint:1", "toolkit", { "opt/lint": "lint", "opt/all": "lint", "opt/both": "lint" });
  await build("test:1", "toolkit", { "opt/test": "test", "opt/all": "test", "opt/both": "test" });
  await withRoot(await composed("os:1", "repo:1", "lint:1", "test:1"), async (root) => {
    const opt = join(root, "opt");
    expect((await readdir(opt)).sort()).toEqual(["all", "both", "lint", "os", "repo", "test", "work"]);
    const text = async (name: string): Promise<string> => readFile(join(opt, name), "utf8");
    expect([await text("all"), await text("both"), await text("work")]).toEqual(["test", "test", "repo"]);
    expect(await readFile(join(root, "etc/os"), "utf8")).toBe("os");
  });
  await withRoot(await composed("os:1", "repo:1", "test:1", "lint:1"), async (root) => {
    expect(await readFile(join(root, "opt/both"), "utf8")).toBe("lint");
  });
});

test("what runs can write into the trees of all layers, as Python does beside its modules", async () => {
  await build("os:1", "base", { "usr/lib/python3/json.py": "" });
  await build("tool:1", "toolkit", { "usr/lib/tool/main.py": "print()" });
  const composition = await composed("os:1", undefined, "tool:1");
  await withRoot(composition, async (root) => {
    for (const module of ["usr/lib/python3", "usr/lib/tool"]) {
      await mkdir(join(root, module, "__pycache__"));
      await writeFile(join(root, module, "__pycache__/module.pyc"), "compiled");
    }
    await writeFile(join(root, "usr/lib/tool/main.py"), "print(1)");
    expect((await readdir(join(root, "usr/lib/tool"))).sort()).toEqual(["__pycache__", "main.py"]);
  });
  await withRoot(composition, async (root) => {
    expect(await readdir(join(root, "usr/lib/tool"))).toEqual(["main.py"]);
    expect(await readFile(join(root, "usr/lib/tool/main.py"), "utf8")).toBe("print()");
  });
});

test("whiteouts and opaque directories of a layer act on all that is below it, and on nothing above", async () => {
  const below = {
    "opt/gone": "os",
    "opt/again": "os",
    "data/old": "os",
    "kept/file": "os",
    "type/file": "os",
  };
  await build("os:1", "base", below);
  await build("repo:1", "workspace", { "data/repo": "repo", "kept/repo": "repo" });
  await buildChanges("clean:1", "toolkit", { ...below, "data/repo": "repo" }, async (root) => {
    await rm(join(root, "opt/gone"));
    await rm(join(root, "opt/again"));
    // a directory made anew is opaque
    await rm(join(root, "data"), { recursive: true });
    await mkdir(join(root, "data"));
    await writeFile(join(root, "data/new"), "clean");
    await rm(join(root, "type"), { recursive: true });
    await writeFile(join(root, "type"), "a file now");
  });
  await build("over:1", "toolkit", { "opt/again": "over", "data/over": "over" });
  await withRoot(await composed("os:1", "repo:1", "clean:1", "over:1"), async (root) => {
    expect(await readdir(join(root, "opt"))).toEqual(["again"]);
    expect(await readFile(join(root, "opt/again"), "utf8")).toBe("over");
    expect((await readdir(join(root, "data"))).sort()).toEqual(["new", "over"]);
    expect((await readdir(join(root, "kept"))).sort()).toEqual(["file", "repo"]);
    expect((await stat(join(root, "type"))).isFile()).toBe(true);
  });
  await withRoot(await composed("os:1", "repo:1"), async (root) => {
    expect((await readdir(join(root, "opt"))).sort()).toEqual(["again", "gone"]);
    expect((await readdir(join(root, "data"))).sort()).toEqual(["old", "repo"]);
  });
});

test("an upgrade of one toolkit publishes that one layer, and every other layer stays what and where it is", async () => {
  const images = 5;
  for (let index = 0; index < images; index += 1)
    await build(`os:${index}`, "base", { "etc/os": `${index}` });
  await build("repo:1", "workspace", { "repo/file": "repo" });
  const first = await build("tool:1", "toolkit", { "usr/bin/tool": "one", "usr/lib/tool": "same" });
  await store.tag("tool:1", "tool:latest");
  const compositions = async (): Promise<Composition[]> =>
    Promise.all(
      Array.from({ length: images }, async (_, index) => composed(`os:${index}`, "repo:1", "tool")),
    );
  const published = async (): Promise<string[]> => readdir(join(node.layerStore, "manifests"));
  const [before, manifests] = [await compositions(), await published()];

  const second = await build("tool:2", "toolkit", { "usr/bin/tool": "two", "usr/lib/tool": "same" });
  await store.tag("tool:2", "tool:latest");
  const after = await compositions();
  expect((await published()).filter((name) => !manifests.includes(name))).toEqual([
    `${second.slice("sha256:".length)}.json`,
  ]);
  expect(before.map(({ layers }) => layers.at(-1))).toEqual(Array(images).fill(first));
  expect(after.map(({ layers }) => layers.at(-1))).toEqual(Array(images).fill(second));
  expect(after.map(({ layers }) => layers.slice(0, -1))).toEqual(
    before.map(({ layers }) => layers.slice(0, -1)),
  );
});

test("a part that does not belong where it was given is refused, with where it belongs", async () => {
  await build("os:1", "base", { os: "" });
  await build("repo:1", "workspace", { repo: "" });
  await build("tool:1", "toolkit", { tool: "" });
  await expect(composed("tool:1", undefined)).rejects.toMatchObject({
    code: "invalid_argument",
    message: "image: tool:1 is a toolkit, not a base: give it with --toolkit",
  });
  await expect(composed("os:1", "os:1")).rejects.toMatchObject({
    code: "invalid_argument",
    message: "workspace: os:1 is a base, not a workspace: give it as the image",
  });
  await expect(composed("os:1", undefined, "tool:1", "repo:1")).rejects.toMatchObject({
    code: "invalid_argument",
    message: "toolkits: repo:1 is a workspace, not a toolkit: give it with --workspace",
  });
  await expect(composed("os:1", "none:1")).rejects.toMatchObject({
    code: "image_not_found",
    message: expect.stringContaining("dsec layer build none:1 --kind workspace"),
  });
  await expect(composed("os:1", "Not//One")).rejects.toMatchObject({ code: "invalid_image_reference" });
});

test("a layer that is given more than once lies where it is uppermost, and is mounted once", async () => {
  await build("os:1", "base", { file: "os" });
  const one = await build("one:1", "toolkit", { file: "one", one: "" });
  const two = await build("two:1", "toolkit", { file: "two", two: "" });
  const composition = await composed("os:1", undefined, "one:1", "two:1", "one:1");
  expect(composition.layers.slice(1)).toEqual([two, one]);
  expect(composition.parts.map(({ reference }) => reference)).toEqual(["os:1", "one:1", "two:1", "one:1"]);
  await withRoot(composition, async (root) => {
    expect(await readFile(join(root, "file"), "utf8")).toBe("one");
  });
});

test("an image of many layers leaves its parts their places, up to what the kernel takes", async () => {
  const digests = Array.from({ length: 498 }, (_, index) => `sha256:${index}`);
  const config = { env: {} };
  const image = (layers: string[]): ResolvedImage => ({
    reference: "big:1",
    digest: "sha256:big",
    kind: "base",
    layers,
    config,
  });
  const tool = await build("tool:1", "toolkit", { tool: "" });
  const upper = await resolveUpperParts({ workspace: undefined, toolkits: ["tool:1"] }, resolve);
  const composition = compose(image(digests), upper);
  expect(composition.layers).toEqual([...digests, tool]);
  expect(composition.parts).toEqual([
    { reference: "big:1", kind: "base", digests },
    { reference: "tool:1", kind: "toolkit", digests: [tool] },
  ]);
  expect(() => compose(image([...digests, "sha256:more"]), upper)).toThrowError(
    expect.objectContaining({
      code: "unsupported",
      message: expect.stringMatching(/500 layers.*499/) as string,
    }),
  );
});
