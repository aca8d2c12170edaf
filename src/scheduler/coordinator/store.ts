import { closeSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite";
import { DSecError } from "../../protocol/errors.ts";
import type { NodeRegistration } from "../../protocol/node.ts";
import { NamedPolicies, policySchema } from "./named-policies.ts";

/** A create that was given an idempotency key. */
export interface KeyedCreate {
  /** Id of the sandbox that the key stands for. */
  readonly id: string;
  /** Of the spec: the key must not be used with another. */
  readonly digest: string;
  /** Whether its node has said that it runs: from then on it is never made anew. */
  readonly made: boolean;
}

export interface StoredNode extends NodeRegistration {
  /** Milliseconds since the epoch of its last registration. */
  readonly registeredAt: number;
}

const schema = `
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = NORMAL;
  CREATE TABLE IF NOT EXISTS creates (
    owner TEXT NOT NULL, key TEXT NOT NULL, id TEXT NOT NULL, digest TEXT NOT NULL, createdAt INTEGER NOT NULL,
    made INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (owner, key)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX IF NOT EXISTS createsByAge ON creates (createdAt);
  CREATE TABLE IF NOT EXISTS nodes (
    name TEXT PRIMARY KEY, address TEXT NOT NULL, token TEXT NOT NULL, registeredAt INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  ${policySchema}
`;

/** SQLite's code. */
const full = 13;
/** Keys removed by one sweep: it runs between requests. */
const sweepBatch = 10_000;

/** All that a coordinator keeps on disk: idempotency keys, the nodes that registered, named policies. Nothing about sandboxes. */
export class Store {
  readonly policies: NamedPolicies;
  readonly #path: string;
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  /** @throws DSecError `journal_corrupt` naming the file */
  constructor(path: string) {
    this.#path = path;
    try {
      mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
      // nodes' tokens are in it; SQLite gives its other files the same mode
      closeSync(openSync(path, "a", 0o600));
      this.#database = new DatabaseSync(path, { timeout: 2000 });
      this.#database.exec(schema);
      // stores of versions that did not keep it
      const columns = this.#database.prepare("PRAGMA table_info(creates)").all();
      if (!columns.some(({ name }) => name === "made"))
        this.#database.exec("ALTER TABLE creates ADD COLUMN made INTEGER NOT NULL DEFAULT 0");
    } catch (cause) {
      throw new DSecError("journal_corrupt", `the coordinator's store ${path} cannot be used`, { cause });
    }
    this.policies = new NamedPolicies({
      run: (sql, values) => this.#run(sql, values),
      rows: (sql, values) => this.#prepare(sql).all(...values),
      transaction: (change) => this.#transaction(change),
    });
  }

  findCreate(owner: string, key: string): KeyedCreate | undefined {
    const sql = "SELECT id, digest, made FROM creates WHERE owner = ? AND key = ?";
    const row = this.#prepare(sql).get(owner, key);
    if (row === undefined) return undefined;
    return { id: String(row["id"]), digest: String(row["digest"]), made: row["made"] === 1 };
  }

  /** Replaces what the key stood for. */
  putCreate(owner: string, key: string, { id, digest, made }: KeyedCreate, now: number): void {
    this.#run(
      "INSERT OR REPLACE INTO creates (owner, key, id, digest, made, createdAt) VALUES (?, ?, ?, ?, ?, ?)",
      [owner, key, id, digest, made ? 1 : 0, now],
    );
  }

  createMade(owner: string, key: string): void {
    this.#run("UPDATE creates SET made = 1 WHERE owner = ? AND key = ?", [owner, key]);
  }

  /** Forgets a key, unless it stands for another sandbox by now. */
  deleteCreate(owner: string, key: string, id: string): void {
    this.#run("DELETE FROM creates WHERE owner = ? AND key = ? AND id = ?", [owner, key, id]);
  }

  /** Forgets keys from before `time`, so many at once. @returns whether more are left */
  sweepCreates(time: number, most = sweepBatch): boolean {
    const forgotten = this.#run(
      "DELETE FROM creates WHERE (owner, key) IN (SELECT owner, key FROM creates WHERE createdAt < ? LIMIT ?)",
      [time, most],
    );
    return forgotten === most;
  }

  nodes(): StoredNode[] {
    const rows = this.#prepare("SELECT name, address, token, registeredAt FROM nodes").all();
    return rows.map((row) => ({
      name: String(row["name"]),
      address: String(row["address"]),
      token: String(row["token"]),
      registeredAt: Number(row["registeredAt"]),
    }));
  }

  putNode({ name, address, token, registeredAt }: StoredNode): void {
    this.#run("INSERT OR REPLACE INTO nodes (name, address, token, registeredAt) VALUES (?, ?, ?, ?)", [
      name,
      address,
      token,
      registeredAt,
    ]);
  }

  deleteNode(name: string): void {
    this.#run("DELETE FROM nodes WHERE name = ?", [name]);
  }

  close(): void {
    this.#database.close();
  }

  #transaction<T>(change: () => T): T {
    this.#run("BEGIN IMMEDIATE", []);
    try {
      const result = change();
      this.#run("COMMIT", []);
      return result;
    } catch (error) {
      // a full disk may have ended it already
      if (this.#database.isTransaction) this.#run("ROLLBACK", []);
      throw error;
    }
  }

  /** @returns how many rows it changed @throws DSecError `disk_full` */
  #run(sql: string, values: readonly SQLInputValue[]): number {
    try {
      return Number(this.#prepare(sql).run(...values).changes);
    } catch (cause) {
      const isFull = cause instanceof Error && "errcode" in cause && cause.errcode === full;
      throw isFull
        ? new DSecError("disk_full", `the disk of the store ${this.#path} is full`, { cause })
        : cause;
    }
  }

  #prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}
