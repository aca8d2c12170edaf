import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { afterEach, beforeEach, expect, onTestFinished, test } from "vitest";
import { mount, unmountIfMounted } from "../../../../src/backends/linux/mount.ts";
import { importImage, type ImageImportSpec } from "../../../../src/daemon/layers/images/image-import.ts";
import { openLayerStore, type LayerStore } from "../../../../src/daemon/layers/layer-store.ts";
import { output, type TemporaryNode } from "../../temporary-node.ts";
import {
  push,
  skopeo,
  startRegistry,
  tarOf,
  writeLayout,
  type Member,
  type Registry,
} from "./image-fixture.ts";
import { importPlace, type ImportPlace } from "./import-place.ts";

const docker = process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "";

let place: ImportPlace;
let node: TemporaryNode;
let store: LayerStore;
let directory: string;
let layout: string;

beforeEach(async () => {
  place = await importPlace();
  ({ node, store, directory, layout } = place);
});

afterEach(async () => {
  await place[Symbol.asyncDispose]();
});

const file = (name: string, content: string | Buffer = name): Member => ({ name, content });

async function registryOf(htpasswd?: string): Promise<Registry> {
  const registry = await startRegistry(htpasswd);
  onTestFinished(() => registry[Symbol.asyncDispose]());
  return registry;
}

function importOf(spec: ImageImportSpec, signal?: AbortSignal) {
  return importImage(store, spec, {
    directory,
    dockerSocket: docker,
    ...(signal !== undefined && { signal }),
  });
}

/** Nothing was published, and nothing of the work is left. */
async function expectNothing(): Promise<void> {
  expect(await store.list()).toEqual([]);
  expect(await readdir(join(node.layerStore, "tmp")).catch(() => [])).toEqual([]);
  expect(await readdir(join(directory, "tmp")).catch(() => [])).toEqual([]);
}

async function corrupt(path: string): Promise<void> {
  const bytes = await readFile(path);
  bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 0xff;
  await writeFile(path, bytes);
}

test("a layout, archives of both kinds and a Docker daemon give the same layers, and keep the configuration", async () => {
  const config = {
    Env: ["A=1", "EMPTY=", "B=x=y"],
    User: "7:8",
    WorkingDir: "srv/app",
    Entrypoint: ["/run"],
    Cmd: ["-v"],
  };
  const { digest } = await writeLayout(layout, { layers: [[file("one")], [file("two")]], config });
  const oci = join(node.directory, "oci.tar");
  const saved = join(node.directory, "docker.tar");
  await skopeo("copy", "--quiet", `oci:${layout}`, `oci-archive:${oci}`);
  await skopeo("copy", "--quiet", `oci:${layout}`, `docker-archive:${saved}:dsec-test-import:1`);
  await output("docker", "-H", `unix://${docker}`, "load", "-i", saved);
  onTestFinished(
    async () => void (await output("docker", "-H", `unix://${docker}`, "rmi", "dsec-test-import:1")),
  );

  const sources = [`oci:${layout}`, layout, `oci-archive:${oci}`, oci, `docker-archive:${saved}`, saved];
  for (const [index, source] of sources.entries()) await importOf({ source, name: `from:${index}` });
  const fromDocker = await importOf({ source: "docker-daemon:dsec-test-import:1" });
  expect(fromDocker.reference).toBe("docker.io/library/dsec-test-import:1");
  const images = await Promise.all(
    [...sources.map((_, index) => `from:${index}`), "dsec-test-import:1"].map((name) => store.resolve(name)),
  );
  expect(new Set(images.map((image) => image?.layers.join())).size).toBe(1);
  for (const image of images)
    expect(image?.config).toEqual({
      env: { A: "1", EMPTY: "", B: "x=y" },
      user: "7:8",
      workdir: "/srv/app",
      entrypoint: ["/run"],
      cmd: ["-v"],
    });
  const [first] = images;
  expect(await store.read(first?.digest ?? "")).toMatchObject({
    kind: "image",
    source: { reference: `oci:${layout}`, digest },
  });
  await expect(importOf({ source: layout })).rejects.toMatchObject({ code: "invalid_argument" });
});

