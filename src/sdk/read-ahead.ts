/**
 * What `prepare` makes of each item, in their order; it is at work for some of the next ones meanwhile.
 * @param width how many are prepared and not yet taken, at most
 */
export async function* readAhead<T, R>(
  items: Iterable<T>,
  width: number,
  prepare: (item: T) => Promise<R>,
): AsyncGenerator<R, void, undefined> {
  const source = items[Symbol.iterator]();
  const ahead: Promise<R>[] = [];
  const fill = (): void => {
    while (ahead.length < width) {
      const next = source.next();
      if (next.done === true) return;
      const prepared = prepare(next.value);
      // told when its turn comes
      prepared.catch(() => undefined);
      ahead.push(prepared);
    }
  };
  try {
    for (;;) {
      fill();
      const first = ahead.shift();
      if (first === undefined) return;
      yield await first;
    }
  } finally {
    await Promise.allSettled(ahead);
  }
}
