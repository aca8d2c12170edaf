import { mkdir, readdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { openLayerStore } from "../../src/daemon/layers/layer-store.ts";
import type { LogLine } from "../../src/protocol/exec.ts";
import { containerNode } from "./container-fixture.ts";
import type { TestDaemon } from "./daemon-fixture.ts";
import { busyboxLayer, push, skopeo, startRegistry, writeLayout } from "./layers/images/image-fixture.ts";
import { output, type TemporaryNode } from "./temporary-node.ts";

const spec = { backend: "container", memoryMb: 64, diskMb: 64 } as const;

/** A node and a registry with the image `app:1`. */
async function nodeAndRegistry() {
  const registry = await startRegistry();
  onTestFinished(() => registry[Symbol.asyncDispose]());
  const container = await containerNode();
  const layout = join(container.node.directory, "app");
  const base = await busyboxLayer();
  const publish = async (content: string, config: object = {}, name = "app:1"): Promise<void> => {
    await writeLayout(layout, { layers: [base, [{ name: "srv/version", content }]], config });
    await push(layout, registry, name);
  };
  await publish("one\n", {
    Env: ["COLOR=red", "SIZE=big"],
    User: "app",
    WorkingDir: "/srv",
    Entrypoint: ["/bin/sh", "-c", "echo service $0 as $(id -un) in $(pwd); exec sleep 1000"],
    Cmd: ["ready"],
  });
  const image = `${registry.host}/app:1`;
  const blobsFetched = (): number => registry.log().match(/"GET \/v2\/app\/blobs\//g)?.length ?? 0;
  return { ...container, registry, publish, image, blobsFetched };
}

/** A toolkit `tool:1` with the file /opt/tool. */
async function buildToolkit({ directory, layerStore }: TemporaryNode): Promise<void> {
  const tree = join(directory, "toolkit");
  await mkdir(join(tree, "opt"), { recursive: true });
  await writeFile(join(tree, "opt/tool"), "tool\n");
  await (await openLayerStore(layerStore)).build({ reference: "tool:1", kind: "toolkit", from: tree });
}

async function logOf(daemon: TestDaemon, ref: string): Promise<string> {
  let text = "";
  for await (const line of await daemon.http.lines<LogLine>("logs", { params: { ref } }))
    if (line.type === "output") text += Buffer.from(line.data, "base64").toString();
  return text;
}

test("an image of a registry is fetched once for all who ask, and runs by its own configuration below the sandbox's", async () => {
  const { start, image, node, blobsFetched } = await nodeAndRegistry();
  const daemon = await start();
  const places = ["a", "b", "c", "d"].map((name) => daemon.place({ ...spec, image, name }));
  for (const sandbox of await Promise.all(places))
    expect(sandbox).toMatchObject({
      state: "running",
      engine: "runc",
      imageDigest: expect.stringMatching(/^sha256:/),
    });
  // two layers and the configuration
  expect(blobsFetched()).toBe(3);
  const script = "id -un; pwd; echo $COLOR $SIZE; cat version";
  expect((await daemon.run("a", ["sh", "-c", script])).stdout).toBe("app\n/srv\nred big\none\n");
  await daemon.place({ ...spec, image, name: "own", env: { COLOR: "blue" }, initUser: "0", workdir: "/tmp" });
  expect((await daemon.run("own", ["sh", "-c", "id -un; pwd; echo $COLOR $SIZE"])).stdout).toBe(
    "root\n/tmp\nblue big\n",
  );
  expect(blobsFetched()).toBe(3);
  expect(await readdir(join(node.dataDir, "imports", "tmp"))).toEqual([]);

  await daemon.leave();
  const next = await start();
  expect((await next.run("a", ["sh", "-c", script])).stdout).toBe("app\n/srv\nred big\none\n");
});

test("a directory that the image names and no layer has is made, root's own; one that cannot be made is said so", async () => {
  const { start, publish, registry } = await nodeAndRegistry();
  const config = (WorkingDir: string) => ({ User: "app", WorkingDir });
  await publish("one\n", config("/new/deep/"), "made:1");
  await publish("one\n", config("/srv/version/below"), "blocked:1");
  const daemon = await start();
  await daemon.place({ ...spec, image: `${registry.host}/made:1`, name: "made" });
  const listed = (await daemon.run("made", ["sh", "-c", "pwd; ls -nd /new /new/deep"])).stdout.split("\n");
  expect(listed.slice(0, 3)).toEqual([
    "/new/deep",
    expect.stringMatching(/^drwxr-xr-x +\d+ 0 +0 .* \/new$/),
    expect.stringMatching(/^drwxr-xr-x +\d+ 0 +0 .* \/new\/deep$/),
  ]);
  await expect(daemon.place({ ...spec, image: `${registry.host}/blocked:1` })).rejects.toMatchObject({
    code: "start_failed",
    message: expect.stringContaining("/srv/version/below") as string,
  });
});

test("what only a registry or a Docker daemon has is imported for toolkits to lie over it, unless one of them is missing", async () => {
  const { start, image, node, publish, blobsFetched } = await nodeAndRegistry();
  await publish("one\n", { WorkingDir: "/new/deep" });
  const docker = process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "";
  await buildToolkit(node);
  const daemon = await start({ backends: ["runc", "docker"], dockerSocket: docker });
  await expect(daemon.place({ ...spec, image, toolkits: ["tool:1", "none:1"] })).rejects.toMatchObject({
    code: "image_not_found",
    details: { toolkit: "none:1" },
  });
  expect(blobsFetched()).toBe(0);
  const seen = async (from: string): Promise<string> => {
    const { id, engine } = await daemon.place({ ...spec, image: from, toolkits: ["tool:1"] });
    expect(engine).toBe("runc");
    return (await daemon.run(id, ["cat", "/srv/version", "/opt/tool"])).stdout;
  };
  expect(await seen(image)).toBe("one\ntool\n");

  const archive = join(node.directory, "docker.tar");
  const name = "dsec-test-composed:1";
  await skopeo("copy", "--quiet", `oci:${join(node.directory, "app")}`, `docker-archive:${archive}:${name}`);
  await output("docker", "-H", `unix://${docker}`, "load", "-i", archive);
  onTestFinished(async () => void (await output("docker", "-H", `unix://${docker}`, "rmi", name)));
  expect(await seen(name)).toBe("one\ntool\n");
  // the same image where it lies: its directory is made, too
  const { id } = await daemon.place({ ...spec, diskMb: undefined, image: name, engine: "docker" });
  expect((await daemon.run(id, ["pwd"])).stdout).toBe("/new/deep\n");
  await daemon.remove(id);
});

test("pull policies: missing takes what is there, always what the registry has now, never leaves it out", async () => {
  const { start, image, publish, registry, node } = await nodeAndRegistry();
  const daemon = await start();
  const version = async (pull: "missing" | "always" | "never"): Promise<string> => {
    const { id } = await daemon.place({ ...spec, image, pull });
    return (await daemon.run(id, ["cat", "/srv/version"])).stdout;
  };
  await expect(version("never")).rejects.toMatchObject({
    code: "image_not_found",
    message: expect.stringContaining("layer store") as string,
  });
  expect(await version("missing")).toBe("one\n");
  await publish("two\n");
  expect(await version("missing")).toBe("one\n");
  expect(await version("always")).toBe("two\n");
  expect(await version("never")).toBe("two\n");
  // a store that is not mounted is not begun anew in its place
  await rename(node.layerStore, `${node.layerStore}-away`);
  await expect(version("always")).rejects.toMatchObject({ code: "layer_store_unavailable" });
  await rename(`${node.layerStore}-away`, node.layerStore);
  await registry.stop();
  expect(await version("missing")).toBe("two\n");
  await expect(version("always")).rejects.toMatchObject({ code: "registry_unreachable" });
});

test("the image's entrypoint runs as a recorded service beside the agent, where the sandbox asks for it", async () => {
  const { start, image } = await nodeAndRegistry();
  const daemon = await start();
  const { id } = await daemon.place({ ...spec, image, entrypoint: true });
  await expect.poll(() => logOf(daemon, id)).toBe("service ready as app in /srv\n");
  await expect(daemon.place({ ...spec, image: "busybox", entrypoint: true })).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringContaining("no entrypoint") as string,
  });
});

test("an import that nobody waits for any more ends and leaves nothing half-published", async () => {
  const { start, image, node } = await nodeAndRegistry();
  const daemon = await start();
  const seen = Promise.withResolvers<void>();
  const placing = daemon.place({ ...spec, image, name: "early" });
  placing.catch(() => undefined);
  const looking = setInterval(() => {
    void daemon.get("early").then(
      ({ progress }) => progress !== undefined && seen.resolve(),
      () => undefined,
    );
  }, 5);
  await seen.promise;
  clearInterval(looking);
  await daemon.remove("early");
  await expect(placing).rejects.toMatchObject({ code: "cancelled" });
  await expect.poll(() => readdir(join(node.dataDir, "imports", "tmp"))).toEqual([]);
  const listed = await (await openLayerStore(node.layerStore)).list();
  expect(listed.map(({ reference }) => reference)).toEqual(["busybox:latest"]);
});
