-- Tables and functions as leasehold made them in version 4, for tests of the upgrade.
-- The tables of the store. `"leasehold"` is the quoted name of their schema.
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
  IF pg_catalog.to_regnamespace('"leasehold"') IS NULL THEN  -- checked first: IF NOT EXISTS needs the right to create even if it exists
    CREATE SCHEMA "leasehold";
  END IF;
END
$$;

CREATE TABLE IF NOT EXISTS "leasehold".about (
  version integer NOT NULL,
  cleaned timestamp with time zone NOT NULL DEFAULT '-infinity',
  lock_position pg_catalog.bytea NOT NULL DEFAULT '',
  record_position pg_catalog.bytea NOT NULL DEFAULT ''
);

CREATE TABLE IF NOT EXISTS "leasehold".lock (
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

CREATE TABLE IF NOT EXISTS "leasehold".claim (
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

CREATE INDEX IF NOT EXISTS claim_of_owner ON "leasehold".claim (owner);

CREATE INDEX IF NOT EXISTS claim_by_state ON "leasehold".claim (key, state, number);

CREATE TABLE IF NOT EXISTS "leasehold".record (
  key pg_catalog.bytea PRIMARY KEY,
  value pg_catalog.bytea NOT NULL,
  fence bigint NOT NULL,
  expires timestamp with time zone NOT NULL,
  fence_until timestamp with time zone NOT NULL
);

INSERT INTO "leasehold".about (version) SELECT 0 WHERE NOT EXISTS (SELECT FROM "leasehold".about);

-- From version 1 to version 2. Without statistics the planner took the wrong one of two indexes that begin with the key.
CREATE INDEX IF NOT EXISTS claim_of_owner ON "leasehold".claim (owner);
DROP INDEX IF EXISTS "leasehold".claim_by_owner;

-- Functions of earlier versions are still called by clients that were not upgraded yet: pin their search path, too. See
-- rules.sql for the reason. Those of another owner are left alone.
DO $$
DECLARE
  older pg_catalog.regprocedure;
BEGIN
  FOR older IN
    SELECT p.oid FROM pg_catalog.pg_proc AS p
    WHERE p.pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace('"leasehold"')
      AND p.proname OPERATOR(pg_catalog.~) '_1$' AND pg_catalog.pg_has_role(p.proowner, 'USAGE')
  LOOP
    EXECUTE pg_catalog.format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', older);
  END LOOP;
END
$$;

-- The rules of one name, for the verbs. Precondition of each: the caller has locked the name's row by `enter_3`.
-- Statements inside see what was committed before the lock was had, because functions that write take a new snapshot for each.
--
-- A role that may create functions and operators in a schema of the caller's search path could put its own in the place
-- of PostgreSQL's, and they would run as the caller. So the verbs pin their search path. The functions of this file are
-- called by those only, and inherit it; setting it costs microseconds on each call. `micros_3`, `is_over_3` and
-- `pass_gate_3`, and the verbs that do the common case, are called with the caller's path: there every name is qualified, operators too.

-- When -> a fence by the clock: microseconds since 1970.
CREATE OR REPLACE FUNCTION "leasehold".micros_3(at timestamp with time zone) RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT CAST(pg_catalog.date_part(''epoch'', at) OPERATOR(pg_catalog.*) 1000000 AS bigint)';

-- The owner of the claim that is the pause of a name: see pauses.sql.
CREATE OR REPLACE FUNCTION "leasehold".pause_owner_4(the_key pg_catalog.bytea) RETURNS pg_catalog.text
LANGUAGE sql IMMUTABLE AS 'SELECT ''pause '' OPERATOR(pg_catalog.||) pg_catalog.encode(the_key, ''hex'')';

-- Whether the holders leave room for such a claim. Waiters ahead of it are checked by the caller. A pause is exclusive,
-- and lets nothing in.
CREATE OR REPLACE FUNCTION "leasehold".admits_3(the_key pg_catalog.bytea, the_mode pg_catalog.text, the_capacity integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  IF the_mode = 'exclusive' THEN
    RETURN NOT EXISTS (SELECT FROM "leasehold".claim WHERE key = the_key AND state <= 2);
  ELSIF the_mode = 'shared' THEN
    RETURN NOT EXISTS (SELECT FROM "leasehold".claim WHERE key = the_key AND state <= 2 AND mode = 'exclusive');
  END IF;
  IF EXISTS (SELECT FROM "leasehold".claim WHERE owner = "leasehold".pause_owner_4(the_key)) THEN
    RETURN false;
  END IF;
  RETURN the_capacity > (SELECT count(*) FROM (
    SELECT FROM "leasehold".claim WHERE key = the_key AND state <= 2 LIMIT the_capacity) AS held);
END
$$;

-- Grant to all waiters whose turn it is, in order, and notify each on the channel of its client (column `bell`): owner,
-- fence, time, abandoned.
-- A lock that is handed over lasts for three re-checks only, until its new holder has shown that it lives.
CREATE OR REPLACE FUNCTION "leasehold".advance_3(the_key pg_catalog.bytea, at timestamp with time zone) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  next "leasehold".claim;
  top bigint;
  vanished boolean;
  ends timestamp with time zone := 'infinity';
BEGIN
  SELECT fence, abandoned_until > at INTO top, vanished FROM "leasehold".lock WHERE key = the_key;
  LOOP
    SELECT * INTO next FROM "leasehold".claim WHERE key = the_key AND state = 3 ORDER BY number LIMIT 1;
    EXIT WHEN NOT FOUND OR NOT "leasehold".admits_3(the_key, next.mode, next.capacity);
    top := greatest(top + 1, CAST(date_part('epoch', at) * 1000000 AS bigint));
    next.expires := at + make_interval(secs => least(next.ttl, 3));
    UPDATE "leasehold".claim SET state = 1, fence = top, since = at, expires = next.expires, abandoned = vanished
      WHERE number = next.number;
    IF next.bell IS NOT NULL THEN
      PERFORM pg_notify(next.bell, concat_ws(' ', next.owner, top, date_part('epoch', at), vanished::integer));
    END IF;
    vanished := false;
    ends := least(ends, next.expires);
    EXIT WHEN next.mode = 'exclusive';
  END LOOP;
  IF ends < 'infinity' THEN
    UPDATE "leasehold".lock SET fence = top, abandoned_until = '-infinity', look = least(look, ends) WHERE key = the_key;
    PERFORM set_config('leasehold.granted', '1', true);
  END IF;
END
$$;

-- Nothing but the fence has to be remembered, if nothing else is left. (In plpgsql, whose plans are kept: a function in SQL
-- that is not part of a larger query is planned anew for each call.)
CREATE OR REPLACE FUNCTION "leasehold".settle_3(the_key pg_catalog.bytea, at timestamp with time zone) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM "leasehold".claim WHERE key = the_key) THEN
    UPDATE "leasehold".lock SET shape = 0, look = 'infinity', abandoned_until = '-infinity'
    WHERE key = the_key AND shape = 2 AND abandoned_until <= at;
  END IF;
END
$$;

-- Whether the session with this number has ended. Others take its advisory lock only for the time of this check; our own
-- session, which could take it again, is known by the setting `leasehold.session`.
CREATE OR REPLACE FUNCTION "leasehold".is_over_3(the_session bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  IF the_session IS NULL
     OR CAST(the_session AS pg_catalog.text) OPERATOR(pg_catalog.=) pg_catalog.current_setting('leasehold.session', true)
  THEN
    RETURN false;
  END IF;
  RETURN pg_catalog.pg_try_advisory_xact_lock_shared(the_session);
END
$$;

-- Remove what has run out, and grant to waiters for it. A holder that ran out did not release: the next one's reply says
-- `abandoned`.
-- Marks of withdrawn claims may be many, and nothing depends on when they go: at most a hundred go at a time, the oldest
-- first, until none of them has run out; the next look is then when the youngest has.
CREATE OR REPLACE FUNCTION "leasehold".expire_3(the_key pg_catalog.bytea, at timestamp with time zone) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  vanished boolean;
  room boolean;
  marks integer;
BEGIN
  WITH gone AS (
    DELETE FROM "leasehold".claim WHERE key = the_key AND state <= 3
      AND (expires <= at OR session IS NOT NULL AND "leasehold".is_over_3(session)) RETURNING state)
  SELECT coalesce(bool_or(state = 1), false), coalesce(bool_or(state <= 3), false) INTO vanished, room FROM gone;
  DELETE FROM "leasehold".claim WHERE key = the_key AND state = 5 AND expires <= at;
  WITH old AS (
    SELECT number, expires FROM "leasehold".claim WHERE key = the_key AND state = 4 ORDER BY number LIMIT 100), gone AS (
    DELETE FROM "leasehold".claim AS c USING old WHERE c.number = old.number AND old.expires <= at RETURNING 1)
  SELECT count(*) INTO marks FROM gone;
  UPDATE "leasehold".lock SET
    abandoned_until = CASE WHEN vanished THEN at + interval '1 day' ELSE abandoned_until END,
    look = least((SELECT min(CASE WHEN session IS NULL THEN expires ELSE '-infinity' END)
                  FROM "leasehold".claim WHERE key = the_key AND state <= 3),
                 (SELECT min(expires) FROM "leasehold".claim WHERE key = the_key AND state = 5),
                 CASE WHEN marks > 0 THEN at ELSE (
                   SELECT expires FROM "leasehold".claim WHERE key = the_key AND state = 4 ORDER BY number DESC LIMIT 1) END,
                 CASE WHEN vanished THEN at + interval '1 day' WHEN abandoned_until > at THEN abandoned_until END,
                 'infinity')
    WHERE key = the_key;
  IF room THEN
    PERFORM "leasehold".advance_3(the_key, at);
  END IF;
END
$$;

-- The gate of a name: claims and waiters pass it one after the other, before they lock the row of the name; releases,
-- renewals and withdrawals do not, so they find at most one of those before them at the row. Without it, each commit let
-- all that wait for the row compete anew, and a release among forty could lose for a second. The gate is an advisory
-- lock, had until the end of the transaction. Always the gate before the row, so that no two wait for each other.
CREATE OR REPLACE FUNCTION "leasehold".pass_gate_3(the_key pg_catalog.bytea) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock(
    pg_catalog.hashtextextended(pg_catalog.encode(the_key, 'hex'), 5496912345067202));
END
$$;

-- Lock a name, and bring it to how it is now -> the time. A holder that was folded into the row gets a claim of its
-- own.
CREATE OR REPLACE FUNCTION "leasehold".enter_3(the_key pg_catalog.bytea) RETURNS timestamp with time zone
LANGUAGE plpgsql AS $$
DECLARE
  row "leasehold".lock;
  at timestamp with time zone;
BEGIN
  LOOP
    SELECT * INTO row FROM "leasehold".lock WHERE key = the_key FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO "leasehold".lock (key, fence) VALUES (the_key, 0) ON CONFLICT DO NOTHING;
  END LOOP;
  at := clock_timestamp();
  IF row.shape = 1 THEN
    INSERT INTO "leasehold".claim (key, owner, state, mode, capacity, ttl, min_hold, holder, fence, since, expires, session)
      VALUES (the_key, row.owner, 1, 'exclusive', 1, row.ttl, 0, row.holder, row.fence, row.since, row.expires,
              row.session);
    row.look := CASE WHEN row.session IS NULL THEN row.expires ELSE '-infinity' END;
    UPDATE "leasehold".lock SET shape = 2, look = row.look, owner = NULL WHERE key = the_key;
  END IF;
  IF row.look <= at THEN
    PERFORM "leasehold".expire_3(the_key, at);
  END IF;
  RETURN at;
END
$$;

-- Have this transaction commit without a wait for the disk or for standbys, for all that it changes is a place in the queue,
-- unless it has granted something before: the row of the name is locked until it has committed, and others want it. A place
-- that a crash of the server takes away is noticed by its waiter, which joins again; and whatever was granted after it
-- is written after it.
CREATE OR REPLACE FUNCTION "leasehold".commit_soon_5() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('leasehold.granted', true) IS DISTINCT FROM '1' THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
END
$$;

-- Put a row into `claim`.
CREATE OR REPLACE FUNCTION "leasehold".add_3(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_state integer, the_mode pg_catalog.text, the_capacity integer, the_ttl double precision,
  the_min_hold double precision, the_holder pg_catalog.text, the_fence bigint, at timestamp with time zone, the_expires timestamp with time zone,
  the_abandoned boolean, the_channel pg_catalog.text, the_session bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO "leasehold".claim (key, owner, state, mode, capacity, ttl, min_hold, holder, fence, since, expires, abandoned,
                              bell, session)
    VALUES (the_key, the_owner, the_state, the_mode, the_capacity, the_ttl, the_min_hold, the_holder, the_fence, at,
            the_expires, the_abandoned, the_channel, the_session);
  UPDATE "leasehold".lock SET
    shape = 2, look = CASE WHEN the_session IS NULL THEN least(look, the_expires) ELSE '-infinity' END
    WHERE key = the_key AND (shape <> 2 OR the_session IS NOT NULL OR look > the_expires);  -- mostly nothing to write
END
$$;

-- The verbs of the store, one call each. Common reply of `acquire_3` and `turn_3`:
--   verdict     granted, placed, refused, or conflict (in use as another kind of lock: see mode and capacity)
--   fence       of the grant
--   abandoned   the holder before left without releasing
--   moment      the database's time, in seconds since 1970
--   ahead       how many wait before this one (refused: how many wait), counted up to 100
--   ends        seconds until the first holder's time is over, or the pause
--   facts       who holds, as JSON; or who paused the name, and why

-- Every verb pins its search path, or qualifies every name: see rules.sql. Plans are kept for as long as a session lasts,
-- also if they were made while a table had hardly any rows, or before anything was known of it. So no verb may read a
-- whole table; and a statement names a claim by its owner, which no two claims share, or by key and state, but never by
-- key and owner: then the planner may go through all claims of the name.

-- The row of a claim. A mark of its withdrawal may stand beside a grant that is kept for its min_hold.
CREATE OR REPLACE FUNCTION "leasehold".own_3(the_owner pg_catalog.text) RETURNS "leasehold".claim
LANGUAGE plpgsql AS $$
DECLARE
  own "leasehold".claim;
BEGIN
  SELECT * INTO own FROM "leasehold".claim WHERE owner = the_owner ORDER BY state LIMIT 1;
  RETURN own;
END
$$;

-- The part of the reply to a claim that was not granted.
CREATE OR REPLACE FUNCTION "leasehold".describe_3(
  the_key pg_catalog.bytea, before bigint, at timestamp with time zone, OUT ahead integer, OUT ends double precision, OUT facts pg_catalog.text)
LANGUAGE plpgsql AS $$
DECLARE
  first "leasehold".claim;
  pause_ends double precision;
  pause_facts pg_catalog.text;
BEGIN
  SELECT count(*) INTO ahead FROM (
    SELECT FROM "leasehold".claim WHERE key = the_key AND state = 3 AND number < before LIMIT 100) AS waiting;
  SELECT * INTO first FROM "leasehold".claim WHERE key = the_key AND state <= 2 ORDER BY state, number LIMIT 1;
  IF first.mode = 'exclusive' THEN
    ends := date_part('epoch', first.expires - at);
    facts := first.holder;
  ELSIF first.mode IS NOT NULL THEN
    SELECT date_part('epoch', min(expires) - at), (array_agg(holder ORDER BY number))[1] INTO ends, facts FROM (
      SELECT expires, holder, number FROM "leasehold".claim WHERE key = the_key AND state <= 2
      ORDER BY state, number LIMIT 100) AS held;
  END IF;
  SELECT date_part('epoch', expires - at), holder INTO pause_ends, pause_facts FROM "leasehold".claim
    WHERE owner = "leasehold".pause_owner_4(the_key);
  IF FOUND THEN
    ends := pause_ends;
    facts := pause_facts;
  END IF;
END
$$;

-- Acquire by the rules. For the parameters and the reply see `acquire_3`.
CREATE OR REPLACE FUNCTION "leasehold".acquire_by_rules_3(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_ttl double precision, the_mode pg_catalog.text,
  the_capacity integer, the_min_hold double precision, the_holder pg_catalog.text, the_floor bigint, waits boolean,
  the_channel pg_catalog.text, the_session bigint,
  OUT verdict pg_catalog.text, OUT fence bigint, OUT abandoned boolean, OUT moment double precision, OUT ahead integer,
  OUT ends double precision, OUT facts pg_catalog.text, OUT mode pg_catalog.text, OUT capacity integer)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone := "leasehold".enter_3(the_key);
  own "leasehold".claim;
  present "leasehold".claim;
  reply record;
BEGIN
  moment := date_part('epoch', at);
  own := "leasehold".own_3(the_owner);
  IF own.state = 1 AND own.broken IS NULL THEN  -- sent again, because its answer was lost
    UPDATE "leasehold".claim AS c SET expires = at + make_interval(secs => the_ttl), session = the_session
      WHERE c.number = own.number;
    verdict := 'granted';
    fence := own.fence;
    abandoned := own.abandoned;
    RETURN;
  END IF;
  IF own.state IS NULL THEN
    SELECT * INTO present FROM "leasehold".claim AS c WHERE c.key = the_key AND c.state <= 3
      AND c.owner <> "leasehold".pause_owner_4(the_key) ORDER BY c.state, c.number LIMIT 1;
    IF FOUND AND ((present.mode = 'permit') <> (the_mode = 'permit') OR (the_mode = 'permit' AND present.capacity <> the_capacity)) THEN
      verdict := 'conflict';
      mode := present.mode;
      capacity := present.capacity;
      RETURN;
    END IF;
    IF the_floor > 0 THEN
      UPDATE "leasehold".lock AS l SET fence = the_floor WHERE l.key = the_key AND l.fence < the_floor;
    END IF;
    IF present.mode = 'exclusive' OR the_mode = 'exclusive' AND present.mode IS NOT NULL THEN
      NULL;  -- what holds or waits there is in the way, without a further look
    ELSIF NOT EXISTS (SELECT FROM "leasehold".claim AS c WHERE c.key = the_key AND c.state = 3)
       AND "leasehold".admits_3(the_key, the_mode, the_capacity) THEN
      SELECT greatest(l.fence + 1, "leasehold".micros_3(at)), l.abandoned_until > at INTO fence, abandoned
        FROM "leasehold".lock AS l WHERE l.key = the_key;
      UPDATE "leasehold".lock AS l SET fence = acquire_by_rules_3.fence, abandoned_until = '-infinity' WHERE l.key = the_key;
      PERFORM "leasehold".add_3(the_key, the_owner, 1, the_mode, the_capacity, the_ttl, the_min_hold, the_holder, fence, at,
                             at + make_interval(secs => the_ttl), abandoned, NULL, the_session);
      verdict := 'granted';
      RETURN;
    END IF;
  END IF;
  verdict := 'refused';
  IF waits AND own.state IS NULL THEN
    PERFORM "leasehold".add_3(the_key, the_owner, 3, the_mode, the_capacity, the_ttl, the_min_hold, the_holder, 0, at,
                           at + make_interval(secs => least(the_ttl, 3)), false, the_channel, NULL);
    verdict := 'placed';
    PERFORM "leasehold".commit_soon_5();
    SELECT c.number INTO own.number FROM "leasehold".claim AS c WHERE c.owner = the_owner;
  ELSIF waits AND own.state = 3 THEN
    UPDATE "leasehold".claim AS c SET expires = at + make_interval(secs => least(the_ttl, 3)), bell = the_channel
      WHERE c.number = own.number;
    verdict := 'placed';
  ELSE
    PERFORM "leasehold".settle_3(the_key, at);
  END IF;
  reply := "leasehold".describe_3(the_key, coalesce(CASE WHEN verdict = 'placed' THEN own.number END, 9223372036854775807), at);
  ahead := reply.ahead;
  ends := reply.ends;
  facts := reply.facts;
END
$$;

-- The common case, an exclusive claim on a name that is not in use, is one write. Otherwise the rules decide.
-- `waits`: take a place in the queue if it cannot be had at once. `the_floor`: the fence is above this.
-- `in_session`: the claim ends with this session, which has its number; sent again in another, it moves there.
-- Invariant: the same claim sent twice gives the same grant, with a new expiry; a withdrawn claim gets nothing.
-- A claim that does not wait, on a name with one exclusive holder, is refused without a lock on the name's row: many
-- clients that poll would otherwise keep that row locked in turn, and the release would be one more in their line. Other
-- claims on a name in use pass its gate first, for the same reason: see `pass_gate_3`.
CREATE OR REPLACE FUNCTION "leasehold".acquire_3(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_ttl double precision, the_mode pg_catalog.text,
  the_capacity integer, the_min_hold double precision, the_holder pg_catalog.text, the_floor bigint, waits boolean,
  the_channel pg_catalog.text, in_session boolean,
  OUT verdict pg_catalog.text, OUT fence bigint, OUT abandoned boolean, OUT moment double precision, OUT ahead integer,
  OUT ends double precision, OUT facts pg_catalog.text, OUT mode pg_catalog.text, OUT capacity integer)
LANGUAGE plpgsql AS $$
DECLARE
  at timestamp with time zone;
  the_session bigint := CASE WHEN in_session THEN CAST(pg_catalog.current_setting('leasehold.session') AS bigint) END;
  held "leasehold".lock;
  reply record;
BEGIN
  FOR attempt IN 1 .. 2 LOOP  -- the second time after a wait for the row, which may have a new holder
    at := pg_catalog.clock_timestamp();
    moment := pg_catalog.date_part('epoch', at);
    IF attempt OPERATOR(pg_catalog.=) 1 OR NOT waits THEN
      SELECT l.* INTO held FROM "leasehold".lock AS l WHERE l.key OPERATOR(pg_catalog.=) the_key;
      IF held.shape OPERATOR(pg_catalog.=) 1 AND NOT waits AND the_mode OPERATOR(pg_catalog.<>) 'permit'
         AND held.owner OPERATOR(pg_catalog.<>) the_owner AND held.expires OPERATOR(pg_catalog.>) at
         AND NOT "leasehold".is_over_3(held.session) THEN
        verdict := 'refused';
        ahead := 0;
        ends := pg_catalog.date_part('epoch', held.expires OPERATOR(pg_catalog.-) at);
        facts := held.holder;
        RETURN;
      END IF;
      IF held.shape OPERATOR(pg_catalog.<>) 0 AND attempt OPERATOR(pg_catalog.=) 1 THEN
        PERFORM "leasehold".pass_gate_3(the_key);
      END IF;
    END IF;
    EXIT WHEN attempt OPERATOR(pg_catalog.=) 2 OR the_mode OPERATOR(pg_catalog.<>) 'exclusive'
      OR the_min_hold OPERATOR(pg_catalog.<>) 0 OR held.shape OPERATOR(pg_catalog.=) 2;  -- null: there is no row
    INSERT INTO "leasehold".lock AS l (key, fence, shape, owner, ttl, since, expires, holder, session)
      VALUES (the_key, greatest(CAST(moment OPERATOR(pg_catalog.*) 1000000 AS bigint), the_floor OPERATOR(pg_catalog.+) 1), 1, the_owner, the_ttl, at,
              at OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => the_ttl), the_holder, the_session)
      ON CONFLICT (key) DO UPDATE SET
        fence = greatest(l.fence OPERATOR(pg_catalog.+) 1, excluded.fence), shape = 1, owner = excluded.owner,
        ttl = excluded.ttl, since = excluded.since, expires = excluded.expires, holder = excluded.holder,
        session = excluded.session
      WHERE l.shape OPERATOR(pg_catalog.=) 0
      RETURNING l.fence INTO fence;
    IF FOUND THEN
      verdict := 'granted';
      abandoned := false;
      RETURN;
    END IF;
  END LOOP;
  reply := "leasehold".acquire_by_rules_3(the_key, the_owner, the_ttl, the_mode, the_capacity, the_min_hold, the_holder, the_floor,
                                       waits, the_channel, the_session);
  verdict := reply.verdict;
  fence := reply.fence;
  abandoned := reply.abandoned;
  moment := reply.moment;
  ahead := reply.ahead;
  ends := reply.ends;
  facts := reply.facts;
  mode := reply.mode;
  capacity := reply.capacity;
END
$$;

-- Whether it is this waiter's turn; keeps its place alive. Refused: the place is gone.
CREATE OR REPLACE FUNCTION "leasehold".turn_3(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_channel pg_catalog.text,
  OUT verdict pg_catalog.text, OUT fence bigint, OUT abandoned boolean, OUT moment double precision, OUT ahead integer,
  OUT ends double precision, OUT facts pg_catalog.text, OUT mode pg_catalog.text, OUT capacity integer)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone;
  own "leasehold".claim;
BEGIN
  PERFORM "leasehold".pass_gate_3(the_key);
  at := "leasehold".enter_3(the_key);
  moment := date_part('epoch', at);
  own := "leasehold".own_3(the_owner);
  IF own.state = 1 AND own.broken IS NULL THEN
    UPDATE "leasehold".claim AS c SET expires = at + make_interval(secs => own.ttl) WHERE c.number = own.number;
    verdict := 'granted';
    fence := own.fence;
    abandoned := own.abandoned;
    RETURN;
  END IF;
  IF own.state = 3 THEN
    UPDATE "leasehold".claim AS c SET expires = at + make_interval(secs => least(own.ttl, 3)), bell = the_channel
      WHERE c.number = own.number;
    verdict := 'placed';
    PERFORM "leasehold".commit_soon_5();
  ELSE
    verdict := 'refused';
    own.number := 9223372036854775807;
    PERFORM "leasehold".settle_3(the_key, at);
  END IF;
  SELECT d.ahead, d.ends, d.facts INTO ahead, ends, facts FROM "leasehold".describe_3(the_key, own.number, at) AS d;
END
$$;

-- The same as `turn_3` for several at once -> a row for each that is there, which begins with its owner. In order of
-- key, as in `renew_3`. The planner cannot know how long the lists are, and would go through one for each member of the
-- other; so nested loops are off.
CREATE OR REPLACE FUNCTION "leasehold".turns_3(the_keys pg_catalog.bytea[], the_owners pg_catalog.text[], the_channel pg_catalog.text)
RETURNS TABLE (
  owner pg_catalog.text, verdict pg_catalog.text, fence bigint, abandoned boolean, moment double precision, ahead bigint,
  ends double precision, facts pg_catalog.text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_nestloop = off AS $$
DECLARE
  name pg_catalog.bytea;
  at timestamp with time zone;
  few boolean := (SELECT count(DISTINCT k) <= 16 FROM unnest(the_keys) AS k);  -- the server has room for so many locks
  pause "leasehold".claim;
BEGIN
  FOR name IN SELECT DISTINCT k FROM unnest(the_keys) AS k ORDER BY k LOOP
    IF few THEN
      PERFORM "leasehold".pass_gate_3(name);
    END IF;
    at := "leasehold".enter_3(name);
    UPDATE "leasehold".claim AS c SET
      expires = at + make_interval(secs => CASE c.state WHEN 1 THEN c.ttl ELSE least(c.ttl, 3) END), bell = the_channel
      FROM unnest(the_keys, the_owners) AS given (key, owner)
      WHERE given.key = name AND c.key = name AND c.owner = given.owner AND c.state <= 3 AND c.state <> 2
        AND c.broken IS NULL AND (c.state = 1 OR c.expires < at + make_interval(secs => least(c.ttl, 3) * 0.7)
             OR c.bell IS DISTINCT FROM the_channel);
    SELECT * INTO pause FROM "leasehold".claim AS p WHERE p.owner = "leasehold".pause_owner_4(name);
    RETURN QUERY
      SELECT c.owner, CASE c.state WHEN 1 THEN 'granted' ELSE 'placed' END, c.fence, c.abandoned,
             date_part('epoch', at), c.ahead, date_part('epoch', coalesce(pause.expires, c.soonest) - at),
             coalesce(pause.holder, c.facts)
      FROM (SELECT held.*,
                   count(*) FILTER (WHERE held.state = 3) OVER in_line - (held.state = 3)::integer AS ahead,
                   min(held.expires) FILTER (WHERE held.state <= 2) OVER () AS soonest,
                   first_value(held.holder) OVER in_line AS facts
            FROM "leasehold".claim AS held WHERE held.key = name AND held.state <= 3
            WINDOW in_line AS (ORDER BY held.state, held.number)) AS c
      JOIN unnest(the_keys, the_owners) AS given (key, owner) ON given.key = name AND given.owner = c.owner
      WHERE c.state IN (1, 3) AND c.broken IS NULL;
  END LOOP;
END
$$;

-- Extend grants -> a row for each that is lost: its place in the list, counted from 1, and why, if it was broken.
-- `in_session`: from now on they end with this session; the one that they lived in must not have ended.
-- In order of key, so that two such calls never wait for each other; all other calls lock one name only.
CREATE OR REPLACE FUNCTION "leasehold".renew_3(
  the_keys pg_catalog.bytea[], the_owners pg_catalog.text[], the_fences bigint[], the_ttls double precision[], in_session boolean)
RETURNS TABLE (place bigint, broken pg_catalog.text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  g record;
  at timestamp with time zone;
  the_session bigint := CASE WHEN in_session THEN current_setting('leasehold.session')::bigint END;
BEGIN
  FOR g IN SELECT * FROM unnest(the_keys, the_owners, the_fences, the_ttls)
           WITH ORDINALITY AS given (key, owner, fence, ttl, place) ORDER BY given.key LOOP
    at := clock_timestamp();
    UPDATE "leasehold".lock AS l SET expires = at + make_interval(secs => g.ttl), session = the_session
      WHERE l.key = g.key AND l.shape = 1 AND l.owner = g.owner AND l.fence = g.fence AND l.expires > at
        AND NOT "leasehold".is_over_3(l.session);
    CONTINUE WHEN FOUND;
    PERFORM FROM "leasehold".lock AS l WHERE l.key = g.key FOR UPDATE;
    at := clock_timestamp();
    UPDATE "leasehold".claim AS c SET expires = at + make_interval(secs => g.ttl), session = the_session
      WHERE c.owner = g.owner AND c.fence = g.fence AND c.state = 1 AND c.broken IS NULL
        AND c.expires > at AND NOT "leasehold".is_over_3(c.session);
    CONTINUE WHEN FOUND;
    place := g.place;
    broken := (SELECT c.broken FROM "leasehold".claim AS c
               WHERE c.owner = g.owner AND c.fence = g.fence AND c.expires > at LIMIT 1);
    RETURN NEXT;
  END LOOP;
END
$$;

-- Release by the rules; see `release_3`. A grant that was broken is kept for its min_hold like any other, for that is a
-- promise to the others. One that was broken at once has no place any more; its note stays until its ttl is over, so
-- that a release that is sent twice gets the reason twice; so does one of a grant that is kept. A clock that was set back does not make a min_hold longer.
CREATE OR REPLACE FUNCTION "leasehold".release_by_rules_3(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_fence bigint) RETURNS pg_catalog.text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone := "leasehold".enter_3(the_key);
  own "leasehold".claim;
BEGIN
  SELECT * INTO own FROM "leasehold".claim
    WHERE owner = the_owner AND fence = the_fence AND (state = 1 OR broken IS NOT NULL);
  IF NOT FOUND THEN
    PERFORM "leasehold".settle_3(the_key, at);
    RETURN 'gone';
  END IF;
  IF own.state <> 1 THEN
    RETURN own.broken;
  END IF;
  own.since := least(own.since, at);
  IF own.min_hold > 0 AND own.since + make_interval(secs => own.min_hold) > at THEN
    own.expires := own.since + make_interval(secs => own.min_hold);
    UPDATE "leasehold".claim SET state = 2, expires = own.expires WHERE number = own.number;
    UPDATE "leasehold".lock SET look = least(look, own.expires) WHERE key = the_key;
  ELSE
    DELETE FROM "leasehold".claim WHERE number = own.number;
    PERFORM "leasehold".advance_3(the_key, at);
    PERFORM "leasehold".settle_3(the_key, at);
  END IF;
  RETURN coalesce(own.broken, 'freed');
END
$$;

-- Free a grant in a busy queue, and hand the name over to the next waiter: the one case that such a queue consists of, in as
-- few statements as there can be. Precondition: the caller has locked the row, which is `named`, and found that nothing has
-- run out. Others decide by the rules -> whether it was done. Every name is qualified: see rules.sql.
CREATE OR REPLACE FUNCTION "leasehold".hand_over_5(
  named "leasehold".lock, the_owner pg_catalog.text, the_fence bigint, at timestamp with time zone) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  next "leasehold".claim;
BEGIN
  SELECT c.* INTO next FROM "leasehold".claim AS c WHERE c.key OPERATOR(pg_catalog.=) named.key AND c.state OPERATOR(pg_catalog.=) 3
    ORDER BY c.number LIMIT 1;
  IF NOT FOUND OR next.mode OPERATOR(pg_catalog.<>) 'exclusive' THEN
    RETURN false;
  END IF;
  DELETE FROM "leasehold".claim AS c WHERE c.owner OPERATOR(pg_catalog.=) the_owner AND c.fence OPERATOR(pg_catalog.=) the_fence
    AND c.state OPERATOR(pg_catalog.=) 1 AND c.mode OPERATOR(pg_catalog.=) 'exclusive' AND c.broken IS NULL
    AND c.min_hold OPERATOR(pg_catalog.=) 0
    AND NOT EXISTS (SELECT FROM "leasehold".claim AS k WHERE k.key OPERATOR(pg_catalog.=) named.key AND k.state OPERATOR(pg_catalog.=) 2);
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  named.fence := greatest(named.fence OPERATOR(pg_catalog.+) 1,
                          CAST(pg_catalog.date_part('epoch', at) OPERATOR(pg_catalog.*) 1000000 AS bigint));
  next.expires := at OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => least(next.ttl, 3));
  UPDATE "leasehold".claim AS c SET state = 1, fence = named.fence, since = at, expires = next.expires
    WHERE c.number OPERATOR(pg_catalog.=) next.number;
  UPDATE "leasehold".lock AS l SET fence = named.fence, look = least(named.look, next.expires)
    WHERE l.key OPERATOR(pg_catalog.=) named.key;
  IF next.bell IS NOT NULL THEN
    PERFORM pg_catalog.pg_notify(next.bell, pg_catalog.concat_ws(' ', next.owner, named.fence, pg_catalog.date_part('epoch', at), 0));
  END IF;
  RETURN true;
END
$$;

-- Free this grant and nothing else -> freed; gone, if it was no longer ours; or, if it was broken, the reason as a JSON
-- string. A late copy of the claim, granted anew, has another fence.
CREATE OR REPLACE FUNCTION "leasehold".release_3(the_key pg_catalog.bytea, the_owner pg_catalog.text, the_fence bigint)
RETURNS pg_catalog.text
LANGUAGE plpgsql AS $$
DECLARE
  named "leasehold".lock;
  at timestamp with time zone;
BEGIN
  UPDATE "leasehold".lock AS l SET shape = 0, owner = NULL
    WHERE l.key OPERATOR(pg_catalog.=) the_key AND l.shape OPERATOR(pg_catalog.=) 1
      AND l.owner OPERATOR(pg_catalog.=) the_owner AND l.fence OPERATOR(pg_catalog.=) the_fence
      AND l.expires OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp();
  IF FOUND THEN
    RETURN 'freed';
  END IF;
  SELECT l.* INTO named FROM "leasehold".lock AS l WHERE l.key OPERATOR(pg_catalog.=) the_key
    AND l.shape OPERATOR(pg_catalog.=) 2 FOR UPDATE;
  IF FOUND THEN
    at := pg_catalog.clock_timestamp();
    IF named.look OPERATOR(pg_catalog.>) at AND named.abandoned_until OPERATOR(pg_catalog.<=) at
       AND "leasehold".hand_over_5(named, the_owner, the_fence, at) THEN
      RETURN 'freed';
    END IF;
  END IF;
  RETURN "leasehold".release_by_rules_3(the_key, the_owner, the_fence);
END
$$;

-- Undo a claim whatever its state. `doubt`: copies of it that arrive late are refused for one ttl. Without doubt none can
-- arrive, and nothing is left of it: not even a row of the name, if there was none. With doubt the note of a break at
-- once stays in the place of a mark: it refuses late copies as well.
CREATE OR REPLACE FUNCTION "leasehold".withdraw_3(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_ttl double precision, doubt boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone;
  row "leasehold".lock;
  unseen boolean;
BEGIN
  IF NOT doubt THEN
    SELECT * INTO row FROM "leasehold".lock WHERE key = the_key FOR UPDATE;
    IF NOT FOUND OR row.shape = 0 OR row.shape = 1 AND row.owner <> the_owner THEN
      RETURN;
    END IF;
  END IF;
  at := "leasehold".enter_3(the_key);
  WITH gone AS (
    DELETE FROM "leasehold".claim WHERE owner = the_owner AND (state IN (1, 3) OR state > 3 AND NOT doubt)
    RETURNING state, abandoned)
  SELECT coalesce(bool_or(state = 1 AND abandoned), false) INTO unseen FROM gone;
  IF unseen THEN  -- its holder never saw that the one before had vanished; the next one must
    UPDATE "leasehold".lock SET abandoned_until = at + interval '1 day' WHERE key = the_key;
  END IF;
  IF doubt THEN
    UPDATE "leasehold".claim SET expires = greatest(expires, at + make_interval(secs => the_ttl))
      WHERE owner = the_owner AND state = 5;
    IF NOT FOUND THEN
      PERFORM "leasehold".add_3(the_key, the_owner, 4, 'exclusive', 1, the_ttl, 0, '{}', 0, at,
                             at + make_interval(secs => the_ttl), false, NULL, NULL);
    END IF;
  END IF;
  PERFORM "leasehold".advance_3(the_key, at);
  PERFORM "leasehold".settle_3(the_key, at);
END
$$;

-- End the grant with this fence; its place stays taken until its ttl is over, unless `at_once` -> whether there was
-- one.
CREATE OR REPLACE FUNCTION "leasehold".break_3(the_key pg_catalog.bytea, the_fence bigint, the_reason pg_catalog.text, at_once boolean)
RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone := "leasehold".enter_3(the_key);
  own "leasehold".claim;
BEGIN
  SELECT * INTO own FROM "leasehold".claim WHERE key = the_key AND fence = the_fence AND state = 1;
  IF NOT FOUND THEN
    PERFORM "leasehold".settle_3(the_key, at);
    RETURN false;
  END IF;
  UPDATE "leasehold".claim SET broken = the_reason, state = CASE WHEN at_once THEN 5 ELSE 1 END WHERE number = own.number;
  IF at_once THEN
    UPDATE "leasehold".lock SET abandoned_until = at + interval '1 day' WHERE key = the_key;
    PERFORM "leasehold".advance_3(the_key, at);
  END IF;
  RETURN true;
END
$$;

-- Make every later fence of the name higher than this -> what they are higher than now.
CREATE OR REPLACE FUNCTION "leasehold".raise_fence_3(the_key pg_catalog.bytea, the_fence bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  highest bigint;
BEGIN
  PERFORM "leasehold".enter_3(the_key);  -- a holder that was folded into the row has its own fence by now
  UPDATE "leasehold".lock SET fence = greatest(fence, the_fence) WHERE key = the_key RETURNING fence INTO highest;
  RETURN highest;
END
$$;

-- Small values under a fence, and cleaning. A fence is remembered for a day after it was last shown.

-- The record, if it has not run out; and with a fence, let no lower one write from now on
--   -> value (null: none), the highest fence, seconds left, the database's time in seconds since 1970.
CREATE OR REPLACE FUNCTION "leasehold".read_3(
  the_key pg_catalog.bytea, the_fence bigint,
  OUT content pg_catalog.bytea, OUT highest bigint, OUT remaining double precision, OUT moment double precision)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at timestamp with time zone := clock_timestamp();
  kept "leasehold".record;
BEGIN
  IF the_fence > 0 THEN
    INSERT INTO "leasehold".record AS r (key, value, fence, expires, fence_until)
      VALUES (the_key, '', the_fence, '-infinity', at + interval '1 day')
      ON CONFLICT (key) DO UPDATE SET
        fence = greatest(r.fence, excluded.fence),
        fence_until = CASE WHEN excluded.fence >= r.fence THEN excluded.fence_until ELSE r.fence_until END
      RETURNING r.* INTO kept;
  ELSE
    SELECT * INTO kept FROM "leasehold".record WHERE key = the_key;
  END IF;
  at := clock_timestamp();
  moment := date_part('epoch', at);
  highest := coalesce(kept.fence, 0);
  IF kept.expires > at THEN
    content := kept.value;
    remaining := date_part('epoch', kept.expires - at);
  END IF;
END
$$;

-- Store a value for its ttl -> false if a higher fence was here.
CREATE OR REPLACE FUNCTION "leasehold".write_3(
  the_key pg_catalog.bytea, the_value pg_catalog.bytea, the_fence bigint, the_ttl double precision) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at timestamp with time zone := clock_timestamp();
BEGIN
  INSERT INTO "leasehold".record AS r (key, value, fence, expires, fence_until)
    VALUES (the_key, the_value, the_fence, at + make_interval(secs => the_ttl), at + interval '1 day')
    ON CONFLICT (key) DO UPDATE SET
      value = excluded.value, fence = excluded.fence, expires = excluded.expires, fence_until = excluded.fence_until
    WHERE r.fence <= excluded.fence;
  RETURN FOUND;
END
$$;

-- Go on through the keys and remove what is not needed any more, at most so many rows -> how many were removed.
-- A name's row carries its fence: it may go once the clock alone gives higher fences, with a day to spare.
-- One cleans at a time, and not more often than once in `pause` seconds.
CREATE OR REPLACE FUNCTION "leasehold".clean_3(slice integer, pause double precision) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at timestamp with time zone := clock_timestamp();
  old timestamp with time zone := at - interval '1 day';
  progress "leasehold".about;
  looked record;
  stale pg_catalog.bytea;
  removed integer := 0;
  number integer;
BEGIN
  SELECT * INTO progress FROM "leasehold".about WHERE cleaned <= at - make_interval(secs => pause) FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  SELECT count(*) AS size, (array_agg(key ORDER BY key DESC))[1] AS last INTO looked FROM (
    SELECT key FROM "leasehold".lock WHERE key > progress.lock_position ORDER BY key LIMIT slice) AS part;
  FOR stale IN SELECT key FROM "leasehold".lock WHERE key > progress.lock_position AND key <= looked.last
               AND shape = 2 AND look <= at ORDER BY key FOR UPDATE SKIP LOCKED LOOP
    PERFORM "leasehold".enter_3(stale);
    PERFORM "leasehold".settle_3(stale, at);
  END LOOP;
  WITH idle AS (
    SELECT key FROM "leasehold".lock WHERE key > progress.lock_position AND key <= looked.last
      AND (shape = 0 OR shape = 1 AND expires <= old) AND fence < "leasehold".micros_3(old)
    ORDER BY key FOR UPDATE SKIP LOCKED)
  DELETE FROM "leasehold".lock USING idle WHERE lock.key = idle.key;
  GET DIAGNOSTICS removed = ROW_COUNT;
  progress.lock_position := CASE WHEN looked.size = slice THEN looked.last ELSE '' END;
  SELECT count(*) AS size, (array_agg(key ORDER BY key DESC))[1] AS last INTO looked FROM (
    SELECT key FROM "leasehold".record WHERE key > progress.record_position ORDER BY key LIMIT slice) AS part;
  WITH idle AS (
    SELECT key FROM "leasehold".record WHERE key > progress.record_position AND key <= looked.last
      AND expires <= at AND fence_until <= at
    ORDER BY key FOR UPDATE SKIP LOCKED)
  DELETE FROM "leasehold".record USING idle WHERE record.key = idle.key;
  GET DIAGNOSTICS number = ROW_COUNT;
  UPDATE "leasehold".about SET cleaned = at, lock_position = progress.lock_position,
    record_position = CASE WHEN looked.size = slice THEN looked.last ELSE '' END;
  RETURN removed + number;
END
$$;

-- Pausing a name, for operators. A pause is a claim in state 2, kept like one for its min_hold: an exclusive one, beside which
-- the rules let nothing in. Its owner is made of the key. A client of an earlier version takes it for a holder.

-- Grant nothing there for so long, instead of a pause that is there.
CREATE OR REPLACE FUNCTION "leasehold".pause_4(the_key pg_catalog.bytea, the_holder pg_catalog.text, the_length double precision)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone := "leasehold".enter_3(the_key);
BEGIN
  DELETE FROM "leasehold".claim WHERE owner = "leasehold".pause_owner_4(the_key);
  PERFORM "leasehold".add_3(the_key, "leasehold".pause_owner_4(the_key), 2, 'exclusive', 1, the_length, 0, the_holder, 0, at,
                         at + make_interval(secs => the_length), false, NULL, NULL);
END
$$;

-- End the pause, and grant to those whose turn it is -> whether there was one.
CREATE OR REPLACE FUNCTION "leasehold".resume_4(the_key pg_catalog.bytea) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone := "leasehold".enter_3(the_key);
  resumed boolean;
BEGIN
  DELETE FROM "leasehold".claim WHERE owner = "leasehold".pause_owner_4(the_key);
  resumed := FOUND;
  PERFORM "leasehold".advance_3(the_key, at);
  PERFORM "leasehold".settle_3(the_key, at);
  RETURN resumed;
END
$$;

UPDATE "leasehold".about SET version = 4 WHERE version OPERATOR(pg_catalog.<) 4;
