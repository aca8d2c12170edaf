import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import Docker from "dockerode";
import { afterAll, beforeAll, expect, test } from "vitest";
import { mountErofs, unmountIfMounted } from "../../../../src/backends/linux/mount.ts";
import { mountOverlay } from "../../../../src/backends/linux/overlay-mount.ts";
import { importImage } from "../../../../src/daemon/layers/images/image-import.ts";
import { LayerStore, openLayerStore } from "../../../../src/daemon/layers/layer-store.ts";
import { output, temporaryNode, type TemporaryNode } from "../../temporary-node.ts";
import { corpus } from "./corpus.ts";
import { push, startRegistry, writeLayout, type MadeImage, type Registry } from "./image-fixture.ts";
import { describeTree } from "./tree-description.ts";

const docker = new Docker({ socketPath: process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "", host: "" });

let node: TemporaryNode;
let store: LayerStore;
let registry: Registry;

beforeAll(async () => {
  node = await temporaryNode();
  store = await openLayerStore(node.layerStore);
  registry = await startRegistry();
});

afterAll(async () => {
  await registry[Symbol.asyncDispose]();
  await node[Symbol.asyncDispose]();
});

/** The image as docker shows it: the overlay that its containers would get. */
async function shownByDocker(reference: string, place: string): Promise<Record<string, string>> {
  const pull = await docker.pull(reference);
  await new Promise<void>((resolve, reject) => {
    docker.modem.followProgress(pull, (error, events: { error?: string }[] | null) => {
      const failure = error ?? events?.find((event) => event.error !== undefined)?.error;
      if (failure) reject(failure instanceof Error ? failure : new Error(failure));
      else resolve();
    });
  });
  const image = docker.getImage(reference);
  try {
    const { GraphDriver } = await image.inspect();
    expect(GraphDriver.Name).toBe("overlay2");
    const data: Record<string, string | undefined> = GraphDriver.Data;
    const lower = [
      data["UpperDir"] ?? "",
      ...(data["LowerDir"] ?? "").split(":").filter((path) => path !== ""),
    ];
    const empty = join(place, "empty");
    const target = join(place, "docker");
    await mkdir(empty, { recursive: true });
    await mkdir(target);
    mountOverlay({ lower: [...lower, empty] }, target);
    try {
      return describeTree(target);
    } finally {
      unmountIfMounted(target);
    }
  } finally {
    await image.remove({ force: true });
  }
}

async function shownByStore(reference: string, place: string): Promise<Record<string, string>> {
  const { layers = [] } = (await store.resolve(reference)) ?? {};
  const mounted: string[] = [];
  try {
    for (const [index, digest] of layers.entries()) {
      const { metadata, data } = await store.manifest(digest);
      const target = join(place, String(index));
      await mkdir(target, { recursive: true });
      const devices = data.map((blob) => store.blobPath(blob.digest));
      mountErofs(store.blobPath(metadata.digest), target, devices);
      mounted.push(target);
    }
    const all = join(place, "all");
    await mkdir(all, { recursive: true });
    await mkdir(join(place, "nothing"));
    mountOverlay({ lower: [...mounted.toReversed(), join(place, "nothing")] }, all);
    mounted.push(all);
    return describeTree(all);
  } finally {
    for (const target of mounted.toReversed()) unmountIfMounted(target);
  }
}

/** The image as docker shows it, and as the store does, imported in each of the ways. */
async function roundTrip(id: string, image: MadeImage, ways = ["merged", "apart"]) {
  const place = join(node.directory, id);
  const reference = `${registry.host}/${id}:1`;
  await writeLayout(join(place, "layout"), image);
  await push(join(place, "layout"), registry, `${id}:1`);
  let readable = reference;
  if (image.compression === "zstd") {
    // not every docker reads it
    readable = `${registry.host}/${id}:gzip`;
    await writeLayout(join(place, "gzip"), { ...image, compression: "gzip" });
    await push(join(place, "gzip"), registry, `${id}:gzip`);
  }
  const expected = await shownByDocker(readable, place);

  const directory = join(node.directory, "imports");
  const shown: Record<string, string>[] = [];
  for (const way of ways) {
    const name = `${id}:${way}`;
    await importImage(
      store,
      { source: reference, name, ...(way === "apart" && { mergeLimit: 0 }) },
      { directory },
    );
    expect((await store.resolve(name))?.layers).toHaveLength(way === "apart" ? image.layers.length : 1);
    shown.push(await shownByStore(name, join(place, way)));
  }
  return { expected, shown };
}

test.each(Object.entries(corpus))(
  "an image with %s is what docker makes of it, merged or not",
  async (name, image) => {
    const { expected, shown } = await roundTrip(name.replaceAll(/[^a-z]+/g, "-").replace(/-$/, ""), image);
    expect(shown).toEqual([expected, expected]);
  },
);

/** The Debian base of the machine's own store, which the set-up makes. */
const debian = await new LayerStore("/var/lib/dsec/layers").resolve("debian").catch(() => undefined);

test.skipIf(debian === undefined)(
  "a quarter of Debian with a layer of changes merged into it is what docker makes of it (needs the layer debian, by npm run quickstart)",
  async () => {
    const [digest = ""] = debian?.layers ?? [];
    const own = new LayerStore("/var/lib/dsec/layers");
    const { metadata, data } = await own.manifest(digest);
    const root = join(node.directory, "debian-root");
    await mkdir(root);
    mountErofs(
      own.blobPath(metadata.digest),
      root,
      data.map((blob) => own.blobPath(blob.digest)),
    );
    const archive = join(node.directory, "debian.tar");
    try {
      await output(
        "tar",
        "-C",
        root,
        "--xattrs",
        "--xattrs-include=*",
        "--numeric-owner",
        // big, and like the rest
        "--exclude=./usr/lib/*-linux-gnu",
        "--exclude=./usr/lib/git-core",
        "--exclude=./usr/lib/python3.*",
        "--exclude=./usr/share",
        "-cf",
        archive,
        ".",
      );
    } finally {
      unmountIfMounted(root);
    }
    const changes = [
      { name: "etc/.wh.apt" },
      { name: "etc/default/", type: "5", mode: 0o700 },
      { name: "usr/lib/python3/dist-packages/.wh..wh..opq" },
      { name: "usr/lib/python3/dist-packages/one.py", content: "one = 1\n" },
      { name: "etc/os-release", content: "NAME=Changed\n" },
    ];
    const { expected, shown } = await roundTrip(
      "debian",
      { layers: [await readFile(archive), changes], compression: "none" },
      ["merged"],
    );
    expect(shown).toEqual([expected]);
  },
  240_000,
);
