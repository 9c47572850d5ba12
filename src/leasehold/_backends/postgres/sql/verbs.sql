-- The verbs of the store, one call each. Common reply of `acquire_5` and `turn_5`:
--   verdict     granted, placed, refused, or conflict (in use as another kind of lock: see mode and capacity)
--   fence       of the grant
--   abandoned   the holder before left without releasing
--   moment      the database's time, in seconds since 1970
--   ahead       how many wait before this one (refused: how many wait), counted up to 100
--   ends        seconds until the first holder's time is over, or the pause
--   facts       who holds, as JSON; or who paused the name, and why
--   spare       how many fences behind that of the grant no other one gets

-- All fences from that of an exclusive grant to the one in the row of its name are the grant's. Its process may pass the name on
-- under the next of them without a word; the database learns of it by the next renewal or release, which takes any of them
-- that is not below the last one seen.

-- Every verb pins its search path, or qualifies every name: see rules.sql. Plans are kept for as long as a session lasts,
-- also if they were made while a table had hardly any rows, or before anything was known of it. So no verb may read a
-- whole table; and a statement names a claim by its owner, which no two claims share, or by key and state, but never by
-- key and owner: then the planner may go through all claims of the name.

-- The row of a claim. A mark of its withdrawal may stand beside a grant that is kept for its min_hold.
CREATE OR REPLACE FUNCTION @schema@.own_3(the_owner pg_catalog.text) RETURNS @schema@.claim
LANGUAGE plpgsql AS $$
DECLARE
  own @schema@.claim;
BEGIN
  SELECT * INTO own FROM @schema@.claim WHERE owner = the_owner ORDER BY state LIMIT 1;
  RETURN own;
END
$$;

-- How many fences behind its own a grant has that no other one gets. Stable: for a caller that has not locked the row of the name
-- both are of one snapshot. Clients call it, so every name is qualified.
CREATE OR REPLACE FUNCTION @schema@.spare_5(own @schema@.claim) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF own.mode OPERATOR(pg_catalog.<>) 'exclusive' THEN
    RETURN 0;
  END IF;
  RETURN (SELECT least(l.fence, @schema@.last_fence_5(own.fence)) OPERATOR(pg_catalog.-) own.fence
          FROM @schema@.lock AS l WHERE l.key OPERATOR(pg_catalog.=) own.key);
END
$$;

-- The part of the reply to a claim that was not granted.
CREATE OR REPLACE FUNCTION @schema@.describe_3(
  the_key pg_catalog.bytea, before bigint, at timestamp with time zone, OUT ahead integer, OUT ends double precision, OUT facts pg_catalog.text)
LANGUAGE plpgsql AS $$
DECLARE
  first @schema@.claim;
  pause_ends double precision;
  pause_facts pg_catalog.text;
BEGIN
  SELECT count(*) INTO ahead FROM (
    SELECT FROM @schema@.claim WHERE key = the_key AND state = 3 AND number < before LIMIT 100) AS waiting;
  SELECT * INTO first FROM @schema@.claim WHERE key = the_key AND state <= 2 ORDER BY state, number LIMIT 1;
  IF first.mode = 'exclusive' THEN
    ends := date_part('epoch', first.expires - at);
    facts := first.holder;
  ELSIF first.mode IS NOT NULL THEN
    SELECT date_part('epoch', min(expires) - at), (array_agg(holder ORDER BY number))[1] INTO ends, facts FROM (
      SELECT expires, holder, number FROM @schema@.claim WHERE key = the_key AND state <= 2
      ORDER BY state, number LIMIT 100) AS held;
  END IF;
  SELECT date_part('epoch', expires - at), holder INTO pause_ends, pause_facts FROM @schema@.claim
    WHERE owner = @schema@.pause_owner_4(the_key);
  IF FOUND THEN
    ends := pause_ends;
    facts := pause_facts;
  END IF;
END
$$;

