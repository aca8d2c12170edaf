import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";

const readBytes = 1_048_576;

export interface FileDigest {
  /** `sha256:…` */
  readonly digest: string;
  readonly bytes: number;
}

/** Reads a file to its end. @throws the signal's reason, Node's errors of files */
export async function digestOfFile(path: string, signal?: AbortSignal): Promise<FileDigest> {
  const hash = createHash("sha256");
  let bytes = 0;
  for await (const chunk of createReadStream(path, {
    highWaterMark: readBytes,
    ...(signal !== undefined && { signal }),
  })) {
    if (!(chunk instanceof Uint8Array)) continue;
    hash.update(chunk);
    bytes += chunk.length;
  }
  return { digest: `sha256:${hash.digest("hex")}`, bytes };
}