test("layers are merged up to the limit, and an image on top of an imported one shares its layer", async () => {
  const big = (name: string): Member[] => [file(name, Buffer.alloc(300_000, name))];
  await writeLayout(layout, { layers: [big("a"), big("b"), big("c")], compression: "none" });
  await importOf({ source: layout, name: "merged:700k", mergeLimit: 700_000 });
  await importOf({ source: layout, name: "merged:all" });
  expect((await store.resolve("merged:700k"))?.layers).toHaveLength(2);
  expect((await store.resolve("merged:all"))?.layers).toHaveLength(1);
  const above = join(node.directory, "above");
  await writeLayout(above, {
    layers: [big("a"), big("b"), big("c"), [file(".wh.a", "")]],
    compression: "none",
  });
  await importOf({ source: above, name: "above:1" });
  expect((await store.resolve("above:1"))?.layers[0]).toBe((await store.resolve("merged:all"))?.layers[0]);
});

test("the same image again is no error and fetches nothing; a name of one's own never changes", async () => {
  const registry = await registryOf();
  const {
    blobs: [layer = ""],
  } = await writeLayout(layout, { layers: [[file("one")]] });
  const fetches = () => registry.log().split(`"GET /v2/app/blobs/${layer}`).length - 1;
  await push(layout, registry, "app:1");
  const source = `${registry.host}/app:1`;
  const first = await importOf({ source });
  expect(fetches()).toBe(1);
  expect(await importOf({ source })).toEqual({ ...first, created: false });
  expect(await importOf({ source: `docker://${source}`, name: "mine:1" })).toMatchObject({ created: true });
  expect(fetches()).toBe(1);
  const { digest } = await writeLayout(layout, { layers: [[file("two")]] });
  await push(layout, registry, "app:1");
  await expect(importOf({ source, name: "mine:1" })).rejects.toMatchObject({ code: "layer_exists" });
  expect((await importOf({ source })).digest).not.toBe(first.digest);
  const pinned = `${registry.host}/app@${digest}`;
  expect((await importOf({ source: pinned })).reference).toBe(pinned);
  expect((await store.resolve(pinned))?.layers).toEqual((await store.resolve(source))?.layers);
});

test("an import that was interrupted fetches only what is missing", async () => {
  const registry = await registryOf();
  const { blobs } = await writeLayout(layout, { layers: [[file("one")], [file("two")], [file("three")]] });
  await push(layout, registry, "app:1");
  const [one = "", , three = ""] = blobs.map((digest) => digest.slice(7));
  const stored = join(
    registry.directory,
    "docker/registry/v2/blobs/sha256",
    three.slice(0, 2),
    three,
    "data",
  );
  const whole = await readFile(stored);
  await rm(stored);
  const source = `${registry.host}/app:1`;
  await expect(importOf({ source })).rejects.toBeInstanceOf(Error);
  await expectNothing();
  await writeFile(stored, whole);
  const before = registry.log().length;
  await importOf({ source });
  const again = registry.log().slice(before);
  expect(again).toContain(`blobs/sha256:${three}`);
  expect(again).not.toContain(`"GET /v2/app/blobs/sha256:${one}`);
});

test("a registry that asks for credentials gets those of the file, and refuses without", async () => {
  const hash = await output("perl", "-e", "print crypt('pass', '$2y$05$abcdefghijklmnopqrstuu')");
  const registry = await registryOf(`user:${hash}\n`);
  await writeLayout(layout, { layers: [[file("one")]] });
  const source = `${registry.host}/app:1`;
  await expect(importOf({ source })).rejects.toMatchObject({ code: "registry_denied" });
  const authFile = join(node.directory, "auth.json");
  const logIn = async (password: string): Promise<void> => {
    const auth = Buffer.from(`user:${password}`).toString("base64");
    await writeFile(authFile, JSON.stringify({ auths: { [registry.host]: { auth } } }));
  };
  await logIn("wrong");
  await expect(importOf({ source, authFile })).rejects.toMatchObject({ code: "registry_denied" });
  await expectNothing();
  await push(layout, registry, "app:1", "--dest-creds=user:pass");
  await logIn("pass");
  expect(await importOf({ source, authFile })).toMatchObject({ created: true });
});

