import type { FileHandle } from "node:fs/promises";
import { becameShorter } from "./local-entry.ts";

/** Bytes of one read. */
const chunkBytes = 524_288;

/**
 * Exactly `size` bytes of a file, read ahead by one chunk. A chunk may be overwritten once the next one is asked for.
 * @throws DSecError `file_error` when it has become shorter meanwhile
 */
export async function* fileChunks(
  handle: FileHandle,
  size: number,
  name: Buffer,
): AsyncGenerator<Buffer, void, undefined> {
  const length = Math.min(chunkBytes, size);
  let left = size;
  const read = async (into: Buffer): Promise<Buffer> => {
    const { bytesRead } = await handle.read(into, 0, Math.min(into.length, left));
    if (bytesRead === 0) throw becameShorter(name);
    left -= bytesRead;
    return into.subarray(0, bytesRead);
  };
  const first = Buffer.allocUnsafeSlow(length);
  // a file that fits one chunk needs no second
  let spare = size > length ? Buffer.allocUnsafeSlow(length) : first;
  let current = first;
  let next = size > 0 ? read(first) : undefined;
  try {
    while (next !== undefined) {
      const chunk = await next;
      next = left > 0 ? read(spare) : undefined;
      [current, spare] = [spare, current];
      yield chunk;
    }
  } finally {
    // whoever closes the file must not do so under a read
    await next?.catch(() => undefined);
  }
}
