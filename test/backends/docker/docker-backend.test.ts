import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Docker from "dockerode";
import { afterEach, expect, test } from "vitest";
import { agentBinaryPath } from "../../../src/agent/agent-binary.ts";
import { AgentConnection } from "../../../src/agent/connection.ts";
import type { StartRequest } from "../../../src/backends/backend.ts";
import { agentArchive } from "../../../src/backends/container/docker/agent-archive.ts";
import { attach } from "../../../src/backends/container/docker/agent-link.ts";
import { containerOptions } from "../../../src/backends/container/docker/container-options.ts";
import { DockerBackend } from "../../../src/backends/container/docker/docker-backend.ts";
import { startRegistry } from "../../daemon/layers/images/image-fixture.ts";

const socketPath = process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "";
const image = "dsec-test-busybox:latest";
const never = new AbortController().signal;
const docker = new Docker({ socketPath, host: "" });

let scope = new AsyncDisposableStack();
afterEach(async () => {
  const done = scope;
  scope = new AsyncDisposableStack();
  await done.disposeAsync();
});

function makeBackend(options: { socketPath?: string; agentPath?: string } = {}): DockerBackend {
  const instance = `dsec-test-${randomBytes(4).toString("hex")}`;
  const backend = new DockerBackend({ instance, agentPath: agentBinaryPath(), socketPath, ...options });
  scope.defer(async () => {
    await backend.close();
    await new DockerBackend({ instance, agentPath: "", socketPath }).sweep(new Set(), never);
  });
  return backend;
}

