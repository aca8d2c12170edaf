import { expect, test } from "vitest";
import { DeadlineHeap } from "../../../src/daemon/deadlines/deadline-heap.ts";
import { Deadlines } from "../../../src/daemon/deadlines/deadlines.ts";
import { ManualClock } from "../manual-clock.ts";

test("the heap gives back deadlines in the order of their time", () => {
  const heap = new DeadlineHeap();
  const times = Array.from({ length: 1000 }, (_, index) => (index * 7919) % 1009);
  for (const at of times) heap.push({ at, kind: "idle", id: String(at) });
  const popped = times.map(() => heap.pop()?.at);
  expect(popped).toEqual([...times].sort((a, b) => a - b));
  expect(heap.pop()).toBeUndefined();
});

test("each deadline is called when it is due, in order, by one timer", () => {
  const clock = new ManualClock(0);
  const fired: string[] = [];
  const deadlines = new Deadlines(clock, (kind, id, now) => {
    fired.push(`${kind} ${id} ${now}`);
    return undefined;
  });
  deadlines.arm("idle", "b", 200);
  deadlines.arm("lifetime", "a", 300);
  deadlines.arm("idle", "a", 100);
  expect(clock.pending).toBe(1);
  clock.advance(99);
  expect(fired).toEqual([]);
  clock.advance(301);
  expect(fired).toEqual(["idle a 100", "idle b 200", "lifetime a 300"]);
  expect(clock.pending).toBe(0);
});

test("a deadline that was found to have moved later is asked for again then", () => {
  const clock = new ManualClock(0);
  const asked: number[] = [];
  const deadlines = new Deadlines(clock, (_kind, _id, now) => {
    asked.push(now);
    return now < 250 ? 250 : undefined;
  });
  deadlines.arm("idle", "a", 100);
  deadlines.arm("idle", "a", 250);
  clock.advance(1000);
  expect(asked).toEqual([100, 250]);
});

test("a deadline that moved earlier fires at the earlier time, once", () => {
  const clock = new ManualClock(0);
  const asked: number[] = [];
  const deadlines = new Deadlines(clock, (_kind, _id, now) => {
    asked.push(now);
    return undefined;
  });
  deadlines.arm("idle", "a", 500);
  deadlines.arm("idle", "a", 100);
  clock.advance(1000);
  expect(asked).toEqual([100]);
});

test("an overdue deadline fires at the next turn of the clock", () => {
  const clock = new ManualClock(1000);
  const asked: string[] = [];
  const deadlines = new Deadlines(clock, (_kind, id) => {
    asked.push(id);
    return undefined;
  });
  deadlines.arm("lifetime", "a", 10);
  expect(asked).toEqual([]);
  clock.advance(0);
  expect(asked).toEqual(["a"]);
});

test("a disposed set of deadlines holds no timer and fires nothing", () => {
  const clock = new ManualClock(0);
  const asked: string[] = [];
  const deadlines = new Deadlines(clock, (_kind, id) => {
    asked.push(id);
    return undefined;
  });
  deadlines.arm("idle", "a", 10);
  deadlines.dispose();
  deadlines.arm("idle", "b", 10);
  clock.advance(100);
  expect(asked).toEqual([]);
  expect(clock.pending).toBe(0);
});
