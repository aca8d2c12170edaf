import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { openLayerStore } from "../../src/daemon/layers/layer-store.ts";
import type { ExecList, LogLine } from "../../src/protocol/exec.ts";
import type { NodeLayerList } from "../../src/protocol/layer.ts";
import type { NodeStatus } from "../../src/protocol/node.ts";
import type { LayerKind } from "../../src/protocol/sandbox.ts";
import { busybox, containerNode } from "./container-fixture.ts";
import type { TestDaemon } from "./daemon-fixture.ts";

async function logText(daemon: TestDaemon, ref: string, follow = false): Promise<string> {
  let text = "";
  for await (const line of await daemon.http.lines<LogLine>("logs", { params: { ref }, query: { follow } }))
    if (line.type === "output") text += Buffer.from(line.data, "base64").toString();
  return text;
}

async function execsOf(daemon: TestDaemon, ref: string) {
  return (await daemon.http.json<ExecList>("listExecs", { params: { ref } })).items;
}

test("a container runs a command as its user, in its directory, with its variables", async () => {
  const node = await containerNode();
  const daemon = await node.start();
  const sandbox = await daemon.place({
    ...busybox,
    name: "web",
    env: { COLOR: "blue" },
    workdir: "/tmp",
    initUser: "1000:1000",
  });
  expect(sandbox).toMatchObject({
    state: "running",
    engine: "runc",
    imageDigest: expect.stringMatching(/^sha256:/) as string,
  });
  const { status, stdout } = await daemon.run("web", [
    "sh",
    "-c",
    "id -u; id -g; pwd; echo $COLOR; hostname",
  ]);
  expect(status).toMatchObject({ exitCode: 0 });
  expect(stdout).toBe("1000\n1000\n/tmp\nblue\nweb\n");
  // The kernel counts a runtime's helper that has died until the machine's init has reaped it.
  const pids = (await daemon.get("web")).usage?.pids;
  expect([1, 2]).toContain(pids);
});

test("an image that is nowhere is named, with where it was looked for and what to do", async () => {
  const node = await containerNode();
  const daemon = await node.start();
  await expect(daemon.place({ ...busybox, image: "nowhere:1" })).rejects.toMatchObject({
    code: "image_not_found",
    message: expect.stringMatching(/layer store.*dsec layer build nowhere:1/) as string,
  });
});

test("without an engine the layer store comes first, then Docker; an engine that is asked for decides", async () => {
  const node = await containerNode();
  const dockerSocket = process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "";
  const daemon = await node.start({ backends: ["runc", "docker"], dockerSocket });
  expect(await daemon.place(busybox)).toMatchObject({ engine: "runc" });
  const docker = await daemon.place({ ...busybox, image: "dsec-test-busybox:latest" });
  expect(docker).toMatchObject({ engine: "docker", state: "running" });
  expect((await daemon.run(docker.id, ["echo", "from docker"])).stdout).toBe("from docker\n");
  // runc gets what the Docker daemon has by an import
  const imported = await daemon.place({ ...busybox, image: "dsec-test-busybox:latest", engine: "runc" });
  expect(imported).toMatchObject({ engine: "runc", state: "running" });
  expect((await daemon.run(imported.id, ["echo", "from docker"])).stdout).toBe("from docker\n");
});

test("a root is composed of base, workspace and toolkits, recorded by digest, and stays what it was when tags move", async () => {
  const node = await containerNode();
  const store = await openLayerStore(node.node.layerStore);
  const build = async (reference: string, kind: LayerKind, text: string): Promise<string> => {
    const from = join(node.node.directory, reference.replace(":", "-"));
    await mkdir(join(from, "opt"), { recursive: true });
    await writeFile(join(from, "opt", "who"), text);
    await writeFile(join(from, "opt", text), "");
    return (await store.build({ reference, kind, from, tags: ["latest"] })).digest;
  };
  const repo = await build("repo:1", "workspace", "repo");
  const [one, two] = [await build("one:1", "toolkit", "one"), await build("two:1", "toolkit", "two")];
  const first = await node.start();
  const spec = { ...busybox, workspace: "repo", toolkits: ["one", "two:1"] };
  const sandbox = await first.place(spec);
  const base = sandbox.imageDigest ?? "";
  const layers = [
    { reference: "busybox:latest", kind: "base", digests: [base] },
    { reference: "repo:latest", kind: "workspace", digests: [repo] },
    { reference: "one:latest", kind: "toolkit", digests: [one] },
    { reference: "two:1", kind: "toolkit", digests: [two] },
  ];
  expect(sandbox).toMatchObject({ layers, spec: { workspace: "repo", toolkits: ["one", "two:1"] } });
  const look = ["sh", "-c", "cat /opt/who; ls /opt"];
  expect((await first.run(sandbox.id, look)).stdout).toBe("twoone\nrepo\ntwo\nwho\n");
  const newer = await build("one:2", "toolkit", "newer");
  expect((await first.get(sandbox.id)).layers).toEqual(layers);
  await first.leave();

  const second = await node.start();
  expect((await second.get(sandbox.id)).layers).toEqual(layers);
  expect((await second.run(sandbox.id, look)).stdout).toBe("twoone\nrepo\ntwo\nwho\n");
  await second.running.recovered;
  const { items } = await second.http.json<NodeLayerList>("listLayers", {});
  const used = items.filter(({ sandboxes }) => sandboxes.includes(sandbox.id)).map(({ digest }) => digest);
  expect(new Set(used)).toEqual(new Set([base, repo, one, two]));
  const next = await second.place(spec);
  expect(next.layers?.[2]).toEqual({ reference: "one:latest", kind: "toolkit", digests: [newer] });
  expect((await second.run(next.id, ["ls", "/opt"])).stdout).toBe("newer\nrepo\ntwo\nwho\n");
  await second.stop(sandbox.id);
  expect((await second.get(sandbox.id)).layers).toEqual(layers);
});

