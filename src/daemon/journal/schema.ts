/** Since version 2. */
const sessionsTable = `
CREATE TABLE sessions (
  sandbox TEXT NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (sandbox, name)
) STRICT, WITHOUT ROWID;
`;

/** Since version 3. */
const layersColumn = "ALTER TABLE sandboxes ADD COLUMN layers TEXT;";

/** Since version 4; sandboxes refer to them by digest. */
const policiesTable = `
CREATE TABLE network_policies (
  digest TEXT PRIMARY KEY,
  policy TEXT NOT NULL
) STRICT, WITHOUT ROWID;
`;

/** Since version 4; where it is null the sandbox was made by a dsec that let nothing out. */
const policyColumn = "ALTER TABLE sandboxes ADD COLUMN network_policy TEXT;";

/** What leads from each version to the next, from version 1 on. */
export const upgrades: readonly string[] = [sessionsTable, layersColumn, `${policiesTable}${policyColumn}`];

/** Of the tables below; a journal of a later version is refused. */
export const schemaVersion = upgrades.length + 1;

export const schema = `${sessionsTable}${policiesTable}
CREATE TABLE sandboxes (
  id TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  spec TEXT NOT NULL,
  state TEXT NOT NULL,
  end_reason TEXT,
  exit_code INTEGER,
  problem TEXT,
  engine TEXT,
  image_digest TEXT,
  layers TEXT,
  address TEXT,
  created_at REAL NOT NULL,
  started_at REAL,
  ended_at REAL,
  last_active_at REAL NOT NULL,
  idle_deadline REAL,
  deadline_version INTEGER NOT NULL,
  lifetime_deadline REAL,
  kept_until REAL,
  revision INTEGER NOT NULL,
  backend_record TEXT,
  provisioner_record TEXT,
  network_policy TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE execs (
  id TEXT PRIMARY KEY,
  sandbox TEXT NOT NULL,
  channel INTEGER NOT NULL,
  spec TEXT NOT NULL,
  state TEXT NOT NULL,
  started_at REAL NOT NULL,
  ended_at REAL,
  exit TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX execs_by_sandbox ON execs (sandbox, started_at);

CREATE TABLE events (
  id INTEGER PRIMARY KEY,
  sandbox TEXT NOT NULL,
  time REAL NOT NULL,
  type TEXT NOT NULL,
  message TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_sandbox ON events (sandbox, id);
`;
