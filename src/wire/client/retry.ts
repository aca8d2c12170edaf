import { setTimeout as delay } from "node:timers/promises";
import { DSecError } from "../../protocol/errors.ts";
import { isTransient } from "./connection-error.ts";

/** Attempts of one request, the first included. */
const maxAttempts = 5;
const firstPauseMs = 50;
const longestPauseMs = 1000;

/**
 * Runs `attempt` again after failures of the connection: any request when nothing was sent, an idempotent one also when
 * the connection broke (the peer may be restarting, so then a refused connection is tried again too).
 * Pauses double, with full jitter. The last error is ambiguous if any attempt's was.
 */
export async function withRetries<T>(
  idempotent: boolean,
  signal: AbortSignal | undefined,
  attempt: () => Promise<T>,
): Promise<T> {
  let lost = false;
  let ambiguous = false;
  for (let count = 1; ; count += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof DSecError)) throw error;
      lost ||= error.code === "connection_lost";
      ambiguous ||= error.ambiguous;
      const again = isTransient(error) || (idempotent && lost && isConnectionFailure(error));
      if (!again || count === maxAttempts || signal?.aborted === true) throw markAmbiguous(error, ambiguous);
    }
    const ceiling = Math.min(firstPauseMs * 2 ** (count - 1), longestPauseMs);
    // aborting ends the pause; the next attempt then fails with the caller's reason
    await delay(Math.random() * ceiling, undefined, signal === undefined ? {} : { signal }).catch(
      () => undefined,
    );
  }
}

/** A peer that took too long was given its time. */
function isConnectionFailure({ code, details }: DSecError): boolean {
  if (details?.["timeoutMs"] !== undefined) return false;
  return code === "connection_lost" || code === "coordinator_unreachable" || code === "node_unreachable";
}

function markAmbiguous(error: DSecError, ambiguous: boolean): DSecError {
  if (error.ambiguous || !ambiguous) return error;
  return new DSecError(error.code, error.message, {
    ambiguous: true,
    cause: error.cause,
    ...(error.details === undefined ? {} : { details: error.details }),
    ...(error.retryAfterMs === undefined ? {} : { retryAfterMs: error.retryAfterMs }),
  });
}
