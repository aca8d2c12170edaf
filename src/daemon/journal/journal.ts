import type { DatabaseSync, StatementSync } from "node:sqlite";
import { z } from "zod";
import { DSecError } from "../../protocol/errors.ts";
import { NetworkPolicy } from "../../protocol/network-policy.ts";
import { SandboxEvent } from "../../protocol/sandbox.ts";
import type { SandboxRecord } from "../lifecycle/sandbox-record.ts";
import { type JournaledExec, execColumns, execFromRow, execToRow } from "./exec-row.ts";
import { corrupt, full, openJournalFile, sqliteCode } from "./open.ts";
import { sandboxColumns, sandboxFromRow, sandboxToRow } from "./sandbox-row.ts";

/** The idle deadline as it is compared and set. */
export interface IdleDeadline {
  readonly id: string;
  /** The version that was read; the write fails when it is no longer the one on disk. */
  readonly expectedVersion: number;
  readonly idleDeadline: number | undefined;
  readonly lastActiveAt: number;
  readonly revision: number;
}

/** Events kept per sandbox. */
const maxEvents = 200;
const liveStates = "('pending','starting','running','paused')";

/** The daemon's truth on disk. Every call returns after the change is in the file. */
export class Journal {
  readonly #path: string;
  readonly #database: DatabaseSync;
  readonly #saveSandbox: StatementSync;
  readonly #renewIdle: StatementSync;
  readonly #expireIdle: StatementSync;
  readonly #saveExec: StatementSync;
  readonly #surplusExecs: StatementSync;
  readonly #addEvent: StatementSync;
  readonly #trimEvents: StatementSync;