-- Acquire by the rules. For the parameters and the reply see `acquire_5`.
CREATE OR REPLACE FUNCTION @schema@.acquire_by_rules_5(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_ttl double precision, the_mode pg_catalog.text,
  the_capacity integer, the_min_hold double precision, the_holder pg_catalog.text, the_floor bigint, waits boolean,
  the_channel pg_catalog.text, the_session bigint, the_spare bigint,
  OUT verdict pg_catalog.text, OUT fence bigint, OUT abandoned boolean, OUT moment double precision, OUT ahead integer,
  OUT ends double precision, OUT facts pg_catalog.text, OUT spare bigint, OUT mode pg_catalog.text, OUT capacity integer)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone := @schema@.enter_3(the_key);
  own @schema@.claim;
  present @schema@.claim;
  last bigint;
  reply pg_catalog.record;
BEGIN
  moment := date_part('epoch', at);
  own := @schema@.own_3(the_owner);
  IF own.state = 1 AND own.broken IS NULL THEN  -- sent again, because its answer was lost
    UPDATE @schema@.claim AS c SET expires = at + make_interval(secs => the_ttl), session = the_session
      WHERE c.number = own.number;
    verdict := 'granted';
    fence := own.fence;
    abandoned := own.abandoned;
    spare := @schema@.spare_5(own);
    RETURN;
  END IF;
  IF own.state IS NULL THEN
    SELECT * INTO present FROM @schema@.claim AS c WHERE c.key = the_key AND c.state <= 3
      AND c.owner <> @schema@.pause_owner_4(the_key) ORDER BY c.state, c.number LIMIT 1;
    IF FOUND AND ((present.mode = 'permit') <> (the_mode = 'permit') OR (the_mode = 'permit' AND present.capacity <> the_capacity)) THEN
      verdict := 'conflict';
      mode := present.mode;
      capacity := present.capacity;
      RETURN;
    END IF;
    IF the_floor > 0 THEN
      UPDATE @schema@.lock AS l SET fence = the_floor WHERE l.key = the_key AND l.fence < the_floor;
    END IF;
    IF present.mode = 'exclusive' OR the_mode = 'exclusive' AND present.mode IS NOT NULL THEN
      NULL;  -- what holds or waits there is in the way, without a further look
    ELSIF NOT EXISTS (SELECT FROM @schema@.claim AS c WHERE c.key = the_key AND c.state = 3)
       AND @schema@.admits_3(the_key, the_mode, the_capacity) THEN
      SELECT greatest(l.fence + 1, @schema@.micros_3(at)), l.abandoned_until > at INTO fence, abandoned
        FROM @schema@.lock AS l WHERE l.key = the_key;
      last := CASE the_mode WHEN 'exclusive' THEN least(fence + the_spare, @schema@.last_fence_5(fence)) ELSE fence END;
      spare := last - fence;
      UPDATE @schema@.lock AS l SET fence = last, abandoned_until = '-infinity' WHERE l.key = the_key;
      PERFORM @schema@.add_3(the_key, the_owner, 1, the_mode, the_capacity, the_ttl, the_min_hold, the_holder, fence, at,
                             at + make_interval(secs => the_ttl), abandoned, NULL, the_session);
      verdict := 'granted';
      RETURN;
    END IF;
  END IF;
  verdict := 'refused';
  IF waits AND own.state IS NULL THEN
    PERFORM @schema@.add_3(the_key, the_owner, 3, the_mode, the_capacity, the_ttl, the_min_hold, the_holder, 0, at,
                           at + make_interval(secs => least(the_ttl, 3)), false, the_channel, NULL);
    verdict := 'placed';
    PERFORM @schema@.commit_soon_5();
    SELECT c.number INTO own.number FROM @schema@.claim AS c WHERE c.owner = the_owner;
  ELSIF waits AND own.state = 3 THEN
    UPDATE @schema@.claim AS c SET expires = at + make_interval(secs => least(the_ttl, 3)), bell = the_channel
      WHERE c.number = own.number;
    verdict := 'placed';
  ELSE
    PERFORM @schema@.settle_3(the_key, at);
  END IF;
  reply := @schema@.describe_3(the_key, coalesce(CASE WHEN verdict = 'placed' THEN own.number END, 9223372036854775807), at);
  ahead := reply.ahead;
  ends := reply.ends;
  facts := reply.facts;
END
$$;

