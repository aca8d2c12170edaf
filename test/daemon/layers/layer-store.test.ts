import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chmod,
  lchown,
  link,
  mkdir,
  readdir,
  readFile,
  readlink,
  stat,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { libcFunction } from "../../../src/backends/linux/libc.ts";
import { mount, MountFlag, unmountIfMounted } from "../../../src/backends/linux/mount.ts";
import { digestOf } from "../../../src/daemon/layers/digest.ts";
import { openLayerStore, type LayerStore } from "../../../src/daemon/layers/layer-store.ts";
import type { ImageManifest } from "../../../src/daemon/layers/images/image-manifest.ts";
import { parseImageReference } from "../../../src/daemon/layers/reference.ts";
import { withWorkDirectory } from "../../../src/daemon/layers/work-directory.ts";
import { openMounts } from "./mounts-fixture.ts";
import { output, temporaryNode, type TemporaryNode } from "../temporary-node.ts";

const setExtended = libcFunction<[string, string, Uint8Array, number, number]>("lsetxattr", [
  "const char *path",
  "const char *name",
  "const void *value",
  "size_t size",
  "int flags",
]);
const getExtended = libcFunction<[string, string, Uint8Array, number]>("lgetxattr", [
  "const char *path",
  "const char *name",
  "void *value",
  "size_t size",
]);

let node: TemporaryNode;
let store: LayerStore;
let tree: string;

beforeEach(async () => {
  node = await temporaryNode();
  store = await openLayerStore(node.layerStore);
  tree = join(node.directory, "tree");
  await mkdir(tree);
});

afterEach(async () => {
  await node[Symbol.asyncDispose]();
});

/** Nothing of a build remains but what was published. */
async function workInProgress(): Promise<string[]> {
  return readdir(join(node.layerStore, "tmp")).catch(() => []);
}

async function withMounted(reference: string, look: (root: string) => Promise<void>): Promise<void> {
  const image = await store.resolve(reference);
  const mounts = await openMounts(node, join(node.directory, "mounts"));
  const [layer = ""] = image?.layers ?? [];
  const root = await mounts.acquire(layer);
  try {
    await look(root);
  } finally {
    mounts.release(layer);
    await mounts.close();
  }
}

async function fillTree(): Promise<void> {
  await mkdir(join(tree, "empty"));
  await writeFile(join(tree, "program"), "#!/bin/sh\n");
  await chmod(join(tree, "program"), 0o4755);
  await link(join(tree, "program"), join(tree, "same-program"));
  await symlink("../absolute/or/not", join(tree, "link"));
  await writeFile(join(tree, "odd \n näme"), "x".repeat(200_000));
  await lchown(join(tree, "odd \n näme"), 1234, 5678);
  await utimes(join(tree, "program"), 1_500_000_000, 1_500_000_000);
}

async function expectTree(root: string): Promise<void> {
  expect((await readdir(root)).sort()).toEqual(["empty", "link", "odd \n näme", "program", "same-program"]);
  const program = await stat(join(root, "program"));
  expect(program.mode & 0o7777).toBe(0o4755);
  expect(program.mtimeMs).toBe(1_500_000_000_000);
  expect((await stat(join(root, "same-program"))).ino).toBe(program.ino);
  expect(await readlink(join(root, "link"))).toBe("../absolute/or/not");
  const odd = await stat(join(root, "odd \n näme"));
  expect([odd.uid, odd.gid, odd.size]).toEqual([1234, 5678, 200_000]);
  expect(await readFile(join(root, "odd \n näme"), "utf8")).toBe("x".repeat(200_000));
}

test("a directory comes back with modes, owners, times, links, empty folders and odd names", async () => {
  await fillTree();
  const built = await store.build({ reference: "tree:1", from: tree });
  expect(built).toMatchObject({ reference: "tree:1", created: true });
  await withMounted("tree:1", expectTree);
  expect(await workInProgress()).toEqual([]);
});

test("whiteouts and opaque directories survive", async () => {
  await output("mknod", join(tree, "gone"), "c", "0", "0");
  await mkdir(join(tree, "opaque"));
  setExtended(join(tree, "opaque"), "trusted.overlay.opaque", Buffer.from("y"), 1, 0);
  await store.build({ reference: "whiteouts:1", from: tree });
  await withMounted("whiteouts:1", async (root) => {
    const gone = await stat(join(root, "gone"));
    expect([gone.isCharacterDevice(), gone.rdev]).toEqual([true, 0]);
    const value = Buffer.alloc(8);
    expect(getExtended(join(root, "opaque"), "trusted.overlay.opaque", value, value.length)).toBe(1);
    expect(value.toString("latin1", 0, 1)).toBe("y");
  });
});