  /** @throws as {@link openJournalFile} */
  constructor(path: string) {
    this.#path = path;
    this.#database = openJournalFile(path);
    try {
      this.#saveSandbox = this.#database.prepare(insertInto("sandboxes", sandboxColumns));
      this.#renewIdle = this.#database.prepare(
        `UPDATE sandboxes SET idle_deadline = ?, last_active_at = ?, revision = ?, deadline_version = deadline_version + 1
         WHERE id = ? AND deadline_version = ? AND state IN ${liveStates}`,
      );
      this.#expireIdle = this.#database.prepare(
        `UPDATE sandboxes SET state = 'stopping', end_reason = 'idle_ttl'
         WHERE id = ? AND deadline_version = ? AND idle_deadline <= ? AND state IN ${liveStates}`,
      );
      this.#saveExec = this.#database.prepare(insertInto("execs", execColumns));
      this.#surplusExecs = this.#database.prepare(
        `SELECT id FROM execs WHERE sandbox = ? AND state <> 'running'
         ORDER BY started_at DESC, id DESC LIMIT -1 OFFSET ?`,
      );
      this.#addEvent = this.#database.prepare(
        "INSERT INTO events (sandbox, time, type, message) VALUES (?, ?, ?, ?)",
      );
      this.#trimEvents = this.#database.prepare(
        `DELETE FROM events WHERE sandbox = ?1 AND id <=
           (SELECT id FROM events WHERE sandbox = ?1 ORDER BY id DESC LIMIT 1 OFFSET ${maxEvents})`,
      );
    } catch (error) {
      this.#database.close();
      // its version is ours, its tables are not
      throw corrupt(path, error);
    }
  }

  /** @throws DSecError `journal_corrupt` when a record cannot be read */
  sandboxes(): SandboxRecord[] {
    return this.#read(() => this.#database.prepare("SELECT * FROM sandboxes").all().map(sandboxFromRow));
  }

  /** @throws DSecError `disk_full` */
  saveSandbox(record: SandboxRecord): void {
    this.#write(() => this.#saveSandbox.run(...sandboxToRow(record)));
  }

  /** Sets the idle deadline if its version is still the expected one, and raises the version. */
  renewIdle(deadline: IdleDeadline): boolean {
    const { id, expectedVersion, idleDeadline, lastActiveAt, revision } = deadline;
    const values = [idleDeadline ?? null, lastActiveAt, revision, id, expectedVersion];
    return this.#write(() => this.#renewIdle.run(...values)).changes === 1;
  }

  /** Begins the end of a sandbox if the deadline of this version is still the one on disk and is over. */
  expireIdle(id: string, version: number, now: number): boolean {
    return this.#write(() => this.#expireIdle.run(id, version, now)).changes === 1;
  }

  /** Forgets a sandbox with its execs and events. @throws DSecError `disk_full`; nothing has changed then */
  removeSandbox(id: string): void {
    this.#transaction(() => {
      this.#database.prepare("DELETE FROM events WHERE sandbox = ?").run(id);
      this.#database.prepare("DELETE FROM execs WHERE sandbox = ?").run(id);
      this.#database.prepare("DELETE FROM sessions WHERE sandbox = ?").run(id);
      this.#database.prepare("DELETE FROM sandboxes WHERE id = ?").run(id);
    });
  }

  /** Oldest first. */
  execs(sandbox: string): JournaledExec[] {
    return this.#read(() =>
      this.#database
        .prepare("SELECT * FROM execs WHERE sandbox = ? ORDER BY started_at, id")
        .all(sandbox)
        .map(execFromRow),
    );
  }

  /** @throws DSecError `disk_full` */
  saveExec(exec: JournaledExec): void {
    this.#write(() => this.#saveExec.run(...execToRow(exec)));
  }

  /** Ids of the ended execs of a sandbox beyond the newest `keep`. */
  surplusExecs(sandbox: string, keep: number): string[] {
    return this.#surplusExecs.all(sandbox, keep).map((row) => String(row["id"]));
  }

  /** @throws DSecError `disk_full` */
  removeExec(id: string): void {
    this.#write(() => this.#database.prepare("DELETE FROM execs WHERE id = ?").run(id));
  }

  /** Names of the sessions a sandbox has. */
  sessions(sandbox: string): string[] {
    return this.#database
      .prepare("SELECT name FROM sessions WHERE sandbox = ?")
      .all(sandbox)
      .map(({ name }) => String(name));
  }

  /** @throws DSecError `disk_full` */
  addSession(sandbox: string, name: string): void {
    this.#write(() =>
      this.#database
        .prepare("INSERT OR IGNORE INTO sessions (sandbox, name) VALUES (?, ?)")
        .run(sandbox, name),
    );
  }

  removeSession(sandbox: string, name: string): void {
    this.#database.prepare("DELETE FROM sessions WHERE sandbox = ? AND name = ?").run(sandbox, name);
  }

  /** @throws DSecError `disk_full` */
  addPolicy(digest: string, policy: NetworkPolicy): void {
    this.#write(() =>
      this.#database
        .prepare("INSERT OR IGNORE INTO network_policies (digest, policy) VALUES (?, ?)")
        .run(digest, JSON.stringify(policy)),
    );
  }

  /** @throws DSecError `journal_corrupt` when it cannot be read */
  policy(digest: string): NetworkPolicy | undefined {
    const row = this.#database.prepare("SELECT policy FROM network_policies WHERE digest = ?").get(digest);
    return row && this.#read(() => NetworkPolicy.parse(JSON.parse(String(row["policy"]))));
  }

  policyDigests(): string[] {
    return this.#database
      .prepare("SELECT digest FROM network_policies")
      .all()
      .map(({ digest }) => String(digest));
  }

  /** @throws DSecError `disk_full` */
  removePolicy(digest: string): void {
    this.#write(() => this.#database.prepare("DELETE FROM network_policies WHERE digest = ?").run(digest));
  }

  addEvent(event: SandboxEvent): void {
    this.#addEvent.run(event.sandbox, event.time, event.type, event.message);
    this.#trimEvents.run(event.sandbox);
  }

  /** Oldest first. */
  events(sandbox: string): SandboxEvent[] {
    const rows = this.#database
      .prepare("SELECT sandbox, time, type, message FROM events WHERE sandbox = ? ORDER BY id")
      .all(sandbox);
    return this.#read(() => z.array(SandboxEvent).parse(rows));
  }

  close(): void {
    this.#database.close();
  }

  /** Several changes as one. */
  #transaction(change: () => void): void {
    this.#write(() => {
      this.#database.exec("BEGIN IMMEDIATE");
      try {
        change();
        this.#database.exec("COMMIT");
      } catch (error) {
        // a full disk has ended it already
        if (this.#database.isTransaction) this.#database.exec("ROLLBACK");
        throw error;
      }
    });
  }

  #write<T>(write: () => T): T {
    try {
      return write();
    } catch (error) {
      if (sqliteCode(error) !== full) throw error;
      throw new DSecError("disk_full", `the disk of the journal ${this.#path} is full`, { cause: error });
    }
  }

  #read<T>(read: () => T): T {
    try {
      return read();
    } catch (error) {
      throw corrupt(this.#path, error);
    }
  }
}

function insertInto(table: string, columns: readonly string[]): string {
  return `INSERT OR REPLACE INTO ${table} (${columns.join(", ")}) VALUES (${columns.map(() => "?").join(", ")})`;
}