-- The common case, an exclusive claim on a name that is not in use, is one write. Otherwise the rules decide.
-- `waits`: take a place in the queue if it cannot be had at once. `the_floor`: the fence is above this.
-- `in_session`: the claim ends with this session, which has its number; sent again in another, it moves there.
-- `the_spare`: so many fences are wanted behind that of an exclusive grant. A name without waiters may be granted so often that
-- ranges for each would outrun the clock that fences follow; so only a claim that asks for one, or that has waited, gets it.
-- Invariant: the same claim sent twice gives the same grant, with a new expiry; a withdrawn claim gets nothing.
-- A claim that does not wait, on a name with one exclusive holder, is refused without a lock on the name's row: many
-- clients that poll would otherwise keep that row locked in turn, and the release would be one more in their line. Other
-- claims on a name in use pass its gate first, for the same reason: see `pass_gate_3`.
CREATE OR REPLACE FUNCTION @schema@.acquire_5(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_ttl double precision, the_mode pg_catalog.text,
  the_capacity integer, the_min_hold double precision, the_holder pg_catalog.text, the_floor bigint, waits boolean,
  the_channel pg_catalog.text, in_session boolean, the_spare bigint,
  OUT verdict pg_catalog.text, OUT fence bigint, OUT abandoned boolean, OUT moment double precision, OUT ahead integer,
  OUT ends double precision, OUT facts pg_catalog.text, OUT spare bigint, OUT mode pg_catalog.text, OUT capacity integer)
LANGUAGE plpgsql AS $$
DECLARE
  at timestamp with time zone;
  the_session bigint := CASE WHEN in_session THEN CAST(pg_catalog.current_setting('leasehold.session') AS bigint) END;
  held @schema@.lock;
  reply pg_catalog.record;
BEGIN
  FOR attempt IN 1 .. 2 LOOP  -- the second time after a wait for the row, which may have a new holder
    at := pg_catalog.clock_timestamp();
    moment := pg_catalog.date_part('epoch', at);
    IF attempt OPERATOR(pg_catalog.=) 1 OR NOT waits THEN
      SELECT l.* INTO held FROM @schema@.lock AS l WHERE l.key OPERATOR(pg_catalog.=) the_key;
      IF held.shape OPERATOR(pg_catalog.=) 1 AND NOT waits AND the_mode OPERATOR(pg_catalog.<>) 'permit'
         AND held.owner OPERATOR(pg_catalog.<>) the_owner AND held.expires OPERATOR(pg_catalog.>) at
         AND NOT @schema@.is_over_3(held.session) THEN
        verdict := 'refused';
        ahead := 0;
        ends := pg_catalog.date_part('epoch', held.expires OPERATOR(pg_catalog.-) at);
        facts := held.holder;
        RETURN;
      END IF;
      IF held.shape OPERATOR(pg_catalog.<>) 0 AND attempt OPERATOR(pg_catalog.=) 1 THEN
        PERFORM @schema@.pass_gate_3(the_key);
      END IF;
    END IF;
    EXIT WHEN attempt OPERATOR(pg_catalog.=) 2 OR the_mode OPERATOR(pg_catalog.<>) 'exclusive'
      OR the_min_hold OPERATOR(pg_catalog.<>) 0 OR the_spare OPERATOR(pg_catalog.>) 0
      OR held.shape OPERATOR(pg_catalog.=) 2;  -- null: there is no row
    INSERT INTO @schema@.lock AS l (key, fence, shape, owner, ttl, since, expires, holder, session)
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
  reply := @schema@.acquire_by_rules_5(the_key, the_owner, the_ttl, the_mode, the_capacity, the_min_hold, the_holder, the_floor,
                                       waits, the_channel, the_session, the_spare);
  verdict := reply.verdict;
  fence := reply.fence;
  abandoned := reply.abandoned;
  moment := reply.moment;
  ahead := reply.ahead;
  ends := reply.ends;
  facts := reply.facts;
  spare := reply.spare;
  mode := reply.mode;
  capacity := reply.capacity;
END
$$;