test("layers that cannot be composed leave no sandbox", async () => {
  const node = await containerNode();
  const dockerSocket = process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "";
  const daemon = await node.start({ backends: ["runc", "docker"], dockerSocket });
  for (const [spec, code, message] of [
    [{ workspace: "busybox" }, "invalid_argument", /busybox:latest is a base, not a workspace/],
    [{ toolkits: ["nowhere:1"] }, "image_not_found", /no toolkit nowhere:1/],
    [{ toolkits: ["a b"] }, "invalid_image_reference", /a b/],
    [{ toolkits: Array(65).fill("busybox") }, "invalid_argument", /toolkits/],
    [{ engine: "docker", image: "dsec-test-busybox:latest", workspace: "x" }, "unsupported", /engine runc/],
    [{ image: "dsec-test-busybox:latest", toolkits: ["x"] }, "image_not_found", /no toolkit x/],
  ] as const)
    await expect(
      daemon.place({ ...busybox, ...spec, toolkits: [...(("toolkits" in spec && spec.toolkits) || [])] }),
    ).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message) as string,
    });
  expect(await daemon.http.json("listSandboxes", { query: { all: true } })).toMatchObject({ items: [] });
});

test("the metrics show the pool of namespaces", async () => {
  const node = await containerNode();
  const daemon = await node.start();
  await daemon.place(busybox);
  await expect
    .poll(async () => daemon.metrics())
    .toMatch(/^dsec_pool_size\{pool="network_namespaces"\} [1-9]/m);
});

test("a command that takes too much memory ends as oom, and with it the sandbox", async () => {
  const node = await containerNode();
  const daemon = await node.start();
  const { id } = await daemon.place({ ...busybox, memoryMb: 32 });
  const grow = "x=a; while true; do x=$x$x; done";
  const { status } = await daemon.run(id, ["sh", "-c", grow], { endsSandbox: true });
  expect(status).toMatchObject({ cause: "oom", exitCode: 137 });
  expect(await daemon.wait(id)).toMatchObject({ state: "stopped", endReason: "oom", exitCode: 137 });
});

test("a kill is no oom, and a later one is none because of an earlier oom", async () => {
  const node = await containerNode();
  const daemon = await node.start();
  const { id } = await daemon.place({ ...busybox, memoryMb: 32 });
  const grow = await daemon.run(id, ["sh", "-c", "sh -c 'x=a; while true; do x=$x$x; done'; exit $?"]);
  expect(grow.status).toMatchObject({ cause: "oom", exitCode: 137 });
  expect((await daemon.run(id, ["sh", "-c", "kill -9 $$"])).status).toMatchObject({
    cause: "signaled",
    exitCode: 137,
  });
  expect((await daemon.get(id)).state).toBe("running");
});

test("a command that fails on a full disk ends the sandbox as disk_full", async () => {
  const node = await containerNode();
  const daemon = await node.start();
  const { id } = await daemon.place({ ...busybox, diskMb: 16 });
  const { status } = await daemon.run(id, ["dd", "if=/dev/zero", "of=/big", "bs=1M", "count=64"], {
    endsSandbox: true,
  });
  expect(status).toMatchObject({ type: "exit", diskFull: true });
  expect(await daemon.wait(id)).toMatchObject({ state: "stopped", endReason: "disk_full" });
});

test("a stop kills everything inside, also what hides from signals and terminals", async () => {
  const node = await containerNode();
  const daemon = await node.start({ stopGraceMs: 100 });
  const { id } = await daemon.place(busybox);
  const hide =
    "trap '' TERM INT HUP; (setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &); echo hidden; while :; do sleep 1; done";
  const exec = await daemon.exec(id, ["sh", "-c", hide]);
  await expect.poll(() => exec.stdout.toString()).toBe("hidden\n");
  expect(await daemon.stop(id)).toMatchObject({ state: "stopped", endReason: "stopped" });
  expect(await exec.status).toMatchObject({ type: "exit", cause: "killed", exitCode: 137 });
});

