import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chown, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Json } from "../../src/backends/backend.ts";
import { openLayerStore } from "../../src/daemon/layers/layer-store.ts";
import { LocalProvisioner } from "../../src/daemon/local-provisioner.ts";
import type { PreparedSandbox, ResolvedImage } from "../../src/daemon/provisioner.ts";
import { output, temporaryNode, tracesOf, type TemporaryNode } from "./temporary-node.ts";

const never = new AbortController().signal;
const mebibyte = 1_048_576;
const usual = { diskBytes: 32 * mebibyte, network: true };

let node: TemporaryNode;
let cleanup: AsyncDisposableStack;
let provisioner: LocalProvisioner;
let image: ResolvedImage;

beforeEach(async () => {
  node = await temporaryNode();
  cleanup = new AsyncDisposableStack();
  cleanup.use(node);
  await (await openLayerStore(node.layerStore)).build({ reference: "busybox", from: "busybox" });
  provisioner = await LocalProvisioner.open(node);
  cleanup.defer(async () => {
    await provisioner.sweep(new Set(), never);
    await provisioner.close();
    const traces = await settledTraces();
    if (traces.length > 0) throw new Error(`left behind:\n${traces.join("\n")}`);
  });
  const resolved = await provisioner.resolve("busybox");
  if (resolved === undefined) throw new Error("no busybox");
  image = resolved;
});

afterEach(async () => {
  await cleanup.disposeAsync();
});

/** The kernel ends namespaces a moment after their last user. */
async function settledTraces(): Promise<string[]> {
  let traces: string[] = [];
  await vi
    .waitFor(async () => expect((traces = await tracesOf(node))).toEqual([]), { timeout: 10_000 })
    .catch(() => undefined);
  return traces;
}

/** Prepares a sandbox that is released at the latest at the test's end. */
async function prepare(id: string): Promise<PreparedSandbox> {
  const prepared = await provisioner.prepare(id, image, usual, never);
  cleanup.defer(() => prepared.release());
  return prepared;
}

function rootOf(prepared: PreparedSandbox): string {
  if (prepared.root.type !== "directory") throw new Error("not a directory");
  return prepared.root.path;
}

/** What sandboxes have of the node, without what all share and what the pool holds in stock. */
async function perSandbox(): Promise<string[]> {
  const scratch = await readdir(join(node.runDir, "scratch"));
  const directories = await readdir(join(node.runDir, "sandboxes"));
  const overlays = (await tracesOf(node)).filter((trace) => trace.includes(" overlay "));
  return [...scratch, ...directories, ...overlays];
}

