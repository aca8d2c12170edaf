import type { SandboxFilter, WatchEvent } from "../../protocol/sandbox.ts";
import type { WatchQuery } from "../../wire/server/contracts.ts";
import { BoundedQueue } from "./bounded-queue.ts";
import type { FleetNode } from "./fleet-node.ts";
import { followNode, type NodeReport } from "./node-watch.ts";
import type { Registry } from "./registry.ts";
import { formatCursor, parseCursor } from "./watch-cursor.ts";

/** Events waiting for a slow client; beyond it the nodes wait. */
const capacity = 1024;
const pingMs = 15_000;

interface Part {
  /** Ids told of this node; undefined where the client resumed and knows them better than we do. */
  shown: Set<string> | undefined;
  /** Ids of a snapshot that is being told again, after a lost connection. */
  again: Set<string> | undefined;
  /** Has been told completely, or is known not to answer. */
  ready: boolean;
  down: boolean;
}

/**
 * The watches of all nodes as one: one snapshot, one `synced`, then changes. A node that stops answering is told as `unreachable`; when
 * it is back and its cursor is too old, the difference is told. Where that cannot be known (a client that resumed), everything is
 * told from the start: a `snapshot` after changes begins a new picture.
 */
export class FleetWatch {
  readonly #registry: Registry;
  readonly #filter: SandboxFilter;
  readonly #signal: AbortSignal;
  readonly #opened = Promise.withResolvers<void>();
  #cursor: Map<string, string>;
  #parts = new Map<string, Part>();
  #initial: boolean;

  constructor(registry: Registry, { cursor, ...filter }: WatchQuery, signal: AbortSignal) {
    const resumed = cursor === undefined ? undefined : parseCursor(cursor);
    this.#registry = registry;
    this.#filter = filter;
    this.#signal = signal;
    this.#initial = resumed === undefined;
    this.#cursor = resumed ?? new Map();
  }

  /** Opens the watches. Resolves when a node has answered or failed. @throws the error of a node that refuses the filter */
  async start(): Promise<AsyncIterable<WatchEvent>> {
    const events = this.#events();
    const first = events.next();
    if (this.#registry.size === 0) this.#opened.resolve();
    await Promise.race([this.#opened.promise, first]);
    return prepend(first, events);
  }

  async *#events(): AsyncGenerator<WatchEvent, void, undefined> {
    while (!this.#signal.aborted && (yield* this.#round()) === "restart") {
      this.#cursor = new Map();
      this.#initial = true;
    }
  }

  /** Until the client goes, or everything has to be told anew. */
  async *#round(): AsyncGenerator<WatchEvent, "restart" | "over", undefined> {
    const stop = new AbortController();
    const signal = AbortSignal.any([stop.signal, this.#signal]);
    const queue = new BoundedQueue<NodeReport>(capacity);
    this.#parts = new Map();
    const following = new Map<string, AbortController>();
    const follow = (node: FleetNode): void => {
      // one that was replaced would go on being told as unreachable
      following.get(node.name)?.abort();
      const replaced = new AbortController();
      following.set(node.name, replaced);
      const until = AbortSignal.any([replaced.signal, signal]);
      const cursor = this.#cursor.get(node.name);
      const shown = cursor === undefined ? new Set<string>() : undefined;
      this.#parts.set(node.name, { shown, again: undefined, ready: cursor !== undefined, down: false });
      void followNode(node, this.#filter, cursor, async (report) => queue.put(report, until), until);
    };
    const unlisten = this.#registry.onNode(follow);
    try {
      for (const node of this.#registry.all()) follow(node);
      if (this.#parts.size === 0) yield* this.#settle();
      for (;;) {
        const report = await queue.take(pingMs, signal);
        if (signal.aborted) return "over";
        if (report === undefined) yield { type: "ping" };
        else if (report.type === "refused") throw report.error;
        else if ((yield* this.#told(report)) === "restart") return "restart";
      }
    } finally {
      unlisten();
      stop.abort();
    }
  }

  *#told(
    report: Exclude<NodeReport, { type: "refused" }>,
  ): Generator<WatchEvent, "restart" | "on", undefined> {
    const part = this.#parts.get(report.node);
    if (part === undefined) return "on";
    this.#opened.resolve();
    if (report.type === "event") return yield* this.#event(report.node, part, report.event);
    if (report.type === "connected") {
      part.again = undefined;
      part.down = false;
      return "on";
    }
    if (!part.down) yield { type: "unreachable", node: report.node };
    part.down = true;
    part.ready = true;
    yield* this.#settle();
    return "on";
  }

  *#event(node: string, part: Part, event: WatchEvent): Generator<WatchEvent, "restart" | "on", undefined> {
    if ("cursor" in event) this.#cursor.set(node, event.cursor);
    switch (event.type) {
      case "snapshot": {
        if (part.shown === undefined) return "restart";
        const { sandbox } = event;
        part.shown.add(sandbox.id);
        if (part.ready) (part.again ??= new Set()).add(sandbox.id);
        yield this.#initial ? event : { type: "changed", cursor: this.#formatted(), sandbox };
        return "on";
      }
      case "synced":
        // a snapshot without sandboxes also ends here
        if (part.shown === undefined) return "restart";
        if (part.ready) yield* this.#vanished(part.shown, part.again ?? new Set());
        part.again = undefined;
        part.ready = true;
        yield* this.#settle();
        return "on";
      case "changed":
        part.shown?.add(event.sandbox.id);
        yield this.#initial
          ? { type: "snapshot", sandbox: event.sandbox }
          : { ...event, cursor: this.#formatted() };
        return "on";
      case "removed":
        part.shown?.delete(event.id);
        yield { ...event, cursor: this.#formatted() };
        return "on";
      default:
        return "on";
    }
  }

  /** What was there before the connection was lost and is not in the new snapshot. */
  *#vanished(shown: Set<string>, again: ReadonlySet<string>): Generator<WatchEvent> {
    for (const id of shown) {
      if (again.has(id)) continue;
      shown.delete(id);
      yield { type: "removed", cursor: this.#formatted(), id };
    }
  }

  /** `synced`, once every node has been told or is known to be down. */
  *#settle(): Generator<WatchEvent> {
    if (!this.#initial || ![...this.#parts.values()].every(({ ready }) => ready)) return;
    this.#initial = false;
    yield { type: "synced", cursor: this.#formatted() };
  }

  #formatted(): string {
    return formatCursor(this.#cursor);
  }
}

async function* prepend<T>(
  first: Promise<IteratorResult<T, void>>,
  rest: AsyncGenerator<T, void, undefined>,
): AsyncGenerator<T, void, undefined> {
  const result = await first;
  if (result.done === true) return;
  yield result.value;
  yield* rest;
}
