import { expect, test } from "vitest";
import type { Sandbox, SandboxSpecInput } from "../../../src/protocol/sandbox.ts";
import { ManualClock } from "../manual-clock.ts";
import { TestDaemon } from "../daemon-fixture.ts";

async function all(daemon: TestDaemon): Promise<Sandbox[]> {
  const { items } = await daemon.http.json<{ items: Sandbox[] }>("listSandboxes", { query: { all: true } });
  return items;
}

test("the same id again answers the same sandbox, also while it starts and after it ended", async () => {
  const daemon = await TestDaemon.start();
  const id = daemon.newId();
  const simulation = { startMs: 50 };
  const placed = await Promise.all(Array.from({ length: 8 }, async () => daemon.place({ simulation }, id)));
  expect(new Set(placed.map(({ startedAt }) => startedAt)).size).toBe(1);
  expect(placed.every(({ state }) => state === "running")).toBe(true);
  expect(await all(daemon)).toHaveLength(1);

  await daemon.stop(id);
  expect(await daemon.place({ simulation }, id)).toMatchObject({ id, state: "stopped" });
});

test("an id that belongs to another owner is not handed out", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  const body = { id, owner: "mallory", spec: { backend: "simulated", image: "none" } };
  await expect(daemon.http.json("placeSandbox", { params: { id }, body })).rejects.toMatchObject({
    code: "conflict",
  });
});

test.each<[string, { id?: string; spec: Partial<SandboxSpecInput> & { memory?: number } }, string]>([
  ["another node's id", { id: "n2-aaaaaaaaaa", spec: {} }, "invalid_argument"],
  ["a registry that nobody knows", { spec: { networkRules: { nmp: false } } }, "unknown_registry"],
  ["a rule that cannot be read", { spec: { networkRules: { "a b": true } } }, "invalid_argument"],
  ["a policy that nobody looked up", { spec: { networkPolicy: "web" } }, "invalid_argument"],
  ["an engine for a simulated sandbox", { spec: { engine: "runc" } }, "invalid_argument"],
  ["a backend that is not there", { spec: { backend: "vm" } }, "backend_unavailable"],
  ["zero memory", { spec: { memoryMb: 0 } }, "invalid_argument"],
  ["absurd memory", { spec: { memoryMb: 1e12 } }, "invalid_argument"],
  ["a negative number of cores", { spec: { cpus: -1 } }, "invalid_argument"],
  ["an unknown field", { spec: { memory: 5 } }, "invalid_argument"],
  ["an empty image", { spec: { image: "" } }, "invalid_argument"],
  ["a name that is no DNS label", { spec: { name: "No_Name" } }, "invalid_argument"],
])("%s is refused by name and leaves no record", async (_what, { spec, ...rest }, code) => {
  const daemon = await TestDaemon.start();
  const { id = daemon.newId() } = rest;
  await expect(daemon.place(spec, id)).rejects.toMatchObject({ code });
  expect(await all(daemon)).toEqual([]);
});

test("a name is taken as long as the record of its sandbox is there", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place({ name: "web" });
  await expect(daemon.place({ name: "web" })).rejects.toMatchObject({
    code: "name_taken",
    details: { holder: id },
  });
  await daemon.stop(id);
  await expect(daemon.place({ name: "web" })).rejects.toMatchObject({ code: "name_taken" });
  await daemon.remove(id);
  expect(await daemon.place({ name: "web" })).toMatchObject({ state: "running" });
});

test("a start that fails is a record that says why, and the same id answers it again", async () => {
  const daemon = await TestDaemon.start();
  const id = daemon.newId();
  const spec = { simulation: { startFailure: "no more widgets" } };
  await expect(daemon.place(spec, id)).rejects.toMatchObject({
    code: "start_failed",
    message: "no more widgets",
  });
  expect(await daemon.get(id)).toMatchObject({
    state: "failed",
    endReason: "start_failed",
    problem: { code: "start_failed", title: "no more widgets" },
  });
  await expect(daemon.place(spec, id)).rejects.toMatchObject({ code: "start_failed" });
});

test("a start that takes too long fails with the time it was given", async () => {
  const clock = new ManualClock(Date.now());
  const daemon = await TestDaemon.start({ startTimeoutMs: 5000 }, { clock });
  const id = daemon.newId();
  const placing = daemon.place({ simulation: { startMs: 3_600_000 } }, id);
  placing.catch(() => undefined);
  await expect.poll(async () => (await all(daemon))[0]?.state).toBe("starting");
  clock.advance(5000);
  await expect(placing).rejects.toMatchObject({ code: "start_timeout" });
  expect(await daemon.get(id)).toMatchObject({ state: "failed", problem: { code: "start_timeout" } });
});

test("a stop ends a start that is under way", async () => {
  const daemon = await TestDaemon.start();
  const id = daemon.newId();
  const placing = daemon.place({ simulation: { startMs: 3_600_000 } }, id);
  placing.catch(() => undefined);
  await expect.poll(async () => (await all(daemon))[0]?.state).toBe("starting");
  expect(await daemon.stop(id)).toMatchObject({ state: "stopped", endReason: "stopped" });
  await expect(placing).rejects.toMatchObject({ code: "cancelled" });
});

test("a removal ends a start that is under way and forgets it", async () => {
  const daemon = await TestDaemon.start();
  const id = daemon.newId();
  const placing = daemon.place({ simulation: { startMs: 3_600_000 } }, id);
  placing.catch(() => undefined);
  await expect.poll(async () => (await all(daemon))[0]?.state).toBe("starting");
  await daemon.remove(id);
  await expect(placing).rejects.toMatchObject({ code: "cancelled" });
  await expect(daemon.get(id)).rejects.toMatchObject({ code: "not_found" });
});

test("a burst fills the node exactly: no refusal while there is room, no sandbox beyond it", async () => {
  const daemon = await TestDaemon.start({ maxSandboxes: 10 });
  const results = await Promise.allSettled(
    Array.from({ length: 25 }, async () => daemon.place({ simulation: { startMs: 20 } })),
  );
  const refused = results.flatMap((result) =>
    result.status === "rejected" ? [result.reason as unknown] : [],
  );
  expect(refused).toHaveLength(15);
  for (const error of refused)
    expect(error).toMatchObject({ code: "admission_count", details: { maxSandboxes: 10 }, retryable: true });
  expect(await all(daemon)).toHaveLength(10);
});

test("a refused id can be placed once there is room", async () => {
  const daemon = await TestDaemon.start({ maxSandboxes: 1 });
  const first = await daemon.place();
  const id = daemon.newId();
  await expect(daemon.place({}, id)).rejects.toMatchObject({ code: "admission_count" });
  await daemon.stop(first.id);
  expect(await daemon.place({}, id)).toMatchObject({ id, state: "running" });
});

test("memory can be asked for more than once, but not without end", async () => {
  const daemon = await TestDaemon.start({ memoryOvercommit: 0.01 });
  await expect(daemon.place({ memoryMb: 4_194_304 })).rejects.toMatchObject({
    code: "admission_memory",
    details: { memoryOvercommit: 0.01 },
  });
  expect(await daemon.place({ memoryMb: 16 })).toMatchObject({ state: "running" });
});
