import { access } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Sandbox, SandboxEvent } from "../../../src/protocol/sandbox.ts";
import { TestDaemon } from "../daemon-fixture.ts";
import { ManualClock } from "../manual-clock.ts";

async function clockedDaemon(options: Parameters<typeof TestDaemon.start>[0] = {}) {
  const clock = new ManualClock(Date.now());
  return { clock, daemon: await TestDaemon.start(options, { clock }) };
}

test("a stop is idempotent, whoever asks and however often", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  const stopped = await Promise.all(Array.from({ length: 5 }, async () => daemon.stop(id)));
  const again = await daemon.stop(id);
  for (const sandbox of [...stopped, again])
    expect(sandbox).toMatchObject({ state: "stopped", endReason: "stopped" });
  expect(new Set([...stopped, again].map(({ endedAt }) => endedAt)).size).toBe(1);
});

test("a removal in any state ends and forgets it; a second one finds nothing", async () => {
  const daemon = await TestDaemon.start();
  const running = await daemon.place();
  const stopped = await daemon.place();
  await daemon.stop(stopped.id);
  const failed = daemon.newId();
  await daemon.place({ simulation: { startFailure: "broken" } }, failed).catch(() => undefined);
  for (const id of [running.id, stopped.id, failed]) {
    await daemon.remove(id);
    await expect(daemon.get(id)).rejects.toMatchObject({ code: "not_found" });
    await expect(daemon.remove(id)).rejects.toMatchObject({ code: "not_found" });
  }
});

test("an idle sandbox ends when its time is over, not before", async () => {
  const { clock, daemon } = await clockedDaemon();
  const { id } = await daemon.place({ ttlRunningStop: 60 });
  clock.advance(59_999);
  expect((await daemon.get(id)).state).toBe("running");
  clock.advance(1);
  expect(await daemon.wait(id)).toMatchObject({ state: "stopped", endReason: "idle_ttl" });
});

test("no idle time means never", async () => {
  const { clock, daemon } = await clockedDaemon();
  const sandbox = await daemon.place({ ttlRunningStop: 0, maxLifetime: 0 });
  expect(sandbox.idleDeadline).toBeUndefined();
  clock.advance(10 * 365 * 86_400_000);
  expect((await daemon.get(sandbox.id)).state).toBe("running");
});

test("a running command keeps a sandbox from being idle; its end starts the clock anew", async () => {
  const { clock, daemon } = await clockedDaemon({ clientTimeoutMs: 86_400_000 });
  const { id } = await daemon.place({ ttlRunningStop: 60 });
  const exec = await daemon.exec(id, ["cat"], { stdin: true });
  await exec.started;
  const busy = await daemon.get(id);
  expect(busy).toMatchObject({ activeExecs: 1 });
  expect(busy.idleDeadline).toBeUndefined();
  clock.advance(3_600_000);
  expect((await daemon.get(id)).state).toBe("running");
  exec.frame(0, "");
  expect(await exec.status).toMatchObject({ exitCode: 0 });
  expect(await daemon.get(id)).toMatchObject({ activeExecs: 0, idleDeadline: clock.now() + 60_000 });
  clock.advance(60_000);
  expect(await daemon.wait(id)).toMatchObject({ endReason: "idle_ttl" });
});

test("a touch renews the idle time, and changes its length if asked", async () => {
  const { clock, daemon } = await clockedDaemon();
  const { id, deadlineVersion } = await daemon.place({ ttlRunningStop: 60 });
  clock.advance(50_000);
  expect(await daemon.touch(id)).toMatchObject({
    idleDeadline: clock.now() + 60_000,
    deadlineVersion: deadlineVersion + 1,
  });
  clock.advance(59_000);
  expect(await daemon.touch(id, { ttlRunningStop: 5 })).toMatchObject({
    idleDeadline: clock.now() + 5000,
    spec: { ttlRunningStop: 5 },
  });
  clock.advance(5000);
  expect(await daemon.wait(id)).toMatchObject({ endReason: "idle_ttl" });
  await expect(daemon.touch(id)).rejects.toMatchObject({ code: "sandbox_not_running" });
});

