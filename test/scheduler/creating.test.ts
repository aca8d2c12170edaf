import { describe, expect, test } from "vitest";
import type { Sandbox } from "../../src/protocol/sandbox.ts";
import { TestFleet } from "./fleet-fixture.ts";
import { scriptedNode, statusOf } from "./scripted-node.ts";

describe("creating", () => {
  test("the same key gives the same sandbox, also across a restart of the coordinator", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    const first = await fleet.create({}, { idempotencyKey: "job-1" });
    expect((await fleet.create({}, { idempotencyKey: "job-1" })).id).toBe(first.id);
    await fleet.stopCoordinator();
    await fleet.startCoordinator();
    expect((await fleet.create({}, { idempotencyKey: "job-1" })).id).toBe(first.id);
    expect((await fleet.create({}, { idempotencyKey: "job-2" })).id).not.toBe(first.id);
    expect((await fleet.client.list()).items).toHaveLength(2);
  });

  test("the same key at the same time gives one sandbox", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    const spec = { simulation: { startMs: 50 } };
    const options = { idempotencyKey: "job-1" };
    const made = await Promise.all(Array.from({ length: 5 }, async () => fleet.create(spec, options)));
    expect(new Set(made.map(({ id }) => id)).size).toBe(1);
  });

  test("a key whose sandbox ran and is gone makes no second one", async () => {
    const fleet = await TestFleet.start();
    const options = { idempotencyKey: "job-1" };
    const sandbox = await fleet.create({}, options);
    const { id } = sandbox;
    await sandbox.remove();
    await expect(fleet.create({}, options)).rejects.toMatchObject({ code: "not_found", details: { id } });
    expect((await fleet.client.list({ all: true })).items).toEqual([]);
  });

  test("a key that was used for another sandbox is a conflict", async () => {
    const fleet = await TestFleet.start();
    await fleet.create({ memoryMb: 64 }, { idempotencyKey: "job-1" });
    await expect(fleet.create({ memoryMb: 128 }, { idempotencyKey: "job-1" })).rejects.toMatchObject({
      code: "conflict",
    });
  });

  test("a key whose create failed may be used again", async () => {
    const fleet = await TestFleet.start();
    const broken = { simulation: { startMs: 0, startFailure: "no luck" } };
    const options = { idempotencyKey: "job-1" };
    await expect(fleet.create(broken, options)).rejects.toMatchObject({ code: "start_failed" });
    expect((await fleet.create({}, options)).state).toBe("running");
  });

  test("when every node refuses, each one's reason and a time to come back are given", async () => {
    const fleet = await TestFleet.start(["n1", "n2"], { daemon: { maxSandboxes: 1 } });
    await fleet.create();
    await fleet.create();
    const error = await fleet.create().catch((caught: unknown) => caught);
    expect(error).toMatchObject({
      code: "no_capacity",
      retryable: true,
      details: {
        refusals: [
          { node: "n1", code: "admission_count" },
          { node: "n2", code: "admission_count" },
        ],
      },
    });
    expect(error).toHaveProperty("retryAfterMs", expect.closeTo(2000, -3.4));
  });

  test("a node that refuses is passed over while another has room", async () => {
    const fleet = await TestFleet.start(["n1"], { daemon: { maxSandboxes: 1 } });
    await fleet.create();
    await fleet.startNode("n2", { coordinator: { address: fleet.address, token: fleet.coordinator.token } });
    await expect.poll(async () => (await fleet.client.nodes()).map(({ name }) => name)).toEqual(["n1", "n2"]);
    const made = await Promise.all(Array.from({ length: 10 }, async () => fleet.create()));
    expect(new Set(made.map(({ info }) => info.node))).toEqual(new Set(["n2"]));
  });

  test("a backend that no node has is refused by that name", async () => {
    const fleet = await TestFleet.start();
    await expect(fleet.create({ backend: "vm" })).rejects.toMatchObject({
      code: "backend_unavailable",
      details: { refusals: [{ node: "n1", code: "backend_unavailable" }] },
    });
  });

  test("a fleet without nodes says so", async () => {
    const fleet = await TestFleet.start([]);
    await expect(fleet.create()).rejects.toMatchObject({ code: "no_node", retryable: true });
    await expect(fleet.client.get("abc")).rejects.toMatchObject({ code: "no_node" });
    expect(await fleet.client.list()).toMatchObject({ items: [], unreachable: [] });
  });

  test("a name is given once on the whole fleet, also at the same time", async () => {
    const fleet = await TestFleet.start(["n1", "n2"]);
    const attempts = await Promise.allSettled(
      Array.from({ length: 6 }, async () => fleet.create({ name: "worker" })),
    );
    expect(attempts.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    const refused = attempts.flatMap((attempt) =>
      attempt.status === "rejected" ? [attempt.reason as unknown] : [],
    );
    for (const error of refused) expect(error).toMatchObject({ code: "name_taken" });
    await expect(fleet.create({ name: "worker" })).rejects.toMatchObject({ code: "name_taken" });
  });

  test("an aborted create leaves no sandbox that nobody can find", async () => {
    const fleet = await TestFleet.start();
    const http = fleet.http();
    const controller = new AbortController();
    const body = { backend: "simulated", image: "none", simulation: { startMs: 60_000 } };
    const call = http.json("createSandbox", { body, signal: controller.signal });
    const outcome = call.catch((error: unknown) => error);
    const states = async (): Promise<string[]> =>
      (await fleet.client.list({ all: true })).items.map(({ state }) => state);
    await expect.poll(states).toEqual(["starting"]);
    controller.abort();
    expect(await outcome).toMatchObject({ code: "cancelled", ambiguous: true });
    await expect.poll(states).toEqual([]);
  });

  test("a create that takes too long is a timeout whose outcome is unknown", async () => {
    const fleet = await TestFleet.start();
    // a connection stands already: else a slow machine may not have sent anything when the time is up
    await fleet.client.nodes();
    const call = fleet.create({ simulation: { startMs: 60_000 } }, { timeout: 0.2 });
    await expect(call).rejects.toMatchObject({ code: "start_timeout", ambiguous: true });
  });

  test("a create may take as long as it takes", async () => {
    const fleet = await TestFleet.start();
    const sandbox = await fleet.create({}, { timeout: Number.POSITIVE_INFINITY });
    expect(sandbox.state).toBe("running");
  });

  test.each<[string, object, string]>([
    ["an unknown field", { memoryMB: 64 }, "memoryMB: unknown field"],
    ["too little memory", { memoryMb: 0 }, "memoryMb: too small"],
    ["absurd memory", { memoryMb: 1e12 }, "memoryMb: "],
    ["no cores", { cpus: 0 }, "cpus: too small"],
    ["a bad name", { name: "Not A Label" }, "name: must be a lower-case DNS label"],
    ["no image", { image: "" }, "image: too small"],
    ["a bad variable", { env: { "a=b": "c" } }, "env.a=b: must not be empty or contain '='"],
  ])("%s is refused with the field's name", async (_, spec, message) => {
    const fleet = await TestFleet.start();
    await expect(fleet.create(spec)).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining(message),
    });
  });
});

