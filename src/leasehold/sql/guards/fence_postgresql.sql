-- Every write to {table_text} must carry a fence, whatever program it comes from. Needs PostgreSQL 14 or newer.
--
-- A row is protected by the lock {lock_text} of the namespace {namespace_text}. A transaction carries a fence if it
-- called leasehold.sql.guard(tx, lease) first, or, in any other program, executed
--     SET LOCAL leasehold.fence = '1794724016973247';
-- which ends with the transaction. A fence lower than one that was seen before is refused, with the code LH001.
-- A write without a fence is {unfenced}.
-- Only the owner of the table and superusers can switch triggers off.

{guard_table};

-- resource, strict -> nothing, or an error. Invariant: the fence of a resource never falls.
CREATE OR REPLACE FUNCTION {guard_schema}.leasehold_check_fence(wanted pg_catalog.text, strict boolean) RETURNS pg_catalog.void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {tag}
DECLARE
  raised jsonb := coalesce(nullif(current_setting('leasehold.fences', true), ''), '{{}}')::jsonb;
  given text := coalesce(raised ->> wanted, nullif(current_setting('leasehold.fence', true), ''));
  fence bigint;
  highest bigint;
BEGIN
  IF given IS NULL THEN
    IF NOT strict THEN
      RETURN;
    END IF;
    RAISE EXCEPTION 'leasehold: this transaction carries no fence for %', quote_literal(wanted)
      USING ERRCODE = 'LH002', HINT = 'Call guard(tx, lease) first, or SET LOCAL leasehold.fence in the transaction.';
  END IF;
  IF given !~ '^[0-9]{{1,16}}$' OR given::bigint NOT BETWEEN 1 AND 9007199254740991 THEN
    RAISE EXCEPTION 'leasehold: % is not a fence', quote_literal(given) USING ERRCODE = 'LH002';
  END IF;
  fence := given::bigint;
  IF raised ->> wanted IS NOT NULL THEN  -- raised by this very transaction, which has the row locked
    PERFORM 1 FROM {guard_schema}.leasehold_guard AS kept
      WHERE kept.resource = wanted AND kept.exclusive_fence = fence;
    IF FOUND THEN
      RETURN;
    END IF;
  END IF;
  INSERT INTO {guard_schema}.leasehold_guard AS kept (resource, exclusive_fence, shared_fence)
    VALUES (wanted, fence, 0)
    ON CONFLICT (resource) DO UPDATE SET
      exclusive_fence = excluded.exclusive_fence,
      exclusive_grant = CASE WHEN kept.exclusive_fence = excluded.exclusive_fence THEN kept.exclusive_grant END
    WHERE excluded.exclusive_fence >= kept.exclusive_fence AND excluded.exclusive_fence > kept.shared_fence;
  IF NOT FOUND THEN
    SELECT greatest(kept.exclusive_fence, kept.shared_fence) INTO highest
      FROM {guard_schema}.leasehold_guard AS kept WHERE kept.resource = wanted;
    RAISE EXCEPTION 'leasehold: stale fence %: % has seen %', fence, quote_literal(wanted), highest
      USING ERRCODE = 'LH001', HINT = 'Another holder came later; stop, and do not repeat the write.';
  END IF;
  PERFORM set_config('leasehold.fences', (raised || jsonb_build_object(wanted, fence))::text, true);
END
{tag};
REVOKE ALL ON FUNCTION {guard_schema}.leasehold_check_fence(pg_catalog.text, boolean) FROM PUBLIC;

-- On every row that is written: the lock of the row as it was, and as it will be.
CREATE OR REPLACE FUNCTION {function}() RETURNS pg_catalog.trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS {tag}
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    {truncate}
    RETURN NULL;
  END IF;
  IF TG_OP <> 'INSERT' THEN
    PERFORM {guard_schema}.leasehold_check_fence({old_resource}, {strict});
  END IF;
  IF TG_OP = 'DELETE' THEN
    RETURN OLD;
  END IF;
  IF TG_OP = 'INSERT' OR {new_resource} IS DISTINCT FROM {old_resource} THEN
    PERFORM {guard_schema}.leasehold_check_fence({new_resource}, {strict});
  END IF;
  RETURN NEW;
END
{tag};

-- The name makes it the last of the triggers that run before a write, so that it sees the row as it will be.
CREATE OR REPLACE TRIGGER zz_leasehold_fence BEFORE INSERT OR UPDATE OR DELETE ON {table}
  FOR EACH ROW EXECUTE FUNCTION {function}();
CREATE OR REPLACE TRIGGER zz_leasehold_fence_all BEFORE TRUNCATE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION {function}();

-- Triggers on rows reach the partitions of a table by themselves; triggers on TRUNCATE do not, and neither kind reaches
-- tables that inherit from it. Run this again when there are new ones.
DO {tag}
DECLARE
  child pg_catalog.record;
BEGIN
  FOR child IN
    WITH RECURSIVE below (oid) AS (
      SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i
      WHERE i.inhparent OPERATOR(pg_catalog.=) CAST({table_literal} AS pg_catalog.regclass)
      UNION ALL
      SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN below ON i.inhparent OPERATOR(pg_catalog.=) below.oid)
    SELECT n.nspname AS home, c.relname AS name, c.relispartition AS is_partition
    FROM below JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) below.oid
      JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
  LOOP
    EXECUTE pg_catalog.format('CREATE OR REPLACE TRIGGER zz_leasehold_fence_all BEFORE TRUNCATE ON %I.%I '
      'FOR EACH STATEMENT EXECUTE FUNCTION %s()', child.home, child.name, {function_literal});
    CONTINUE WHEN child.is_partition;
    EXECUTE pg_catalog.format('CREATE OR REPLACE TRIGGER zz_leasehold_fence BEFORE INSERT OR UPDATE OR DELETE ON %I.%I '
      'FOR EACH ROW EXECUTE FUNCTION %s()', child.home, child.name, {function_literal});
  END LOOP;
END
{tag};
