import { setTimeout as delay } from "node:timers/promises";
import { DSecError } from "../protocol/errors.ts";
import type { WatchEvent } from "../protocol/sandbox.ts";
import type { HttpClient, QueryValue } from "../wire/client/http-client.ts";

/** Servers send a ping at least every 15 s. */
const idleTimeoutMs = 60_000;
/** Reconnects in a row without one event; with the pauses below, about half a minute. */
const maxReconnects = 10;
const longestPauseMs = 5000;

/**
 * A watch that goes on over lost connections: it resumes at the last cursor, and where the server no longer knows that, a
 * fresh snapshot comes. Ends when `signal` aborts (with an error) or the caller stops reading.
 */
export async function* watchSandboxes(
  http: HttpClient,
  query: Readonly<Record<string, QueryValue>>,
  signal: AbortSignal | undefined,
): AsyncGenerator<WatchEvent, void, undefined> {
  let cursor: string | undefined;
  for (let failures = 0; ;) {
    try {
      const resumed = cursor === undefined ? query : { ...query, cursor };
      const lines = await http.lines<WatchEvent>("watch", { query: resumed, signal, idleTimeoutMs });
      for await (const event of lines) {
        failures = 0;
        if ("cursor" in event) cursor = event.cursor;
        yield event;
      }
    } catch (error) {
      if (!isLost(error)) throw error;
      failures += 1;
      if (failures > maxReconnects) throw error;
    }
    const ceiling = Math.min(100 * 2 ** failures, longestPauseMs);
    await delay(Math.random() * ceiling, undefined, signal === undefined ? {} : { signal }).catch(
      () => undefined,
    );
  }
}

function isLost(error: unknown): boolean {
  return (
    error instanceof DSecError &&
    (error.code === "connection_lost" || error.code === "coordinator_unreachable")
  );
}