test.each(["", "--gzip"])(
  "a tar archive comes back like the directory it was made of (%s)",
  async (compression) => {
    await fillTree();
    const archive = join(node.directory, "tree.tar");
    await output("tar", "-C", tree, ...(compression === "" ? [] : [compression]), "-cf", archive, ".");
    await store.build({ reference: "tree:tar", from: archive });
    await withMounted("tree:tar", expectTree);
    expect(await workInProgress()).toEqual([]);
  },
);

test.each([
  ["an absolute name", ["--absolute-names", "/etc/hostname"]],
  ["a name with ..", ["--absolute-names", "--transform=s,^etc,../../etc,", "-C", "/", "etc/hostname"]],
])("an archive with %s is refused and leaves nothing", async (_, args) => {
  const archive = join(node.directory, "evil.tar");
  await output("tar", "-cf", archive, ...args);
  await expect(store.build({ reference: "evil:1", from: archive })).rejects.toMatchObject({
    code: "invalid_argument",
  });
  expect(await store.resolve("evil:1")).toBeUndefined();
  expect(await workInProgress()).toEqual([]);
});

test("an archive cannot write through a symlink that it brings along", async () => {
  const outside = join(node.directory, "outside");
  await mkdir(outside);
  const archive = join(node.directory, "evil.tar");
  await symlink(outside, join(tree, "door"));
  await output("tar", "-C", tree, "-cf", archive, "door");
  await output("rm", join(tree, "door"));
  await mkdir(join(tree, "door"));
  await writeFile(join(tree, "door", "burglar"), "in");
  await output("tar", "-C", tree, "-rf", archive, "door/burglar");
  await store.build({ reference: "evil:2", from: archive }).catch(() => undefined);
  expect(await readdir(outside)).toEqual([]);
});

test.each(["missing", "not-a-tar", "debian:", "debian:../x", "/dev/null"])(
  "the source '%s' is refused with invalid_argument",
  async (source) => {
    await writeFile(join(node.directory, "not-a-tar"), "just text");
    const from = source.includes(":") || source.startsWith("/") ? source : join(node.directory, source);
    await expect(store.build({ reference: "bad:1", from })).rejects.toMatchObject({
      code: "invalid_argument",
    });
    expect(await store.list()).toEqual([]);
    expect(await workInProgress()).toEqual([]);
  },
);

test("busybox runs in its layer, with the files that programs expect", async () => {
  const first = await store.build({ reference: "busybox", from: "busybox" });
  const again = await store.build({ reference: "busybox:again", from: "busybox" });
  expect(again.digest).toBe(first.digest);
  await withMounted("busybox", async (root) => {
    const script = 'echo "$(id -un) $(ls / | wc -l)"; cat /etc/hosts; ls -ld /tmp';
    const printed = await output("chroot", root, "/bin/sh", "-c", script);
    expect(printed).toContain("root ");
    expect(printed).toContain("127.0.0.1\tlocalhost");
    expect(printed).toContain("drwxrwxrwt");
  });
});

test("a published layer never changes, and the same content again is no error", async () => {
  await writeFile(join(tree, "file"), "one");
  await utimes(join(tree, "file"), 1, 1);
  const first = await store.build({ reference: "fixed:1", from: tree });
  expect(await store.build({ reference: "fixed:1", from: tree })).toEqual({ ...first, created: false });
  await writeFile(join(tree, "file"), "two");
  await expect(store.build({ reference: "fixed:1", from: tree })).rejects.toMatchObject({
    code: "layer_exists",
  });
  expect(await store.build({ reference: "fixed:1", from: tree, ifMissing: true })).toEqual({
    ...first,
    created: false,
  });
  expect((await store.resolve("fixed:1"))?.digest).toBe(first.digest);
});

