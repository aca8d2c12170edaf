import { rm } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { Store } from "../../src/scheduler/coordinator/store.ts";
import { join } from "node:path";
import { TestFleet } from "./fleet-fixture.ts";

const pypi = { allow: ["pypi"] };

describe("named policies", () => {
  test("have versions that never change, and numbers that are never given twice", async () => {
    const { client } = await TestFleet.start();
    const { policies } = client;
    const first = await policies.create("web", {
      allow: ["pypi", "*.Example.com:443"],
      deny: ["10.0.0.0/8"],
    });
    expect(first).toMatchObject({ name: "web", version: 1, newestVersion: 1 });
    expect(first.policy.rules[1]?.target).toEqual({ kind: "domain", domain: "*.example.com" });
    expect(await policies.set("web", pypi)).toMatchObject({ version: 2, newestVersion: 2 });
    expect(await policies.set("web", pypi)).toMatchObject({ version: 2, newestVersion: 2 });
    expect(await policies.get("web", { version: 1 })).toEqual({ ...first, newestVersion: 2 });
    expect((await policies.get("web")).version).toBe(2);
    expect(await policies.list()).toMatchObject([{ name: "web", version: 2, default: "deny", rules: 1 }]);
    expect((await policies.versions("web")).map(({ version, rules }) => [version, rules])).toEqual([
      [2, 1],
      [1, 3],
    ]);
    await policies.remove("web", { version: 2 });
    expect((await policies.get("web")).version).toBe(1);
    await policies.remove("web");
    expect(await policies.list()).toEqual([]);
    expect(await policies.create("web", pypi)).toMatchObject({ version: 3 });
  });

  test("are changed on what was expected only, and refused by name otherwise", async () => {
    const { client } = await TestFleet.start();
    const { policies } = client;
    await expect(policies.set("web", pypi)).rejects.toMatchObject({ code: "not_found" });
    await policies.create("web", pypi);
    await expect(policies.create("web", {})).rejects.toMatchObject({
      code: "conflict",
      details: { newestVersion: 1 },
    });
    const editors = await Promise.allSettled(
      ["a", "b", "c"].map(async (name) =>
        policies.set("web", { allow: [`${name}.example`] }, { expectedVersion: 1 }),
      ),
    );
    expect(editors.map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected", "rejected"]);
    await expect(policies.get("web", { version: 9 })).rejects.toMatchObject({ code: "not_found" });
    await expect(policies.get("nope")).rejects.toMatchObject({ code: "not_found" });
    await expect(policies.remove("nope")).rejects.toMatchObject({ code: "not_found" });
    await expect(policies.create("open", pypi)).rejects.toMatchObject({ code: "invalid_argument" });
    await expect(policies.create("We_b", pypi)).rejects.toMatchObject({ code: "invalid_argument" });
    await expect(policies.set("web", { allow: ["nmp"] })).rejects.toMatchObject({
      code: "unknown_registry",
      details: { registries: ["nmp"] },
    });
    await expect(policies.set("web", { allow: ["a b"] })).rejects.toMatchObject({ code: "invalid_argument" });
  });

  test("outlive the coordinator", async () => {
    const fleet = await TestFleet.start();
    const made = await fleet.client.policies.create("web", pypi);
    await fleet.stopCoordinator();
    const store = new Store(join(fleet.dir, "data", "coordinator", "store.sqlite"));
    expect(store.policies.get("web", 1)).toEqual(made);
    store.close();
    await fleet.startCoordinator();
    expect(await fleet.client.policies.get("web")).toEqual(made);
  });
});

describe("a sandbox with a named policy", () => {
  test("has the newest version, or the one that was asked for, and keeps it", async () => {
    const fleet = await TestFleet.start();
    const { policies } = fleet.client;
    await policies.create("web", pypi);
    await policies.set("web", { allow: ["pypi", "npm"] });
    const newest = await fleet.create({ networkPolicy: "web", networkRules: { "192.0.2.1": true } });
    const older = await fleet.create({ networkPolicy: "web@1" });
    expect(newest.info.networkPolicy).toMatchObject({ origin: { name: "web", version: 2 }, rules: 3 });
    expect(older.info.networkPolicy).toMatchObject({ origin: { name: "web", version: 1 }, rules: 1 });
    await policies.remove("web");
    expect((await older.refresh()).networkPolicy).toEqual(older.info.networkPolicy);
    expect((await older.networkPolicy()).policy.rules).toEqual([
      { action: "allow", target: { kind: "registry", name: "pypi" } },
    ]);
  });

  test("of many rules is sent to a node once, and again when the node has forgotten it", async () => {
    const fleet = await TestFleet.start();
    const many = { allow: Array.from({ length: 1000 }, (_, n) => `10.1.${n >> 8}.${n & 255}`) };
    await fleet.client.policies.create("many", many);
    const networkRules = { pypi: true };
    const rulesOf = async (spec: Parameters<typeof fleet.create>[0]) => {
      const sandbox = await fleet.create({ networkPolicy: "many", ...spec });
      const { policy, digest, origin } = await sandbox.networkPolicy();
      const last = policy.rules.at(-1)?.target;
      return { digest, origin, rules: policy.rules.length, last };
    };
    const origin = { name: "many", version: 1 };
    const plain = { rules: 1000, last: { kind: "cidr", cidr: "10.1.3.231" }, origin };
    const [first, second] = [await rulesOf({}), await rulesOf({})];
    expect(first).toMatchObject(plain);
    expect(second).toEqual(first);
    const joined = await rulesOf({ networkRules });
    expect(joined).toMatchObject({ rules: 1001, last: { kind: "registry", name: "pypi" }, origin });
    expect(await rulesOf({ networkRules })).toEqual(joined);
    await fleet.stopNode("n1");
    await rm(join(fleet.dir, "n1", "data"), { recursive: true });
    await fleet.startNode("n1");
    expect(await rulesOf({ networkRules })).toEqual(joined);
    expect(await rulesOf({})).toEqual(first);
  });

  test("one that is not there is refused, and no sandbox is left", async () => {
    const fleet = await TestFleet.start();
    await expect(fleet.create({ networkPolicy: "nope" })).rejects.toMatchObject({ code: "not_found" });
    await expect(fleet.create({ networkPolicy: "open@1" })).rejects.toMatchObject({ code: "not_found" });
    await expect(fleet.create({ networkRules: { nmp: true } })).rejects.toMatchObject({
      code: "unknown_registry",
    });
    expect((await fleet.client.list({ all: true })).items).toEqual([]);
  });
});

describe("a push", () => {
  test("reaches the chosen sandboxes on every node and says what changed", async () => {
    const fleet = await TestFleet.start(["n1", "n2", "n3"]);
    await fleet.client.policies.create("web", pypi);
    const sandboxes = await Promise.all(
      Array.from({ length: 12 }, async (_, n) => fleet.create({ labels: { job: n < 9 ? "7" : "8" } })),
    );
    expect(new Set(sandboxes.map(({ info }) => info.node)).size).toBeGreaterThan(1);
    const chosen = sandboxes
      .slice(0, 9)
      .map(({ id }) => id)
      .toSorted();
    const filter = { filter: { label: ["job=7"] } };
    const dry = await fleet.client.policies.push("web", filter, { dryRun: true });
    expect(dry.items.map(({ outcome }) => outcome)).toEqual(chosen.map(() => "changed"));
    const { items } = await fleet.client.policies.push("web", filter);
    expect(items.map(({ id }) => id)).toEqual(chosen);
    for (const item of items)
      expect(item).toMatchObject({
        outcome: "changed",
        before: { revision: 1, rules: 0 },
        after: { revision: 2, rules: 1, origin: { name: "web", version: 1 } },
        added: ["allow pypi"],
        removed: [],
      });
    expect((await sandboxes[9]?.refresh())?.networkPolicy.revision).toBe(1);
    const again = await fleet.client.policies.push("web", filter);
    expect(again.items.every(({ outcome }) => outcome === "unchanged")).toBe(true);
  });

  test("by reference names what it could not change, and goes on", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    const [a, b] = [await fleet.create({ name: "a" }), await fleet.create({ name: "b" })];
    await b.stop();
    const { items } = await fleet.client.policies.push("open", { refs: ["a", b.id, "nobody"] });
    expect(
      Object.fromEntries(items.map(({ id, outcome, problem }) => [id, problem?.code ?? outcome])),
    ).toEqual({
      [a.id]: "changed",
      [b.id]: "sandbox_not_running",
      nobody: "not_found",
    });
    await expect(fleet.client.policies.push("nope", { refs: ["a"] })).rejects.toMatchObject({
      code: "not_found",
    });
  });

  test("names the nodes that gave no answer", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    await fleet.stopNode("n2");
    expect(await fleet.client.policies.push("open", { filter: {} })).toMatchObject({ unreachable: ["n2"] });
    await fleet.stopNode("n1");
    await expect(fleet.client.policies.push("open", { filter: {} })).rejects.toMatchObject({
      code: "node_unreachable",
    });
  });
});

