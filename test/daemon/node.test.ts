import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import type { NodeRegistration, NodeStatus } from "../../src/protocol/node.ts";
import { WireServer } from "../../src/wire/server/server.ts";
import { freshNetworkRange } from "../setup/network-range.ts";
import { temporaryDir, TestDaemon, token } from "./daemon-fixture.ts";

test("the status tells what the node has, what was asked of it and what works on it", async () => {
  const daemon = await TestDaemon.start({ maxSandboxes: 77 });
  await daemon.place({ memoryMb: 100, cpus: 0.5, diskMb: 10 });
  await daemon.running.recovered;
  const status = await daemon.http.json<NodeStatus>("nodeStatus");
  expect(status).toMatchObject({
    name: "n1",
    recovered: true,
    cordoned: false,
    maxSandboxes: 77,
    counts: { running: 1 },
    asked: { cpus: 0.5, memoryBytes: 100 * 1_048_576, diskBytes: 10 * 1_048_576 },
  });
  expect(status.memoryAvailableBytes).toBeGreaterThan(0);
  expect(status.memoryBytes).toBeGreaterThan(status.memoryAvailableBytes);
  expect(status.diskBytes).toBeGreaterThan(0);
  expect(status.backends).toContainEqual(expect.objectContaining({ backend: "simulated", works: true }));
});

test("a doctor's visit probes every backend afresh, and what does not work says why", async () => {
  const daemon = await TestDaemon.start({
    backends: ["docker"],
    dockerSocket: "/no/such/docker.sock",
    networkRange: freshNetworkRange(),
  });
  const status = await daemon.http.json<NodeStatus>("nodeDoctor");
  const docker = status.backends.find(({ engine }) => engine === "docker");
  expect(docker).toMatchObject({ works: false });
  expect(docker?.findings.length).toBeGreaterThan(0);
});

test("the metrics count sandboxes, starts, refusals, ends and commands", async () => {
  const daemon = await TestDaemon.start({ maxSandboxes: 2 });
  const { id } = await daemon.place();
  await daemon.place();
  await daemon.place().catch(() => undefined);
  await daemon.run(id, ["true"]);
  await daemon.stop(id);
  const lines = (await daemon.metrics()).split("\n");
  expect(lines).toEqual(
    expect.arrayContaining([
      'dsec_sandboxes{state="running",backend="simulated"} 1',
      'dsec_sandboxes{state="stopped",backend="simulated"} 1',
      'dsec_sandbox_starts_total{backend="simulated"} 2',
      'dsec_sandbox_start_failures_total{code="admission_count"} 1',
      'dsec_sandbox_ends_total{reason="stopped"} 1',
      'dsec_execs_total{cause="exited"} 1',
      "dsec_exec_seconds_count 1",
      'dsec_sandbox_start_seconds_count{backend="simulated"} 2',
    ]),
  );
  expect(lines.some((line) => line.startsWith("nodejs_eventloop_lag_seconds "))).toBe(true);
});

test("a daemon registers with its coordinator, and works without one", async () => {
  const dir = await temporaryDir();
  const address = `unix:${dir}/coordinator.sock`;
  const coordinator = { address, token: "token-of-the-coordinator" };
  const daemon = await TestDaemon.start({ coordinator });
  expect(await daemon.place()).toMatchObject({ state: "running" });

  const registered = Promise.withResolvers<NodeRegistration>();
  const server = new WireServer({
    role: "coordinator",
    version: "0",
    token: coordinator.token,
    log: pino({ level: "silent" }),
  });
  server.handle("registerNode", async ({ body }) => registered.resolve(body));
  await server.listen(address);
  onTestFinished(async () => server.close());
  expect(await registered.promise).toEqual({ name: "n1", address: daemon.running.address, token });
});