test("a registry that is down, has no such image, or needs a certificate is told apart", async () => {
  const registry = await registryOf();
  await writeLayout(layout, { layers: [[file("one")]] });
  await push(layout, registry, "app:1");
  await expect(importOf({ source: `${registry.host}/app:2` })).rejects.toMatchObject({
    code: "image_not_found",
  });
  await expect(importOf({ source: `${registry.host}/none` })).rejects.toMatchObject({
    code: "image_not_found",
  });
  await expect(importOf({ source: `${registry.host}/app:1`, tlsVerify: true })).rejects.toMatchObject({
    code: "registry_unreachable",
  });
  await registry.stop();
  await expect(importOf({ source: `${registry.host}/app:1` })).rejects.toMatchObject({
    code: "registry_unreachable",
    retryable: true,
  });
  await expectNothing();
});

test("a blob with other content than its digest says is refused, and not kept", async () => {
  const registry = await registryOf();
  const { blobs } = await writeLayout(layout, {
    layers: [[file("one", "x".repeat(5000))]],
  });
  await push(layout, registry, "app:1");
  const hex = blobs[0]?.slice(7) ?? "";
  await corrupt(join(registry.directory, "docker/registry/v2/blobs/sha256", hex.slice(0, 2), hex, "data"));
  await expect(importOf({ source: `${registry.host}/app:1` })).rejects.toMatchObject({
    code: "digest_mismatch",
  });
  expect(await readdir(join(directory, "blobs/sha256"))).not.toContain(hex);
  await expectNothing();
});

test("a cached blob that was damaged on the disk is refused once, and then fetched anew", async () => {
  const { blobs } = await writeLayout(layout, {
    layers: [[file("one", "x".repeat(5000))]],
    compression: "none",
  });
  await importOf({ source: layout, name: "a:1" });
  await rm(join(node.layerStore, "conversions"), { recursive: true });
  await corrupt(join(directory, "blobs/sha256", blobs[0]?.slice(7) ?? ""));
  await expect(importOf({ source: layout, name: "a:1" })).rejects.toMatchObject({ code: "digest_mismatch" });
  expect(await importOf({ source: layout, name: "a:1" })).toMatchObject({ created: false });
});