describe("one sandbox's policy", () => {
  test("is replaced on the revision that was expected, tested and shown", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const change = await sandbox.setNetworkPolicy({ allow: ["pypi"], deny: ["files.pythonhosted.org:443"] });
    expect(change).toMatchObject({ outcome: "changed", after: { revision: 2 } });
    await expect(sandbox.setNetworkPolicy("none", { expectedRevision: 1 })).rejects.toMatchObject({
      code: "conflict",
      details: { revision: 2 },
    });
    expect((await sandbox.networkPolicy()).revision).toBe(2);
    expect(await sandbox.testNetwork("files.pythonhosted.org:443")).toMatchObject({ allowed: false });
    expect(await sandbox.testNetwork("[2001:db8::1]:443/udp")).toMatchObject({
      allowed: false,
      addresses: [{ address: "2001:db8::1", by: { kind: "default" } }],
    });
    await expect(sandbox.testNetwork("a b")).rejects.toMatchObject({ code: "invalid_argument" });
    const log = [];
    for await (const decision of sandbox.networkLog()) log.push(decision);
    expect(log).toEqual([]);
    await sandbox.stop();
    await expect(sandbox.setNetworkPolicy("open")).rejects.toMatchObject({ code: "sandbox_not_running" });
  });

  test("what cannot be read in a policy is named by its place", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create();
    const rules = [{ action: "allow" as const, target: { kind: "cidr" as const, cidr: "10.0.0.1/8" } }];
    await expect(sandbox.setNetworkPolicy({ rules })).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringMatching(/^policy\.rules\.0\.target\.cidr: .*has bits set beyond its \/8/),
    });
    await expect(sandbox.setNetworkPolicy("no such name")).rejects.toMatchObject({
      message: "policy: must be a policy's name, or name@version",
    });
  });
});