-- Whether it is this waiter's turn; keeps its place alive. Refused: the place is gone.
CREATE OR REPLACE FUNCTION @schema@.turn_5(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_channel pg_catalog.text,
  OUT verdict pg_catalog.text, OUT fence bigint, OUT abandoned boolean, OUT moment double precision, OUT ahead integer,
  OUT ends double precision, OUT facts pg_catalog.text, OUT spare bigint, OUT mode pg_catalog.text, OUT capacity integer)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone;
  own @schema@.claim;
BEGIN
  PERFORM @schema@.pass_gate_3(the_key);
  at := @schema@.enter_3(the_key);
  PERFORM @schema@.catch_up_5(the_key, at);
  moment := date_part('epoch', at);
  own := @schema@.own_3(the_owner);
  IF own.state = 1 AND own.broken IS NULL THEN
    UPDATE @schema@.claim AS c SET expires = at + make_interval(secs => own.ttl) WHERE c.number = own.number;
    verdict := 'granted';
    fence := own.fence;
    abandoned := own.abandoned;
    spare := @schema@.spare_5(own);
    RETURN;
  END IF;
  IF own.state = 3 THEN
    UPDATE @schema@.claim AS c SET expires = at + make_interval(secs => least(own.ttl, 3)), bell = the_channel
      WHERE c.number = own.number;
    verdict := 'placed';
    PERFORM @schema@.commit_soon_5();
  ELSE
    verdict := 'refused';
    own.number := 9223372036854775807;
    PERFORM @schema@.settle_3(the_key, at);
  END IF;
  SELECT d.ahead, d.ends, d.facts INTO ahead, ends, facts FROM @schema@.describe_3(the_key, own.number, at) AS d;
END
$$;

