-- The tables of the store. `@schema@` is the quoted name of their schema.
--
-- Invariants: instants are of the database's clock (`clock_timestamp()`); fences only rise; keys are the bytes of
-- UTF-8, so that any name fits and no collation orders them. `holder` and `broken` are JSON texts: they may hold any
-- character.
--
-- A row of `lock` says where the rest of a name's state is; every change of a name's state locks this row first:
--   shape 0   nothing is remembered but the fence
--   shape 1   one exclusive holder, and nothing else: it is in this very row, so that the common case is one write
--   shape 2   everything is in `claim` (and in `abandoned_until`); nothing there runs out before `look`
--
-- A row of `claim` is, by `state`: 1 holding, 2 released but kept for its min_hold, 3 waiting, 4 withdrawn (a late
-- copy of this claim is refused), 5 broken at once (kept until its ttl is over, so that its holder gets the reason).
-- `bell` is the channel on which the client of a waiter listens; null while it does not.
--
-- `session` is the number of an advisory lock that the holder's session has for as long as it lives: the claim ends
-- with it. It is null for claims that do not depend on a session.
--
-- While there are waiters, the first of them cannot be admitted: a change that makes room grants to the next one in the
-- same transaction.

DO $$
BEGIN
  IF pg_catalog.to_regnamespace('@schema@') IS NULL THEN  -- checked first: IF NOT EXISTS needs the right to create even if it exists
    CREATE SCHEMA @schema@;
  END IF;
END
$$;

CREATE TABLE IF NOT EXISTS @schema@.about (
  version integer NOT NULL,
  cleaned timestamp with time zone NOT NULL DEFAULT '-infinity',
  lock_position pg_catalog.bytea NOT NULL DEFAULT '',
  record_position pg_catalog.bytea NOT NULL DEFAULT ''
);

CREATE TABLE IF NOT EXISTS @schema@.lock (
  key pg_catalog.bytea PRIMARY KEY,
  fence bigint NOT NULL CHECK (fence OPERATOR(pg_catalog.<) 9007199254740992),
  shape smallint NOT NULL DEFAULT 0,
  look timestamp with time zone NOT NULL DEFAULT 'infinity',
  abandoned_until timestamp with time zone NOT NULL DEFAULT '-infinity',
  owner pg_catalog.text,
  ttl double precision,
  since timestamp with time zone,
  expires timestamp with time zone,
  holder pg_catalog.text,
  session bigint
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS @schema@.claim (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key pg_catalog.bytea NOT NULL,
  owner pg_catalog.text NOT NULL,
  state smallint NOT NULL,
  mode pg_catalog.text NOT NULL,
  capacity integer NOT NULL,
  ttl double precision NOT NULL,
  min_hold double precision NOT NULL,
  holder pg_catalog.text NOT NULL,
  fence bigint NOT NULL DEFAULT 0,
  since timestamp with time zone NOT NULL,
  expires timestamp with time zone NOT NULL,
  abandoned boolean NOT NULL DEFAULT false,
  broken pg_catalog.text,
  bell pg_catalog.text,
  session bigint
) WITH (fillfactor = 70);

CREATE INDEX IF NOT EXISTS claim_of_owner ON @schema@.claim (owner);

CREATE INDEX IF NOT EXISTS claim_by_state ON @schema@.claim (key, state, number);

CREATE TABLE IF NOT EXISTS @schema@.record (
  key pg_catalog.bytea PRIMARY KEY,
  value pg_catalog.bytea NOT NULL,
  fence bigint NOT NULL,
  expires timestamp with time zone NOT NULL,
  fence_until timestamp with time zone NOT NULL
);

INSERT INTO @schema@.about (version) SELECT 0 WHERE NOT EXISTS (SELECT FROM @schema@.about);
