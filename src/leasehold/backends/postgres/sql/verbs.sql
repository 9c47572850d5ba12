-- The verbs of the store, one call each. Common reply of `acquire_1` and `turn_1`:
--   verdict     granted, placed, refused, or conflict (in use as another kind of lock: see mode and capacity)
--   fence       of the grant
--   abandoned   the holder before left without releasing
--   moment      the database's time, in seconds since 1970
--   ahead       how many wait before this one (refused: how many wait), counted up to 100
--   ends        seconds until the first holder's time is over
--   facts       who holds, as JSON

-- What a claim is told that was not granted.
CREATE OR REPLACE FUNCTION @schema@.describe_1(
  the_key bytea, before bigint, at timestamptz, OUT ahead integer, OUT ends double precision, OUT facts text)
LANGUAGE plpgsql AS $$
BEGIN
  SELECT count(*) INTO ahead FROM (
    SELECT FROM @schema@.claim WHERE key = the_key AND state = 3 AND number < before LIMIT 100) AS waiting;
  SELECT date_part('epoch', min(expires) - at), (array_agg(holder ORDER BY number))[1] INTO ends, facts FROM (
    SELECT expires, holder, number FROM @schema@.claim WHERE key = the_key AND state <= 2
    ORDER BY state, number LIMIT 100) AS held;
END
$$;

-- The common case: an exclusive claim on a name that nobody uses is one write. Otherwise the rules decide.
-- `waits`: take a place in the queue if it cannot be had at once. `the_floor`: the fence is above this.
-- `in_session`: the claim ends with this session, which was named before; asked again by another, it moves there.
-- Invariant: the same claim asked twice gives the same grant, with a new expiry; a withdrawn claim gets nothing.
CREATE OR REPLACE FUNCTION @schema@.acquire_1(
  the_key bytea, the_owner text, the_ttl double precision, the_mode text, the_capacity integer,
  the_min_hold double precision, the_holder text, the_floor bigint, waits boolean, the_bell text, in_session boolean,
  OUT verdict text, OUT fence bigint, OUT abandoned boolean, OUT moment double precision, OUT ahead integer,
  OUT ends double precision, OUT facts text, OUT mode text, OUT capacity integer)
LANGUAGE plpgsql AS $$
DECLARE
  at timestamptz := clock_timestamp();
  the_session bigint := CASE WHEN in_session THEN current_setting('leasehold.session')::bigint END;
  own @schema@.claim;
  present @schema@.claim;
