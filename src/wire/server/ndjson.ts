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
  const flush = (): void => {
    clearImmediate(scheduled);
    scheduled = undefined;
    const text = batch;
    batch = "";
    if (text !== "" && !response.destroyed) response.write(text);
  };
  // one listener for the whole stream: a race per item against one promise would leak for as long as the stream lasts
  let giveUp: () => void = () => undefined;
  const onAbort = (): void => giveUp();
  signal.addEventListener("abort", onAbort, { once: true });
  const orAborted = async <T>(work: Promise<T>): Promise<T | "aborted"> => {
    const outcome = Promise.withResolvers<T | "aborted">();
    giveUp = () => outcome.resolve("aborted");
    if (signal.aborted) giveUp();
    work.then(outcome.resolve, outcome.reject);
    return outcome.promise;
  };
  try {
    for (;;) {
      const next = await orAborted(iterator.next());
      if (next === "aborted" || next.done === true) break;
      batch += `${JSON.stringify(next.value)}\n`;
      if (batch.length < batchChars) scheduled ??= setImmediate(flush);
      else flush();
      if (response.writableNeedDrain) await orAborted(once(response, "drain"));
    }
    flush();
    response.end();
  } catch (error) {
    clearImmediate(scheduled);
    response.destroy();
    throw error;
  } finally {
    signal.removeEventListener("abort", onAbort);
    void iterator.return?.()?.catch(() => undefined);
  }
}
