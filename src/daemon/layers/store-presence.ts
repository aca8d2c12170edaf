import { stat } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "../../backends/linux/libc.ts";
import { DSecError } from "../../protocol/errors.ts";

/**
 * Sees to it that there is a layer store in `directory`. Its folder of manifests is the mark of one: the directory under a file system that
 * is not mounted has none, and must not be taken for an empty store.
 *
 * @throws DSecError `layer_store_unavailable`; `details.missing` says that there is not even a directory
 */
export async function requireStore(directory: string): Promise<void> {
  try {
    await stat(join(directory, "manifests"));
  } catch (cause) {
    throw isErrno(cause, "ENOENT", "ENOTDIR")
      ? await absence(directory, cause)
      : unreadable(directory, cause);
  }
}

async function absence(directory: string, cause: unknown): Promise<DSecError> {
  const found = await stat(directory).catch((error: unknown) => {
    if (isErrno(error, "ENOENT", "ENOTDIR")) return undefined;
    throw unreadable(directory, error);
  });
  if (found?.isDirectory() === true)
    return new DSecError(
      "layer_store_unavailable",
      `${directory} holds no layer store: its file system may not be mounted; dsec layer build --layer-store ${directory} begins one`,
      { cause },
    );
  return new DSecError(
    "layer_store_unavailable",
    `the layer store ${directory} is not there: mount its file system, or make the directory`,
    { cause, details: { missing: true } },
  );
}

function unreadable(directory: string, cause: unknown): DSecError {
  return new DSecError("layer_store_unavailable", `the layer store ${directory} cannot be read`, { cause });
}
