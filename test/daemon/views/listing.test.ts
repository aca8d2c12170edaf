import { expect, test } from "vitest";
import type { ReclaimResult, Sandbox, SandboxList } from "../../../src/protocol/sandbox.ts";
import { TestDaemon } from "../daemon-fixture.ts";
import { ManualClock } from "../manual-clock.ts";

type Query = Record<string, string | number | boolean | string[]>;

async function list(daemon: TestDaemon, query: Query = {}): Promise<SandboxList> {
  return daemon.http.json<SandboxList>("listSandboxes", { query });
}

const idsOf = (sandboxes: readonly Sandbox[]): string[] => sandboxes.map(({ id }) => id);

test("pages hold every sandbox once, newest first, whatever comes and goes between them", async () => {
  const clock = new ManualClock(Date.now());
  const daemon = await TestDaemon.start({}, { clock });
  const placed: string[] = [];
  for (let index = 0; index < 7; index += 1) {
    // two of each moment: the order must not depend on time alone
    clock.advance(index % 2);
    placed.push((await daemon.place()).id);
  }
  const first = await list(daemon, { limit: 3 });
  clock.advance(1);
  await daemon.place();
  await daemon.remove(first.items[2]?.id ?? "");
  const second = await list(daemon, { limit: 3, cursor: first.nextCursor ?? "" });
  const third = await list(daemon, { limit: 3, cursor: second.nextCursor ?? "" });
  const pages = [...first.items, ...second.items, ...third.items];
  expect(new Set(idsOf(pages))).toEqual(new Set(placed));
  expect(pages).toHaveLength(7);
  expect(third.nextCursor).toBeUndefined();
  const times = pages.map(({ createdAt }) => createdAt);
  expect(times).toEqual([...times].sort((a, b) => b - a));
});

test("filters on labels, names, owners and states reach the list through the query", async () => {
  const daemon = await TestDaemon.start();
  const web = await daemon.place({ name: "web", labels: { job: "7" } });
  const batch = await daemon.place({ labels: { job: "8" } });
  const ended = await daemon.place({ labels: { job: "7" } });
  await daemon.stop(ended.id);
  expect(idsOf((await list(daemon)).items)).toEqual(expect.arrayContaining([web.id, batch.id]));
  expect((await list(daemon)).items).toHaveLength(2);
  expect(idsOf((await list(daemon, { label: ["job=7"] })).items)).toEqual([web.id]);
  expect((await list(daemon, { label: ["job=7"], all: true })).items).toHaveLength(2);
  expect(idsOf((await list(daemon, { state: ["stopped", "failed"] })).items)).toEqual([ended.id]);
  expect(idsOf((await list(daemon, { name: "web" })).items)).toEqual([web.id]);
  expect((await list(daemon, { owner: "bob" })).items).toEqual([]);
});

test.each([
  ["a cursor that no list gave", { cursor: "x" }],
  ["a limit of nothing", { limit: 0 }],
  ["an unknown parameter", { colour: "red" }],
  ["a malformed label condition", { label: ["=x"] }],
  ["an unknown state", { state: "asleep" }],
])("%s is an invalid argument", async (_what, query) => {
  const daemon = await TestDaemon.start();
  await expect(list(daemon, query)).rejects.toMatchObject({ code: "invalid_argument" });
});

test("a list shows what is used only if asked", async () => {
  const daemon = await TestDaemon.start();
  await daemon.place({ simulation: { memoryMb: 3 } });
  expect((await list(daemon)).items[0]?.usage).toBeUndefined();
  expect((await list(daemon, { usage: true })).items[0]?.usage).toMatchObject({ memoryBytes: 3 * 1_048_576 });
});

test("a prefix stands for the one sandbox it fits; two are named", async () => {
  const daemon = await TestDaemon.start();
  const first = await daemon.place({}, "n1-aaaabbbbbb");
  const second = await daemon.place({}, "n1-aaaacccccc");
  expect((await daemon.get("n1-aaaab")).id).toBe(first.id);
  await expect(daemon.get("n1-aaaa")).rejects.toMatchObject({
    code: "ambiguous_reference",
    details: { candidates: [first.id, second.id], count: 2 },
  });
  await expect(daemon.get("n1-b")).rejects.toMatchObject({ code: "not_found" });
});

test("a name comes before a prefix", async () => {
  const daemon = await TestDaemon.start();
  await daemon.place({}, "n1-aaaabbbbbb");
  const named = await daemon.place({ name: "n1-a" });
  expect((await daemon.get("n1-a")).id).toBe(named.id);
});

async function reclaim(daemon: TestDaemon, body: object): Promise<ReclaimResult> {
  return daemon.http.json<ReclaimResult>("reclaim", { body });
}

test("reclaim ends what has been idle long enough, and says first what that would be", async () => {
  const clock = new ManualClock(Date.now());
  const daemon = await TestDaemon.start({ clientTimeoutMs: 86_400_000 }, { clock });
  const spec = { ttlRunningStop: 0, simulation: { memoryMb: 2 } };
  const idle = await daemon.place({ ...spec, name: "idle" });
  const busy = await daemon.place(spec);
  const exec = await daemon.exec(busy.id, ["sleep", "1000"]);
  await exec.started;
  clock.advance(100_000);
  const fresh = await daemon.place(spec);

  const expected = { id: idle.id, name: "idle", idleSeconds: 100, memoryBytes: 2 * 1_048_576 };
  expect(await reclaim(daemon, { idleFor: 50, dryRun: true })).toMatchObject({
    items: [{ ...expected, ended: false }],
    memoryBytes: 2 * 1_048_576,
  });
  expect((await daemon.get(idle.id)).state).toBe("running");

  expect(await reclaim(daemon, { idleFor: 50 })).toMatchObject({ items: [{ ...expected, ended: true }] });
  expect(await daemon.get(idle.id)).toMatchObject({ state: "stopped", endReason: "evicted" });
  expect((await daemon.get(busy.id)).state).toBe("running");
  expect((await daemon.get(fresh.id)).state).toBe("running");
});

test("reclaim sweeps by filter", async () => {
  const daemon = await TestDaemon.start();
  const mine = await daemon.place({ labels: { job: "7" } });
  const other = await daemon.place({ labels: { job: "8" } });
  const { items } = await reclaim(daemon, { filter: { label: ["job=7"] } });
  expect(items.map(({ id }) => id)).toEqual([mine.id]);
  expect((await daemon.get(other.id)).state).toBe("running");
});

test("limits and labels change while a sandbox runs; what cannot change is named", async () => {
  const daemon = await TestDaemon.start();
  const { id, revision } = await daemon.place({ cpuLimit: 2, labels: { a: "1" } });
  const update = async (body: object): Promise<Sandbox> =>
    daemon.http.json<Sandbox>("updateSandbox", { params: { ref: id }, body });
  const updated = await update({ memoryMb: 2048, cpus: 0.5, cpuLimit: null, labels: { b: "2" } });
  expect(updated).toMatchObject({ labels: { b: "2" }, spec: { memoryMb: 2048, cpus: 0.5 } });
  expect(updated.spec.cpuLimit).toBeUndefined();
  expect(updated.revision).toBeGreaterThan(revision);
  await expect(update({})).rejects.toMatchObject({ code: "invalid_argument" });
  await expect(update({ diskMb: 5 })).rejects.toMatchObject({ code: "invalid_argument" });
  await daemon.stop(id);
  await expect(update({ memoryMb: 64 })).rejects.toMatchObject({ code: "sandbox_not_running" });
  expect(await update({ labels: { after: "end" } })).toMatchObject({ labels: { after: "end" } });
});
