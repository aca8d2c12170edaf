import { readdirSync } from "node:fs";
import { isErrno } from "../../linux/libc.ts";

/** Names in a directory; none when it is not there. */
export function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    if (isErrno(error, "ENOENT")) return [];
    throw error;
  }
}

const atOnce = 4;

/**
 * Runs `work` for every item, a few at a time, yielding to the event loop in between. One that fails does not keep the others
 * from being done; the first failure is thrown at the end.
 *
 * @throws whatever `work` threw first, or the signal's reason
 */
export async function forEachBounded<T>(
  items: readonly T[],
  work: (item: T) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const queue = items.values();
  const failures: unknown[] = [];
  const runner = async () => {
    for (const item of queue) {
      await new Promise((resolve) => setImmediate(resolve));
      signal.throwIfAborted();
      await work(item).catch((error: unknown) => failures.push(error));
    }
  };
  await Promise.all(Array.from({ length: atOnce }, runner));
  if (failures.length > 0) throw failures[0];
}
