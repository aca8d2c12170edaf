import { expect, test } from "vitest";
import { DecisionBatch } from "../../../src/daemon/network/gate/decision-batch.ts";
import type { Decided } from "../../../src/daemon/network/gate/gated-sandbox.ts";

function refusal(address: string): Decided {
  return { stage: "connect", allowed: false, by: { kind: "default" }, protocol: "tcp", address };
}

test("what was tried again is told once its time is over, however often something else is tried", () => {
  const batch = new DecisionBatch();
  const told = (now: number) =>
    batch.take(now)?.decisions.map(({ decision, count }) => [decision.address, count]) ?? [];
  batch.add("s", refusal("192.0.2.1"), 0);
  batch.add("s", refusal("192.0.2.2"), 100);
  expect(told(200)).toEqual([
    ["192.0.2.1", 1],
    ["192.0.2.2", 1],
  ]);
  batch.add("s", refusal("192.0.2.2"), 300);
  batch.add("s", refusal("192.0.2.2"), 400);
  // The first kind begins anew, just before the batch is looked at.
  batch.add("s", refusal("192.0.2.1"), 5100);
  expect(told(5200)).toEqual([
    ["192.0.2.1", 1],
    ["192.0.2.2", 2],
  ]);
});
