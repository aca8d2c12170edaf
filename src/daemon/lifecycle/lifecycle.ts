/**
 * The life of a sandbox, as one table.
 *
 *     pending ──begin──▶ starting ──started──▶ running ◀─resume── paused
 *        │                  │ │                 │   └──pause──────▲  │
 *        │                  │ └──fail──▶ failed │                    │
 *        └──────end─────────┴────────end────────┴─────────end────────┘
 *                                  │
 *                                  ▼
 *                              stopping ──finish──▶ stopped | lost   (by the reason)
 *                                  └─────fail─────▶ failed           (could not be destroyed)
 *
 * `lose` leads from any live state to where `finish` would, without a clean-up: what is left has nobody to drive it.
 */
import { DSecError } from "../../protocol/errors.ts";
import type { EndReason, SandboxState } from "../../protocol/sandbox.ts";

export type LifecycleEvent =
  | { readonly type: "begin" | "started" | "pause" | "resume" | "fail" | "finish" }
  | { readonly type: "end" | "lose"; readonly reason: EndReason };

/** What has to happen because of a transition, in this order. */
export type LifecycleEffect =
  /** Start the clock that ends it after its maximum lifetime. */
  | "arm_lifetime"
  /** Start the idle clock. */
  | "arm_idle"
  /** Make a start that is under way give up. */
  | "abort_start"
  /** Kill and clean up; ends with `finish` or `fail`. */
  | "tear_down"
  /** Keep the record for its stated time, then forget it. */
  | "keep_record";

export interface Transition {
  readonly state: SandboxState;
  readonly effects: readonly LifecycleEffect[];
}

type EventType = LifecycleEvent["type"];
type Target = SandboxState | "by_reason";

const table: Readonly<Record<SandboxState, Partial<Record<EventType, Target>>>> = {
  pending: { begin: "starting", end: "stopping" },
  starting: { started: "running", end: "stopping", fail: "failed", lose: "by_reason" },
  running: { pause: "paused", end: "stopping", lose: "by_reason" },
  paused: { resume: "running", end: "stopping", lose: "by_reason" },
  stopping: { finish: "by_reason", fail: "failed", lose: "by_reason" },
  stopped: {},
  failed: {},
  lost: {},
};

const effectsOf: Readonly<Partial<Record<EventType, readonly LifecycleEffect[]>>> = {
  begin: ["arm_lifetime"],
  started: ["arm_idle"],
  resume: ["arm_idle"],
  end: ["abort_start", "tear_down"],
  lose: ["keep_record"],
  fail: ["keep_record"],
  finish: ["keep_record"],
};

/**
 * @param reason why the sandbox is ending, where that is already known
 * @throws DSecError `conflict` for a transition the table does not have; details.state, details.event
 */
export function transition(state: SandboxState, event: LifecycleEvent, reason?: EndReason): Transition {
  const target = table[state][event.type];
  if (target === undefined)
    throw new DSecError("conflict", `a sandbox that is ${state} cannot ${event.type}`, {
      details: { state, event: event.type },
    });
  const next = target === "by_reason" ? endStateOf("reason" in event ? event.reason : reason) : target;
  return { state: next, effects: effectsOf[event.type] ?? [] };
}

/**
 * Task outcomes end as `stopped`, platform outcomes as `failed` or `lost`: the state alone tells them apart.
 * `evicted` is an orderly end, told apart by its reason.
 */
export function endStateOf(reason: EndReason | undefined): SandboxState {
  if (reason === "agent_lost" || reason === "node_lost") return "lost";
  return reason === "start_failed" ? "failed" : "stopped";
}
