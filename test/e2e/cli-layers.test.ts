import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { main } from "../../src/commands/main.ts";
import { busyboxLayer, push, startRegistry, writeLayout } from "../daemon/layers/images/image-fixture.ts";
import { output } from "../daemon/temporary-node.ts";
import { type Fleet, startFleet } from "./fleet.ts";

let directory: string;
let store: string;
let fleet: Fleet;

beforeAll(async () => {
  directory = await mkdtemp("/tmp/dsec-layers-");
  store = join(directory, "store");
  await mkdir(join(store, "manifests"), { recursive: true });
  // where skopeo looks for the node's credentials
  const env = { REGISTRY_AUTH_FILE: join(directory, "auth.json") };
  fleet = await startFleet({ flags: ["--layer-store", store], env });
  await layer("build", "busybox:1", "--from", "busybox", "--tag", "latest");
});

afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
  await rm(directory, { recursive: true, force: true });
});

/** `dsec layer …` on the test's store; fails the test unless it succeeds. */
async function layer(...argv: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await fleet.dsec(["layer", ...argv, "--layer-store", store]);
  expect({ argv, code, stderr: code === 0 ? "" : stderr }).toEqual({ argv, code: 0, stderr: "" });
  return stdout;
}

async function json(...argv: readonly string[]): Promise<unknown> {
  return JSON.parse(await layer(...argv, "-o", "json"));
}

async function plant(name: string, files: Readonly<Record<string, string>>): Promise<string> {
  const tree = join(directory, name);
  await mkdir(tree);
  for (const [file, content] of Object.entries(files)) await writeFile(join(tree, file), content);
  return tree;
}

test("versions of a toolkit are listed, and what they take is told apart", async () => {
  const same = await plant("same", { a: "x".repeat(100_000) });
  const other = await plant("other", { a: "y".repeat(300_000) });
  for (const [version, tree] of [
    ["1", same],
    ["2", same],
    ["3", other],
  ])
    await layer("build", `tool:${version}`, "--kind", "toolkit", "--from", tree ?? "");
  const by = expect.stringContaining("@") as string;
  expect(await json("history", "tool")).toMatchObject([
    { name: "tool:3", kind: "toolkit", provenance: { from: other, by } },
    { name: "tool:2", provenance: { from: same, by } },
    { name: "tool:1" },
  ]);
  expect(await json("inspect", "tool:2")).toMatchObject([{ provenance: { from: same, by } }]);
  const usage = (await json("du")) as { reference: string; bytes: number; uniqueBytes: number }[];
  const of = (reference: string) => usage.find((row) => row.reference === reference);
  // one layer of two names: neither's removal alone would free it, but it is stored once
  expect(of("tool:1")).toEqual({ ...of("tool:2"), reference: "tool:1" });
  expect(of("tool:3")?.uniqueBytes).toBe(of("tool:3")?.bytes);
  expect(await json("verify", "tool:1", "tool:3")).toMatchObject([{ status: "ok" }, { status: "ok" }]);
});

test("who uses a layer and how much of it was read is asked of the fleet; in use it is neither removed nor pruned", async () => {
  const run = await fleet.dsec(["run", "-d", "busybox"]);
  const id = run.stdout.trim();
  expect((await fleet.dsec(["exec", id, "--", "cat", "/bin/busybox"])).code).toBe(0);
  const [used] = (await json("heat", "busybox")) as {
    sandboxes: string[];
    mounted: boolean;
    heat: { bytes: number; peakBytes: number };
  }[];
  expect(used).toMatchObject({ mounted: true, sandboxes: [id], references: ["busybox:1", "busybox:latest"] });
  expect(used?.heat.peakBytes).toBeGreaterThan(500_000);
  expect(used?.heat.peakBytes).toBeLessThanOrEqual(used?.heat.bytes ?? 0);
  const node = id.slice(0, id.lastIndexOf("-"));
  const blob = { digest: expect.stringMatching(/^sha256:/) as string, bytes: expect.any(Number) as number };
  const [inspected] = (await json("inspect", "busybox")) as { bytes: number; [field: string]: unknown }[];
  expect(inspected).toMatchObject({
    reference: "busybox:latest",
    references: ["busybox:1", "busybox:latest"],
    kind: "base",
    metadata: blob,
    data: [blob],
    usedBy: [{ node, sandboxes: [id] }],
    leasedBy: [`node ${node}`],
  });
  expect(inspected?.bytes).toBeGreaterThan(500_000);
  await layer("rm", "busybox:latest");
  const refused = await fleet.dsec(["layer", "rm", "busybox:1", "--layer-store", store]);
  expect(refused).toMatchObject({
    code: 125,
    stdout: "",
    stderr: expect.stringContaining("is in use by node"),
  });
  await layer("rm", "busybox:1", "--force");
  expect(await json("prune", "--grace", "0")).toEqual([]);
  expect((await fleet.dsec(["exec", id, "--", "echo", "still here"])).stdout).toBe("still here\n");
  expect((await fleet.dsec(["run", "busybox", "--", "true"])).stderr).toContain("image_not_found");
  // when the sandbox is gone the node keeps it mounted, but nobody could ask for it any more
  await fleet.dsec(["rm", id]);
  expect(await json("prune", "--grace", "0")).toContainEqual(
    expect.objectContaining({ kind: "manifest", action: "freed" }),
  );
  await layer("build", "busybox:1", "--from", "busybox", "--tag", "latest");
});

