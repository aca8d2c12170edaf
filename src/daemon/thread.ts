import { type ResourceLimits, Worker } from "node:worker_threads";

export interface ThreadOptions {
  readonly name: string;
  readonly limits: ResourceLimits;
  readonly data?: unknown;
}

/** What a thread is told last. */
export interface ThreadEnd {
  readonly type: "close";
}

/**
 * Starts a thread of the daemon, which does not keep the process alive. It ends itself when it is told to close.
 *
 * @param script without its extension: from source it is a .ts file, as built a .js file
 * @param base of the caller's module
 */
export function startThread(script: string, base: string, { name, limits, data }: ThreadOptions): Worker {
  const extension = base.slice(base.lastIndexOf("."));
  const thread = new Worker(new URL(`${script}${extension}`, base), {
    name,
    workerData: data,
    // Not the main thread's: they may be for its script alone.
    execArgv: [],
    resourceLimits: limits,
  });
  thread.unref();
  return thread;
}

/**
 * Tells a thread to close, and waits for its end. It is not terminated: a thread that is cut off while it calls the C library, or loads
 * what it takes for that, ends the whole process.
 */
export async function endThread(thread: Worker): Promise<void> {
  if (thread.threadId === -1) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  thread.once("exit", () => resolve());
  thread.ref();
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread has no origin
  thread.postMessage({ type: "close" } satisfies ThreadEnd);
  await promise;
}
