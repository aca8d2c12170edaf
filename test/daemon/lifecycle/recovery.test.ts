import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { ExecList, LogLine } from "../../../src/protocol/exec.ts";
import type { NodeStatus } from "../../../src/protocol/node.ts";
import type { SandboxList, WatchEvent } from "../../../src/protocol/sandbox.ts";
import { TestDaemon } from "../daemon-fixture.ts";
import { ManualClock } from "../manual-clock.ts";

test("a restarted daemon takes up every sandbox as it was", async () => {
  const first = await TestDaemon.start();
  const before = await Promise.all(
    Array.from({ length: 50 }, async (_, index) =>
      first.place({ name: `s${index}`, labels: { index: String(index) } }),
    ),
  );
  await first.leave();
  const second = await TestDaemon.start({ dir: first.dir });
  // no wait for the recovery: each request waits for its own sandbox
  const after = await Promise.all(before.map(async ({ id }) => second.get(id)));
  for (const [index, sandbox] of after.entries())
    expect(sandbox).toMatchObject({
      id: before[index]?.id,
      state: "running",
      startedAt: before[index]?.startedAt,
      labels: { index: String(index) },
    });
  await second.running.recovered;
  expect(await second.http.json<NodeStatus>("nodeStatus")).toMatchObject({
    recovered: true,
    counts: { running: 50 },
  });
  expect((await second.run("s7", ["true"])).status).toMatchObject({ exitCode: 0 });
  await second.stop("s7");
  expect(await second.get("s7")).toMatchObject({ state: "stopped" });
});

test("what cannot be taken up is reported lost, with the reason", async () => {
  const first = await TestDaemon.start();
  const { id } = await first.place({ simulation: { agentLostAfterMs: 60_000 } });
  await first.leave();
  rewrite(first.dir, "UPDATE sandboxes SET backend_record = json_set(backend_record, '$.startedAt', 1)");
  const second = await TestDaemon.start({ dir: first.dir });
  expect(await second.get(id)).toMatchObject({
    state: "lost",
    endReason: "agent_lost",
    problem: { code: "agent_lost", title: expect.stringContaining("lost") as string },
  });
});

test("a start that the end of the daemon interrupted has failed", async () => {
  const first = await TestDaemon.start();
  const { id } = await first.place();
  await first.leave();
  rewrite(first.dir, "UPDATE sandboxes SET state = 'starting', started_at = NULL, backend_record = NULL");
  const second = await TestDaemon.start({ dir: first.dir });
  expect(await second.get(id)).toMatchObject({ state: "failed", endReason: "start_failed" });
});

test("a start that failed is still that failure for whoever retries it after a restart", async () => {
  const first = await TestDaemon.start();
  const id = first.newId();
  const spec = { simulation: { startFailure: "no more widgets" } };
  await first.place(spec, id).catch(() => undefined);
  await first.leave();
  const second = await TestDaemon.start({ dir: first.dir });
  await expect(second.place(spec, id)).rejects.toMatchObject({
    code: "start_failed",
    message: "no more widgets",
  });
});

test("an end that the end of the daemon interrupted is carried on", async () => {
  const first = await TestDaemon.start();
  const { id } = await first.place();
  await first.leave();
  rewrite(first.dir, "UPDATE sandboxes SET state = 'stopping', end_reason = 'idle_ttl'");
  const second = await TestDaemon.start({ dir: first.dir });
  expect(await second.wait(id)).toMatchObject({ state: "stopped", endReason: "idle_ttl" });
});