describe("a node whose answer is lost", () => {
  test("is asked again with the same id; the sandbox is not placed anywhere else", async () => {
    const fleet = await TestFleet.start(["n2"]);
    const ids: string[] = [];
    const daemon = await scriptedNode(async (url, respond, cut) => {
      if (url === "/v1/node") respond(200, statusOf("n1"));
      else if (url.startsWith("/v1/sandboxes/n1-")) {
        ids.push(url);
        if (ids.length < 3) cut();
        else respond(201, { id: url.slice("/v1/sandboxes/".length), state: "running" });
      }
    });
    await fleet.stopNode("n2");
    await fleet.register("n1", daemon);
    await expect.poll(async () => fleet.health("n1")).toBe("healthy");
    const sandbox = await fleet.create({}, { idempotencyKey: "once" });
    expect(ids).toHaveLength(3);
    expect(new Set(ids)).toEqual(new Set([`/v1/sandboxes/${sandbox.id}`]));
  });

  test("for good makes the create ambiguous, and the key still means the same id", async () => {
    const fleet = await TestFleet.start(["n2"]);
    const ids = new Set<string>();
    let lost = true;
    const daemon = await scriptedNode(async (url, respond, cut) => {
      if (url === "/v1/node") respond(200, statusOf("n1"));
      else if (url.startsWith("/v1/sandboxes/n1-")) {
        ids.add(url);
        if (lost) cut();
        else respond(201, { id: url.slice("/v1/sandboxes/".length), state: "running" });
      }
    });
    await fleet.stopNode("n2");
    await fleet.register("n1", daemon);
    await expect.poll(async () => fleet.health("n1")).toBe("healthy");
    const http = fleet.http();
    const call = {
      body: { backend: "simulated", image: "none" },
      headers: { "idempotency-key": "once" },
      idempotent: false,
    };
    await expect(http.json("createSandbox", call)).rejects.toMatchObject({
      code: "connection_lost",
      ambiguous: true,
    });
    lost = false;
    const made = await http.json<Sandbox>("createSandbox", call);
    expect([...ids]).toEqual([`/v1/sandboxes/${made.id}`]);
  });
});
