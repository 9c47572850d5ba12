-- The tables of the store, for MySQL and MariaDB, in the database that is in use.
--
-- Invariants: instants and durations are microseconds, instants since 1970 by UTC_TIMESTAMP(6), the server's clock,
-- which no time zone changes; fences and versions only rise; names are the bytes of UTF-8, compared as bytes: case,
-- trailing blanks and forms of one letter differ. `holder` is a JSON text.
--
-- A row of `leasehold_lock` says where the rest of a name's state is. Every change of a name's state but one raises its
-- `version` in the same transaction, on condition that it is still the one that the change was decided upon; the one is
-- that a waiter keeps its place alive.
--   shape 0   nothing is remembered but the fence
--   shape 1   one exclusive holder, and nothing else: it is in this very row, so that the common case is one write
--   shape 2   everything is in `leasehold_claim` (and in `abandoned_until`)
--
-- A row of `leasehold_claim` is, by `state`: 1 holding, 2 released but kept for its min_hold, 3 waiting, 4 withdrawn (a
-- late copy of this claim is refused), 5 broken at once (kept until its ttl is over, so that its holder gets the
-- reason). `listener` is how the client of a waiter is woken; null while it polls.
--
-- `session` is the name of a user lock (GET_LOCK) that the holder's session has for as long as it lives: the claim ends
-- with it. It is null for claims that do not depend on a session.

CREATE TABLE IF NOT EXISTS leasehold_lock (
  name VARBINARY(2400) NOT NULL,
  version BIGINT NOT NULL,
  fence BIGINT NOT NULL,
  shape TINYINT NOT NULL,
  abandoned_until BIGINT NOT NULL DEFAULT 0,
  owner VARBINARY(64),
  ttl BIGINT,
  since BIGINT,
  expires BIGINT,
  holder BLOB,
  session VARBINARY(64),
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS leasehold_claim (
  name VARBINARY(2400) NOT NULL,
  number BIGINT NOT NULL,
  owner VARBINARY(64) NOT NULL,
  state TINYINT NOT NULL,
  mode VARBINARY(16) NOT NULL,
  capacity INT NOT NULL,
  ttl BIGINT NOT NULL,
  min_hold BIGINT NOT NULL,
  holder BLOB NOT NULL,
  fence BIGINT NOT NULL,
  since BIGINT NOT NULL,
  expires BIGINT NOT NULL,
  abandoned TINYINT NOT NULL,
  broken BLOB,
  listener VARBINARY(64),
  session VARBINARY(64),
  PRIMARY KEY (name, number)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS leasehold_record (
  name VARBINARY(2400) NOT NULL,
  changes BIGINT NOT NULL DEFAULT 0,
  value LONGBLOB NOT NULL,
  fence BIGINT NOT NULL,
  expires BIGINT NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS leasehold_about (
  id TINYINT NOT NULL,
  version INT NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

INSERT INTO leasehold_about (id, version) VALUES (1, 1) ON DUPLICATE KEY UPDATE version = GREATEST(version, 1);
