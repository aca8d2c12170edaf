import type { SQLInputValue, SQLOutputValue } from "node:sqlite";
import { DSecError } from "../../protocol/errors.ts";
import type { NamedPolicy, NamedPolicySummary } from "../../protocol/named-policy.ts";
import { NetworkPolicy } from "../../protocol/network-policy.ts";
import { builtinPolicies } from "../../protocol/network-rule-limits.ts";

/** The tables of {@link NamedPolicies}. A name's count of versions outlives its policies, so that no number is given twice. */
export const policySchema = `
  CREATE TABLE IF NOT EXISTS policyNames (name TEXT PRIMARY KEY, versions INTEGER NOT NULL) STRICT, WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS policies (
    name TEXT NOT NULL, version INTEGER NOT NULL, createdAt INTEGER NOT NULL,
    "default" TEXT NOT NULL, rules INTEGER NOT NULL, policy TEXT NOT NULL,
    PRIMARY KEY (name, version)
  ) STRICT, WITHOUT ROWID;
`;

/** The database, as far as this needs it. */
export interface PolicyDatabase {
  /** @throws DSecError `disk_full` */
  run(sql: string, values: readonly SQLInputValue[]): void;
  rows(sql: string, values: readonly SQLInputValue[]): Record<string, SQLOutputValue>[];
  /** Several changes as one. */
  transaction<T>(change: () => T): T;
}

const summaryColumns = `name, version, createdAt, "default", rules,
  (SELECT max(version) FROM policies AS other WHERE other.name = policies.name) AS newestVersion`;
/** Policies kept parsed: a burst of creates asks for the same again and again. */
const maxParsed = 32;

/** The fleet's policies by name, in versions that never change. */
export class NamedPolicies {
  readonly #database: PolicyDatabase;
  readonly #parsed = new Map<string, NetworkPolicy>();

  constructor(database: PolicyDatabase) {
    this.#database = database;
  }

  /** The newest version of each, by name. */
  list(): NamedPolicySummary[] {
    return this.#database
      .rows(`SELECT ${summaryColumns} FROM policies WHERE version = newestVersion ORDER BY name`, [])
      .map(summaryOf);
  }

  /** The newest first. @throws DSecError `not_found` */
  versions(name: string): NamedPolicySummary[] {
    const rows = this.#database.rows(
      `SELECT ${summaryColumns} FROM policies WHERE name = ? ORDER BY version DESC`,
      [name],
    );
    if (rows.length === 0) throw unknownPolicy(name, undefined);
    return rows.map(summaryOf);
  }

  /** @param version the newest unless given @throws DSecError `not_found` */
  get(name: string, version: number | undefined): NamedPolicy {
    const [row] = this.#database.rows(
      `SELECT ${summaryColumns} FROM policies WHERE name = ? AND version = coalesce(?, newestVersion)`,
      [name, version ?? null],
    );
    if (row === undefined) throw unknownPolicy(name, version);
    const { default: _default, rules: _rules, ...summary } = summaryOf(row);
    return { ...summary, policy: this.#policy(name, summary.version) };
  }

  /**
   * Makes a version more. The rules of the newest again are no new version.
   * @param expectedVersion the newest there must be, 0 for none; undefined for any, but one
   * @throws DSecError `conflict` with details.newestVersion, `not_found`, `invalid_argument` for a built-in name, `disk_full`
   */
  set(name: string, policy: NetworkPolicy, expectedVersion: number | undefined, now: number): NamedPolicy {
    if (Object.hasOwn(builtinPolicies, name))
      throw new DSecError("invalid_argument", `name: the policy ${name} is built in and cannot be changed`);
    return this.#database.transaction(() => {
      const newest = this.#newest(name);
      if (expectedVersion === undefined && newest === 0) throw unknownPolicy(name, undefined);
      if (expectedVersion !== undefined && expectedVersion !== newest)
        throw conflict(name, newest, expectedVersion);
      const text = JSON.stringify(policy);
      if (newest > 0 && this.#text(name, newest) === text) return this.get(name, newest);
      this.#database.run(
        `INSERT INTO policyNames (name, versions) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET versions = versions + 1`,
        [name],
      );
      this.#database.run(
        `INSERT INTO policies (name, version, createdAt, "default", rules, policy)
         SELECT name, versions, ?, ?, ?, ? FROM policyNames WHERE name = ?`,
        [now, policy.default, policy.rules.length, text, name],
      );
      return this.get(name, undefined);
    });
  }

  /** @param version all of them unless given @throws DSecError `not_found` */
  remove(name: string, version: number | undefined): void {
    this.#database.transaction(() => {
      this.get(name, version);
      this.#database.run("DELETE FROM policies WHERE name = ?1 AND version = coalesce(?2, version)", [
        name,
        version ?? null,
      ]);
    });
  }

  #newest(name: string): number {
    const [row] = this.#database.rows("SELECT max(version) AS newest FROM policies WHERE name = ?", [name]);
    return Number(row?.["newest"] ?? 0);
  }

  #text(name: string, version: number): string {
    const [row] = this.#database.rows("SELECT policy FROM policies WHERE name = ? AND version = ?", [
      name,
      version,
    ]);
    return String(row?.["policy"]);
  }

  #policy(name: string, version: number): NetworkPolicy {
    const key = `${name}@${version}`;
    const known = this.#parsed.get(key);
    if (known !== undefined) return known;
    const policy = NetworkPolicy.parse(JSON.parse(this.#text(name, version)));
    const [oldest] = this.#parsed.keys();
    if (oldest !== undefined && this.#parsed.size >= maxParsed) this.#parsed.delete(oldest);
    this.#parsed.set(key, policy);
    return policy;
  }
}

function summaryOf(row: Record<string, SQLOutputValue>): NamedPolicySummary {
  return {
    name: String(row["name"]),
    version: Number(row["version"]),
    newestVersion: Number(row["newestVersion"]),
    createdAt: Number(row["createdAt"]),
    default: row["default"] === "allow" ? "allow" : "deny",
    rules: Number(row["rules"]),
  };
}

function unknownPolicy(name: string, version: number | undefined): DSecError {
  const what =
    version === undefined ? `network policy ${name}` : `version ${version} of network policy ${name}`;
  return new DSecError("not_found", `there is no ${what}`);
}

function conflict(name: string, newest: number, expected: number): DSecError {
  const details = { details: { newestVersion: newest } };
  if (newest === 0)
    return new DSecError(
      "conflict",
      `there is no network policy ${name}, but version ${expected} was expected`,
      details,
    );
  if (expected === 0)
    return new DSecError(
      "conflict",
      `there is a network policy ${name}: its newest version is ${newest}`,
      details,
    );
  return new DSecError(
    "conflict",
    `the newest version of network policy ${name} is ${newest}, but ${expected} was expected`,
    details,
  );
}