test("what is no image of a file system is an unsupported media type", async () => {
  const registry = await registryOf();
  const manifest = (layerType: string, configType: string) => {
    const blob = (mediaType: string) => ({
      mediaType,
      digest: `sha256:${createHash("sha256").update("{}").digest("hex")}`,
      size: 2,
    });
    const mediaType = "application/vnd.oci.image.manifest.v1+json";
    return JSON.stringify({
      schemaVersion: 2,
      mediaType,
      config: blob(configType),
      layers: [blob(layerType)],
    });
  };
  const config = "application/vnd.oci.image.config.v1+json";
  const server = createServer((request, response) => {
    const artifact = request.url?.includes("chart")
      ? manifest(
          "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
          "application/vnd.cncf.helm.config.v1+json",
        )
      : manifest("application/vnd.oci.image.layer.v1.tar+lzma", config);
    response.setHeader("content-type", "application/vnd.oci.image.manifest.v1+json");
    response.end(request.url?.includes("manifests") ? artifact : "{}");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const address = server.address();
  const port = typeof address === "object" ? address?.port : 0;
  for (const name of ["chart", "lzma"])
    await expect(importOf({ source: `127.0.0.1:${port}/${name}:1` })).rejects.toMatchObject({
      code: "unsupported_media_type",
    });
  expect(registry.host).not.toBe("");
  await expectNothing();
});

const door = { name: "door", type: "2", link: "/etc" };

test.each<[string, readonly Member[] | Buffer, string]>([
  ["a name that leads out", [file("../outside")], "image_invalid"],
  ["a name that leads out further down", [file("a/../../outside")], "image_invalid"],
  ["a whiteout that leads out", [file("../.wh.etc", "")], "image_invalid"],
  ["a whiteout of its own folder", [file("a/.wh...", "")], "image_invalid"],
  [
    "a hard link to the host",
    [{ name: "shadow", type: "1", link: "../../../../etc/shadow" }],
    "image_invalid",
  ],
  ["a hard link through a symlink", [door, { name: "s", type: "1", link: "door/shadow" }], "image_invalid"],
  ["a hard link to nothing", [{ name: "h", type: "1", link: "none" }], "image_invalid"],
  ["a loop of links", [{ name: "l", type: "2", link: "l" }, file("l/x")], "image_invalid"],
  ["a member of an unknown type", [{ name: "x", type: "Z" }], "image_invalid"],
  ["something else as its root", [file("./")].map(() => ({ name: ".", type: "0" })), "image_invalid"],
  ["a damaged header", Buffer.concat([Buffer.from("x".repeat(512)), Buffer.alloc(1024)]), "image_invalid"],
  ["a cut archive", tarOf([file("long", "y".repeat(5000))]).subarray(0, 2000), "image_invalid"],
  [
    "a sparse map that lies",
    [
      {
        name: "s",
        content: "x",
        records: [
          ["GNU.sparse.map", "0,99"],
          ["GNU.sparse.size", "99"],
        ],
      },
    ],
    "image_invalid",
  ],
])("a layer with %s is refused, and nothing is published", async (_, layer, code) => {
  await writeLayout(layout, { layers: [layer] });
  await expect(importOf({ source: layout, name: "evil:1" })).rejects.toMatchObject({ code });
  await expectNothing();
});

test("members with absolute names and behind links out of the root stay within it", async () => {
  const outside = join(node.directory, "outside");
  await mkdir(outside);
  await symlink(outside, join(node.directory, "to-outside"));
  await writeLayout(layout, {
    layers: [
      [
        file("/absolute"),
        { name: "exit", type: "2", link: outside },
        file("exit/burglar"),
        { name: "up", type: "2", link: "../../../../.." },
        file("up/climber"),
        { name: "xattr", content: "x", xattrs: { "trusted.overlay.redirect": "/etc", "user.fine": "1" } },
      ],
    ],
  });
  await importOf({ source: layout, name: "contained:1" });
  expect(await readdir(outside)).toEqual([]);
  expect(await stat("/climber").catch(() => undefined)).toBeUndefined();
});

test("a work area or a store that is full says disk_full, and nothing is half-published", async () => {
  await writeLayout(layout, { layers: [[file("big", randomBytes(6_000_000))]] });
  for (const folder of [directory, node.layerStore]) {
    await mkdir(folder, { recursive: true });
    mount({ source: "tmpfs", target: folder, type: "tmpfs", data: "size=3m" });
    try {
      const here = await openLayerStore(node.layerStore);
      await expect(importImage(here, { source: layout, name: "big:1" }, { directory })).rejects.toMatchObject(
        {
          code: "disk_full",
        },
      );
      expect(await here.list()).toEqual([]);
    } finally {
      unmountIfMounted(folder);
    }
  }
  await expectNothing();
});

test("a folder that is no layout, an archive that is none, and a name that neither has are told apart", async () => {
  await writeLayout(layout, { layers: [[file("one")]] });
  const archive = join(node.directory, "plain.tar");
  await writeFile(archive, tarOf([file("one")]));
  await mkdir(join(node.directory, "plain"));
  for (const [source, code] of [
    [join(node.directory, "plain"), "invalid_argument"],
    [archive, "invalid_argument"],
    [`oci-archive:${archive}`, "image_invalid"],
    [`oci:${layout}:none`, "image_not_found"],
  ])
    await expect(importOf({ source: source ?? "", name: "none:1" })).rejects.toMatchObject({ code });
  await expectNothing();
});

test("a store that can only be read takes neither images nor layers, and says so", async () => {
  await writeLayout(layout, { layers: [[file("one")]] });
  const readOnly = 1;
  mount({ source: "tmpfs", target: node.layerStore, type: "tmpfs", flags: readOnly });
  try {
    const denied = { code: "permission_denied", message: expect.stringContaining("cannot be written") };
    await expect(importOf({ source: layout, name: "one:1" })).rejects.toMatchObject(denied);
    await expect(store.build({ reference: "one:1", from: "busybox" })).rejects.toMatchObject(denied);
  } finally {
    unmountIfMounted(node.layerStore);
  }
  await expectNothing();
});

test("a cancelled import leaves nothing but what was fetched", async () => {
  await writeLayout(layout, { layers: [[file("big", Buffer.alloc(60_000_000, "abc"))]] });
  const cancel = new AbortController();
  const importing = importImage(
    store,
    { source: layout, name: "late:1" },
    { directory, signal: cancel.signal, onProgress: ({ phase }) => phase === "unpacking" && cancel.abort() },
  );
  await expect(importing).rejects.toMatchObject({ code: "cancelled" });
  await expectNothing();
  expect((await readdir(join(directory, "blobs/sha256"))).length).toBeGreaterThan(0);
});
