import { expect, test } from "vitest";
import { SimulatedBackend } from "../../../src/backends/simulated/simulated-backend.ts";
import type { StartRequest } from "../../../src/backends/backend.ts";
import { Simulation } from "../../../src/protocol/sandbox.ts";
import type { z } from "zod";
import { ManualTimers } from "./manual-timers.ts";

const never = new AbortController().signal;

function request(id: string, simulation: z.input<typeof Simulation> = {}): StartRequest {
  return {
    id,
    hostname: id,
    env: {},
    root: { type: "none" },
    limits: {
      memoryBytes: 2 ** 30,
      cpus: 1,
      cpuLimit: null,
      pids: 64,
      diskBytes: 2 ** 20,
      class: "latency-sensitive",
    },
    simulation: Simulation.parse(simulation),
  };
}

test("a start takes as long as scripted", async () => {
  const timers = new ManualTimers();
  const backend = new SimulatedBackend({ timers });
  let started = false;
  const start = backend.start(request("a", { startMs: 500 }), never).then(() => (started = true));
  timers.advance(499);
  await Promise.resolve();
  expect(started).toBe(false);
  timers.advance(1);
  await start;
  expect(started).toBe(true);
});

test("a cancelled start leaves neither a sandbox nor a timer", async () => {
  const timers = new ManualTimers();
  const backend = new SimulatedBackend({ timers });
  const abort = new AbortController();
  const start = backend.start(request("a", { startMs: 500 }), abort.signal);
  abort.abort();
  await expect(start).rejects.toMatchObject({ code: "cancelled" });
  expect(timers.pending).toBe(0);
  expect(backend.size).toBe(0);
});

test("a scripted failure is a start_failed with the scripted message", async () => {
  const backend = new SimulatedBackend();
  await expect(backend.start(request("a", { startFailure: "no luck" }), never)).rejects.toMatchObject({
    code: "start_failed",
    message: "no luck",
  });
});

test("a scripted loss of the agent ends the sandbox and its execs", async () => {
  const timers = new ManualTimers();
  const backend = new SimulatedBackend({ timers });
  const running = await backend.start(request("a", { agentLostAfterMs: 1000 }), never);
  const exec = await running.guest.exec({ argv: ["sleep", "9"], env: {}, stdin: false }, () => {});
  timers.advance(1000);
  expect(await running.ended).toMatchObject({ reason: "agent_lost" });
  await expect(exec.exit).rejects.toMatchObject({ code: "agent_lost" });
  await expect(running.guest.ping()).rejects.toMatchObject({ code: "agent_lost" });
});

test("a scripted loss also happens on time in an adopted sandbox, and before its adoption", async () => {
  const timers = new ManualTimers();
  const first = new SimulatedBackend({ timers });
  const { record } = await first.start(request("a", { agentLostAfterMs: 1000 }), never);
  await first.close();
  timers.advance(600);
  const second = new SimulatedBackend({ timers });
  const adopted = await second.adopt("a", record);
  timers.advance(400);
  expect(await adopted.ended).toMatchObject({ reason: "agent_lost" });
  await expect(new SimulatedBackend({ timers }).adopt("a", record)).rejects.toMatchObject({
    code: "agent_lost",
  });
});

test("memory use is as scripted", async () => {
  const backend = new SimulatedBackend();
  const running = await backend.start(request("a", { memoryMb: 3 }), never);
  expect(await running.usage()).toMatchObject({ memoryBytes: 3 * 2 ** 20, pids: 1 });
});

test("ten thousand idle sandboxes need no timer", async () => {
  const timers = new ManualTimers();
  const backend = new SimulatedBackend({ timers });
  for (let index = 0; index < 10_000; index += 1) await backend.start(request(`s${index}`), never);
  expect(timers.pending).toBe(0);
  expect(backend.size).toBe(10_000);
});

test("a timeout of a simulated command fires on the injected clock", async () => {
  const timers = new ManualTimers();
  const backend = new SimulatedBackend({ timers });
  const running = await backend.start(request("a"), never);
  const exec = await running.guest.exec(
    { argv: ["sleep", "9"], env: {}, stdin: false, timeoutMs: 100 },
    () => {},
  );
  timers.advance(100);
  expect(await exec.exit).toMatchObject({ code: 137, signal: 9, timedOut: true });
  expect(timers.pending).toBe(0);
});