BEGIN
  moment := date_part('epoch', at);
  IF the_mode = 'exclusive' AND the_min_hold = 0 THEN
    INSERT INTO @schema@.lock AS l (key, fence, shape, owner, ttl, since, expires, holder, session)
      VALUES (the_key, greatest((moment * 1000000)::bigint, the_floor + 1), 1, the_owner, the_ttl, at,
              at + make_interval(secs => the_ttl), the_holder, the_session)
      ON CONFLICT (key) DO UPDATE SET
        fence = greatest(l.fence + 1, excluded.fence), shape = 1, owner = excluded.owner, ttl = excluded.ttl,
        since = excluded.since, expires = excluded.expires, holder = excluded.holder, session = excluded.session
      WHERE l.shape = 0
      RETURNING l.fence INTO fence;
    IF FOUND THEN
      verdict := 'granted';
      abandoned := false;
      RETURN;
    END IF;
  END IF;
  at := @schema@.enter_1(the_key);
  moment := date_part('epoch', at);
  SELECT * INTO own FROM @schema@.claim AS c WHERE c.key = the_key AND c.owner = the_owner ORDER BY c.state LIMIT 1;
  IF own.state = 1 AND own.broken IS NULL THEN  -- asked again, because its answer was lost
    UPDATE @schema@.claim AS c SET expires = at + make_interval(secs => the_ttl), session = the_session
      WHERE c.number = own.number;
    verdict := 'granted';
    fence := own.fence;
    abandoned := own.abandoned;
    RETURN;
  END IF;
  IF own.state IS NULL THEN
    SELECT * INTO present FROM @schema@.claim AS c WHERE c.key = the_key AND c.state <= 3
      ORDER BY c.state, c.number LIMIT 1;
    IF FOUND AND ((present.mode = 'permit') <> (the_mode = 'permit') OR (the_mode = 'permit' AND present.capacity <> the_capacity)) THEN
      verdict := 'conflict';
      mode := present.mode;
      capacity := present.capacity;
      RETURN;
    END IF;
    IF the_floor > 0 THEN
      UPDATE @schema@.lock AS l SET fence = the_floor WHERE l.key = the_key AND l.fence < the_floor;
    END IF;
    IF NOT EXISTS (SELECT FROM @schema@.claim AS c WHERE c.key = the_key AND c.state = 3)
       AND @schema@.admits_1(the_key, the_mode, the_capacity) THEN
      SELECT greatest(l.fence + 1, @schema@.micros_1(at)), l.abandoned_until > at INTO fence, abandoned
        FROM @schema@.lock AS l WHERE l.key = the_key;
      UPDATE @schema@.lock AS l SET fence = acquire_1.fence, abandoned_until = '-infinity' WHERE l.key = the_key;
      PERFORM @schema@.add_1(the_key, the_owner, 1, the_mode, the_capacity, the_ttl, the_min_hold, the_holder, fence, at,
                             at + make_interval(secs => the_ttl), abandoned, NULL, the_session);
      verdict := 'granted';
      RETURN;
    END IF;
  END IF;
  verdict := 'refused';
  IF waits AND own.state IS NULL THEN
    PERFORM @schema@.add_1(the_key, the_owner, 3, the_mode, the_capacity, the_ttl, the_min_hold, the_holder, 0, at,
                           at + make_interval(secs => least(the_ttl, 3)), false, the_bell, NULL);
    verdict := 'placed';
    SELECT c.number INTO own.number FROM @schema@.claim AS c WHERE c.key = the_key AND c.owner = the_owner;
  ELSIF waits AND own.state = 3 THEN
    UPDATE @schema@.claim AS c SET expires = at + make_interval(secs => least(the_ttl, 3)), bell = the_bell
      WHERE c.number = own.number;
    verdict := 'placed';
  ELSE
    PERFORM @schema@.settle_1(the_key, at);
  END IF;
  SELECT d.ahead, d.ends, d.facts INTO ahead, ends, facts
    FROM @schema@.describe_1(the_key, coalesce(CASE WHEN verdict = 'placed' THEN own.number END, 9223372036854775807),
                             at) AS d;
END
$$;

-- Whose turn it is, asked by one who waits; keeps the place alive. Refused: the place is gone.
CREATE OR REPLACE FUNCTION @schema@.turn_1(
  the_key bytea, the_owner text, the_bell text,
  OUT verdict text, OUT fence bigint, OUT abandoned boolean, OUT moment double precision, OUT ahead integer,
  OUT ends double precision, OUT facts text, OUT mode text, OUT capacity integer)
LANGUAGE plpgsql AS $$
DECLARE
  at timestamptz := @schema@.enter_1(the_key);
  own @schema@.claim;
BEGIN
  moment := date_part('epoch', at);
  SELECT * INTO own FROM @schema@.claim AS c WHERE c.key = the_key AND c.owner = the_owner ORDER BY c.state LIMIT 1;
  IF own.state = 1 AND own.broken IS NULL THEN
    UPDATE @schema@.claim AS c SET expires = at + make_interval(secs => own.ttl) WHERE c.number = own.number;
    verdict := 'granted';
    fence := own.fence;
    abandoned := own.abandoned;
    RETURN;
  END IF;
  IF own.state = 3 THEN
    UPDATE @schema@.claim AS c SET expires = at + make_interval(secs => least(own.ttl, 3)), bell = the_bell
      WHERE c.number = own.number;
    verdict := 'placed';
  ELSE
    verdict := 'refused';
    own.number := 9223372036854775807;
    PERFORM @schema@.settle_1(the_key, at);
  END IF;
  SELECT d.ahead, d.ends, d.facts INTO ahead, ends, facts FROM @schema@.describe_1(the_key, own.number, at) AS d;