test("deadlines go on: what is overdue ends at once, the rest in its time", async () => {
  const clock = new ManualClock(Date.now());
  const first = await TestDaemon.start({}, { clock });
  const overdue = await first.place({ ttlRunningStop: 10 });
  const old = await first.place({ ttlRunningStop: 0, maxLifetime: 15 });
  const fresh = await first.place({ ttlRunningStop: 100 });
  await first.leave();
  clock.advance(20_000);
  const second = await TestDaemon.start({ dir: first.dir }, { clock });
  await second.running.recovered;
  clock.advance(0);
  expect(await second.wait(overdue.id)).toMatchObject({ endReason: "idle_ttl" });
  expect(await second.wait(old.id)).toMatchObject({ endReason: "max_lifetime" });
  expect(await second.get(fresh.id)).toMatchObject({ state: "running", idleDeadline: fresh.idleDeadline });
  clock.advance(80_000);
  expect(await second.wait(fresh.id)).toMatchObject({ endReason: "idle_ttl" });
});

test("ended sandboxes, their logs and exit codes survive a restart, and are forgotten in time", async () => {
  const clock = new ManualClock(Date.now());
  const first = await TestDaemon.start({ keepEnded: 100 }, { clock });
  const { id } = await first.place();
  await first.run(id, ["sh", "-c", "echo remembered; exit 4"], { record: true, endsSandbox: true });
  await first.wait(id);
  await first.leave();
  const second = await TestDaemon.start({ dir: first.dir, keepEnded: 100 }, { clock });
  expect(await second.get(id)).toMatchObject({ state: "stopped", endReason: "exited", exitCode: 4 });
  const lines: LogLine[] = [];
  for await (const line of await second.http.lines<LogLine>("logs", { params: { ref: id } }))
    lines.push(line);
  expect(lines).toMatchObject([
    { type: "output", data: Buffer.from("remembered\n").toString("base64") },
    { type: "end", exit: { exitCode: 4 } },
  ]);
  clock.advance(100_000);
  await expect(second.get(id)).rejects.toMatchObject({ code: "not_found" });
});

test("a command that is not there any more after a restart is lost, not ended", async () => {
  const first = await TestDaemon.start();
  const { id } = await first.place();
  await first.run(id, ["sleep", "1000"], { detach: true });
  await first.leave();
  const second = await TestDaemon.start({ dir: first.dir });
  await second.get(id);
  const { items } = await second.http.json<ExecList>("listExecs", { params: { ref: id } });
  expect(items).toMatchObject([{ state: "lost", recorded: true }]);
  expect(items[0]?.exit).toBeUndefined();
});

test("the same id after a restart is still the same sandbox", async () => {
  const first = await TestDaemon.start();
  const { id, startedAt } = await first.place();
  await first.leave();
  const second = await TestDaemon.start({ dir: first.dir });
  expect(await second.place({}, id)).toMatchObject({ id, startedAt, state: "running" });
});

test("cursors of an earlier run get a fresh snapshot, and revisions go on rising", async () => {
  const first = await TestDaemon.start();
  const { id, revision } = await first.place();
  const events = await first.http.lines<WatchEvent>("watch");
  await events.next();
  const { value: synced } = await events.next();
  await events.return();
  await first.leave();
  const second = await TestDaemon.start({ dir: first.dir });
  const cursor = synced?.type === "synced" ? synced.cursor : "";
  const again = await second.http.lines<WatchEvent>("watch", { query: { cursor } });
  const { value } = await again.next();
  await again.return();
  expect(value).toMatchObject({ type: "snapshot", sandbox: { id } });
  expect((await second.touch(id)).revision).toBeGreaterThan(revision);
});

test("a daemon that is told to stop its sandboxes leaves none running", async () => {
  const first = await TestDaemon.start();
  await first.place();
  await first.place();
  await first.close();
  const second = await TestDaemon.start({ dir: first.dir });
  const { items } = await second.http.json<SandboxList>("listSandboxes", { query: { all: true } });
  expect(items.map(({ state, endReason }) => [state, endReason])).toEqual([
    ["stopped", "stopped"],
    ["stopped", "stopped"],
  ]);
});

/** Puts the journal into the state that a crash at a certain moment would have left. */
function rewrite(dir: string, sql: string): void {
  const database = new DatabaseSync(join(dir, "data", "daemon", "journal.sqlite"));
  database.exec(sql);
  database.close();
}
