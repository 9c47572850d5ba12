-- The tables of the store, version 1. `@schema@` is the quoted name of their schema.
--
-- Invariants: instants are of the database's clock (`clock_timestamp()`); fences only rise; keys are the bytes of
-- UTF-8, so that any name fits and no collation orders them. `holder` and `broken` are JSON texts: they may hold any
-- character.
--
-- A row of `lock` says where the rest of a name's state is; whoever changes anything of a name has locked this row:
--   shape 0   nothing is remembered but the fence
--   shape 1   one exclusive holder, and nothing else: it is in this very row, so that the common case is one write
--   shape 2   everything is in `claim` (and in `abandoned_until`); nothing there runs out before `look`
--
-- A row of `claim` is, by `state`: 1 holding, 2 released but kept for its min_hold, 3 waiting, 4 withdrawn (a late
-- copy of this claim is refused), 5 broken at once (its holder learns why).
--
-- `session` is the number of an advisory lock that the holder's session has for as long as it lives: the claim ends
-- with it. It is null for those who do not depend on a session.
--
-- While anybody waits, the first in line cannot be admitted: whoever makes room lets the next one in, in the same step.

DO $$
BEGIN
  IF to_regnamespace('@schema@') IS NULL THEN  -- asked first: IF NOT EXISTS wants the right to create even if it exists
    CREATE SCHEMA @schema@;
  END IF;
END
$$;

CREATE TABLE IF NOT EXISTS @schema@.about (
  version integer NOT NULL,
  cleaned timestamptz NOT NULL DEFAULT '-infinity',
  lock_position bytea NOT NULL DEFAULT '',
  record_position bytea NOT NULL DEFAULT ''
);

CREATE TABLE IF NOT EXISTS @schema@.lock (
  key bytea PRIMARY KEY,
  fence bigint NOT NULL CHECK (fence < 9007199254740992),
  shape smallint NOT NULL DEFAULT 0,
  look timestamptz NOT NULL DEFAULT 'infinity',
  abandoned_until timestamptz NOT NULL DEFAULT '-infinity',
  owner text,
  ttl double precision,
  since timestamptz,
  expires timestamptz,
  holder text,
  session bigint
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS @schema@.claim (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key bytea NOT NULL,
  owner text NOT NULL,
  state smallint NOT NULL,
  mode text NOT NULL,
  capacity integer NOT NULL,
  ttl double precision NOT NULL,
  min_hold double precision NOT NULL,
  holder text NOT NULL,
  fence bigint NOT NULL DEFAULT 0,
  since timestamptz NOT NULL,
  expires timestamptz NOT NULL,
  abandoned boolean NOT NULL DEFAULT false,
  broken text,
  bell text,
  session bigint
) WITH (fillfactor = 70);

CREATE INDEX IF NOT EXISTS claim_by_owner ON @schema@.claim (key, owner);

CREATE INDEX IF NOT EXISTS claim_by_state ON @schema@.claim (key, state, number);

CREATE TABLE IF NOT EXISTS @schema@.record (
  key bytea PRIMARY KEY,
  value bytea NOT NULL,
  fence bigint NOT NULL,
  expires timestamptz NOT NULL,
  fence_until timestamptz NOT NULL
);

INSERT INTO @schema@.about (version) SELECT 0 WHERE NOT EXISTS (SELECT FROM @schema@.about);
