import { existsSync, mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { detectCgroups } from "../../../src/backends/linux/cgroup-hierarchy.ts";
import { identifyProcess } from "../../../src/backends/linux/process.ts";
import { agentPid, SandboxFixture, shell } from "./sandbox-fixture.ts";

let fixture: SandboxFixture;

beforeAll(() => {
  fixture = new SandboxFixture();
});

afterAll(async () => {
  await fixture[Symbol.asyncDispose]();
});

function processes(id: string): number[] {
  return detectCgroups().cgroup(`/${fixture.instance}/${id}`).processes();
}

test("every process is killed, whatever it does about signals, and nothing is left on the machine", async () => {
  const id = fixture.nextId();
  const sandbox = await fixture.start({ id });
  const script =
    "trap '' TERM HUP INT; for i in 1 2 3 4 5; do (trap '' TERM; sleep 600 & sleep 600) & done; kill -STOP $!; wait";
  const exec = await sandbox.guest.exec(
    { argv: ["/bin/sh", "-c", script], env: {}, stdin: false },
    () => undefined,
  );
  const exit = Promise.allSettled([exec.exit]);
  await expect.poll(() => processes(id).length).toBeGreaterThan(10);
  const before = processes(id);
  expect(fixture.traces(id).length).toBeGreaterThan(3);
  await sandbox.destroy();
  expect(before.filter((pid) => identifyProcess(pid) !== undefined)).toEqual([]);
  expect(fixture.traces(id)).toEqual([]);
  expect(await exit).toMatchObject([{ status: "rejected", reason: { code: "agent_lost" } }]);
});

test("destroying again, at once or later, is no error", async () => {
  const id = fixture.nextId();
  const sandbox = await fixture.start({ id });
  await Promise.all([sandbox.destroy(), sandbox.destroy()]);
  await sandbox.destroy();
  expect(fixture.traces(id)).toEqual([]);
});

test("a sandbox whose agent was killed from outside is cleaned up all the same", async () => {
  const id = fixture.nextId();
  const sandbox = await fixture.start({ id });
  process.kill(agentPid(sandbox), "SIGKILL");
  await expect(sandbox.ended).resolves.toEqual({
    reason: "agent_lost",
    message: "the sandbox's agent is dead",
  });
  await sandbox.destroy();
  expect(fixture.traces(id)).toEqual([]);
});

test("a sandbox ends by itself only when it was not destroyed", async () => {
  const sandbox = await fixture.start();
  let ended = false;
  void sandbox.ended.then(() => {
    ended = true;
  });
  await sandbox.destroy();
  await sandbox.guest.closed;
  await new Promise((resolve) => setImmediate(resolve));
  expect(ended).toBe(false);
});

test("the daemon's part of the sandbox's directory is left to it", async () => {
  const id = fixture.nextId();
  const sandbox = await fixture.start({ id });
  const root = join(fixture.runDir, "sandboxes", id, "root");
  mkdirSync(root);
  await sandbox.destroy();
  expect(fixture.traces(id)).toEqual([join(fixture.runDir, "sandboxes", id)]);
  rmdirSync(root);
  rmdirSync(join(fixture.runDir, "sandboxes", id));
});

test("a start can be given up at any moment, and nothing is left of it", async () => {
  const reason = new Error("no longer wanted");
  const refusals: unknown[] = [];
  const traces: string[] = [];
  for (let delayMs = 0; delayMs <= 60; delayMs += 2) {
    const id = fixture.nextId();
    const controller = new AbortController();
    setTimeout(() => controller.abort(reason), delayMs);
    const [start] = await Promise.allSettled([fixture.start({ id, signal: controller.signal })]);
    if (start.status === "fulfilled") await start.value.destroy();
    else refusals.push(start.reason);
    traces.push(...fixture.traces(id));
  }
  expect(traces).toEqual([]);
  expect(refusals.length).toBeGreaterThan(0);
  for (const refusal of refusals) expect(refusal).toMatchObject({ code: "cancelled", cause: reason });
});

test("a start that was given up before it began makes nothing", async () => {
  const id = fixture.nextId();
  await expect(fixture.start({ id, signal: AbortSignal.abort() })).rejects.toMatchObject({
    code: "cancelled",
  });
  expect(fixture.traces(id)).toEqual([]);
  expect(existsSync(join(fixture.runDir, "sandboxes", id))).toBe(false);
});

test("a start that takes too long says so", async () => {
  const start = fixture.start({ signal: AbortSignal.timeout(1) });
  await expect(start).rejects.toMatchObject({ code: "start_timeout" });
});

test("starts that overlap and are given up leave nothing either", async () => {
  const ids = Array.from({ length: 12 }, () => fixture.nextId());
  const starts = ids.map((id, index) => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 15 * index);
    return fixture.start({ id, signal: controller.signal });
  });
  const settled = await Promise.allSettled(starts);
  for (const start of settled) if (start.status === "fulfilled") await start.value.destroy();
  expect(ids.flatMap((id) => fixture.traces(id))).toEqual([]);
});

test("a name that was used is free again", async () => {
  const id = fixture.nextId();
  const first = await fixture.start({ id });
  await first.destroy();
  const second = await fixture.start({ id });
  expect(await shell(second, "echo alive")).toBe("alive");
});
