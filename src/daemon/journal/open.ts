import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { DSecError } from "../../protocol/errors.ts";
import { schema, schemaVersion } from "./schema.ts";

/**
 * Opens the journal and takes it for this process alone, until it is closed or the process dies.
 * @throws DSecError `already_running`, `journal_corrupt` (the file is left as it is), `config_invalid`, `permission_denied`, `disk_full`
 */
export function openJournalFile(path: string): DatabaseSync {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path);
    database.exec("PRAGMA locking_mode = EXCLUSIVE");
    database.exec("PRAGMA journal_mode = WAL");
    database.exec("PRAGMA synchronous = NORMAL");
    // the exclusive lock is taken by the first write
    database.exec("BEGIN IMMEDIATE; COMMIT");
    const version = versionOf(database);
    check(database, path);
    if (version === 0) create(database);
    else if (version !== schemaVersion)
      throw new DSecError(
        "config_invalid",
        `${path} has schema version ${version}; this dsec reads version ${schemaVersion}. Use the dsec that wrote it, or another data directory`,
      );
    return database;
  } catch (error) {
    database?.close();
    throw openError(error, path);
  }
}

function versionOf(database: DatabaseSync): number {
  return Number(database.prepare("PRAGMA user_version").get()?.["user_version"]);
}

function check(database: DatabaseSync, path: string): void {
  const verdict = database.prepare("PRAGMA quick_check(1)").get()?.["quick_check"];
  if (verdict !== "ok") throw corrupt(path, new Error(String(verdict)));
}

function create(database: DatabaseSync): void {
  database.exec(`BEGIN IMMEDIATE; ${schema}; PRAGMA user_version = ${schemaVersion}; COMMIT`);
}

/** Primary result codes of SQLite. */
const busy = 5;
const readOnly = 8;
const corruptFile = 11;
export const full = 13;
const cannotOpen = 14;
const notADatabase = 26;

function openError(error: unknown, path: string): unknown {
  const code = sqliteCode(error);
  if (code === busy)
    return new DSecError("already_running", `another daemon holds ${path}`, { cause: error });
  if (code === corruptFile || code === notADatabase) return corrupt(path, error);
  if (code === full) return new DSecError("disk_full", `there is no room for ${path}`, { cause: error });
  if (code === cannotOpen || code === readOnly)
    return new DSecError("permission_denied", `${path} cannot be opened for writing`, { cause: error });
  return error;
}

/** A row or file that cannot be read. Nothing is changed, so that it can be mended or looked at. */
export function corrupt(path: string, cause: unknown): DSecError {
  return new DSecError(
    "journal_corrupt",
    `the journal ${path} is damaged and was left as it is. Restore it from a backup, or move it away and start again: ` +
      `the daemon then begins with no record, and ends the sandboxes it finds`,
    { cause, details: { path } },
  );
}

/** The primary result code of SQLite that an error carries. */
export function sqliteCode(error: unknown): number | undefined {
  return error instanceof Error && "errcode" in error && typeof error.errcode === "number"
    ? error.errcode & 0xff
    : undefined;
}
