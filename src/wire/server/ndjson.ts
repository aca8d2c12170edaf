import { once } from "node:events";
import type { ServerResponse } from "node:http";

/** Lines are sent together while they come without a pause, up to this many characters. */
const batchChars = 65_536;

/**
 * Writes one JSON line per item, no faster than the client reads. Ends the response with the items, or when `signal`
 * aborts; an error of the items cuts the connection, so that a client never takes a part for the whole.
 */
export async function writeNdjson(
  response: ServerResponse,
  items: AsyncIterable<unknown>,
  signal: AbortSignal,
): Promise<void> {
  response.writeHead(200, { "content-type": "application/x-ndjson", "cache-control": "no-store" });
  response.flushHeaders();
  const iterator = items[Symbol.asyncIterator]();
  let batch = "";
  let scheduled: NodeJS.Immediate | undefined;
  const flush = (): boolean => {
    clearImmediate(scheduled);
    scheduled = undefined;
    const text = batch;
    batch = "";
    return text === "" || response.destroyed || response.write(text);
  };
  const aborted = new Promise<"aborted">((resolve) => {
    if (signal.aborted) resolve("aborted");
    else signal.addEventListener("abort", () => resolve("aborted"), { once: true });
  });
  try {
    for (;;) {
      const next = await Promise.race([iterator.next(), aborted]);
      if (next === "aborted" || next.done === true) break;
      batch += `${JSON.stringify(next.value)}\n`;
      if (batch.length < batchChars) scheduled ??= setImmediate(flush);
      else if (!flush()) await Promise.race([once(response, "drain"), aborted]);
      else if (response.writableNeedDrain) await Promise.race([once(response, "drain"), aborted]);
    }
    flush();
    response.end();
  } catch (error) {
    clearImmediate(scheduled);
    response.destroy();
    throw error;
  } finally {
    void iterator.return?.()?.catch(() => undefined);
  }
}
