-- The rules of one name, for the verbs. Precondition of each: the caller has locked the name's row by `enter_3`.
-- Statements inside see what was committed before the lock was had, because functions that write take a new snapshot for each.
--
-- A role that may create functions and operators in a schema of the caller's search path could put its own in the place
-- of PostgreSQL's, and they would run as the caller. So the verbs pin their search path. The functions of this file are
-- called by those only, and inherit it; setting it costs microseconds on each call. `micros_3`, `last_fence_5`, `has_fence_5`,
-- `is_over_3` and `pass_gate_3`, and the verbs that do the common case, are called with the caller's path: there every name is
-- qualified, operators too.

-- When -> a fence by the clock: microseconds since 1970.
CREATE OR REPLACE FUNCTION @schema@.micros_3(at timestamp with time zone) RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT CAST(pg_catalog.date_part(''epoch'', at) OPERATOR(pg_catalog.*) 1000000 AS bigint)';

-- The first fence of a grant out of the queue -> the last of those that are kept free behind it: no other grant gets them. Its
-- process may use them, one after the other, to pass the name on among its own threads or tasks. A first one above the largest
-- number stays above it, and the table of names refuses it.
CREATE OR REPLACE FUNCTION @schema@.last_fence_5(first bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT greatest(first, least(first OPERATOR(pg_catalog.+) 64, 9007199254740991))';

-- Whether a grant that began with this fence, or was renewed under it, has that one. `highest` is the fence in the row of the name:
-- an exclusive grant has all fences up to there, for no grant came after it.
CREATE OR REPLACE FUNCTION @schema@.has_fence_5(the_mode pg_catalog.text, first bigint, wanted bigint, highest bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS
  'SELECT wanted OPERATOR(pg_catalog.=) first OR the_mode OPERATOR(pg_catalog.=) ''exclusive''
     AND wanted OPERATOR(pg_catalog.>) first AND wanted OPERATOR(pg_catalog.<=) highest';

-- The owner of the claim that is the pause of a name: see pauses.sql.
CREATE OR REPLACE FUNCTION @schema@.pause_owner_4(the_key pg_catalog.bytea) RETURNS pg_catalog.text
LANGUAGE sql IMMUTABLE AS 'SELECT ''pause '' OPERATOR(pg_catalog.||) pg_catalog.encode(the_key, ''hex'')';

-- Whether the holders leave room for such a claim. Waiters ahead of it are checked by the caller. A pause is exclusive,
-- and lets nothing in.
CREATE OR REPLACE FUNCTION @schema@.admits_3(the_key pg_catalog.bytea, the_mode pg_catalog.text, the_capacity integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  IF the_mode = 'exclusive' THEN
    RETURN NOT EXISTS (SELECT FROM @schema@.claim WHERE key = the_key AND state <= 2);
  ELSIF the_mode = 'shared' THEN
    RETURN NOT EXISTS (SELECT FROM @schema@.claim WHERE key = the_key AND state <= 2 AND mode = 'exclusive');
  END IF;
  IF EXISTS (SELECT FROM @schema@.claim WHERE owner = @schema@.pause_owner_4(the_key)) THEN
    RETURN false;
  END IF;
  RETURN the_capacity > (SELECT count(*) FROM (
    SELECT FROM @schema@.claim WHERE key = the_key AND state <= 2 LIMIT the_capacity) AS held);
END
$$;

-- Grant to all waiters whose turn it is, in order, and notify each on the channel of its client (column `bell`): owner,
-- fence, time, and 1 for abandoned; or r and the number of fences behind that one which no other grant gets, which clients of
-- earlier versions read as `not abandoned`.
-- A lock that is handed over lasts for three re-checks only, until its new holder has shown that it lives.
CREATE OR REPLACE FUNCTION @schema@.advance_3(the_key pg_catalog.bytea, at timestamp with time zone) RETURNS pg_catalog.void
LANGUAGE plpgsql AS $$
DECLARE
  next @schema@.claim;
  top bigint;
  last bigint;
  vanished boolean;
  ends timestamp with time zone := 'infinity';
BEGIN
  SELECT fence, abandoned_until > at INTO top, vanished FROM @schema@.lock WHERE key = the_key;
  LOOP
    SELECT * INTO next FROM @schema@.claim WHERE key = the_key AND state = 3 ORDER BY number LIMIT 1;
    EXIT WHEN NOT FOUND OR NOT @schema@.admits_3(the_key, next.mode, next.capacity);
    top := greatest(top + 1, CAST(date_part('epoch', at) * 1000000 AS bigint));
    next.expires := at + make_interval(secs => least(next.ttl, 3));
    last := CASE next.mode WHEN 'exclusive' THEN @schema@.last_fence_5(top) ELSE top END;
    UPDATE @schema@.claim SET state = 1, fence = top, since = at, expires = next.expires, abandoned = vanished
      WHERE number = next.number;
    IF next.bell IS NOT NULL THEN
      PERFORM pg_notify(next.bell, concat_ws(' ', next.owner, top, date_part('epoch', at),
                                             CASE WHEN vanished THEN '1' ELSE 'r' || (last - top)::text END));
    END IF;
    top := last;
    vanished := false;
    ends := least(ends, next.expires);
    EXIT WHEN next.mode = 'exclusive';
  END LOOP;
  IF ends < 'infinity' THEN
    UPDATE @schema@.lock SET fence = top, abandoned_until = '-infinity', look = least(look, ends) WHERE key = the_key;
    PERFORM set_config('leasehold.granted', '1', true);
  END IF;
END
$$;

-- Grant to the waiters of a name that is free. A release that saw what was committed before its transaction began, as behind a
-- pooler whose server has the isolation `repeatable read`, may have missed a waiter; a waiter that looks again makes good for it.
CREATE OR REPLACE FUNCTION @schema@.catch_up_5(the_key pg_catalog.bytea, at timestamp with time zone) RETURNS pg_catalog.void
LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM @schema@.claim WHERE key = the_key AND state <= 2) THEN
    PERFORM @schema@.advance_3(the_key, at);
  END IF;
END
$$;

-- Nothing but the fence has to be remembered, if nothing else is left. (In plpgsql, whose plans are kept: a function in SQL
-- that is not part of a larger query is planned anew for each call.)
CREATE OR REPLACE FUNCTION @schema@.settle_3(the_key pg_catalog.bytea, at timestamp with time zone) RETURNS pg_catalog.void
LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM @schema@.claim WHERE key = the_key) THEN
    UPDATE @schema@.lock SET shape = 0, look = 'infinity', abandoned_until = '-infinity'
    WHERE key = the_key AND shape = 2 AND abandoned_until <= at;
  END IF;
END
$$;

-- Whether the session with this number has ended. Others take its advisory lock only for the time of this check; our own
-- session, which could take it again, is known by the setting `leasehold.session`.
CREATE OR REPLACE FUNCTION @schema@.is_over_3(the_session bigint) RETURNS boolean
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
CREATE OR REPLACE FUNCTION @schema@.expire_3(the_key pg_catalog.bytea, at timestamp with time zone) RETURNS pg_catalog.void
LANGUAGE plpgsql AS $$
DECLARE
  vanished boolean;
  room boolean;
  marks integer;
BEGIN
  WITH gone AS (
    DELETE FROM @schema@.claim WHERE key = the_key AND state <= 3
      AND (expires <= at OR session IS NOT NULL AND @schema@.is_over_3(session)) RETURNING state)
  SELECT coalesce(bool_or(state = 1), false), coalesce(bool_or(state <= 3), false) INTO vanished, room FROM gone;
  DELETE FROM @schema@.claim WHERE key = the_key AND state = 5 AND expires <= at;
  WITH old AS (
    SELECT number, expires FROM @schema@.claim WHERE key = the_key AND state = 4 ORDER BY number LIMIT 100), gone AS (
    DELETE FROM @schema@.claim AS c USING old WHERE c.number = old.number AND old.expires <= at RETURNING 1)
  SELECT count(*) INTO marks FROM gone;
  UPDATE @schema@.lock SET
    abandoned_until = CASE WHEN vanished THEN at + interval '1 day' ELSE abandoned_until END,
    look = least((SELECT min(CASE WHEN session IS NULL THEN expires ELSE '-infinity' END)
                  FROM @schema@.claim WHERE key = the_key AND state <= 3),
                 (SELECT min(expires) FROM @schema@.claim WHERE key = the_key AND state = 5),
                 CASE WHEN marks > 0 THEN at ELSE (
                   SELECT expires FROM @schema@.claim WHERE key = the_key AND state = 4 ORDER BY number DESC LIMIT 1) END,
                 CASE WHEN vanished THEN at + interval '1 day' WHEN abandoned_until > at THEN abandoned_until END,
                 'infinity')
    WHERE key = the_key;
  IF room THEN
    PERFORM @schema@.advance_3(the_key, at);
  END IF;
END
$$;

-- The gate of a name: claims and waiters pass it one after the other, before they lock the row of the name; releases,
-- renewals and withdrawals do not, so they find at most one of those before them at the row. Without it, each commit let
-- all that wait for the row compete anew, and a release among forty could lose for a second. The gate is an advisory
-- lock, had until the end of the transaction. Always the gate before the row, so that no two wait for each other.
CREATE OR REPLACE FUNCTION @schema@.pass_gate_3(the_key pg_catalog.bytea) RETURNS pg_catalog.void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_catalog.pg_advisory_xact_lock(
    pg_catalog.hashtextextended(pg_catalog.encode(the_key, 'hex'), 5496912345067202));
END
$$;

-- Lock a name, and bring it to how it is now -> the time. A holder that was folded into the row gets a claim of its
-- own.
CREATE OR REPLACE FUNCTION @schema@.enter_3(the_key pg_catalog.bytea) RETURNS timestamp with time zone
LANGUAGE plpgsql AS $$
DECLARE
  row @schema@.lock;
  at timestamp with time zone;
BEGIN
  LOOP
    SELECT * INTO row FROM @schema@.lock WHERE key = the_key FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO @schema@.lock (key, fence) VALUES (the_key, 0) ON CONFLICT DO NOTHING;
  END LOOP;
  at := clock_timestamp();
  IF row.shape = 1 THEN
    INSERT INTO @schema@.claim (key, owner, state, mode, capacity, ttl, min_hold, holder, fence, since, expires, session)
      VALUES (the_key, row.owner, 1, 'exclusive', 1, row.ttl, 0, row.holder, row.fence, row.since, row.expires,
              row.session);
    row.look := CASE WHEN row.session IS NULL THEN row.expires ELSE '-infinity' END;
    UPDATE @schema@.lock SET shape = 2, look = row.look, owner = NULL WHERE key = the_key;
  END IF;
  IF row.look <= at THEN
    PERFORM @schema@.expire_3(the_key, at);
  END IF;
  RETURN at;
END
$$;

-- Have this transaction commit without a wait for the disk or for standbys, for all that it changes is a place in the queue,
-- unless it has granted something before: the row of the name is locked until it has committed, and others want it. A place
-- that a crash of the server takes away is noticed by its waiter, which joins again; and whatever was granted after it
-- is written after it.
CREATE OR REPLACE FUNCTION @schema@.commit_soon_5() RETURNS pg_catalog.void
LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('leasehold.granted', true) IS DISTINCT FROM '1' THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
END
$$;

-- Put a row into `claim`. The row of the name is written only where that says something new, or where the transaction sees
-- what was committed before its first statement (the isolation of a pooler's server may be `repeatable read`): the next one to lock
-- the name would not see the new claim either, and is refused instead, to be repeated, because the row has changed.
CREATE OR REPLACE FUNCTION @schema@.add_3(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_state integer, the_mode pg_catalog.text, the_capacity integer, the_ttl double precision,
  the_min_hold double precision, the_holder pg_catalog.text, the_fence bigint, at timestamp with time zone, the_expires timestamp with time zone,
  the_abandoned boolean, the_channel pg_catalog.text, the_session bigint) RETURNS pg_catalog.void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO @schema@.claim (key, owner, state, mode, capacity, ttl, min_hold, holder, fence, since, expires, abandoned,
                              bell, session)
    VALUES (the_key, the_owner, the_state, the_mode, the_capacity, the_ttl, the_min_hold, the_holder, the_fence, at,
            the_expires, the_abandoned, the_channel, the_session);
  UPDATE @schema@.lock SET
    shape = 2, look = CASE WHEN the_session IS NULL THEN least(look, the_expires) ELSE '-infinity' END
    WHERE key = the_key AND (shape <> 2 OR the_session IS NOT NULL OR look > the_expires
                             OR current_setting('transaction_isolation') <> 'read committed');  -- mostly nothing to write
END
$$;