test("further names can be moved, but never onto a published reference", async () => {
  await writeFile(join(tree, "file"), "one");
  const one = await store.build({ reference: "app:1", from: tree, tags: ["latest"] });
  await writeFile(join(tree, "file"), "two");
  const two = await store.build({ reference: "app:2", from: tree });
  expect((await store.resolve("app"))?.digest).toBe(one.digest);
  await store.tag("app:2", "app:latest");
  expect((await store.resolve("app"))?.digest).toBe(two.digest);
  await store.build({ reference: "app:1", from: tree, ifMissing: true, tags: ["latest"] });
  expect((await store.resolve("app"))?.digest).toBe(two.digest);
  await expect(store.tag("app:2", "app:1")).rejects.toMatchObject({ code: "layer_exists" });
  await expect(store.tag("app:3", "app:4")).rejects.toMatchObject({ code: "image_not_found" });
  expect((await store.list()).map(({ reference, alias }) => [reference, alias])).toEqual([
    ["app:1", false],
    ["app:2", false],
    ["app:latest", true],
  ]);
});

test("who published a name, when and from what is kept beside the layer, as long as the name", async () => {
  await writeFile(join(tree, "file"), "one");
  for (const path of [join(tree, "file"), tree]) await utimes(path, 1, 1);
  const archive = join(node.directory, "tree.tar");
  await output("tar", "-C", tree, "-cf", archive, ".");
  const began = Date.now();
  const one = await store.build({ reference: "app:1", from: tree });
  const recorded = await store.provenance.find({ name: "app", version: "1" }, one.digest);
  expect(recorded).toEqual({
    schema: 1,
    digest: one.digest,
    by: expect.stringMatching(new RegExp(`^.+@${hostname()}$`)) as string,
    at: expect.any(Number) as number,
    from: tree,
    with: expect.stringMatching(/^dsec \d/) as string,
  });
  expect(recorded?.at).toBeGreaterThanOrEqual(began);
  // what is there already keeps its record, and so does a name that other content is refused for
  await store.build({ reference: "app:1", from: archive });
  await writeFile(join(tree, "file"), "two");
  await expect(store.build({ reference: "app:1", from: tree })).rejects.toMatchObject({
    code: "layer_exists",
  });
  expect(await store.provenance.find({ name: "app", version: "1" }, one.digest)).toEqual(recorded);
  await store.remove("app:1");
  const again = await store.build({ reference: "app:1", from: archive });
  expect(again.digest).toBe(one.digest);
  expect(await store.provenance.find({ name: "app", version: "1" }, one.digest)).toMatchObject({
    from: archive,
    fromDigest: digestOf(await readFile(archive)),
  });
  await store.remove("app:1");
  expect(await readdir(join(node.layerStore, "provenance", "app"))).toEqual([]);
});

test("several processes may publish one reference: the first wins, others with the same content succeed", async () => {
  const contents = ["one", "one", "two", "two"];
  const module = fileURLToPath(new URL("../../../src/daemon/layers/layer-store.ts", import.meta.url));
  for (const [index, content] of contents.entries()) {
    const directory = join(node.directory, `tree${index}`);
    await mkdir(directory);
    await writeFile(join(directory, "file"), content);
    await utimes(join(directory, "file"), 1, 1);
    await utimes(directory, 1, 1);
  }
  const script = `
    const { openLayerStore } = await import(${JSON.stringify(module)});
    const store = await openLayerStore(process.argv[1]);
    try { console.log((await store.build({ reference: "race:1", from: process.argv[2] })).digest); }
    catch (error) { console.log(error.code); }`;
  const results = await Promise.all(
    contents.map((_, index) =>
      output(
        process.execPath,
        "--input-type=module",
        "-e",
        script,
        node.layerStore,
        join(node.directory, `tree${index}`),
      ),
    ),
  );
  const published = (await store.resolve("race:1"))?.digest;
  const said = results.map((result) => result.trim());
  expect(said.filter((result) => result === published)).toHaveLength(2);
  expect(said.filter((result) => result === "layer_exists")).toHaveLength(2);
  expect(await workInProgress()).toEqual([]);
});

test("a cancelled build leaves nothing", async () => {
  const cancel = new AbortController();
  const building = store.build(
    { reference: "cancelled:1", from: "busybox" },
    { signal: cancel.signal, onProgress: () => cancel.abort() },
  );
  await expect(building).rejects.toMatchObject({ code: "cancelled" });
  expect(await store.list()).toEqual([]);
  expect(await workInProgress()).toEqual([]);
});

