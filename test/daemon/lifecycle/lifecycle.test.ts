import { expect, test } from "vitest";
import { endStateOf, type LifecycleEvent, transition } from "../../../src/daemon/lifecycle/lifecycle.ts";
import { type EndReason, EndReason as EndReasons, SandboxState } from "../../../src/protocol/sandbox.ts";
import { endedStates } from "../../../src/protocol/states.ts";

const events: readonly LifecycleEvent[] = [
  { type: "begin" },
  { type: "started" },
  { type: "pause" },
  { type: "resume" },
  { type: "fail" },
  { type: "finish" },
  { type: "end", reason: "stopped" },
  { type: "lose", reason: "agent_lost" },
];

const legal = {
  pending: { begin: "starting", end: "stopping" },
  starting: { started: "running", end: "stopping", fail: "failed", lose: "lost" },
  running: { pause: "paused", end: "stopping", lose: "lost" },
  paused: { resume: "running", end: "stopping", lose: "lost" },
  stopping: { finish: "stopped", fail: "failed", lose: "lost" },
  stopped: {},
  failed: {},
  lost: {},
} as const satisfies Record<SandboxState, Partial<Record<LifecycleEvent["type"], SandboxState>>>;

const cases = SandboxState.options.flatMap((state) =>
  events.map((event) => {
    const targets: Partial<Record<LifecycleEvent["type"], SandboxState>> = legal[state];
    return { state, event, type: event.type, target: targets[event.type] };
  }),
);

test.each(cases.filter(({ target }) => target !== undefined))(
  "a sandbox that is $state becomes $target by $type",
  ({ state, event, target }) => {
    expect(transition(state, event, "stopped").state).toBe(target);
  },
);

test.each(cases.filter(({ target }) => target === undefined))(
  "a sandbox that is $state cannot $type",
  ({ state, event, type }) => {
    expect(() => transition(state, event)).toThrowError(
      expect.objectContaining({ code: "conflict", details: { state, event: type } }),
    );
  },
);

test("an end is possible in every state in which something may still run", () => {
  const live = SandboxState.options.filter((state) => !endedStates.includes(state) && state !== "stopping");
  for (const state of live)
    expect(transition(state, { type: "end", reason: "idle_ttl" })).toEqual({
      state: "stopping",
      effects: ["abort_start", "tear_down"],
    });
});

test("the end state tells task outcomes from the platform's", () => {
  const states = Object.fromEntries(EndReasons.options.map((reason) => [reason, endStateOf(reason)]));
  expect(states).toEqual({
    stopped: "stopped",
    idle_ttl: "stopped",
    max_lifetime: "stopped",
    exited: "stopped",
    oom: "stopped",
    disk_full: "stopped",
    evicted: "stopped",
    start_failed: "failed",
    node_lost: "lost",
    agent_lost: "lost",
  } satisfies Record<EndReason, SandboxState>);
});

test("whatever ends a sandbox keeps its record", () => {
  expect(transition("stopping", { type: "finish" }, "stopped").effects).toEqual(["keep_record"]);
  expect(transition("stopping", { type: "fail" }).effects).toEqual(["keep_record"]);
  expect(transition("running", { type: "lose", reason: "agent_lost" }).effects).toEqual(["keep_record"]);
});
