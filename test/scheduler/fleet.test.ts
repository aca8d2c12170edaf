import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { DSecError } from "../../src/sdk/index.ts";
import { TestFleet } from "./fleet-fixture.ts";
import { untilType } from "./watch-events.ts";

describe("references", () => {
  test("an id, a unique prefix and a name all lead to the sandbox, whatever its node", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    const made = await Promise.all(["a", "b", "c", "d"].map(async (name) => fleet.create({ name })));
    expect(new Set(made.map(({ info }) => info.node)).size).toBe(2);
    for (const sandbox of made) {
      expect((await fleet.client.get(sandbox.id)).id).toBe(sandbox.id);
      expect((await fleet.client.get(sandbox.name ?? "")).id).toBe(sandbox.id);
      expect((await fleet.client.get(sandbox.id.slice(0, -2))).id).toBe(sandbox.id);
      expect((await sandbox.exec(["echo", sandbox.id])).stdout).toBe(`${sandbox.id}\n`);
    }
    const named = await fleet.client.get("a");
    expect((await named.exec(["true"])).exitCode).toBe(0);
  });

  test("a prefix of several sandboxes lists them", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    const made = await Promise.all(Array.from({ length: 4 }, async () => fleet.create()));
    const error = await fleet.client.get("n").catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(DSecError);
    expect(error).toMatchObject({ code: "ambiguous_reference", details: { count: 4 } });
    const { candidates } = error instanceof DSecError ? (error.details ?? {}) : {};
    expect((candidates as string[]).toSorted()).toEqual(made.map(({ id }) => id).toSorted());
  });

  test("what nobody knows is not found", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    for (const ref of ["nobody", "n1-aaaaaaaaaa", "n9-aaaaaaaaaa"])
      await expect(fleet.client.get(ref)).rejects.toMatchObject({ code: "not_found" });
    await expect(fleet.client.get("Not A Ref")).rejects.toMatchObject({ code: "invalid_argument" });
  });
});

describe("a node that is down", () => {
  test("is named by lists and watches, and its sandboxes are unreachable, not missing", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    const made = await Promise.all(Array.from({ length: 6 }, async () => fleet.create()));
    const lost = made.find(({ info }) => info.node === "n1");
    const kept = made.filter(({ info }) => info.node === "n2");
    const controller = new AbortController();
    const events = fleet.client.watch({}, { signal: controller.signal });
    await untilType(events, "synced");
    await fleet.daemons.get("n1")?.close();
    fleet.daemons.delete("n1");
    expect(await untilType(events, "unreachable")).toEqual({ type: "unreachable", node: "n1" });
    controller.abort();
    const page = await fleet.client.list();
    expect(page.unreachable).toEqual(["n1"]);
    expect(page.items.map(({ id }) => id).toSorted()).toEqual(kept.map(({ id }) => id).toSorted());
    await expect(lost?.refresh()).rejects.toMatchObject({ code: "node_unreachable", retryable: true });
    await expect(lost?.exec(["true"])).rejects.toMatchObject({ code: "node_unreachable", ambiguous: false });
    await expect(fleet.client.get("some-name")).rejects.toMatchObject({
      code: "node_unreachable",
      details: { unreachable: ["n1"] },
    });
    expect(await fleet.health("n1")).toBe("unreachable");
    expect(await fleet.health("n2")).toBe("healthy");
    const more = await Promise.all(Array.from({ length: 4 }, async () => fleet.create()));
    expect(new Set(more.map(({ info }) => info.node))).toEqual(new Set(["n2"]));
  });

  test("is used again as soon as it is back, without waiting for a probe", async () => {
    const fleet = await TestFleet.start(["n1"], { coordinator: { probeIntervalMs: 3_600_000 } });
    await fleet.stopNode("n1");
    await expect(fleet.create()).rejects.toMatchObject({ code: "no_capacity" });
    await fleet.startNode("n1");
    expect((await fleet.create()).state).toBe("running");
  });
});

describe("lists", () => {
  test("pages over the nodes give every sandbox once", async () => {
    const fleet = await TestFleet.start(["n1", "n2", "n3"]);
    const made = await Promise.all(Array.from({ length: 17 }, async () => fleet.create()));
    for (const limit of [1, 2, 5, 16, 17, 100]) {
      const seen: string[] = [];
      let cursor: string | undefined;
      do {
        const page = await fleet.client.list({}, { limit, ...(cursor === undefined ? {} : { cursor }) });
        expect(page.items.length).toBeLessThanOrEqual(limit);
        seen.push(...page.items.map(({ id }) => id));
        cursor = page.nextCursor;
      } while (cursor !== undefined);
      expect(seen.toSorted()).toEqual(made.map(({ id }) => id).toSorted());
    }
  });

  test("filters reach every node; a malformed one is refused", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    await Promise.all(Array.from({ length: 6 }, async () => fleet.create({ labels: { job: "a" } })));
    await fleet.create({ labels: { job: "b" } });
    expect((await fleet.client.list({ label: ["job=a"] })).items).toHaveLength(6);
    await expect(fleet.client.list({ label: ["=x"] })).rejects.toMatchObject({ code: "invalid_argument" });
    await expect(fleet.client.list({}, { cursor: "?" })).rejects.toMatchObject({ code: "invalid_argument" });
  });
});

describe("nodes", () => {
  test("that registered are known to the next coordinator", async () => {
    const fleet = await TestFleet.start([]);
    await fleet.startNode("n7", { coordinator: { address: fleet.address, token: fleet.coordinator.token } });
    await expect.poll(async () => fleet.health("n7")).toBe("healthy");
    const sandbox = await fleet.create();
    await fleet.stopCoordinator();
    await fleet.startCoordinator({ probeIntervalMs: 3_600_000 });
    expect((await fleet.client.get(sandbox.id)).id).toBe(sandbox.id);
  });

  test("under another name are not believed", async () => {
    const fleet = await TestFleet.start(["n1"]);
    await fleet.register(
      "other",
      `unix:${join(fleet.dir, "n1", "run", "daemon.sock")}`,
      "test-token-of-the-nodes",
    );
    await expect.poll(async () => (await fleet.node("other"))?.message).toContain("a node of the name n1");
  });

  test("cannot take the name of one that the coordinator was started with", async () => {
    const fleet = await TestFleet.start(["n1"]);
    await expect(fleet.register("n1", "unix:/elsewhere")).rejects.toMatchObject({ code: "conflict" });
    await expect(fleet.register("n2", "http://10.0.0.1:80")).rejects.toMatchObject({
      code: "invalid_argument",
    });
  });

  test("are examined on request", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    const nodes = await fleet.client.doctor();
    expect(nodes.map(({ name, health }) => ({ name, health }))).toEqual([
      { name: "n1", health: "healthy" },
      { name: "n2", health: "healthy" },
    ]);
    expect(nodes[0]?.status?.backends.find(({ backend }) => backend === "simulated")).toMatchObject({
      works: true,
    });
  });
});
