import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { DSecError } from "../../../protocol/errors.ts";
import type { Origin } from "../provenance.ts";
import { busyboxSource } from "./busybox.ts";
import { debianSource } from "./debian.ts";
import { tarSource } from "./tar.ts";

export interface PrepareOptions {
  readonly onProgress?: (message: string) => void;
  readonly signal?: AbortSignal;
}

/** Where the content of a layer comes from. */
export interface LayerSource {
  /**
   * Returns the directory to make the image of: `into`, which it makes, or one that was there before.
   *
   * @throws DSecError
   */
  prepare(into: string, options: PrepareOptions): Promise<string>;
  /** What to write down of it. */
  origin(): Promise<Origin>;
}

/**
 * The source that the user means by `from`.
 *
 * @param from `busybox`, `debian:SUITE`, or the path of a directory or a tar archive (`./busybox` is a path)
 * @throws DSecError `invalid_argument`
 */
export async function sourceOf(from: string): Promise<LayerSource> {
  if (from === "busybox") return busyboxSource;
  const suite = /^debian:(?<suite>.*)$/s.exec(from)?.groups?.["suite"];
  if (suite !== undefined) return debianSource(suite);
  const path = resolve(from);
  const found = await stat(path).catch((error: unknown) => {
    throw new DSecError(
      "invalid_argument",
      `'${from}' is not a directory, not a tar archive, not debian:SUITE and not busybox`,
      { cause: error },
    );
  });
  if (found.isDirectory()) return { prepare: async () => path, origin: async () => ({ from: path }) };
  if (found.isFile()) return tarSource(path);
  throw new DSecError("invalid_argument", `'${from}' is neither a directory nor a tar archive`);
}
