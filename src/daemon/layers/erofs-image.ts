import { join } from "node:path";
import { DSecError } from "../../protocol/errors.ts";
import { runProgram } from "../resources/program.ts";
import { findCutOffName } from "./buildable-tree.ts";

/** An EROFS image: metadata, and the content of its files. */
export interface ErofsImage {
  readonly metadata: string;
  readonly data: readonly string[];
}

/** Bytes: the unit in which file content is deduplicated and read. */
const chunkBytes = 65_536;
/** Seconds since the epoch (2100). mkfs.erofs takes it as its own build time and as the latest time a file may have. */
const sourceDateEpoch = "4102444800";

/**
 * Makes the image of everything below `root`, with owners, modes, times, links, devices and extended attributes.
 * The same tree gives the same bytes.
 *
 * @param into an empty directory for the image
 * @throws DSecError `invalid_argument` for a name that cannot be stored, `cancelled`, `internal`
 */
export async function makeErofsImage(root: string, into: string, signal?: AbortSignal): Promise<ErofsImage> {
  const metadata = join(into, "metadata.erofs");
  const data = join(into, "data.erofs");
  const made = runProgram(
    "mkfs.erofs",
    [
      "--quiet",
      `--chunksize=${chunkBytes}`,
      `--blobdev=${data}`,
      "-U00000000-0000-0000-0000-000000000000",
      metadata,
      root,
    ],
    {
      // Times are kept, not zeroed: compiled Python modules name their source's.
      env: { ...process.env, SOURCE_DATE_EPOCH: sourceDateEpoch },
      discardOutput: true,
      ...(signal !== undefined && { signal }),
    },
  );
  await made.catch(async (error: unknown) => {
    // Version 1.5 looks for a name of that length without its last byte.
    const name = await findCutOffName(root);
    if (name === undefined) throw error;
    throw new DSecError(
      "invalid_argument",
      `the name '${name}' of 255 bytes is longer than this machine's mkfs.erofs can store: 254 bytes`,
      { cause: error },
    );
  });
  return { metadata, data: [data] };
}
