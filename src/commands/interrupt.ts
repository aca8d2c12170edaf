import { constants } from "node:os";
import { DSecError } from "../protocol/errors.ts";
import type { Outcome } from "./outcome.ts";

const stopSignals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
export type StopSignal = (typeof stopSignals)[number];

/** Calls `listener` for each signal that asks this process to end; what is returned takes it back. */
export function onStopSignal(listener: (signal: StopSignal) => void): () => void {
  for (const signal of stopSignals) process.on(signal, listener);
  return () => {
    for (const signal of stopSignals) process.off(signal, listener);
  };
}

/** The exit code of a process that `signal` ended. */
export function exitCodeOfSignal(signal: NodeJS.Signals): number {
  return 128 + constants.signals[signal];
}

/** Resolves with the first signal that asks this process to end; the next one ends it. */
export function stopSignal(): Promise<StopSignal> {
  return new Promise((resolve) => {
    const dispose = onStopSignal((signal) => {
      dispose();
      resolve(signal);
    });
  });
}

/**
 * Runs `work`, whose signal the first Ctrl-C (or TERM, or HUP) aborts, so that it can tidy up; a second one ends the
 * process. An interrupted verb exits with 128 + the signal's number.
 */
export async function untilInterrupted(work: (signal: AbortSignal) => Promise<Outcome>): Promise<Outcome> {
  const controller = new AbortController();
  let received: StopSignal | undefined;
  const dispose = onStopSignal((signal) => {
    received = signal;
    dispose();
    controller.abort(new DSecError("cancelled", `interrupted by ${signal}`));
  });
  try {
    return await work(controller.signal);
  } catch (error) {
    if (received === undefined || !(error instanceof DSecError) || error.code !== "cancelled") throw error;
    return { type: "exit", code: exitCodeOfSignal(received) };
  } finally {
    dispose();
  }
}