test("a layer that a node only keeps mounted for the next sandbox is not in use: its name goes", async () => {
  await layer("build", "kept:1", "--from", await plant("kept", { kept: "" }), "--kind", "toolkit");
  const image = ["--toolkit", "kept:1", "busybox"];
  expect((await fleet.dsec(["run", "--rm", ...image, "--", "ls", "/kept"])).stdout).toBe("/kept\n");
  expect(await json("heat", "kept:1")).toMatchObject([{ mounted: true, sandboxes: [] }]);
  const id = (await fleet.dsec(["run", "-d", ...image])).stdout.trim();
  expect(await fleet.dsec(["layer", "rm", "kept:1", "--layer-store", store])).toMatchObject({
    code: 125,
    stderr: expect.stringContaining(id) as string,
  });
  await fleet.dsec(["rm", id]);
  await layer("rm", "kept:1");
});

test("a store that is away is told as such, and its return is noticed", async () => {
  await layer("build", "again:1", "--from", "busybox");
  await rename(store, join(directory, "away"));
  const away = await fleet.dsec(["run", "again:1", "--", "true"]);
  expect(away).toMatchObject({ code: 125, stderr: expect.stringContaining("layer_store_unavailable") });
  await rename(join(directory, "away"), store);
  expect(await fleet.dsec(["run", "again:1", "--", "echo", "back"])).toMatchObject({
    code: 0,
    stdout: "back\n",
  });
});

test("run has an image of a registry by its pull policy: with the node's credentials, once for all who ask; else it says why not", async () => {
  const hash = await output("perl", "-e", "print crypt('pass', '$2y$05$abcdefghijklmnopqrstuu')");
  const registry = await startRegistry(`user:${hash}\n`);
  onTestFinished(() => registry[Symbol.asyncDispose]());
  const publish = async (content: string) => {
    const layout = join(directory, "app");
    await writeLayout(layout, { layers: [await busyboxLayer(), [{ name: "srv/version", content }]] });
    await push(layout, registry, "app:1", "--dest-creds=user:pass");
  };
  const image = `${registry.host}/app:1`;
  const shown = (...flags: string[]) =>
    fleet.dsec(["run", "--rm", ...flags, image, "--", "cat", "/srv/version"]);
  const refused = (code: string) => ({
    code: 125,
    stdout: "",
    stderr: expect.stringContaining(`(${code})`) as string,
  });
  await publish("one\n");
  expect(await shown("--pull", "never")).toMatchObject(refused("image_not_found"));
  expect(await shown()).toMatchObject(refused("registry_denied"));
  const auth = Buffer.from("user:pass").toString("base64");
  await writeFile(join(directory, "auth.json"), JSON.stringify({ auths: { [registry.host]: { auth } } }));
  const before = registry.log().length;
  for (const result of await Promise.all([shown(), shown(), shown()]))
    expect(result).toMatchObject({ code: 0, stdout: "one\n", stderr: "" });
  // two layers and the configuration
  expect(registry.log().slice(before).split('"GET /v2/app/blobs/')).toHaveLength(1 + 3);
  await publish("two\n");
  expect((await shown()).stdout).toBe("one\n");
  expect((await shown("--pull", "always")).stdout).toBe("two\n");
  await registry.stop();
  expect((await shown()).stdout).toBe("two\n");
  expect(await shown("--pull", "always")).toMatchObject(refused("registry_unreachable"));
  expect(await json("history", image)).toMatchObject([
    { name: `${image} 1/1`, steps: [{ createdBy: "test" }, {}], provenance: { from: `docker://${image}` } },
  ]);
});

/** A registry with one image, `app`, whose blobs it holds back until told. */
async function slowRegistry(content = "one\n"): Promise<{ host: string; digest: string; open: () => void }> {
  const layout = join(directory, "layout");
  const version = [{ name: "srv/version", content }];
  const config = { Env: ["COLOR=red"], WorkingDir: "/srv" };
  const { digest } = await writeLayout(layout, { layers: [await busyboxLayer(), version], config });
  const opened = Promise.withResolvers<void>();
  const answer = async (url: string): Promise<Buffer> => {
    if (url.includes("/blobs/")) await opened.promise;
    const name = url.includes("/blobs/") ? url.slice(-64) : digest.slice(7);
    return url === "/v2/" ? Buffer.from("{}") : readFile(join(layout, "blobs/sha256", name));
  };
  const server = createServer((request, response) => {
    response.setHeader("content-type", "application/vnd.oci.image.manifest.v1+json");
    answer(request.url ?? "").then(
      (bytes) => response.end(bytes),
      () => response.writeHead(404).end(),
    );
  }).listen(0, "127.0.0.1");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" ? address?.port : 0;
  return { host: `127.0.0.1:${port}`, digest, open: opened.resolve };
}

