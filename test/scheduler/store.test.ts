import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { Store } from "../../src/scheduler/coordinator/store.ts";

async function storePath(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "dsec-store-"));
  onTestFinished(async () => rm(dir, { recursive: true, force: true }));
  return join(dir, "coordinator", "store.sqlite");
}

function open(path: string): Store {
  const store = new Store(path);
  onTestFinished(() => store.close());
  return store;
}

describe("the coordinator's store", () => {
  test("remembers what a key stands for, each owner by itself, and the latest", async () => {
    const store = open(await storePath());
    store.putCreate("alice", "k", { id: "n1-a", digest: "d", made: false }, 1);
    store.putCreate("bob", "k", { id: "n1-b", digest: "d", made: false }, 1);
    store.putCreate("alice", "k", { id: "n2-a", digest: "d", made: false }, 2);
    expect(store.findCreate("alice", "k")).toEqual({ id: "n2-a", digest: "d", made: false });
    expect(store.findCreate("bob", "k")).toEqual({ id: "n1-b", digest: "d", made: false });
    store.createMade("alice", "k");
    expect(store.findCreate("alice", "k")?.made).toBe(true);
    expect(store.findCreate("bob", "k")?.made).toBe(false);
    store.deleteCreate("bob", "k", "n1-b");
    expect(store.findCreate("bob", "k")).toBeUndefined();
    // what the key stood for before is none of its business
    store.deleteCreate("alice", "k", "n1-a");
    expect(store.findCreate("alice", "k")?.id).toBe("n2-a");
  });

  test("a sweep forgets old keys only", async () => {
    const store = open(await storePath());
    for (const time of [1, 2, 3])
      store.putCreate("alice", `k${time}`, { id: "n1-a", digest: "d", made: false }, time);
    expect([store.sweepCreates(3, 1), store.sweepCreates(3)]).toEqual([true, false]);
    expect(["k1", "k2", "k3"].map((key) => store.findCreate("alice", key)?.id)).toEqual([
      undefined,
      undefined,
      "n1-a",
    ]);
  });

  test("is still there after a restart, and nobody else's to read", async () => {
    const path = await storePath();
    const first = new Store(path);
    first.putNode({ name: "n1", address: "unix:/a", token: "t".repeat(16), registeredAt: 5 });
    first.close();
    const second = open(path);
    expect(second.nodes()).toEqual([
      { name: "n1", address: "unix:/a", token: "t".repeat(16), registeredAt: 5 },
    ]);
    second.deleteNode("n1");
    expect(second.nodes()).toEqual([]);
    expect((await stat(join(path, ".."))).mode & 0o777).toBe(0o700);
    expect((await stat(path)).mode & 0o077).toBe(0);
  });

  test("a file that is no store is an error that names it", async () => {
    const path = await storePath();
    new Store(path).close();
    await writeFile(path, "this is not a database, it is only text of some length".repeat(100));
    expect(() => new Store(path)).toThrow(
      expect.objectContaining({ code: "journal_corrupt", message: expect.stringContaining(path) }),
    );
  });
});