test("work of a killed process is removed by the next build, that of a living one is not", async () => {
  const dead = execFileSync("sh", ["-c", "echo $$"], { encoding: "utf8" }).trim();
  const started = (await readFile(`/proc/${process.pid}/stat`, "latin1")).split(") ")[1]?.split(" ")[19];
  const living = `${hostname()}+${process.pid}+${started}+busy`;
  await mkdir(join(node.layerStore, "tmp", `${hostname()}+${dead}+1+left`), { recursive: true });
  await mkdir(join(node.layerStore, "tmp", living));
  await store.build({ reference: "tree:1", from: tree });
  expect(await workInProgress()).toEqual([living]);
});

test("what is mounted in abandoned work is unmounted, not emptied", async () => {
  const precious = join(node.directory, "precious");
  const left = join(node.layerStore, "tmp", `${hostname()}+1+1+left`);
  await mkdir(precious);
  await writeFile(join(precious, "file"), "kept");
  await mkdir(join(left, "root"), { recursive: true });
  mount({ source: precious, target: join(left, "root"), flags: MountFlag.bind });
  await store.build({ reference: "tree:1", from: tree });
  expect(await workInProgress()).toEqual([]);
  expect(await readFile(join(precious, "file"), "utf8")).toBe("kept");
});

test("a store without room says disk_full and publishes nothing", async () => {
  const full = join(node.directory, "full");
  await mkdir(full);
  mount({ source: "tmpfs", target: full, type: "tmpfs", data: "size=1m" });
  try {
    const small = await openLayerStore(full);
    await writeFile(join(tree, "big"), randomBytes(4_194_304));
    await expect(small.build({ reference: "big:1", from: tree })).rejects.toMatchObject({
      code: "disk_full",
    });
    expect(await small.list()).toEqual([]);
    expect(await readdir(join(full, "tmp"))).toEqual([]);
  } finally {
    unmountIfMounted(full);
  }
});

test("a damaged manifest is an error that names the layer", async () => {
  const { digest } = await store.build({ reference: "damaged:1", from: tree });
  await writeFile(join(node.layerStore, "manifests", `${digest.slice(7)}.json`), "{}");
  const reopened = await openLayerStore(node.layerStore);
  await expect(reopened.resolve("damaged:1")).rejects.toMatchObject({
    code: "layer_corrupt",
    message: expect.stringContaining(digest),
  });
});

const config = { env: { PATH: "/bin" }, user: "app", workdir: "/srv", entrypoint: ["/bin/app"], cmd: ["-v"] };

async function publishImage(layers: readonly string[], reference: string) {
  const manifest: ImageManifest = {
    schema: 1,
    kind: "image",
    layers: [...layers],
    config,
    source: { reference, digest: `sha256:${"0".repeat(64)}` },
  };
  return withWorkDirectory(join(node.layerStore, "tmp"), (work) =>
    store.publishImage(manifest, { registry: parseImageReference(reference).image }, work),
  );
}

test("an image has layers and a config, is found by its registry's name, and its name moves", async () => {
  await writeFile(join(tree, "file"), "one");
  const one = await store.build({ reference: "one", from: tree });
  await writeFile(join(tree, "file"), "two");
  const two = await store.build({ reference: "two", from: tree });

  const first = await publishImage([one.digest], "team/app");
  expect(first).toMatchObject({ reference: "docker.io/team/app:latest", bytes: one.bytes, created: true });
  const second = await publishImage([one.digest, two.digest], "team/app:latest");
  expect(await publishImage([one.digest, two.digest], "team/app:latest")).toEqual({
    ...second,
    created: false,
  });
  expect(await store.resolve("team/app")).toEqual({
    reference: "docker.io/team/app:latest",
    digest: second.digest,
    kind: "base",
    layers: [one.digest, two.digest],
    config,
  });
  expect((await store.list()).map(({ reference, kind, bytes }) => [reference, kind, bytes])).toEqual([
    ["docker.io/team/app:latest", "image", one.bytes + two.bytes],
    ["one:latest", "base", one.bytes],
    ["two:latest", "base", two.bytes],
  ]);
  await store.tag("team/app", "app:1");
  expect((await store.resolve("app:1"))?.digest).toBe(second.digest);
});

test("a published layer goes before an imported image of the same short name", async () => {
  const layer = await store.build({ reference: "debian:1", from: tree });
  const image = await publishImage([layer.digest], "debian:1");
  expect((await store.resolve("debian:1"))?.digest).toBe(layer.digest);
  expect((await store.resolve("docker.io/library/debian:1"))?.digest).toBe(image.digest);
});
