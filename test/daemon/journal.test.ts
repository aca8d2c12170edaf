import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, onTestFinished, test } from "vitest";
import { Journal } from "../../src/daemon/journal/journal.ts";
import { newRecord, type SandboxRecord } from "../../src/daemon/lifecycle/sandbox-record.ts";
import { nothingAllowed } from "./nothing-allowed.ts";
import { ExecSpec } from "../../src/protocol/exec.ts";
import { SandboxSpec } from "../../src/protocol/sandbox.ts";
import { temporaryDir } from "./daemon-fixture.ts";

const id = "n1-aaaaaaaaaa";

function record(changes: Partial<SandboxRecord> = {}): SandboxRecord {
  const spec = SandboxSpec.parse({ backend: "simulated", image: "x", labels: { job: "7" } });
  return {
    ...newRecord({ id, owner: "alice", spec }, nothingAllowed(1000), 1000),
    state: "running",
    deadlineVersion: 1,
    ...changes,
  };
}

async function journalPath(): Promise<string> {
  return join(await temporaryDir(), "daemon", "journal.sqlite");
}

function open(path: string): Journal {
  const journal = new Journal(path);
  onTestFinished(() => {
    try {
      journal.close();
    } catch {
      // closed by the test
    }
  });
  return journal;
}

test("everything that is written is there after the journal was opened again", async () => {
  const path = await journalPath();
  const sandbox = record({
    endReason: "exited",
    exitCode: 3,
    backendRecord: { pid: 7, list: [1, "a", null] },
    provisionerRecord: "opaque",
    layers: [{ reference: "os:1", kind: "base", digests: ["sha256:1", "sha256:2"] }],
    idleDeadline: 5000,
    address: "10.0.0.2",
  });
  const spec = ExecSpec.parse({ argv: ["true"], record: true });
  const exec = {
    id: "e1",
    sandbox: id,
    channel: 4,
    spec,
    state: "running",
    startedAt: 9,
    endedAt: undefined,
  } as const;
  const event = { sandbox: id, time: 1, type: "running", message: "started" };
  const first = open(path);
  first.saveSandbox(sandbox);
  first.saveExec({ ...exec, exit: undefined });
  first.addEvent(event);
  first.close();

  const second = open(path);
  expect(second.sandboxes()).toEqual([sandbox]);
  expect(second.execs(id)).toEqual([{ ...exec, exit: undefined }]);
  expect(second.events(id)).toEqual([event]);
  second.removeSandbox(id);
  expect([second.sandboxes(), second.execs(id), second.events(id)]).toEqual([[], [], []]);
});

test("a renewal of a version that is no longer the one on disk changes nothing", async () => {
  const journal = open(await journalPath());
  journal.saveSandbox(record({ idleDeadline: 2000 }));
  const renewal = { id, lastActiveAt: 1500, revision: 2, idleDeadline: 9000 };
  expect(journal.renewIdle({ ...renewal, expectedVersion: 1 })).toBe(true);
  expect(journal.renewIdle({ ...renewal, expectedVersion: 1, idleDeadline: 1 })).toBe(false);
  expect(journal.sandboxes()).toMatchObject([{ idleDeadline: 9000, deadlineVersion: 2 }]);
});

test("an expiry is decided by version and time, and excludes a later renewal", async () => {
  const journal = open(await journalPath());
  journal.saveSandbox(record({ idleDeadline: 2000 }));
  expect(journal.expireIdle(id, 1, 1999)).toBe(false);
  expect(journal.expireIdle(id, 0, 2000)).toBe(false);
  expect(journal.expireIdle(id, 1, 2000)).toBe(true);
  expect(journal.sandboxes()).toMatchObject([{ state: "stopping", endReason: "idle_ttl" }]);
  const renewal = { id, expectedVersion: 1, lastActiveAt: 2000, revision: 2, idleDeadline: 9000 };
  expect(journal.renewIdle(renewal)).toBe(false);
});

test("the number of events of a sandbox is bounded", async () => {
  const journal = open(await journalPath());
  for (let time = 0; time < 500; time += 1) journal.addEvent({ sandbox: id, time, type: "e", message: "m" });
  const times = journal.events(id).map((event) => event.time);
  expect(times).toEqual(Array.from({ length: 200 }, (_, index) => 300 + index));
});

test("one process at a time has the journal", async () => {
  const path = await journalPath();
  const first = open(path);
  expect(() => new Journal(path)).toThrowError(expect.objectContaining({ code: "already_running" }));
  first.close();
  expect(open(path).sandboxes()).toEqual([]);
});

test("a damaged journal is named, explained and left as it is", async () => {
  const path = await journalPath();
  open(path).close();
  const garbage = "this is not a database, but somebody's data\n".repeat(100);
  await writeFile(path, garbage);
  expect(() => new Journal(path)).toThrowError(
    expect.objectContaining({
      code: "journal_corrupt",
      message: expect.stringContaining("move it away") as string,
    }),
  );
  expect(await readFile(path, "utf8")).toBe(garbage);
});

test("a page that was overwritten in the middle of the file is found", async () => {
  const path = await journalPath();
  const journal = open(path);
  for (let index = 0; index < 200; index += 1)
    journal.addEvent({ sandbox: `n1-${index}`, time: 1, type: "e", message: "m".repeat(500) });
  journal.close();
  const bytes = await readFile(path);
  bytes.fill(0x5a, 4096 * 6, 4096 * 12);
  await writeFile(path, bytes);
  expect(() => new Journal(path)).toThrowError(expect.objectContaining({ code: "journal_corrupt" }));
});

test("a record that cannot be read is a damaged journal, not a lost sandbox", async () => {
  const path = await journalPath();
  const journal = open(path);
  journal.saveSandbox(record());
  journal.close();
  const database = new DatabaseSync(path);
  database.exec("UPDATE sandboxes SET spec = '{}'");
  database.close();
  expect(() => open(path).sandboxes()).toThrowError(expect.objectContaining({ code: "journal_corrupt" }));
});

test("a journal of another version is refused untouched", async () => {
  const path = await journalPath();
  open(path).close();
  const database = new DatabaseSync(path);
  database.exec("PRAGMA user_version = 2");
  database.close();
  expect(() => new Journal(path)).toThrowError(expect.objectContaining({ code: "config_invalid" }));
});

test("a journal whose tables are others is damaged, and left to who can mend it", async () => {
  const path = await journalPath();
  open(path).close();
  const database = new DatabaseSync(path);
  database.exec("ALTER TABLE sandboxes DROP COLUMN layers");
  database.close();
  for (let tries = 0; tries < 2; tries += 1)
    expect(() => new Journal(path)).toThrowError(expect.objectContaining({ code: "journal_corrupt" }));
});

test("policies are kept by their digest until they are removed", async () => {
  const path = await journalPath();
  const policy = { default: "allow", rules: [] } as const;
  const first = open(path);
  first.addPolicy("sha256:1", { ...policy, rules: [] });
  first.addPolicy("sha256:1", { ...policy, rules: [] });
  first.close();
  const second = open(path);
  expect(second.policyDigests()).toEqual(["sha256:1"]);
  expect(second.policy("sha256:1")).toEqual(policy);
  second.removePolicy("sha256:1");
  expect(second.policy("sha256:1")).toBeUndefined();
});