async function temporaryDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "dsec-docker-"));
  scope.defer(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

function request(reference = image): StartRequest {
  return {
    id: `docker-${randomBytes(5).toString("hex")}`,
    hostname: "sandbox",
    env: {},
    root: { type: "image", reference },
    limits: {
      memoryBytes: 64 * 1_048_576,
      cpus: 0.5,
      cpuLimit: null,
      pids: 64,
      diskBytes: 1_048_576,
      class: "best-effort",
    },
  };
}

test("a daemon that answers works, and says that it does not limit disks", async () => {
  const report = await makeBackend().probe(never);
  expect(report).toMatchObject({ backend: "container", engine: "docker", works: true });
  expect(report.version).toMatch(/^\d+\./);
  expect(report.findings.map(({ message }) => message).join()).toContain("disk limit is not enforced");
});

test("a missing socket, one that nobody listens on, and one that says nonsense are told apart", async () => {
  const directory = await temporaryDirectory();
  const missing = join(directory, "missing.sock");
  const dead = join(directory, "dead.sock");
  const foreign = join(directory, "foreign.sock");
  await writeFile(dead, "");
  const server = createServer((socket) => socket.resume().end("nonsense\r\n\r\n")).listen(foreign);
  await once(server, "listening");
  scope.defer(() => new Promise<void>((resolve) => server.close(() => resolve())));
  const expected = {
    [missing]: "no Docker socket",
    [dead]: "no Docker daemon answers",
    [foreign]: "does not answer",
  };
  for (const [path, words] of Object.entries(expected)) {
    const backend = makeBackend({ socketPath: path });
    const report = await backend.probe(never);
    expect(report.works).toBe(false);
    expect(report.findings[0]?.message).toContain(words);
    await expect(backend.start(request(), never)).rejects.toBeInstanceOf(Error);
  }
  await expect(makeBackend({ socketPath: missing }).start(request(), never)).rejects.toMatchObject({
    code: "backend_unavailable",
  });
  expect(await makeBackend({ socketPath: missing }).sweep(new Set(), never)).toEqual([]);
});

/** Stands between a client and the Docker daemon, which then seems to be that of another machine. */
async function elsewhere(): Promise<string> {
  const path = join(await temporaryDirectory(), "elsewhere.sock");
  const server = createHttpServer(async (asked, answer) => {
    const info: unknown = asked.url?.endsWith("/info") ? await docker.info() : await docker.version();
    answer.setHeader("Content-Type", "application/json");
    answer.end(JSON.stringify({ ...Object(info), Name: "another-machine" }));
  }).listen(path);
  await once(server, "listening");
  scope.defer(() => new Promise<void>((resolve) => server.close(() => resolve())));
  return path;
}

test("containers can be given a network where their Docker daemon is on this machine, and only there", async () => {
  const here = makeBackend();
  expect((await here.probe(never)).works).toBe(true);
  expect(here.capabilities.network).toBe("joined");
  const there = makeBackend({ socketPath: await elsewhere() });
  expect((await there.probe(never)).works).toBe(true);
  expect(there.capabilities.network).toBe("own");
});

test("an agent that has not been built is a finding with the command that mends it", async () => {
  const report = await makeBackend({ agentPath: "/no/such/agent" }).probe(never);
  expect(report.works).toBe(false);
  expect(report.findings[0]).toMatchObject({ level: "error", fix: "npm run setup" });
});

test("an agent that cannot run fails the start, and the container is removed", async () => {
  const agentPath = join(await temporaryDirectory(), "agent");
  await writeFile(agentPath, "#!/bin/sh\necho 'no such luck' >&2; exit 3\n");
  await chmod(agentPath, 0o755);
  const start = request();
  await expect(makeBackend({ agentPath }).start(start, never)).rejects.toMatchObject({
    code: "start_failed",
    message: expect.stringContaining("no such luck"),
  });
  expect(await containersOf(start.id)).toEqual([]);
});

test("why a start failed is told also when its container cannot be removed", async () => {
  const path = join(await temporaryDirectory(), "unlucky.sock");
  const server = createHttpServer((asked, answer) => {
    asked.resume();
    const refusals: Record<string, number> = { POST: 500, DELETE: 403 };
    answer.statusCode = refusals[asked.method ?? ""] ?? 200;
    answer.setHeader("Content-Type", "application/json");
    answer.end(JSON.stringify({ message: `${asked.method} is refused`, Id: "sha256:0", Config: {} }));
  }).listen(path);
  await once(server, "listening");
  scope.defer(() => new Promise<void>((resolve) => server.close(() => resolve())));
  await expect(makeBackend({ socketPath: path }).start(request(), never)).rejects.toMatchObject({
    code: "start_failed",
    cause: { message: expect.stringContaining("POST is refused") },
  });
});

test("the image's own environment, directory and user are handed back, also after an adoption", async () => {
  const container = await docker.createContainer({ Image: image });
  const reference = `dsec-test-defaults-${randomBytes(4).toString("hex")}`;
  await container.commit({
    repo: reference,
    changes: ["ENV A=1 B=x=y", "WORKDIR /tmp", "USER nobody"].join("\n"),
  });
  await container.remove();
  scope.defer(async () => void (await docker.getImage(reference).remove({ force: true })));
  const defaults = { env: expect.objectContaining({ A: "1", B: "x=y" }), workdir: "/tmp", user: "nobody" };
  const backend = makeBackend();
  const start = request(reference);
  const running = await backend.start(start, never);
  expect(running.imageDefaults).toEqual(defaults);
  await backend.close();
  const adopted = await backend.adopt(start.id, JSON.parse(JSON.stringify(running.record)), never);
  expect(adopted.imageDefaults).toEqual(defaults);
  await adopted.destroy();
});

test("an image is found by its digest, and one that is not there is not", async () => {
  const backend = makeBackend();
  expect((await backend.findImage(image, never))?.digest).toMatch(/^sha256:[0-9a-f]{64}$/);
  expect(await backend.findImage("dsec-test-no-such-image", never)).toBeUndefined();
});

test("a reference that Docker cannot read is refused as such", async () => {
  const backend = makeBackend();
  for (const reference of ["Not//A::Reference", "../containers/x", "Upper"]) {
    const refused = { code: "invalid_image_reference" };
    await expect(backend.start(request(reference), never)).rejects.toMatchObject(refused);
    await expect(backend.findImage(reference, never)).rejects.toMatchObject(refused);
  }
});

test("many that ask for an image that cannot be pulled are all told so", async () => {
  const backend = makeBackend();
  const starts = Array.from({ length: 8 }, () => backend.start(request("dsec-test-no-such-image"), never));
  for (const start of await Promise.allSettled(starts)) {
    expect(start).toMatchObject({ status: "rejected", reason: { code: "image_not_found" } });
  }
});

test("a registry that refuses, or is not there, is told apart from an image that is not", async () => {
  const backend = makeBackend();
  await using closed = await startRegistry("user:nobody-has-this-password\n");
  for (const [image, code] of [
    [`${closed.host}/app:1`, "registry_denied"],
    ["127.0.0.1:1/app:1", "registry_unreachable"],
  ] as const)
    await expect(backend.start(request(image), never)).rejects.toMatchObject({
      code,
      message: expect.stringContaining(image) as string,
    });
});

test("a container of another instance or id is not adopted and not swept", async () => {
  const theirs = makeBackend();
  const start = request();
  const running = await theirs.start(start, never);
  const ours = makeBackend();
  await expect(ours.adopt(start.id, running.record, never)).rejects.toMatchObject({ code: "agent_lost" });
  await expect(theirs.adopt("docker-other", running.record, never)).rejects.toMatchObject({
    code: "agent_lost",
  });
  expect(await ours.sweep(new Set(), never)).toEqual([]);
  await running.guest.ping();
  await running.destroy();
});

test("a container that someone else removes is a lost agent", async () => {
  const running = await makeBackend().start(request(), never);
  await docker.getContainer(running.record.containerId).remove({ force: true });
  expect(await running.ended).toMatchObject({ reason: "agent_lost" });
  await running.destroy();
  await expect(running.usage()).rejects.toMatchObject({ code: "sandbox_not_running" });
  await expect(running.update({ pids: 99 })).rejects.toMatchObject({ code: "sandbox_not_running" });
});

test("limits reach Docker, and a best-effort sandbox keeps the least weight when its cores change", async () => {
  const running = await makeBackend().start(request(), never);
  const { HostConfig: before } = await docker.getContainer(running.record.containerId).inspect();
  expect(before).toMatchObject({ Memory: 67_108_864, MemorySwap: 67_108_864, CpuShares: 2, PidsLimit: 64 });
  expect(before).toMatchObject({ NetworkMode: "none", CapDrop: ["ALL"], SecurityOpt: ["no-new-privileges"] });
  await running.update({ memoryBytes: 134_217_728, cpus: 4, cpuLimit: 2, pids: 32 });
  const { HostConfig: after } = await docker.getContainer(running.record.containerId).inspect();
  expect(after).toMatchObject({ Memory: 134_217_728, CpuShares: 2, CpuQuota: 200_000, PidsLimit: 32 });
  await running.destroy();
});

test("the agent can be put into a container as an archive, for daemons of other machines", async () => {
  const options = containerOptions(request(), image, {
    instance: `dsec-test-${randomBytes(4).toString("hex")}`,
    agentMount: undefined,
    protectsAgents: false,
  });
  const container = await docker.createContainer(options);
  scope.defer(() => container.remove({ force: true }));
  await container.putArchive(await agentArchive(agentBinaryPath()), { path: "/" });
  const stream = await attach(container);
  await container.start();
  const guest = await AgentConnection.open(stream, { resync: false, signal: never });
  const { mode, uid } = await guest.files.stat("/.dsec/agent", { followSymlink: false });
  expect([mode, uid]).toEqual([0o555, 0]);
  guest.close();
});

async function containersOf(id: string): Promise<string[]> {
  const found = await docker.listContainers({ all: true, filters: { label: [`dsec.id=${id}`] } });
  return found.map(({ Id }) => Id);
}
