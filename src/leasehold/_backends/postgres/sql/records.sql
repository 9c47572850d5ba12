-- Small values under a fence, and cleaning. A fence is remembered for a day after it was last shown.

-- The record, if it has not run out; and with a fence, let no lower one write from now on
--   -> value (null: none), the highest fence, seconds left, the database's time in seconds since 1970.
CREATE OR REPLACE FUNCTION @schema@.read_3(
  the_key pg_catalog.bytea, the_fence bigint,
  OUT content pg_catalog.bytea, OUT highest bigint, OUT remaining double precision, OUT moment double precision)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at timestamp with time zone := clock_timestamp();
  kept @schema@.record;
BEGIN
  IF the_fence > 0 THEN
    INSERT INTO @schema@.record AS r (key, value, fence, expires, fence_until)
      VALUES (the_key, '', the_fence, '-infinity', at + interval '1 day')
      ON CONFLICT (key) DO UPDATE SET
        fence = greatest(r.fence, excluded.fence),
        fence_until = CASE WHEN excluded.fence >= r.fence THEN excluded.fence_until ELSE r.fence_until END
      RETURNING r.* INTO kept;
  ELSE
    SELECT * INTO kept FROM @schema@.record WHERE key = the_key;
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
CREATE OR REPLACE FUNCTION @schema@.write_3(
  the_key pg_catalog.bytea, the_value pg_catalog.bytea, the_fence bigint, the_ttl double precision) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at timestamp with time zone := clock_timestamp();
BEGIN
  INSERT INTO @schema@.record AS r (key, value, fence, expires, fence_until)
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
CREATE OR REPLACE FUNCTION @schema@.clean_3(slice integer, pause double precision) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  at timestamp with time zone := clock_timestamp();
  old timestamp with time zone := at - interval '1 day';
  progress @schema@.about;
  looked pg_catalog.record;
  stale pg_catalog.bytea;
  removed integer := 0;
  number integer;
BEGIN
  SELECT * INTO progress FROM @schema@.about WHERE cleaned <= at - make_interval(secs => pause) FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  SELECT count(*) AS size, (array_agg(key ORDER BY key DESC))[1] AS last INTO looked FROM (
    SELECT key FROM @schema@.lock WHERE key > progress.lock_position ORDER BY key LIMIT slice) AS part;
  FOR stale IN SELECT key FROM @schema@.lock WHERE key > progress.lock_position AND key <= looked.last
               AND shape = 2 AND look <= at ORDER BY key FOR UPDATE SKIP LOCKED LOOP
    PERFORM @schema@.enter_3(stale);
    PERFORM @schema@.settle_3(stale, at);
  END LOOP;
  WITH idle AS (
    SELECT key FROM @schema@.lock WHERE key > progress.lock_position AND key <= looked.last
      AND (shape = 0 OR shape = 1 AND expires <= old) AND fence < @schema@.micros_3(old)
    ORDER BY key FOR UPDATE SKIP LOCKED)
  DELETE FROM @schema@.lock USING idle WHERE lock.key = idle.key;
  GET DIAGNOSTICS removed = ROW_COUNT;
  progress.lock_position := CASE WHEN looked.size = slice THEN looked.last ELSE '' END;
  SELECT count(*) AS size, (array_agg(key ORDER BY key DESC))[1] AS last INTO looked FROM (
    SELECT key FROM @schema@.record WHERE key > progress.record_position ORDER BY key LIMIT slice) AS part;
  WITH idle AS (
    SELECT key FROM @schema@.record WHERE key > progress.record_position AND key <= looked.last
      AND expires <= at AND fence_until <= at
    ORDER BY key FOR UPDATE SKIP LOCKED)
  DELETE FROM @schema@.record USING idle WHERE record.key = idle.key;
  GET DIAGNOSTICS number = ROW_COUNT;
  UPDATE @schema@.about SET cleaned = at, lock_position = progress.lock_position,
    record_position = CASE WHEN looked.size = slice THEN looked.last ELSE '' END;
  RETURN removed + number;
END
$$;
