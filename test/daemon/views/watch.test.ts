import { expect, onTestFinished, test } from "vitest";
import { ChangeFeed } from "../../../src/daemon/views/change-feed.ts";
import { compileFilter } from "../../../src/daemon/views/filter.ts";
import { nothingAllowed } from "../nothing-allowed.ts";
import { newRecord, toSandbox } from "../../../src/daemon/lifecycle/sandbox-record.ts";
import { watchSandboxes } from "../../../src/daemon/views/watch.ts";
import {
  type Sandbox,
  SandboxSpec,
  type SandboxState,
  type WatchEvent,
} from "../../../src/protocol/sandbox.ts";
import { TestDaemon } from "../daemon-fixture.ts";
import { ManualClock } from "../manual-clock.ts";

/** Sandboxes in a map, changed by hand. */
class Shelf {
  readonly feed = new ChangeFeed("boot");
  readonly clock = new ManualClock();
  readonly #sandboxes = new Map<string, Sandbox>();
  readonly source = {
    view: (id: string): Sandbox | undefined => this.#sandboxes.get(id),
    views: (): Iterable<Sandbox> => this.#sandboxes.values(),
  };

  put(id: string, state: SandboxState = "running"): void {
    const spec = SandboxSpec.parse({ backend: "simulated", image: "x" });
    const record = newRecord({ id, owner: "alice", spec }, nothingAllowed(1), 1);
    const revision = this.feed.next();
    this.#sandboxes.set(id, toSandbox({ ...record, state, revision }, "n1", 0));
    this.feed.changed({ id, revision });
  }

  remove(id: string): void {
    this.#sandboxes.delete(id);
    this.feed.removed(id);
  }

  watch(cursor?: string, filter = {}): AsyncGenerator<WatchEvent, void, undefined> {
    const { signal } = new AbortController();
    return watchSandboxes(this, compileFilter(filter), cursor, signal);
  }
}

async function take(events: AsyncGenerator<WatchEvent, void, undefined>, count: number): Promise<string[]> {
  const taken: string[] = [];
  while (taken.length < count) {
    const { value } = await events.next();
    if (value === undefined) {
      taken.push("end");
      break;
    }
    taken.push(describe(value));
  }
  return taken;
}

function describe(event: WatchEvent): string {
  if (event.type === "snapshot") return `snapshot ${event.sandbox.id}`;
  if (event.type === "changed") return `changed ${event.sandbox.id} ${event.sandbox.state}`;
  return event.type === "removed" ? `removed ${event.id}` : event.type;
}

function cursorOf(event: WatchEvent | void): string {
  return event !== undefined && "cursor" in event ? event.cursor : "";
}

test("a watch tells what is there, that this is all, then every change", async () => {
  const shelf = new Shelf();
  shelf.put("a");
  shelf.put("b");
  const events = shelf.watch();
  expect(await take(events, 3)).toEqual(["snapshot a", "snapshot b", "synced"]);
  shelf.put("c");
  shelf.put("a", "stopping");
  expect(await take(events, 2)).toEqual(["changed c running", "changed a stopping"]);
});

test("a sandbox that leaves the filter is shown once more as it is, then removed", async () => {
  const shelf = new Shelf();
  shelf.put("a");
  const events = shelf.watch();
  await take(events, 2);
  shelf.put("a", "stopped");
  expect(await take(events, 2)).toEqual(["changed a stopped", "removed a"]);
  shelf.put("b", "stopped");
  shelf.put("c");
  expect(await take(events, 1)).toEqual(["changed c running"]);
});

test("changes of one sandbox that were not taken yet are told as one", async () => {
  const shelf = new Shelf();
  const events = shelf.watch();
  await take(events, 1);
  for (let change = 0; change < 100; change += 1) shelf.put("a");
  shelf.put("b");
  expect(await take(events, 2)).toEqual(["changed a running", "changed b running"]);
});

test("a watch resumes after its cursor: nothing is missed, nothing is told twice, removals included", async () => {
  const shelf = new Shelf();
  shelf.put("a");
  shelf.put("b");
  const first = shelf.watch();
  await take(first, 2);
  const { value: synced } = await first.next();
  shelf.put("c");
  const { value: changed } = await first.next();
  await first.return();
  expect([describe(synced as WatchEvent), describe(changed as WatchEvent)]).toEqual([
    "synced",
    "changed c running",
  ]);

  shelf.remove("a");
  shelf.put("b", "stopped");
  shelf.put("d");
  expect(await take(shelf.watch(cursorOf(changed)), 4)).toEqual([
    "removed a",
    "changed b stopped",
    "removed b",
    "changed d running",
  ]);
  expect((await take(shelf.watch(cursorOf(synced)), 1))[0]).toBe("changed c running");
});