/** Stands for a runtime's container: a process whose namespaces keep the root and the network. */
async function startContainer(root: string, netnsPath: string): Promise<ChildProcess> {
  const script = `cd ${root} && exec chroot . /bin/sh -c "echo up; exec sleep 1000"`;
  const container = spawn(
    "nsenter",
    [`--net=${netnsPath}`, "unshare", "--mount", "--propagation", "private", "sh", "-c", script],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const ended = once(container, "close");
  cleanup.defer(async () => {
    container.kill("SIGKILL");
    await ended;
  });
  await once(container.stdout, "data");
  return container;
}

interface Left {
  readonly id: string;
  readonly record: { layers: string[]; link?: string };
  readonly path: string;
  readonly netnsPath: string;
  readonly address: string;
}

/** Has another process prepare sandboxes; it is killed by `kill`. */
async function startDaemon(ids: readonly string[]): Promise<{ left: Left[]; kill: () => Promise<void> }> {
  const module = fileURLToPath(new URL("../../src/daemon/local-provisioner.ts", import.meta.url));
  const script = `
    const { LocalProvisioner } = await import(${JSON.stringify(module)});
    const provisioner = await LocalProvisioner.open(${JSON.stringify(node)});
    const image = await provisioner.resolve("busybox");
    const left = [];
    for (const id of ${JSON.stringify(ids)}) {
      const { record, root, network } = await provisioner.prepare(id, image, ${JSON.stringify(usual)}, new AbortController().signal);
      left.push({ id, record, path: root.path, ...network });
    }
    console.log(JSON.stringify(left));
    setInterval(() => {}, 1000);`;
  const daemon = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(daemon, "close");
  const kill = async () => {
    daemon.kill("SIGKILL");
    await ended;
  };
  cleanup.defer(kill);
  const [printed] = await once(daemon.stdout, "data");
  const left: Left[] = JSON.parse(String(printed));
  return { left, kill };
}

test("nothing is amiss on a machine that the set-up has prepared", () => {
  expect(provisioner.report()).toEqual([]);
});

test("a prepared root is the image with a writable layer of its own, and the mount points of a runtime", async () => {
  const [one, two] = [await prepare("n-one"), await prepare("n-two")];
  const [first, second] = [rootOf(one), rootOf(two)];
  await writeFile(join(first, "etc", "passwd"), "changed");
  await output("mv", join(first, "usr"), join(first, "renamed"));
  expect(await readFile(join(second, "etc", "passwd"), "utf8")).toContain("root:x:0:0");
  expect(await output("chroot", second, "/bin/ls", "/usr")).toContain("bin");
  expect(await readdir(first)).toEqual(expect.arrayContaining(["dev", "proc", "renamed", "sys"]));
  expect((await tracesOf(node)).filter((trace) => trace.includes(" erofs "))).toHaveLength(1);
  expect(one.network?.address).not.toBe(two.network?.address);
  expect(await readdir(join(node.runDir, "scratch", "n-two", "upper"))).toEqual([]);
  await one.release();
  expect(await output("chroot", second, "/bin/echo", "alive")).toBe("alive\n");
  await two.release();
  await two.release();
  expect(await perSandbox()).toEqual([]);
});

test("writing beyond the limit fails inside, and is seen outside", async () => {
  const prepared = await prepare("n-one");
  expect(await prepared.diskFull()).toBe(false);
  const said = await output("chroot", rootOf(prepared), "/bin/sh", "-c", "yes 2>&1 > /big; true");
  expect(said).toMatch(/quota exceeded|No space left/i);
  expect(await prepared.diskFull()).toBe(true);
  expect(await prepared.diskUsage()).toBeGreaterThan(30 * mebibyte);
  await prepared.release();
});

test("a hundred sandboxes, four at a time, leave nothing", async () => {
  const ids = Array.from({ length: 100 }, (_, index) => `n-${index}`);
  const addresses: string[] = [];
  const work = async () => {
    for (let id = ids.pop(); id !== undefined; id = ids.pop()) {
      const prepared = await provisioner.prepare(id, image, usual, never);
      addresses.push(prepared.network?.address ?? "");
      if (ids.length % 2 === 0) await prepared.started();
      await prepared.release();
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  expect(addresses).toHaveLength(100);
  expect(addresses).not.toContain("");
  expect(await perSandbox()).toEqual([]);
});

test("a start that is given up at any moment leaves nothing", async () => {
  const outcomes = await Promise.all(
    Array.from({ length: 90 }, async (_, index) => {
      const cancel = new AbortController();
      const preparing = provisioner.prepare(`n-${index}`, image, usual, cancel.signal);
      if (index % 3 === 0) cancel.abort();
      if (index % 3 === 1) setImmediate(() => cancel.abort());
      try {
        await (await preparing).release();
        return "prepared";
      } catch (error) {
        return error instanceof Error && "code" in error ? error.code : error;
      }
    }),
  );
  expect(new Set(outcomes)).toEqual(new Set(["prepared", "cancelled"]));
  expect(await perSandbox()).toEqual([]);
});

test("a layer that cannot be mounted fails the start by name, and leaves nothing", async () => {
  const store = await openLayerStore(node.layerStore);
  const manifest = await store.manifest(image.digest);
  await writeFile(store.blobPath(manifest.metadata.digest), "damaged");
  await expect(prepare("n-one")).rejects.toMatchObject({
    code: "layer_corrupt",
    message: expect.stringContaining(image.digest),
  });
  expect(await perSandbox()).toEqual([]);
});

test("the same id is not prepared twice at once", async () => {
  const prepared = await prepare("n-one");
  await expect(prepare("n-one")).rejects.toMatchObject({ code: "conflict" });
  expect(await output("chroot", rootOf(prepared), "/bin/echo", "untouched")).toBe("untouched\n");
  await prepared.release();
});

test("after the start nothing of a sandbox is mounted outside it, and it lives on", async () => {
  const prepared = await prepare("n-one");
  const container = await startContainer(rootOf(prepared), prepared.network?.netnsPath ?? "");
  await prepared.started();
  expect((await tracesOf(node)).filter((trace) => trace.includes(" overlay "))).toEqual([]);
  await output(
    "nsenter",
    "--target",
    String(container.pid),
    "--mount",
    "--root",
    "/bin/sh",
    "-c",
    "echo x > /file",
  );
  expect(await readdir(join(node.runDir, "scratch", "n-one", "upper"))).toEqual(["file"]);
  container.kill("SIGKILL");
  await once(container, "close");
  await prepared.release();
  expect(await perSandbox()).toEqual([]);
});

test("a new daemon takes up what a killed one left, and sweeps only what nobody has", async () => {
  await provisioner.close();
  const daemon = await startDaemon(["n-kept", "n-lost", "n-later"]);
  const [kept, , later] = daemon.left;
  if (kept === undefined || later === undefined) throw new Error("nothing prepared");
  const containers = [
    await startContainer(kept.path, kept.netnsPath),
    await startContainer(later.path, later.netnsPath),
  ];
  await daemon.kill();

  provisioner = await LocalProvisioner.open(node);
  const own = await prepare("n-own");
  expect([kept.address, later.address]).not.toContain(own.network?.address);
  const adopted = await provisioner.adopt(kept.id, kept.record);
  cleanup.defer(() => adopted.release());
  expect(adopted.record).toEqual(kept.record);
  expect(adopted.network?.address).toBe(kept.address);
  const removed = await provisioner.sweep(new Set([kept.id, later.id]), never);
  expect(removed).toContainEqual({ kind: "root", name: "n-lost" });
  expect(removed).toContainEqual({ kind: "scratch", name: "n-lost" });
  expect(removed.map(({ name }) => name)).not.toEqual(expect.arrayContaining([kept.id, later.id, "n-own"]));
  expect((await readdir(join(node.runDir, "scratch"))).sort()).toEqual(["n-kept", "n-later", "n-own"]);
  const links = (await tracesOf(node)).filter((trace) => trace.startsWith("link "));
  expect(links).toEqual(expect.arrayContaining([`link ${kept.record.link}`, `link ${later.record.link}`]));

  const inside = ["--target", String(containers[0]?.pid), "--mount", "--root"];
  await output("nsenter", ...inside, "/bin/sh", "-c", "yes | head -c 4194304 > /file");
  expect(await adopted.diskUsage()).toBeGreaterThanOrEqual(4 * mebibyte);
  const adoptedLater = await provisioner.adopt(later.id, later.record);
  cleanup.defer(() => adoptedLater.release());
  for (const container of containers) {
    container.kill("SIGKILL");
    await once(container, "close");
  }
  await Promise.all([adopted.release(), adoptedLater.release(), own.release()]);
  expect(await perSandbox()).toEqual([]);
});

test("closing while sandboxes run keeps what they need, and the rules", async () => {
  const prepared = await prepare("n-one");
  const container = await startContainer(rootOf(prepared), prepared.network?.netnsPath ?? "");
  await prepared.started();
  await provisioner.close();
  expect(await output("chroot", `/proc/${container.pid}/root`, "/bin/echo", "alive")).toBe("alive\n");
  expect(await output("nft", "list", "tables")).toContain(node.instance);
  provisioner = await LocalProvisioner.open(node);
  const adopted = await provisioner.adopt("n-one", prepared.record);
  container.kill("SIGKILL");
  await once(container, "close");
  await adopted.release();
});

test("a range in use leaves the rest working, and is reported with what mends it", async () => {
  const other = await temporaryNode();
  cleanup.use(other);
  const options = { ...other, networkRange: node.networkRange, layerStore: node.layerStore };
  const second = await LocalProvisioner.open(options);
  expect(second.report()).toMatchObject([
    {
      level: "error",
      message: expect.stringContaining(node.networkRange),
      fix: expect.stringContaining("--network-range"),
    },
  ]);
  await expect(second.prepare("n-one", image, usual, never)).rejects.toMatchObject({
    code: "address_in_use",
  });
  const prepared = await second.prepare("n-one", image, { ...usual, network: false }, never);
  expect(prepared.network).toBeUndefined();
  await second.close();
  // what had a network cannot be taken up, and is left to the sweep
  const third = await LocalProvisioner.open(options);
  const record = { ...(prepared.record as { readonly [key: string]: Json }), link: "gone" };
  await expect(third.adopt("n-one", record)).rejects.toMatchObject({ code: "address_in_use" });
  expect(await third.sweep(new Set(), never)).toEqual([
    { kind: "root", name: "n-one" },
    { kind: "scratch", name: "n-one" },
  ]);
  await third.close();
  expect(await tracesOf({ ...other, networkRange: "none" })).toEqual([]);
});

test("without root it says so, and still knows which layers there are", async () => {
  const home = join(node.directory, "home");
  await mkdir(home);
  await chown(home, 65_534, 65_534);
  await output("chmod", "a+rx", node.directory);
  const options = { ...node, dataDir: join(home, "data"), runDir: join(home, "run") };
  const script = `
    const { LocalProvisioner } = await import(${JSON.stringify(fileURLToPath(new URL("../../src/daemon/local-provisioner.ts", import.meta.url)))});
    const provisioner = await LocalProvisioner.open(${JSON.stringify(options)});
    const image = await provisioner.resolve("busybox");
    const failure = await provisioner.prepare("n-one", image, ${JSON.stringify(usual)}, new AbortController().signal).catch((error) => error.code);
    await provisioner.close();
    console.log(JSON.stringify({ failure, findings: provisioner.report() }));`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
    uid: 65_534,
    gid: 65_534,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [printed] = await once(child.stdout, "data");
  expect(JSON.parse(String(printed))).toMatchObject({
    failure: "permission_denied",
    findings: [{ level: "error", message: expect.stringContaining("root") }],
  });
});