test("after a restart kept commands go on, recorded without a gap; attached ones are killed", async () => {
  const node = await containerNode();
  const first = await node.start();
  const { id } = await first.place(busybox);
  const count = "i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); sleep 0.05; done";
  await first.run(id, ["sh", "-c", count], { detach: true });
  const attached = await first.exec(id, ["sleep", "1000"]);
  await attached.started;
  await expect.poll(async () => logText(first, id)).toContain("line 3\n");
  await first.leave();
  expect(await attached.status).toMatchObject({
    type: "error",
    problem: { code: "connection_lost", ambiguous: true },
  });

  const second = await node.start();
  expect(await second.get(id)).toMatchObject({ state: "running", activeExecs: 1 });
  const lines = Array.from({ length: 50 }, (_, index) => `line ${index}\n`);
  expect(await logText(second, id, true)).toBe(lines.join(""));
  expect(await execsOf(second, id)).toMatchObject([{ state: "exited", exit: { exitCode: 0 } }]);
  expect((await second.run(id, ["pidof", "sleep"])).status).toMatchObject({ exitCode: 1 });
});

test("what ended while no daemon was there is known to the next one", async () => {
  const node = await containerNode();
  const first = await node.start();
  const alive = await first.place(busybox);
  const dead = await first.place(busybox);
  await first.run(alive.id, ["sh", "-c", "sleep 0.3; echo done; exit 9"], { detach: true });
  const pid = await initOf(node.node.runDir, dead.id);
  await first.leave();
  process.kill(pid, "SIGKILL");
  await expect.poll(async () => isAlive(pid)).toBe(false);

  const second = await node.start();
  expect(await second.get(dead.id)).toMatchObject({
    state: "lost",
    endReason: "agent_lost",
    problem: { code: "agent_lost" },
  });
  expect(await logText(second, alive.id, true)).toBe("done\n");
  expect(await execsOf(second, alive.id)).toMatchObject([{ state: "exited", exit: { exitCode: 9 } }]);
  await second.running.recovered;
  expect(await second.http.json<NodeStatus>("nodeStatus")).toMatchObject({ counts: { running: 1, lost: 1 } });
});

test("a sandbox whose commands the journal cannot tell is lost, and nothing of it goes on", async () => {
  const node = await containerNode();
  const first = await node.start();
  const { id } = await first.place(busybox);
  await first.run(id, ["sleep", "1000"], { detach: true });
  const pid = await initOf(node.node.runDir, id);
  await first.leave();
  const database = new DatabaseSync(join(node.node.dataDir, "daemon", "journal.sqlite"));
  database.exec("UPDATE execs SET spec = '{}'");
  database.close();

  const second = await node.start();
  expect(await second.get(id)).toMatchObject({ state: "lost", endReason: "agent_lost" });
  await expect.poll(async () => isAlive(pid), { timeout: 10_000 }).toBe(false);
});

test("an agent that dies is noticed at once, and is the platform's failure", async () => {
  const node = await containerNode();
  const daemon = await node.start();
  const { id } = await daemon.place(busybox);
  const exec = await daemon.exec(id, ["sleep", "1000"]);
  await exec.started;
  process.kill(await initOf(node.node.runDir, id), "SIGKILL");
  expect(await daemon.wait(id)).toMatchObject({ state: "lost", endReason: "agent_lost" });
  expect(await exec.status).toMatchObject({
    type: "error",
    problem: { code: "agent_lost", ambiguous: true },
  });
});

test("leftovers of sandboxes that the journal does not know are swept behind", async () => {
  const node = await containerNode();
  const first = await node.start();
  const { id } = await first.place(busybox);
  const pid = await initOf(node.node.runDir, id);
  await first.leave();
  await rm(join(node.node.dataDir, "daemon"), { recursive: true });

  const second = await node.start();
  await expect.poll(async () => isAlive(pid), { timeout: 10_000 }).toBe(false);
  await expect(second.get(id)).rejects.toMatchObject({ code: "not_found" });
});

test("limits of a running container change without a restart", async () => {
  const node = await containerNode();
  const daemon = await node.start();
  const { id } = await daemon.place(busybox);
  const grow = ["dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1"];
  expect((await daemon.run(id, grow)).status).toMatchObject({ cause: "oom" });
  await daemon.http.json("updateSandbox", { params: { ref: id }, body: { memoryMb: 256 } });
  expect((await daemon.run(id, grow)).status).toMatchObject({ cause: "exited", exitCode: 0 });
});

async function initOf(runDir: string, id: string): Promise<number> {
  return Number(await readFile(join(runDir, "sandboxes", id, "bundle", "pid"), "utf8"));
}

/** A zombie is dead: who reaps orphans is not ours to say. */
async function isAlive(pid: number): Promise<boolean> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  return stat !== "" && !/\) [ZX] /.test(stat);
}
