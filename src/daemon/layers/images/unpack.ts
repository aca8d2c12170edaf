import { createHash, type Hash } from "node:crypto";
import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { PassThrough, Transform, type TransformCallback } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { DSecError } from "../../../protocol/errors.ts";
import { imageInvalid } from "./image-error.ts";
import { readLayerArchive } from "./layer-archive.ts";
import type { LayerTree } from "./layer-tree.ts";

/** A layer of an image as it was fetched. */
export interface FetchedLayer {
  readonly path: string;
  /** `sha256:…` of the file. */
  readonly digest: string;
  /** `sha256:…` of the archive in it. */
  readonly diffId: string;
}

export interface UnpackOptions {
  readonly signal?: AbortSignal;
  /** Called with how many more bytes of the file have been read. */
  readonly onBytes?: (bytes: number) => void;
}

const readBytes = 262_144;

/**
 * Adds a fetched layer to a tree.
 *
 * @returns bytes of the archive
 * @throws DSecError `digest_mismatch`, `image_invalid`, `unsupported_media_type`, `cancelled`
 */
export async function unpackLayer(
  layer: FetchedLayer,
  tree: LayerTree,
  options: UnpackOptions,
): Promise<number> {
  const file = createReadStream(layer.path, { highWaterMark: readBytes });
  const fetched = new Digester(options.onBytes);
  const archive = new Digester();
  const { signal } = options;
  const streams = [file, fetched, await decompressorOf(layer), archive] as const;
  const flowing = pipeline(streams, signal === undefined ? {} : { signal });
  // what went wrong in the stream says more than that it ended early
  flowing.catch(() => undefined);
  try {
    await tree.addLayer(readLayerArchive(archive));
    await flowing;
  } catch (error) {
    archive.destroy();
    await flowing.catch((cause: unknown) => {
      throw explain(layer, cause, error, signal);
    });
    throw error;
  }
  refuseMismatch("layer", layer.digest, fetched.digest());
  refuseMismatch("archive in layer", layer.diffId, archive.digest());
  return archive.bytes;
}

function explain(
  layer: FetchedLayer,
  cause: unknown,
  error: unknown,
  signal: AbortSignal | undefined,
): unknown {
  if (signal?.aborted === true)
    return new DSecError("cancelled", "the import was cancelled", { cause: signal.reason });
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  if (/^(?:Z_|ZSTD_|ERR_ZLIB|ERR_ZSTD)/.test(code))
    return imageInvalid(`layer ${layer.digest} cannot be decompressed`, cause);
  return error;
}

function refuseMismatch(what: string, expected: string, found: string): void {
  if (expected !== found)
    throw new DSecError(
      "digest_mismatch",
      `the ${what} ${expected} has other content: its digest is ${found}`,
      {
        details: { expected, found },
      },
    );
}

/** By what the file begins with: media types do not always tell the truth. */
async function decompressorOf({ path, digest }: FetchedLayer): Promise<Transform> {
  const head = Buffer.alloc(6);
  const file = await open(path, "r");
  try {
    await file.read(head, 0, head.length, 0);
  } finally {
    await file.close();
  }
  const magic = head.toString("hex");
  if (magic.startsWith("1f8b")) return createGunzip({ chunkSize: readBytes });
  if (magic.startsWith("28b52ffd") || /^5[0-9a-f]2a4d18/.test(magic))
    return createZstdDecompress({ chunkSize: readBytes });
  if (magic === "fd377a585a00" || magic.startsWith("425a68"))
    throw new DSecError("unsupported_media_type", `layer ${digest} is compressed with neither gzip nor zstd`);
  return new PassThrough({ highWaterMark: readBytes });
}

/** Passes on what it computes the digest of. */
class Digester extends Transform {
  readonly #hash: Hash = createHash("sha256");
  readonly #onBytes: ((bytes: number) => void) | undefined;
  bytes = 0;

  constructor(onBytes?: (bytes: number) => void) {
    super({ highWaterMark: readBytes });
    this.#onBytes = onBytes;
  }

  override _transform(chunk: Buffer, _: BufferEncoding, done: TransformCallback): void {
    this.#hash.update(chunk);
    this.bytes += chunk.length;
    this.#onBytes?.(chunk.length);
    done(null, chunk);
  }

  /** Of all that has passed; once. */
  digest(): string {
    return `sha256:${this.#hash.digest("hex")}`;
  }
}
