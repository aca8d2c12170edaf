import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import Docker from "dockerode";
import { afterAll, beforeAll, expect, test } from "vitest";
import { mountErofs, unmountIfMounted } from "../../../../src/backends/linux/mount.ts";
import { mountOverlay } from "../../../../src/backends/linux/overlay-mount.ts";
import { importImage } from "../../../../src/daemon/layers/images/image-import.ts";
import { openLayerStore, type LayerStore } from "../../../../src/daemon/layers/layer-store.ts";
import { temporaryNode, type TemporaryNode } from "../../temporary-node.ts";
import { corpus } from "./corpus.ts";
import { push, startRegistry, writeLayout, type Registry } from "./image-fixture.ts";
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

test.each(Object.entries(corpus))(
  "an image with %s is what docker makes of it, merged or not",
  async (name, image) => {
    const id = name.replaceAll(/[^a-z]+/g, "-").replace(/-$/, "");
    const place = join(node.directory, id);
    const reference = `${registry.host}/${id}:1`;
    await writeLayout(join(place, "layout"), image);
    await push(join(place, "layout"), registry, `${id}:1`);
    // not every docker reads zstd
    await writeLayout(join(place, "gzip"), { ...image, compression: "gzip" });
    await push(join(place, "gzip"), registry, `${id}:gzip`);
    const expected = await shownByDocker(`${registry.host}/${id}:gzip`, place);

    const directory = join(node.directory, "imports");
    await importImage(store, { source: reference, name: `${id}:merged` }, { directory });
    await importImage(store, { source: reference, name: `${id}:apart`, mergeLimit: 0 }, { directory });
    expect((await store.resolve(`${id}:merged`))?.layers).toHaveLength(1);
    expect((await store.resolve(`${id}:apart`))?.layers).toHaveLength(image.layers.length);
    expect(await shownByStore(`${id}:merged`, join(place, "merged"))).toEqual(expected);
    expect(await shownByStore(`${id}:apart`, join(place, "apart"))).toEqual(expected);
  },
);