END
$$;

-- Keep the places of all who wait in one client, and let them be told on this bell -> a row for each that is there:
-- owner, state (1 let in, 3 waiting), how many wait before it, who holds, and if it was let in: fence, when in seconds
-- since 1970, abandoned. In order of key, as in `renew_1`. The planner cannot know how long the lists are, and would go
-- through one for each member of the other.
CREATE OR REPLACE FUNCTION @schema@.keep_1(the_keys bytea[], the_owners text[], the_bell text)
RETURNS TABLE (
  owner text, state smallint, ahead bigint, facts text, fence bigint, moment double precision, abandoned boolean)
LANGUAGE plpgsql SET enable_nestloop = off AS $$
DECLARE
  name bytea;
  at timestamptz;
BEGIN
  FOR name IN SELECT DISTINCT k FROM unnest(the_keys) AS k ORDER BY k LOOP
    at := @schema@.enter_1(name);
    UPDATE @schema@.claim AS c SET expires = at + make_interval(secs => least(c.ttl, 3)), bell = the_bell
      FROM unnest(the_keys, the_owners) AS given (key, owner)
      WHERE given.key = name AND c.key = name AND c.owner = given.owner AND c.state = 3
        AND (c.expires < at + make_interval(secs => least(c.ttl, 3) * 0.7) OR c.bell IS DISTINCT FROM the_bell);
    RETURN QUERY
      SELECT c.owner, c.state, c.ahead, c.facts, c.fence, date_part('epoch', c.since), c.abandoned
      FROM (SELECT held.*, count(*) FILTER (WHERE held.state = 3) OVER (ORDER BY held.state, held.number)
                           - (held.state = 3)::integer AS ahead,
                   first_value(held.holder) OVER (ORDER BY held.state, held.number) AS facts
            FROM @schema@.claim AS held WHERE held.key = name AND held.state <= 3) AS c
      JOIN unnest(the_keys, the_owners) AS given (key, owner) ON given.key = name AND given.owner = c.owner
      WHERE c.state IN (1, 3);
  END LOOP;
END
$$;

-- Extend grants -> a row for each that is lost: its place in the list, counted from 1, and why, if it was broken.
-- `in_session`: from now on they end with this session; the one that they lived in must not have ended.
-- In order of key, so that two such calls never wait for each other; whoever else locks names locks one only.
CREATE OR REPLACE FUNCTION @schema@.renew_1(
  the_keys bytea[], the_owners text[], the_fences bigint[], the_ttls double precision[], in_session boolean)
RETURNS TABLE (place bigint, broken text)
LANGUAGE plpgsql AS $$
DECLARE
  g record;
  at timestamptz;
  the_session bigint := CASE WHEN in_session THEN current_setting('leasehold.session')::bigint END;
BEGIN
  FOR g IN SELECT * FROM unnest(the_keys, the_owners, the_fences, the_ttls)
           WITH ORDINALITY AS given (key, owner, fence, ttl, place) ORDER BY given.key LOOP
    at := clock_timestamp();
    UPDATE @schema@.lock AS l SET expires = at + make_interval(secs => g.ttl), session = the_session
      WHERE l.key = g.key AND l.shape = 1 AND l.owner = g.owner AND l.fence = g.fence AND l.expires > at
        AND NOT @schema@.is_over_1(l.session);
    CONTINUE WHEN FOUND;
    PERFORM FROM @schema@.lock AS l WHERE l.key = g.key FOR UPDATE;
    at := clock_timestamp();
    UPDATE @schema@.claim AS c SET expires = at + make_interval(secs => g.ttl), session = the_session
      WHERE c.key = g.key AND c.owner = g.owner AND c.fence = g.fence AND c.state = 1 AND c.broken IS NULL
        AND c.expires > at AND NOT @schema@.is_over_1(c.session);
    CONTINUE WHEN FOUND;
    place := g.place;
    broken := (SELECT c.broken FROM @schema@.claim AS c
               WHERE c.key = g.key AND c.owner = g.owner AND c.fence = g.fence AND c.expires > at LIMIT 1);
    RETURN NEXT;
  END LOOP;
