/** Rises with every change of the tables below; a journal of another version is refused. */
/** Since version 3. */
export const layersColumn = "ALTER TABLE sandboxes ADD COLUMN layers TEXT;";

export const schemaVersion = 3;

/** Since version 2. */
export const sessionsTable = `
CREATE TABLE sessions (
  sandbox TEXT NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (sandbox, name)
) STRICT, WITHOUT ROWID;
`;

export const schema = `${sessionsTable}
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
  provisioner_record TEXT
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
