import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { DSecError } from "../protocol/errors.ts";

/**
 * Takes the run directory for this process; the kernel lets go of it when the process dies, however it does. An SQLite
 * transaction that is never committed serves as the lock, as Node has no flock(2).
 * @returns its release
 * @throws DSecError `already_running`, `permission_denied`
 */
export function lockRunDir(runDir: string): () => void {
  const path = join(runDir, "daemon.lock");
  try {
    mkdirSync(runDir, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new DSecError("permission_denied", `the run directory ${runDir} cannot be made`, { cause });
  }
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path);
    database.exec("BEGIN EXCLUSIVE");
  } catch (cause) {
    database?.close();
    const busy = cause instanceof Error && "errcode" in cause && cause.errcode === 5;
    throw busy
      ? new DSecError("already_running", `another daemon runs in ${runDir}`, { cause })
      : new DSecError("permission_denied", `${path} cannot be locked`, { cause });
  }
  const held = database;
  return () => held.close();
}
