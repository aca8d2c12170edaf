import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Json, Running } from "../../../src/backends/backend.ts";
import { listMounts } from "../../../src/backends/linux/mount.ts";
import { identifyProcess } from "../../../src/backends/linux/process.ts";
import { agentPid, attempt, mebibyte, runInside, SandboxFixture, shell } from "./sandbox-fixture.ts";

let fixture: SandboxFixture;
const soon = () => AbortSignal.timeout(10_000);

beforeAll(() => {
  fixture = new SandboxFixture();
});

afterAll(async () => {
  await fixture[Symbol.asyncDispose]();
});

/** What survives in a journal. */
const journaled = (record: Json): Json => JSON.parse(JSON.stringify(record)) as Json;

test("a sandbox is taken up by another backend, with the execs that run in it", async () => {
  const id = fixture.nextId();
  const network = { netnsPath: `/proc/${process.pid}/ns/net`, address: "10.1.2.3", nameServer: "10.1.2.1" };
  const first = await fixture.start({ id, network });
  await shell(first, "echo kept > /tmp/note");
  const exec = await first.guest.exec(
    { argv: ["/bin/sleep", "600"], env: {}, stdin: false },
    () => undefined,
  );
  exec.exit.catch(() => undefined);
  await fixture.backend.close();

  const adopted = await fixture.newBackend().adopt(id, journaled(first.record), soon());
  expect(adopted.guest.live).toEqual([{ channel: exec.channel, pid: exec.pid, state: "running" }]);
  expect(adopted.address).toBe("10.1.2.3");
  expect(await shell(adopted, "cat /tmp/note")).toBe("kept");
  expect(await adopted.usage()).toMatchObject({ oomKills: 0 });
  await adopted.destroy();
  expect(fixture.traces(id)).toEqual([]);
});

test("closing a backend is no end of its sandboxes", async () => {
  const backend = fixture.newBackend();
  const id = fixture.nextId();
  const started = await fixture.start({ id });
  const adopted = await backend.adopt(id, journaled(started.record), soon());
  let ended = false;
  void adopted.ended.then(() => {
    ended = true;
  });
  await backend.close();
  await adopted.guest.closed;
  await new Promise((resolve) => setImmediate(resolve));
  expect(ended).toBe(false);
  expect(fixture.traces(id)).not.toEqual([]);
});

async function dead(sandbox: Running): Promise<void> {
  process.kill(agentPid(sandbox), "SIGKILL");
  await sandbox.ended;
}

test("a sandbox that died meanwhile is lost, and what was left of it is swept", async () => {
  const id = fixture.nextId();
  const sandbox = await fixture.start({ id });
  await dead(sandbox);
  const adoption = fixture.newBackend().adopt(id, journaled(sandbox.record), soon());
  await expect(adoption).rejects.toMatchObject({ code: "agent_lost", details: { reason: "agent_lost" } });
  expect(await fixture.newBackend().sweep(new Set(), soon())).toContain(id);
  expect(fixture.traces(id)).toEqual([]);
});

/** Makes the kernel count a kill in the sandbox's control group. */
async function runOutOfMemory(sandbox: Running): Promise<number | undefined> {
  const { signal } = await runInside(sandbox, [
    "/bin/sh",
    "-c",
    "exec dd if=/dev/zero of=/dev/null bs=512M count=1",
  ]);
  return signal;
}

test("one that died after the kernel had killed in it while nobody watched ran out of memory", async () => {
  const id = fixture.nextId();
  const sandbox = await fixture.start({ id, limits: { memoryBytes: 32 * mebibyte } });
  expect(await runOutOfMemory(sandbox)).toBe(9);
  process.kill(agentPid(sandbox), "SIGKILL");
  await expect(sandbox.ended).resolves.toMatchObject({ reason: "oom" });
  const adoption = fixture.newBackend().adopt(id, journaled(sandbox.record), soon());
  await expect(adoption).rejects.toMatchObject({ code: "agent_lost", details: { reason: "oom" } });
});

test("a kill that the sandbox is known to have survived is not taken for its end", async () => {
  const sandbox = await fixture.start({ limits: { memoryBytes: 32 * mebibyte } });
  await runOutOfMemory(sandbox);
  expect(await sandbox.usage()).toMatchObject({ oomKills: 1 });
  process.kill(agentPid(sandbox), "SIGKILL");
  await expect(sandbox.ended).resolves.toMatchObject({ reason: "agent_lost" });
});