/** `dsec …` in this process, with or without a terminal as its stderr. */
function dsecOn(isTTY: boolean, argv: readonly string[]) {
  const told = { stdout: "", stderr: "" };
  const stdout = new PassThrough();
  const stderr = Object.assign(new PassThrough(), { isTTY, columns: 60 });
  stdout.on("data", (chunk: Buffer) => (told.stdout += chunk.toString()));
  stderr.on("data", (chunk: Buffer) => (told.stderr += chunk.toString()));
  const readerGone = new AbortController().signal;
  const io = { stdin: new PassThrough(), stdout, stderr, env: fleet.env, now: Date.now, readerGone };
  return { told, ended: main(argv, io) };
}

test("on a terminal run says how far the import has got, elsewhere and with -q nothing; inspect shows the image", async () => {
  const { host, digest, open } = await slowRegistry();
  const image = `${host}/app:1`;
  const argv = (...flags: string[]) => ["run", "--rm", ...flags, image, "--", "cat", "version"];
  const shown = dsecOn(true, argv());
  const silent = [dsecOn(true, argv("-q")), dsecOn(false, argv())];
  await expect.poll(() => shown.told.stderr).toContain(`fetching ${image}, `);
  open();
  for (const { ended, told } of [shown, ...silent]) {
    expect(await ended).toBe(0);
    expect(told.stdout).toBe("one\n");
  }
  // the line is taken away before the command's output
  expect(shown.told.stderr.endsWith("\r\u001b[K")).toBe(true);
  for (const { told } of silent) expect(told.stderr).toBe("");
  expect(await json("inspect", image)).toMatchObject([
    {
      reference: image,
      kind: "image",
      layers: [{ digest: expect.stringMatching(/^sha256:/) as string, kind: "base", data: [{}] }],
      config: { env: { COLOR: "red" }, workdir: "/srv" },
      source: { reference: `docker://${image}`, digest },
      usedBy: [],
    },
  ]);
});

test("layer import says on a terminal how far it has got, in a line that is taken away", async () => {
  const { host, open } = await slowRegistry("new\n");
  const shown = dsecOn(true, ["layer", "import", `${host}/app:2`, "--layer-store", store]);
  await expect.poll(() => shown.told.stderr).toContain("fetching ");
  open();
  expect(await shown.ended).toBe(0);
  expect(shown.told.stdout).toBe(`${host}/app:2\n`);
});

test("a Ctrl-C while the image is being imported ends run, whatever the registry does", async () => {
  const { host } = await slowRegistry();
  const running = fleet.spawn(["run", `${host}/app:1`, "--", "true"]);
  const ended = once(running, "exit");
  await using client = await fleet.client();
  const pending = async () => (await client.list({ state: ["pending"] })).items;
  await expect
    .poll(async () => (await pending()).map(({ info }) => info.progress))
    .toEqual([expect.stringContaining("fetching")]);
  running.kill("SIGINT");
  expect(await ended).toEqual([130, null]);
  // the fleet would give it up by itself, half a minute later
  for (const sandbox of await pending()) await sandbox.remove();
});

test("a store that is misspelt, or an object store, is not taken for an empty one, and nothing is made", async () => {
  const missing = join(directory, "misspelt");
  for (const [given, code, expected] of [
    [missing, "layer_store_unavailable", 125],
    ["rclone:remote:path", "invalid_argument", 2],
    ["", "invalid_argument", 2],
  ] as const) {
    const { code: exit, stderr } = await fleet.dsec(["layer", "ls", "--layer-store", given], {
      cwd: directory,
    });
    expect({ given, exit, stderr }).toEqual({
      given,
      exit: expected,
      stderr: expect.stringContaining(code) as string,
    });
  }
  const left = await readdir(directory);
  for (const name of ["misspelt", "rclone:remote:path", "blobs"]) expect(left).not.toContain(name);
});

test("of a layer that was damaged, verify tells which, and nothing is left of broken work", async () => {
  const [blob] = (await json("inspect", "tool:3")) as { data: { digest: string }[] }[];
  await writeFile(join(store, "blobs/sha256", (blob?.data[0]?.digest ?? "").slice(7)), "damaged");
  const verified = await fleet.dsec(["layer", "verify", "--layer-store", store, "-o", "json"]);
  expect(verified.code).toBe(125);
  expect(
    (JSON.parse(verified.stdout) as { reference: string; status: string }[]).filter(
      ({ status }) => status !== "ok",
    ),
  ).toMatchObject([{ reference: "tool:3", status: "corrupt" }]);
  expect(await readdir(join(store, "tmp"))).toEqual([]);
});
