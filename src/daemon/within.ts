import type { Clock } from "./clock.ts";

/** Waits for `work` at most `ms` milliseconds; its failure is passed on. What comes later is nobody's: handle it at `work` itself. */
export async function within<T>(
  clock: Clock,
  ms: number,
  work: Promise<T>,
): Promise<"late" | { readonly value: T }> {
  const { promise: late, resolve } = Promise.withResolvers<"late">();
  const dispose = clock.after(ms, () => resolve("late"));
  try {
    return await Promise.race([work.then((value) => ({ value })), late]);
  } finally {
    dispose();
  }
}
