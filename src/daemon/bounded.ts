/** Maps with at most `parallel` calls under way; results in the order of the items. The first failure is passed on. */
export async function mapBounded<T, R>(
  items: readonly T[],
  parallel: number,
  map: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  const pending = items.entries();
  const worker = async (): Promise<void> => {
    for (const [index, item] of pending) results[index] = await map(item);
  };
  await Promise.all(Array.from({ length: Math.min(parallel, items.length) }, worker));
  return results;
}
