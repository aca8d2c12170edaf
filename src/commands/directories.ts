import { mkdir, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { ErrorCode } from "../protocol/errors.ts";
import { DSecError } from "../protocol/errors.ts";
import type { Settings } from "../sdk/settings.ts";

/** A Unix socket's path must fit sun_path with its terminator. */
const maxSocketPathBytes = 107;

const codes: Readonly<Record<string, ErrorCode>> = {
  EACCES: "permission_denied",
  EPERM: "permission_denied",
  EROFS: "permission_denied",
  ENOSPC: "disk_full",
  EDQUOT: "disk_full",
};

/**
 * Makes the directories of a process that serves, or says clearly why they cannot be had.
 * @throws DSecError `invalid_argument` when the run directory's path is too long for sockets (nothing is made then),
 * `config_invalid`, `permission_denied`, `disk_full`
 */
export async function makeDirectories({
  dataDir,
  runDir,
}: Pick<Settings, "dataDir" | "runDir">): Promise<void> {
  const room = maxSocketPathBytes - Buffer.byteLength(join(runDir, "coordinator.sock"));
  if (room < 0)
    throw new DSecError(
      "invalid_argument",
      `the run directory ${runDir} has a path ${-room} bytes too long: a Unix socket has at most ${maxSocketPathBytes}`,
    );
  await makeDirectory(dataDir, "data");
  await makeDirectory(runDir, "run");
}

/** Step by step: where nothing can be made (/proc), Node's own recursion tries for ever. */
async function makeDirectory(path: string, name: string): Promise<void> {
  try {
    await makeBelow(path);
  } catch (cause) {
    const code = codes[errnoOf(cause)] ?? "config_invalid";
    throw new DSecError(code, `the ${name} directory ${path} cannot be made`, { cause });
  }
}

async function makeBelow(path: string): Promise<void> {
  const found = await stat(path).catch((error: unknown) => {
    if (errnoOf(error) !== "ENOENT") throw error;
    return undefined;
  });
  if (found?.isDirectory() === true) return;
  if (found !== undefined) throw new Error(`${path} is no directory`);
  const parent = dirname(path);
  if (parent !== path) await makeBelow(parent);
  await mkdir(path, { mode: 0o700 }).catch((error: unknown) => {
    if (errnoOf(error) !== "EEXIST") throw error;
  });
}

function errnoOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}