test("cursors rise, so that a watch cut anywhere misses nothing", async () => {
  const shelf = new Shelf();
  const events = shelf.watch();
  const { value: synced } = await events.next();
  for (let round = 0; round < 5; round += 1) {
    shelf.put(`s${round}`);
    if (round > 0) shelf.remove(`s${round - 1}`);
    shelf.put("same");
  }
  const cursors: number[] = [];
  for (let index = 0; index < 2; index += 1) {
    const { value } = await events.next();
    cursors.push(shelf.feed.revisionOf(cursorOf(value)) ?? Number.NaN);
  }
  expect(cursors).toEqual([...cursors].sort((a, b) => a - b));
  expect(cursors[0]).toBeGreaterThan(shelf.feed.revisionOf(cursorOf(synced)) ?? 0);
});

test.each([
  ["of another run of the daemon", "other.1"],
  ["from the future", "boot.999"],
  ["that is none", "x"],
])("a cursor %s is answered by a fresh snapshot", async (_what, cursor) => {
  const shelf = new Shelf();
  shelf.put("a");
  expect(await take(shelf.watch(cursor), 2)).toEqual(["snapshot a", "synced"]);
});

test("a cursor that is older than the removals still known is answered by a fresh snapshot", async () => {
  const shelf = new Shelf();
  const cursor = shelf.feed.cursor();
  for (let index = 0; index < 10_001; index += 1) shelf.remove(`gone-${index}`);
  shelf.put("a");
  expect(await take(shelf.watch(cursor), 2)).toEqual(["snapshot a", "synced"]);
});

test("a watcher that falls too far behind is cut, and its memory is given back", async () => {
  const shelf = new Shelf();
  const events = shelf.watch();
  await take(events, 1);
  for (let index = 0; index < 8193; index += 1) shelf.put(`s${index}`);
  expect(await take(events, 1)).toEqual(["end"]);
  expect(shelf.feed.watchers).toBe(0);
});

test("a cursor after which too much has changed is answered by a fresh snapshot", async () => {
  const shelf = new Shelf();
  const cursor = shelf.feed.cursor();
  for (let index = 0; index < 8193; index += 1) shelf.put("s" + index);
  const told = await take(shelf.watch(cursor), 8194);
  expect([told[0], told.at(-1)]).toEqual(["snapshot s0", "synced"]);
});

test("a silent watch pings", async () => {
  const shelf = new Shelf();
  const events = shelf.watch();
  await take(events, 1);
  const next = take(events, 1);
  await expect.poll(() => shelf.clock.pending).toBe(1);
  shelf.clock.advance(15_000);
  expect(await next).toEqual(["ping"]);
});

test("through the socket a watch follows a sandbox from its creation to its removal", async () => {
  const daemon = await TestDaemon.start();
  const controller = new AbortController();
  onTestFinished(() => controller.abort());
  const events = await daemon.http.lines<WatchEvent>("watch", { signal: controller.signal });
  expect(await take(events, 1)).toEqual(["synced"]);
  const { id } = await daemon.place();
  await daemon.remove(id);
  const seen: string[] = [];
  while (seen.at(-1) !== `removed ${id}`) seen.push(...(await take(events, 1)));
  // changes that come together may be told as one
  expect(seen.filter((event) => !event.startsWith(`changed ${id} `))).toEqual([`removed ${id}`]);
  controller.abort();
});

test("a watcher that does not read costs the daemon a bounded amount of memory", async () => {
  const daemon = await TestDaemon.start();
  const controller = new AbortController();
  onTestFinished(() => controller.abort());
  const events = await daemon.http.lines<WatchEvent>("watch", {
    query: { all: true },
    signal: controller.signal,
  });
  await events.next();
  const { id } = await daemon.place({ env: { BIG: "x".repeat(60_000) } });
  for (let index = 0; index < 300; index += 1) await daemon.touch(id);
  expect(await daemon.metrics()).toContain("dsec_watchers 1");
  // 300 changes of 60 kB each were not read: they were told as few, not queued
  const version = (await daemon.get(id)).deadlineVersion;
  const told: number[] = [];
  while (told.at(-1) !== version) {
    const { value } = await events.next();
    if (value !== undefined && value.type === "changed") told.push(value.sandbox.deadlineVersion);
  }
  expect(told.length).toBeLessThan(150);
});
