import { mkdirSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { StartRequest } from "../../../src/backends/backend.ts";
import { RuncBackend } from "../../../src/backends/container/runc/runc-backend.ts";
import { isMounted } from "../../../src/backends/linux/mount.ts";
import { agentPid, namesIn, runInside, SandboxFixture, shell } from "./sandbox-fixture.ts";

let fixture: SandboxFixture;

beforeAll(() => {
  fixture = new SandboxFixture();
});

afterAll(async () => {
  await fixture[Symbol.asyncDispose]();
});

test("a sandbox runs commands as its own root, sees its own processes only, and has its own host name", async () => {
  const sandbox = await fixture.start();
  const { code, stdout, stderr } = await runInside(sandbox, [
    "/bin/sh",
    "-c",
    "id -u; hostname; ps | wc -l; echo $PATH; exit 3",
  ]);
  expect({ code, stderr }).toEqual({ code: 3, stderr: "" });
  const [uid, hostname, lines, path] = stdout.split("\n");
  expect({ uid, hostname }).toEqual({ uid: "0", hostname: "box" });
  // header, agent, shell, ps, and wc if it has been forked by then
  expect([4, 5]).toContain(Number(lines));
  expect(path).toContain("/bin");
});

test("its names are in the files that programs look them up in, also when it has an address", async () => {
  const plain = await fixture.start();
  expect(await shell(plain, "cat /etc/hostname")).toBe("box");
  expect(await shell(plain, "cat /etc/hosts")).toMatch(/^127\.0\.1\.1\tbox$/m);
  const network = { netnsPath: `/proc/${process.pid}/ns/net`, address: "10.1.2.3", nameServer: "10.1.2.1" };
  const addressed = await fixture.start({ network });
  expect(addressed.address).toBe("10.1.2.3");
  expect(await shell(addressed, "cat /etc/hosts")).toMatch(/^10\.1\.2\.3\tbox$/m);
});

test("it enters the network namespace that it is given, and has an empty one of its own otherwise", async () => {
  const network = { netnsPath: `/proc/${process.pid}/ns/net`, address: "10.1.2.3", nameServer: "10.1.2.1" };
  const given = await fixture.start({ network });
  expect(await shell(given, "readlink /proc/self/ns/net")).toBe(readlinkSync("/proc/self/ns/net"));
  const alone = await fixture.start();
  expect(await shell(alone, "tail -n +3 /proc/net/dev | wc -l")).toBe("1");
  expect(await shell(alone, "cat /proc/net/route | wc -l")).toBe("1");
});

test("its root lives on after the daemon has unmounted it, and only what was written shows up in its upper layer", async () => {
  const id = fixture.nextId();
  const root = fixture.overlay(id);
  const sandbox = await fixture.start({ id, root: { type: "directory", path: root.path } });
  expect(isMounted(root.path)).toBe(false);
  await shell(sandbox, "echo hello > /tmp/note");
  expect(readFileSync(join(root.upper, "tmp/note"), "utf8")).toBe("hello\n");
  expect(readdirSync(root.upper).sort()).toEqual(["etc", "tmp"]);
  expect(readdirSync(join(root.upper, "etc")).sort()).toEqual(["hostname", "hosts", "resolv.conf"]);
});

test("nothing but the agent stays: no runtime, no descriptor", async () => {
  const before = descriptors();
  const sandbox = await fixture.start();
  const added = [...descriptors()].filter((target) => !before.has(target));
  // the connection to the agent
  expect(added).toEqual([expect.stringMatching(/^socket:/)]);
  const stat = readFileSync(`/proc/${agentPid(sandbox)}/stat`, "utf8");
  expect(stat).toContain("(agent)");
  const commands = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(commandLine);
  expect(commands.filter((command) => command.includes(fixture.runDir))).toEqual([]);
  await sandbox.destroy();
  expect([...descriptors()].filter((target) => !before.has(target))).toEqual([]);
});

/** What this process has open; sockets and pipes each by a name of their own. */
function descriptors(): Set<string> {
  return new Set(
    readdirSync("/proc/self/fd").flatMap((fd) => {
      try {
        return [readlinkSync(join("/proc/self/fd", fd))];
      } catch {
        // the descriptor of this very look
        return [];
      }
    }),
  );
}

function commandLine(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}

test("an id that is in use is refused, and its sandbox is left alone", async () => {
  const id = fixture.nextId();
  const sandbox = await fixture.start({ id });
  const root = fixture.overlay(`${id}-again`);
  const again = fixture.start({ id, root: { type: "directory", path: root.path } });
  await expect(again).rejects.toMatchObject({ code: "conflict" });
  expect(await shell(sandbox, "echo alive")).toBe("alive");
});

test("of two simultaneous starts of one id one wins", async () => {
  const id = fixture.nextId();
  const starts = await Promise.allSettled(
    ["a", "b"].map((name) => {
      const root = fixture.overlay(`${id}-${name}`);
      return fixture.start({ id, root: { type: "directory", path: root.path } });
    }),
  );
  expect(starts.map((start) => start.status).sort()).toEqual(["fulfilled", "rejected"]);
  const winners = starts.flatMap((start) => (start.status === "fulfilled" ? [start.value] : []));
  expect(await Promise.all(winners.map((winner) => shell(winner, "echo alive")))).toEqual(["alive"]);
});

const refusals = [
  {
    title: "a root that does not exist",
    root: { type: "directory", path: "/no/such" },
    code: "start_failed",
  },
  {
    title: "a root that is not a directory",
    root: { type: "directory", path: "/etc/passwd" },
    code: "start_failed",
  },
  { title: "a root of another kind", root: { type: "image", reference: "debian" }, code: "invalid_argument" },
] as const;

test.for(refusals)("$title fails as $code and leaves nothing", async ({ root, code }) => {
  const id = fixture.nextId();
  await expect(fixture.start({ id, root })).rejects.toMatchObject({ code });
  expect(fixture.traces(id)).toEqual([]);
});

test("what the runtime says of a start that it refuses is the error's cause", async () => {
  const id = fixture.nextId();
  const network = { netnsPath: "/no/such/namespace", address: "10.1.2.3", nameServer: "10.1.2.1" };
  const start = fixture.start({ id, network });
  await expect(start).rejects.toMatchObject({ code: "start_failed" });
  const error: unknown = await start.catch((reason: unknown) => reason);
  expect((error as Error).cause).toMatchObject({ message: expect.stringContaining("/no/such/namespace") });
  expect(fixture.traces(id)).toEqual([]);
});

function requestFor(path: string): StartRequest {
  return {
    id: fixture.nextId(),
    hostname: "box",
    env: {},
    root: { type: "directory", path },
    limits: {
      memoryBytes: 1e8,
      cpus: 1,
      cpuLimit: null,
      pids: 9,
      diskBytes: 1e8,
      class: "latency-sensitive",
    },
  };
}

test("a path that no socket can have is refused before anything is started", async () => {
  const runDir = join(fixture.directory, "r".repeat(100));
  mkdirSync(runDir);
  const backend = new RuncBackend({ instance: fixture.instance, runDir });
  const root = fixture.overlay("long");
  await expect(backend.start(requestFor(root.path), AbortSignal.timeout(10_000))).rejects.toMatchObject({
    code: "start_failed",
  });
  expect(namesIn(join(runDir, "sandboxes"))).toEqual([]);
});

test("without a runtime in PATH it is the backend that is unavailable", async () => {
  const path = process.env["PATH"];
  process.env["PATH"] = "/no/such";
  try {
    const backend = fixture.newBackend();
    const start = backend.start(requestFor("/"), AbortSignal.timeout(10_000));
    await expect(start).rejects.toMatchObject({ code: "backend_unavailable" });
    const report = await backend.probe(AbortSignal.timeout(10_000));
    expect(report.works).toBe(false);
    expect(report.findings).toContainEqual({
      level: "error",
      message: "crun or runc is not installed",
      fix: "apt-get install -y runc",
    });
  } finally {
    process.env["PATH"] = path;
  }
});

test("where it works, the probe says with which runtime", async () => {
  const report = await fixture.backend.probe(AbortSignal.timeout(10_000));
  expect(report).toMatchObject({
    backend: "container",
    engine: "runc",
    works: true,
    version: expect.stringMatching(/^c?runc? \d/),
  });
});