test("another process under the agent's id is not taken for it", async () => {
  const id = fixture.nextId();
  const sandbox = await fixture.start({ id });
  const record = { ...(journaled(sandbox.record) as { [key: string]: Json }), startTime: 1 };
  await expect(fixture.newBackend().adopt(id, record, soon())).rejects.toMatchObject({ code: "agent_lost" });
  expect(await shell(sandbox, "echo alive")).toBe("alive");
});

test.for([null, 7, "x", {}, { pid: "1", startTime: 1, class: "latency-sensitive", address: null }] as const)(
  "a record that was never written by this engine is refused: %j",
  async (record) => {
    const adoption = fixture.newBackend().adopt(fixture.nextId(), record, soon());
    await expect(adoption).rejects.toMatchObject({ code: "agent_lost" });
  },
);

test("a sweep removes what nobody keeps, in whatever state, and spares the rest", async () => {
  const ids = Array.from({ length: 4 }, () => fixture.nextId());
  const [kept, running, dying, half] = ids as [string, string, string, string];
  const keptSandbox = await fixture.start({ id: kept });
  const runningSandbox = await fixture.start({ id: running });
  const dyingSandbox = await fixture.start({ id: dying });
  process.kill(agentPid(dyingSandbox), "SIGKILL");
  await dyingSandbox.ended;
  mkdirSync(join(fixture.runDir, "sandboxes", half, "bundle"), { recursive: true });
  writeFileSync(join(fixture.runDir, "sandboxes", half, "bundle", "config.json"), "{");
  const foreign = join(fixture.runDir, "sandboxes", fixture.nextId(), "root");
  mkdirSync(foreign, { recursive: true });

  const removed = await fixture.newBackend().sweep(new Set([kept]), soon());
  expect(removed).toEqual(expect.arrayContaining([running, dying, half]));
  expect(removed).not.toContain(kept);
  expect([running, dying, half].flatMap((id) => fixture.traces(id))).toEqual([]);
  await runningSandbox.guest.closed;
  expect(await shell(keptSandbox, "echo alive")).toBe("alive");
  expect(await attempt(keptSandbox, "memfd")).toBe("ok");
  expect(listMounts().filter(({ target }) => target.startsWith(fixture.runDir))).toEqual([]);
});

/** A process with the command line of a runtime whose parent is gone; its id. @param leads whether it leads its process group */
async function orphanRuntime(sandbox: string, leads = true): Promise<number> {
  const args = ["--root", join(fixture.runDir, "sandboxes", sandbox, "runtime"), "run", "--bundle", "/b"];
  const script = `sh -c 'echo $$; sleep 600; :' runc ${args.join(" ")} &`;
  const parent = spawn("sh", ["-c", leads ? `setsid ${script}` : script], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  const [line] = (await once(parent.stdout, "data")) as [Buffer];
  const pid = Number(line.toString());
  expect(identifyProcess(pid)).toBeDefined();
  return pid;
}

test("runtimes that a killed daemon left at work are ended before anything is swept", async () => {
  const orphans = [await orphanRuntime("x"), await orphanRuntime("x", false)];
  await fixture.newBackend().sweep(new Set([]), soon());
  await expect.poll(() => orphans.map((pid) => identifyProcess(pid))).toEqual([undefined, undefined]);
});

test("the runtime of a sandbox that this very backend has is no leftover, whoever its parent is", async () => {
  const id = fixture.nextId();
  await fixture.start({ id });
  const runtime = await orphanRuntime(id);
  await fixture.backend.sweep(new Set(), soon());
  expect(identifyProcess(runtime)).toBeDefined();
  process.kill(-runtime, "SIGKILL");
});

test("a backend does not sweep what it holds itself", async () => {
  const id = fixture.nextId();
  const sandbox = await fixture.start({ id });
  expect(await fixture.backend.sweep(new Set(), soon())).not.toContain(id);
  expect(await shell(sandbox, "echo alive")).toBe("alive");
});

test("a sweep that was called off stops", async () => {
  const id = fixture.nextId();
  await dead(await fixture.start({ id }));
  await expect(fixture.newBackend().sweep(new Set(), AbortSignal.abort())).rejects.toMatchObject({
    name: "AbortError",
  });
  expect(fixture.traces(id)).not.toEqual([]);
});
