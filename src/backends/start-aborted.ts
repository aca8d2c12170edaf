import { DSecError } from "../protocol/errors.ts";

/** The error of a start whose signal has fired: the signal's own where it says more than that it was aborted. */
export function startAborted(signal: AbortSignal): DSecError {
  const reason: unknown = signal.reason;
  if (reason instanceof DSecError) return reason;
  if (reason instanceof DOMException && reason.name === "TimeoutError") {
    return new DSecError("start_timeout", "the sandbox did not start in time", { cause: reason });
  }
  return new DSecError("cancelled", "the start was cancelled", { cause: reason });
}