-- The same as `turn_5` for several at once -> a row for each that is there, which begins with its owner. In order of
-- key, as in `renew_5`. The planner cannot know how long the lists are, and would go through one for each member of the
-- other; so nested loops are off.
CREATE OR REPLACE FUNCTION @schema@.turns_5(the_keys pg_catalog.bytea[], the_owners pg_catalog.text[], the_channel pg_catalog.text)
RETURNS TABLE (
  owner pg_catalog.text, verdict pg_catalog.text, fence bigint, abandoned boolean, moment double precision, ahead bigint,
  ends double precision, facts pg_catalog.text, spare bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_nestloop = off AS $$
DECLARE
  name pg_catalog.bytea;
  at timestamp with time zone;
  few boolean := (SELECT count(DISTINCT k) <= 16 FROM unnest(the_keys) AS k);  -- the server has room for so many locks
  pause @schema@.claim;
BEGIN
  FOR name IN SELECT DISTINCT k FROM unnest(the_keys) AS k ORDER BY k LOOP
    IF few THEN
      PERFORM @schema@.pass_gate_3(name);
    END IF;
    at := @schema@.enter_3(name);
    PERFORM @schema@.catch_up_5(name, at);
    UPDATE @schema@.claim AS c SET
      expires = at + make_interval(secs => CASE c.state WHEN 1 THEN c.ttl ELSE least(c.ttl, 3) END), bell = the_channel
      FROM unnest(the_keys, the_owners) AS given (key, owner)
      WHERE given.key = name AND c.key = name AND c.owner = given.owner AND c.state <= 3 AND c.state <> 2
        AND c.broken IS NULL AND (c.state = 1 OR c.expires < at + make_interval(secs => least(c.ttl, 3) * 0.7)
             OR c.bell IS DISTINCT FROM the_channel);
    SELECT * INTO pause FROM @schema@.claim AS p WHERE p.owner = @schema@.pause_owner_4(name);
    RETURN QUERY
      SELECT c.owner, CASE c.state WHEN 1 THEN 'granted' ELSE 'placed' END, c.fence, c.abandoned,
             date_part('epoch', at), c.ahead, date_part('epoch', coalesce(pause.expires, c.soonest) - at),
             coalesce(pause.holder, c.facts),
             CASE WHEN c.state = 1 AND c.mode = 'exclusive'
               THEN least((SELECT l.fence FROM @schema@.lock AS l WHERE l.key = name), @schema@.last_fence_5(c.fence)) - c.fence
               ELSE 0 END
      FROM (SELECT held.*,
                   count(*) FILTER (WHERE held.state = 3) OVER in_line - (held.state = 3)::integer AS ahead,
                   min(held.expires) FILTER (WHERE held.state <= 2) OVER () AS soonest,
                   first_value(held.holder) OVER in_line AS facts
            FROM @schema@.claim AS held WHERE held.key = name AND held.state <= 3
            WINDOW in_line AS (ORDER BY held.state, held.number)) AS c
      JOIN unnest(the_keys, the_owners) AS given (key, owner) ON given.key = name AND given.owner = c.owner
      WHERE c.state IN (1, 3) AND c.broken IS NULL;
  END LOOP;
END
$$;

-- Extend grants -> a row for each that is lost: its place in the list, counted from 1, and why, if it was broken.
-- `in_session`: from now on they end with this session; the one that they lived in must not have ended.
-- A grant that was passed on inside its process is found under an earlier fence, and has this one from now on.
-- In order of key, so that two such calls never wait for each other; all other calls lock one name only.
CREATE OR REPLACE FUNCTION @schema@.renew_5(
  the_keys pg_catalog.bytea[], the_owners pg_catalog.text[], the_fences bigint[], the_ttls double precision[], in_session boolean)
RETURNS TABLE (place bigint, broken pg_catalog.text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  g pg_catalog.record;
  at timestamp with time zone;
  highest bigint;
  the_session bigint := CASE WHEN in_session THEN current_setting('leasehold.session')::bigint END;
BEGIN
  FOR g IN SELECT * FROM unnest(the_keys, the_owners, the_fences, the_ttls)
           WITH ORDINALITY AS given (key, owner, fence, ttl, place) ORDER BY given.key LOOP
    at := clock_timestamp();
    UPDATE @schema@.lock AS l SET expires = at + make_interval(secs => g.ttl), session = the_session
      WHERE l.key = g.key AND l.shape = 1 AND l.owner = g.owner AND l.fence = g.fence AND l.expires > at
        AND NOT @schema@.is_over_3(l.session);
    CONTINUE WHEN FOUND;
    SELECT l.fence INTO highest FROM @schema@.lock AS l WHERE l.key = g.key FOR UPDATE;
    at := clock_timestamp();
    UPDATE @schema@.claim AS c SET expires = at + make_interval(secs => g.ttl), session = the_session, fence = g.fence
      WHERE c.owner = g.owner AND @schema@.has_fence_5(c.mode, c.fence, g.fence, highest) AND c.state = 1 AND c.broken IS NULL
        AND c.expires > at AND NOT @schema@.is_over_3(c.session);
    CONTINUE WHEN FOUND;
    place := g.place;
    broken := (SELECT c.broken FROM @schema@.claim AS c
               WHERE c.owner = g.owner AND @schema@.has_fence_5(c.mode, c.fence, g.fence, highest) AND c.expires > at LIMIT 1);
    RETURN NEXT;
  END LOOP;
END
$$;

-- Release by the rules; see `release_5`. A grant that was broken is kept for its min_hold like any other, for that is a
-- promise to the others. One that was broken at once has no place any more; its note stays until its ttl is over, so
-- that a release that is sent twice gets the reason twice; so does one of a grant that is kept. A clock that was set back does not make a min_hold longer.
CREATE OR REPLACE FUNCTION @schema@.release_by_rules_5(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_fence bigint) RETURNS pg_catalog.text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone := @schema@.enter_3(the_key);
  own @schema@.claim;
BEGIN
  SELECT * INTO own FROM @schema@.claim AS c
    WHERE c.owner = the_owner AND (c.state = 1 OR c.broken IS NOT NULL)
      AND @schema@.has_fence_5(c.mode, c.fence, the_fence, (SELECT l.fence FROM @schema@.lock AS l WHERE l.key = the_key));
  IF NOT FOUND THEN
    PERFORM @schema@.settle_3(the_key, at);
    RETURN 'gone';
  END IF;
  IF own.state <> 1 THEN
    RETURN own.broken;
  END IF;
  own.since := least(own.since, at);
  IF own.min_hold > 0 AND own.since + make_interval(secs => own.min_hold) > at THEN
    own.expires := own.since + make_interval(secs => own.min_hold);
    UPDATE @schema@.claim SET state = 2, expires = own.expires WHERE number = own.number;
    UPDATE @schema@.lock SET look = least(look, own.expires) WHERE key = the_key;
  ELSE
    DELETE FROM @schema@.claim WHERE number = own.number;
    PERFORM @schema@.advance_3(the_key, at);
    PERFORM @schema@.settle_3(the_key, at);
  END IF;
  RETURN coalesce(own.broken, 'freed');
END
$$;

-- Free a grant in a busy queue, and hand the name over to the next waiter: the one case that such a queue consists of, in as
-- few statements as there can be. Precondition: the caller has locked the row, which is `named`, and found that nothing has
-- run out. Others decide by the rules -> whether it was done. Every name is qualified: see rules.sql.
CREATE OR REPLACE FUNCTION @schema@.hand_over_5(
  named @schema@.lock, the_owner pg_catalog.text, the_fence bigint, at timestamp with time zone) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  next @schema@.claim;
  last bigint;
BEGIN
  SELECT c.* INTO next FROM @schema@.claim AS c WHERE c.key OPERATOR(pg_catalog.=) named.key AND c.state OPERATOR(pg_catalog.=) 3
    ORDER BY c.number LIMIT 1;
  IF NOT FOUND OR next.mode OPERATOR(pg_catalog.<>) 'exclusive' THEN
    RETURN false;
  END IF;
  DELETE FROM @schema@.claim AS c WHERE c.owner OPERATOR(pg_catalog.=) the_owner
    AND @schema@.has_fence_5(c.mode, c.fence, the_fence, named.fence)
    AND c.state OPERATOR(pg_catalog.=) 1 AND c.mode OPERATOR(pg_catalog.=) 'exclusive' AND c.broken IS NULL
    AND c.min_hold OPERATOR(pg_catalog.=) 0
    AND NOT EXISTS (SELECT FROM @schema@.claim AS k WHERE k.key OPERATOR(pg_catalog.=) named.key AND k.state OPERATOR(pg_catalog.=) 2);
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  named.fence := greatest(named.fence OPERATOR(pg_catalog.+) 1,
                          CAST(pg_catalog.date_part('epoch', at) OPERATOR(pg_catalog.*) 1000000 AS bigint));
  last := @schema@.last_fence_5(named.fence);
  next.expires := at OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => least(next.ttl, 3));
  UPDATE @schema@.claim AS c SET state = 1, fence = named.fence, since = at, expires = next.expires
    WHERE c.number OPERATOR(pg_catalog.=) next.number;
  UPDATE @schema@.lock AS l SET fence = last, look = least(named.look, next.expires)
    WHERE l.key OPERATOR(pg_catalog.=) named.key;
  IF next.bell IS NOT NULL THEN
    PERFORM pg_catalog.pg_notify(next.bell, pg_catalog.concat_ws(
      ' ', next.owner, named.fence, pg_catalog.date_part('epoch', at),
      'r' OPERATOR(pg_catalog.||) CAST(last OPERATOR(pg_catalog.-) named.fence AS pg_catalog.text)));
  END IF;
  RETURN true;
END
$$;

-- Free this grant and nothing else -> freed; gone, if it was no longer ours; or, if it was broken, the reason as a JSON
-- string. A late copy of the claim, granted anew, has another fence.
CREATE OR REPLACE FUNCTION @schema@.release_5(the_key pg_catalog.bytea, the_owner pg_catalog.text, the_fence bigint)
RETURNS pg_catalog.text
LANGUAGE plpgsql AS $$
DECLARE
  named @schema@.lock;
  at timestamp with time zone;
BEGIN
  UPDATE @schema@.lock AS l SET shape = 0, owner = NULL
    WHERE l.key OPERATOR(pg_catalog.=) the_key AND l.shape OPERATOR(pg_catalog.=) 1
      AND l.owner OPERATOR(pg_catalog.=) the_owner AND l.fence OPERATOR(pg_catalog.=) the_fence
      AND l.expires OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp();
  IF FOUND THEN
    RETURN 'freed';
  END IF;
  SELECT l.* INTO named FROM @schema@.lock AS l WHERE l.key OPERATOR(pg_catalog.=) the_key
    AND l.shape OPERATOR(pg_catalog.=) 2 FOR UPDATE;
  IF FOUND THEN
    at := pg_catalog.clock_timestamp();
    IF named.look OPERATOR(pg_catalog.>) at AND named.abandoned_until OPERATOR(pg_catalog.<=) at
       AND @schema@.hand_over_5(named, the_owner, the_fence, at) THEN
      RETURN 'freed';
    END IF;
  END IF;
  RETURN @schema@.release_by_rules_5(the_key, the_owner, the_fence);
END
$$;

-- Undo a claim whatever its state. `doubt`: copies of it that arrive late are refused for one ttl. Without doubt none can
-- arrive, and nothing is left of it: not even a row of the name, if there was none. With doubt the note of a break at
-- once stays in the place of a mark: it refuses late copies as well.
CREATE OR REPLACE FUNCTION @schema@.withdraw_3(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_ttl double precision, doubt boolean) RETURNS pg_catalog.void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone;
  row @schema@.lock;
  unseen boolean;
BEGIN
  IF NOT doubt THEN
    SELECT * INTO row FROM @schema@.lock WHERE key = the_key FOR UPDATE;
    IF NOT FOUND OR row.shape = 0 OR row.shape = 1 AND row.owner <> the_owner THEN
      RETURN;
    END IF;
  END IF;
  at := @schema@.enter_3(the_key);
  WITH gone AS (
    DELETE FROM @schema@.claim WHERE owner = the_owner AND (state IN (1, 3) OR state > 3 AND NOT doubt)
    RETURNING state, abandoned)
  SELECT coalesce(bool_or(state = 1 AND abandoned), false) INTO unseen FROM gone;
  IF unseen THEN  -- its holder never saw that the one before had vanished; the next one must
    UPDATE @schema@.lock SET abandoned_until = at + interval '1 day' WHERE key = the_key;
  END IF;
  IF doubt THEN
    UPDATE @schema@.claim SET expires = greatest(expires, at + make_interval(secs => the_ttl))
      WHERE owner = the_owner AND state = 5;
    IF NOT FOUND THEN
      PERFORM @schema@.add_3(the_key, the_owner, 4, 'exclusive', 1, the_ttl, 0, '{}', 0, at,
                             at + make_interval(secs => the_ttl), false, NULL, NULL);
    END IF;
  END IF;
  PERFORM @schema@.advance_3(the_key, at);
  PERFORM @schema@.settle_3(the_key, at);
END
$$;

-- End the grant that has this fence; its place stays taken until its ttl is over, unless `at_once` -> whether there was
-- one.
CREATE OR REPLACE FUNCTION @schema@.break_5(the_key pg_catalog.bytea, the_fence bigint, the_reason pg_catalog.text, at_once boolean)
RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone := @schema@.enter_3(the_key);
  own @schema@.claim;
BEGIN
  SELECT * INTO own FROM @schema@.claim AS c WHERE c.key = the_key AND c.state = 1
    AND @schema@.has_fence_5(c.mode, c.fence, the_fence, (SELECT l.fence FROM @schema@.lock AS l WHERE l.key = the_key));
  IF NOT FOUND THEN
    PERFORM @schema@.settle_3(the_key, at);
    RETURN false;
  END IF;
  UPDATE @schema@.claim SET broken = the_reason, state = CASE WHEN at_once THEN 5 ELSE 1 END WHERE number = own.number;
  IF at_once THEN
    UPDATE @schema@.lock SET abandoned_until = at + interval '1 day' WHERE key = the_key;
    PERFORM @schema@.advance_3(the_key, at);
  END IF;
  RETURN true;
END
$$;

-- Make every later fence of the name higher than this -> what they are higher than now.
CREATE OR REPLACE FUNCTION @schema@.raise_fence_3(the_key pg_catalog.bytea, the_fence bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  highest bigint;
BEGIN
  PERFORM @schema@.enter_3(the_key);  -- a holder that was folded into the row has its own fence by now
  UPDATE @schema@.lock SET fence = greatest(fence, the_fence) WHERE key = the_key RETURNING fence INTO highest;
  RETURN highest;
END
$$;
