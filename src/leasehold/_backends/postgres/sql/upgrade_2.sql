-- From version 1 to version 2. Without statistics the planner took the wrong one of two indexes that begin with the key.
CREATE INDEX IF NOT EXISTS claim_of_owner ON @schema@.claim (owner);
DROP INDEX IF EXISTS @schema@.claim_by_owner;

-- Functions of earlier versions are still called by clients that were not upgraded yet: pin their search path, too. See
-- rules.sql for the reason. Those of another owner are left alone.
DO $$
DECLARE
  older pg_catalog.regprocedure;
BEGIN
  FOR older IN
    SELECT p.oid FROM pg_catalog.pg_proc AS p
    WHERE p.pronamespace OPERATOR(pg_catalog.=) pg_catalog.to_regnamespace('@schema@')
      AND p.proname OPERATOR(pg_catalog.~) '_1$' AND pg_catalog.pg_has_role(p.proowner, 'USAGE')
  LOOP
    EXECUTE pg_catalog.format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', older);
  END LOOP;
END
$$;
