import type { WatchEvent } from "../../src/protocol/sandbox.ts";

/** The next event of that kind. */
export async function untilType(
  events: AsyncGenerator<WatchEvent>,
  type: WatchEvent["type"],
): Promise<WatchEvent> {
  for (;;) {
    const { value, done } = await events.next();
    if (done === true) throw new Error(`the watch ended without ${type}`);
    if (value.type === type) return value;
  }
}

/** The next `count` events, pings left out. */
export async function take(events: AsyncGenerator<WatchEvent>, count: number): Promise<WatchEvent[]> {
  const taken: WatchEvent[] = [];
  while (taken.length < count) {
    const { value, done } = await events.next();
    if (done === true) throw new Error(`the watch ended after ${taken.length} events`);
    if (value.type !== "ping") taken.push(value);
  }
  return taken;
}
