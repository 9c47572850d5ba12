-- The tables of a lock file, version 1.
--
-- Invariants: instants are seconds of the host's boot clock, in the boot that `host.boot` names; fences only rise.
-- A row of `lock` says where the rest of a name's state is:
--   shape 0   nothing is remembered but the fence
--   shape 1   one exclusive holder, and nothing else: it is in this very row, so that the common case is one statement
--   shape 2   everything is in `claim` (and in `abandoned_until`)
-- A row of `claim` is, by `state`: 1 holding, 2 released but kept for its min_hold, 3 waiting,
-- 4 withdrawn (a late copy of this claim is refused), 5 broken at once (its holder learns why). The pause of a name is a
-- row in state 2 with the owner 'pause'; it outlives a boot, and lasts for its ttl from then on.

CREATE TABLE host (
  boot TEXT NOT NULL
);

CREATE TABLE lock (
  key TEXT NOT NULL PRIMARY KEY,
  fence INTEGER NOT NULL,
  shape INTEGER NOT NULL,
  abandoned_until REAL NOT NULL DEFAULT 0,
  owner TEXT,
  ttl REAL,
  since REAL,
  expires REAL,
  host TEXT,
  pid INTEGER,
  label TEXT,
  reason TEXT
) WITHOUT ROWID;

CREATE TABLE claim (
  number INTEGER PRIMARY KEY,
  key TEXT NOT NULL,
  owner TEXT NOT NULL,
  state INTEGER NOT NULL,
  mode TEXT NOT NULL,
  capacity INTEGER NOT NULL,
  ttl REAL NOT NULL,
  min_hold REAL NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  label TEXT,
  reason TEXT,
  fence INTEGER NOT NULL DEFAULT 0,
  since REAL NOT NULL,
  expires REAL NOT NULL,
  abandoned INTEGER NOT NULL DEFAULT 0,
  broken TEXT,
  bell TEXT
);

CREATE INDEX claim_by_owner ON claim (key, owner);

CREATE INDEX claim_by_state ON claim (key, state, number);

CREATE INDEX claim_by_expiry ON claim (key, expires);

CREATE TABLE record (
  key TEXT NOT NULL PRIMARY KEY,
  value BLOB NOT NULL,
  fence INTEGER NOT NULL,
  expires REAL NOT NULL,
  expires_wall REAL NOT NULL,
  ttl REAL NOT NULL
) WITHOUT ROWID;
