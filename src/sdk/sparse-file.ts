import type { FileHandle } from "node:fs/promises";

/** Zeros of at least so many bytes, where they make whole blocks, are left out of a file. */
const holeBytes = 65_536;
/** Bytes that are gathered for one write. */
const writeBytes = 1_048_576;

const zeros = Buffer.alloc(holeBytes);

/** Writes a content to a new file, with holes where it has long runs of zeros. @returns its length */
export async function writeWithHoles(handle: FileHandle, content: AsyncIterable<Buffer>): Promise<number> {
  let position = 0;
  let gathered: Buffer[] = [];
  let gatheredBytes = 0;
  const flush = async (): Promise<void> => {
    if (gatheredBytes === 0) return;
    let rest = gathered;
    let at = position;
    position += gatheredBytes;
    gathered = [];
    gatheredBytes = 0;
    while (rest.length > 0) {
      const { bytesWritten } = await handle.writev(rest, at);
      at += bytesWritten;
      rest = without(rest, bytesWritten);
    }
  };
  for await (const chunk of content) {
    if (chunk.length >= holeBytes / 4 && isZero(chunk)) {
      await flush();
      position += chunk.length;
      continue;
    }
    gathered.push(chunk);
    gatheredBytes += chunk.length;
    if (gatheredBytes >= writeBytes) await flush();
  }
  await flush();
  // it may end with a hole
  await handle.truncate(position);
  return position;
}

function isZero(chunk: Buffer): boolean {
  // most content shows it in the first byte
  if (chunk[0] !== 0 || chunk[chunk.length - 1] !== 0) return false;
  for (let at = 0; at < chunk.length; at += holeBytes) {
    const part = chunk.subarray(at, at + holeBytes);
    if (part.compare(zeros, 0, part.length) !== 0) return false;
  }
  return true;
}

/** What is left of the buffers after the first `count` bytes. */
function without(buffers: readonly Buffer[], count: number): Buffer[] {
  let left = count;
  return buffers.flatMap((buffer) => {
    const taken = Math.min(left, buffer.length);
    left -= taken;
    return taken === buffer.length ? [] : [buffer.subarray(taken)];
  });
}
