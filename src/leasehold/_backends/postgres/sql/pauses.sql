-- Pausing a name, for operators. A pause is a claim in state 2, kept like one for its min_hold: an exclusive one, beside which
-- the rules let nothing in. Its owner is made of the key. A client of an earlier version takes it for a holder.

-- Grant nothing there for so long, instead of a pause that is there.
CREATE OR REPLACE FUNCTION @schema@.pause_4(the_key pg_catalog.bytea, the_holder pg_catalog.text, the_length double precision)
RETURNS pg_catalog.void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone := @schema@.enter_3(the_key);
BEGIN
  DELETE FROM @schema@.claim WHERE owner = @schema@.pause_owner_4(the_key);
  PERFORM @schema@.add_3(the_key, @schema@.pause_owner_4(the_key), 2, 'exclusive', 1, the_length, 0, the_holder, 0, at,
                         at + make_interval(secs => the_length), false, NULL, NULL);
END
$$;

-- End the pause, and grant to those whose turn it is -> whether there was one.
CREATE OR REPLACE FUNCTION @schema@.resume_4(the_key pg_catalog.bytea) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  at timestamp with time zone := @schema@.enter_3(the_key);
  resumed boolean;
BEGIN
  DELETE FROM @schema@.claim WHERE owner = @schema@.pause_owner_4(the_key);
  resumed := FOUND;
  PERFORM @schema@.advance_3(the_key, at);
  PERFORM @schema@.settle_3(the_key, at);
  RETURN resumed;
END
$$;
