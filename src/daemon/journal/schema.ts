/** Of the tables below; a journal of another version is refused. */
export const schemaVersion = 1;

export const schema = `
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
  network_policy TEXT NOT NULL
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

CREATE TABLE sessions (
  sandbox TEXT NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (sandbox, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
  id INTEGER PRIMARY KEY,
  sandbox TEXT NOT NULL,
  time REAL NOT NULL,
  type TEXT NOT NULL,
  message TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_sandbox ON events (sandbox, id);

-- sandboxes refer to them by digest, within network_policy
CREATE TABLE network_policies (
  digest TEXT PRIMARY KEY,
  policy TEXT NOT NULL
) STRICT, WITHOUT ROWID;
`;