END
$$;

-- Free this grant and nothing else -> whether it was ours. A late copy of the claim, granted anew, has another fence.
CREATE OR REPLACE FUNCTION @schema@.release_1(the_key bytea, the_owner text, the_fence bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  at timestamptz := clock_timestamp();
  own @schema@.claim;
BEGIN
  UPDATE @schema@.lock SET shape = 0, owner = NULL
    WHERE key = the_key AND shape = 1 AND owner = the_owner AND fence = the_fence AND expires > at;
  IF FOUND THEN
    RETURN true;
  END IF;
  at := @schema@.enter_1(the_key);
  SELECT * INTO own FROM @schema@.claim
    WHERE key = the_key AND owner = the_owner AND state = 1 AND fence = the_fence;
  IF NOT FOUND THEN
    PERFORM @schema@.settle_1(the_key, at);
    RETURN false;
  END IF;
  IF own.since + make_interval(secs => own.min_hold) > at THEN
    own.expires := own.since + make_interval(secs => own.min_hold);
    UPDATE @schema@.claim SET state = 2, expires = own.expires WHERE number = own.number;
    UPDATE @schema@.lock SET look = least(look, own.expires) WHERE key = the_key;
  ELSE
    DELETE FROM @schema@.claim WHERE number = own.number;
    PERFORM @schema@.advance_1(the_key, at);
    PERFORM @schema@.settle_1(the_key, at);
  END IF;
  RETURN own.broken IS NULL;
END
$$;

-- Undo a claim whatever became of it, and refuse late copies of it for one ttl.
CREATE OR REPLACE FUNCTION @schema@.withdraw_1(the_key bytea, the_owner text, the_ttl double precision) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  at timestamptz := @schema@.enter_1(the_key);
  unheard boolean;
BEGIN
  WITH gone AS (
    DELETE FROM @schema@.claim WHERE key = the_key AND owner = the_owner AND state IN (1, 3) RETURNING state, abandoned)
  SELECT coalesce(bool_or(state = 1 AND abandoned), false) INTO unheard FROM gone;
  IF unheard THEN  -- it never got to know that the one before had vanished; the next one has to
    UPDATE @schema@.lock SET abandoned_until = at + interval '1 day' WHERE key = the_key;
  END IF;
  PERFORM @schema@.add_1(the_key, the_owner, 4, 'exclusive', 1, the_ttl, 0, '{}', 0, at,
                         at + make_interval(secs => the_ttl), false, NULL, NULL);
  PERFORM @schema@.advance_1(the_key, at);
END
$$;

-- End the grant with this fence; its place stays taken until its ttl is over, unless `at_once` -> whether there was
-- one.
CREATE OR REPLACE FUNCTION @schema@.break_1(the_key bytea, the_fence bigint, the_reason text, at_once boolean)
RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  at timestamptz := @schema@.enter_1(the_key);
  own @schema@.claim;
BEGIN
  SELECT * INTO own FROM @schema@.claim WHERE key = the_key AND fence = the_fence AND state = 1;
  IF NOT FOUND THEN
    PERFORM @schema@.settle_1(the_key, at);
    RETURN false;
  END IF;
  UPDATE @schema@.claim SET broken = the_reason, state = CASE WHEN at_once THEN 5 ELSE 1 END WHERE number = own.number;
  IF at_once THEN
    UPDATE @schema@.lock SET abandoned_until = at + interval '1 day' WHERE key = the_key;
    PERFORM @schema@.advance_1(the_key, at);
  END IF;
  RETURN true;
END
$$;

-- Make every later fence of the name higher than this -> what they are higher than now.
CREATE OR REPLACE FUNCTION @schema@.raise_fence_1(the_key bytea, the_fence bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  highest bigint;
BEGIN
  PERFORM @schema@.enter_1(the_key);  -- a holder that was folded into the row has its own fence by now
  UPDATE @schema@.lock SET fence = greatest(fence, the_fence) WHERE key = the_key RETURNING fence INTO highest;
  RETURN highest;
END
$$;
