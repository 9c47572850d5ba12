-- The verbs of version 3 and 4, for clients that were not upgraded yet: those of version 5, with a reply that has no ranges of
-- fences. What they are granted may have a range, of which they use the first fence.

CREATE OR REPLACE FUNCTION @schema@.acquire_3(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_ttl double precision, the_mode pg_catalog.text,
  the_capacity integer, the_min_hold double precision, the_holder pg_catalog.text, the_floor bigint, waits boolean,
  the_channel pg_catalog.text, in_session boolean,
  OUT verdict pg_catalog.text, OUT fence bigint, OUT abandoned boolean, OUT moment double precision, OUT ahead integer,
  OUT ends double precision, OUT facts pg_catalog.text, OUT mode pg_catalog.text, OUT capacity integer)
LANGUAGE plpgsql AS $$
BEGIN
  SELECT a.verdict, a.fence, a.abandoned, a.moment, a.ahead, a.ends, a.facts, a.mode, a.capacity
    INTO verdict, fence, abandoned, moment, ahead, ends, facts, mode, capacity
    FROM @schema@.acquire_5(the_key, the_owner, the_ttl, the_mode, the_capacity, the_min_hold, the_holder, the_floor, waits,
                            the_channel, in_session, 0) AS a;
END
$$;

CREATE OR REPLACE FUNCTION @schema@.turn_3(
  the_key pg_catalog.bytea, the_owner pg_catalog.text, the_channel pg_catalog.text,
  OUT verdict pg_catalog.text, OUT fence bigint, OUT abandoned boolean, OUT moment double precision, OUT ahead integer,
  OUT ends double precision, OUT facts pg_catalog.text, OUT mode pg_catalog.text, OUT capacity integer)
LANGUAGE plpgsql AS $$
BEGIN
  SELECT t.verdict, t.fence, t.abandoned, t.moment, t.ahead, t.ends, t.facts, t.mode, t.capacity
    INTO verdict, fence, abandoned, moment, ahead, ends, facts, mode, capacity
    FROM @schema@.turn_5(the_key, the_owner, the_channel) AS t;
END
$$;

CREATE OR REPLACE FUNCTION @schema@.turns_3(the_keys pg_catalog.bytea[], the_owners pg_catalog.text[], the_channel pg_catalog.text)
RETURNS TABLE (
  owner pg_catalog.text, verdict pg_catalog.text, fence bigint, abandoned boolean, moment double precision, ahead bigint,
  ends double precision, facts pg_catalog.text)
LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT t.owner, t.verdict, t.fence, t.abandoned, t.moment, t.ahead, t.ends, t.facts
    FROM @schema@.turns_5(the_keys, the_owners, the_channel) AS t;
END
$$;

CREATE OR REPLACE FUNCTION @schema@.renew_3(
  the_keys pg_catalog.bytea[], the_owners pg_catalog.text[], the_fences bigint[], the_ttls double precision[], in_session boolean)
RETURNS TABLE (place bigint, broken pg_catalog.text)
LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY SELECT r.place, r.broken FROM @schema@.renew_5(the_keys, the_owners, the_fences, the_ttls, in_session) AS r;
END
$$;

CREATE OR REPLACE FUNCTION @schema@.release_3(the_key pg_catalog.bytea, the_owner pg_catalog.text, the_fence bigint)
RETURNS pg_catalog.text
LANGUAGE plpgsql AS $$
BEGIN
  RETURN @schema@.release_5(the_key, the_owner, the_fence);
END
$$;

CREATE OR REPLACE FUNCTION @schema@.break_3(the_key pg_catalog.bytea, the_fence bigint, the_reason pg_catalog.text, at_once boolean)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  RETURN @schema@.break_5(the_key, the_fence, the_reason, at_once);
END
$$;
