import type { Clock } from "../clock.ts";
import { DeadlineHeap, type DeadlineKind } from "./deadline-heap.ts";

/**
 * Called when a deadline is due. Decides by the persisted value whether it still stands, and returns the later time
 * to be called at again; undefined when there is none.
 */
export type DeadlineHandler = (kind: DeadlineKind, id: string, now: number) => number | undefined;

/**
 * Every deadline of the node behind one timer. A deadline that moves later costs nothing: it is found to have moved when
 * the old one is due. One that moves earlier is armed again.
 */
export class Deadlines {
  readonly #clock: Clock;
  readonly #handler: DeadlineHandler;
  readonly #heap = new DeadlineHeap();
  /** The earliest armed time by kind and id; entries of the heap that do not agree with it are stale. */
  readonly #armed = new Map<string, number>();
  #timer: { readonly at: number; readonly dispose: () => void } | undefined;
  #closed = false;

  constructor(clock: Clock, handler: DeadlineHandler) {
    this.#clock = clock;
    this.#handler = handler;
  }

  /** @param at milliseconds since the epoch */
  arm(kind: DeadlineKind, id: string, at: number): void {
    const key = `${kind} ${id}`;
    const armed = this.#armed.get(key);
    if (this.#closed || (armed !== undefined && armed <= at)) return;
    this.#armed.set(key, at);
    this.#heap.push({ at, kind, id });
    this.#schedule();
  }

  dispose(): void {
    this.#closed = true;
    this.#timer?.dispose();
    this.#timer = undefined;
  }

  #schedule(): void {
    const next = this.#heap.peek();
    if (next === undefined || this.#closed) return;
    if (this.#timer !== undefined && this.#timer.at <= next.at) return;
    this.#timer?.dispose();
    const dispose = this.#clock.after(Math.max(0, next.at - this.#clock.now()), () => this.#run());
    this.#timer = { at: next.at, dispose };
  }

  #run(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    for (let due = this.#heap.peek(); due !== undefined && due.at <= now; due = this.#heap.peek()) {
      this.#heap.pop();
      const key = `${due.kind} ${due.id}`;
      if (this.#armed.get(key) !== due.at) continue;
      this.#armed.delete(key);
      const later = this.#handler(due.kind, due.id, now);
      if (later !== undefined) this.arm(due.kind, due.id, Math.max(later, now + 1));
    }
    this.#schedule();
  }
}