test("an acknowledged touch is honoured, however close to the expiry it came", async () => {
  const { clock, daemon } = await clockedDaemon();
  const outcomes = new Map<string, number>();
  for (let round = 0; round < 150; round += 1) {
    const { id } = await daemon.place({ ttlRunningStop: 1 });
    clock.advance(500);
    const touching = daemon.touch(id).then(
      ({ idleDeadline = 0 }) => idleDeadline,
      () => undefined,
    );
    // let the request come some way before the deadline is due
    for (let turn = 0; turn < round % 12; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    clock.advance(500);
    const renewedUntil = await touching;
    if (renewedUntil !== undefined) clock.advance(renewedUntil - clock.now() - 1);
    const { state, endReason } = renewedUntil === undefined ? await daemon.wait(id) : await daemon.get(id);
    const outcome = `${renewedUntil === undefined ? "refused" : "renewed"}: ${state} ${endReason}`;
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
    await daemon.remove(id);
  }
  const allowed = ["renewed: running undefined", "refused: stopped idle_ttl"];
  expect([...outcomes.keys()].filter((outcome) => !allowed.includes(outcome))).toEqual([]);
  expect([...outcomes.values()].reduce((sum, count) => sum + count, 0)).toBe(150);
});

test("the maximum lifetime ends a sandbox whatever it does", async () => {
  const { clock, daemon } = await clockedDaemon();
  const sandbox = await daemon.place({ ttlRunningStop: 0, maxLifetime: 100 });
  expect(sandbox.lifetimeDeadline).toBe(sandbox.createdAt + 100_000);
  const exec = await daemon.exec(sandbox.id, ["sleep", "1000"]);
  await exec.started;
  clock.advance(100_000);
  expect(await exec.status).toMatchObject({
    type: "exit",
    cause: "killed",
    signal: "SIGTERM",
    exitCode: 143,
  });
  expect(await daemon.wait(sandbox.id)).toMatchObject({ state: "stopped", endReason: "max_lifetime" });
});

test("a sandbox ends as the command did that it was to end with", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  const { status } = await daemon.run(id, ["sh", "-c", "exit 7"], { endsSandbox: true });
  expect(status).toMatchObject({ exitCode: 7, cause: "exited" });
  expect(await daemon.wait(id)).toMatchObject({ state: "stopped", endReason: "exited", exitCode: 7 });
});

test("a lost agent is the platform's failure, with its reason", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place({ simulation: { agentLostAfterMs: 30 } });
  const ended = await daemon.wait(id);
  expect(ended).toMatchObject({ state: "lost", endReason: "agent_lost", problem: { code: "agent_lost" } });
  expect(ended.exitCode).toBeUndefined();
});

test("records, logs and exit codes stay for the stated time, then they are gone", async () => {
  const { clock, daemon } = await clockedDaemon({ keepEnded: 100 });
  const { id } = await daemon.place();
  await daemon.run(id, ["echo", "kept"], { record: true, endsSandbox: true });
  const ended = await daemon.wait(id);
  expect(ended.keptUntil).toBe((ended.endedAt ?? 0) + 100_000);
  clock.advance(99_999);
  expect(await daemon.get(id)).toMatchObject({ exitCode: 0 });
  const logs = join(daemon.dir, "data", "daemon", "logs", id);
  await access(logs);
  clock.advance(1);
  await expect(daemon.get(id)).rejects.toMatchObject({ code: "not_found" });
  await expect
    .poll(async () =>
      access(logs).then(
        () => "there",
        () => "gone",
      ),
    )
    .toBe("gone");
});

test("the number of ended sandboxes that are kept is bounded; the oldest go first", async () => {
  const daemon = await TestDaemon.start({ maxEnded: 2 });
  const ids: string[] = [];
  for (let index = 0; index < 4; index += 1) {
    const { id } = await daemon.place();
    await daemon.stop(id);
    ids.push(id);
  }
  const { items } = await daemon.http.json<{ items: Sandbox[] }>("listSandboxes", { query: { all: true } });
  expect(new Set(items.map(({ id }) => id))).toEqual(new Set(ids.slice(2)));
});

test("what happened to a sandbox can be read", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  await daemon.stop(id);
  const { items } = await daemon.http.json<{ items: SandboxEvent[] }>("listEvents", { params: { ref: id } });
  expect(items.map(({ type }) => type)).toEqual(["running", "stopping", "stopped"]);
});
