"""The guard in PostgreSQL: one statement that raises the fence, and keeps the resource's row locked until the commit.

Why no update is lost, at each level of isolation:

    read committed      every later statement of the transaction sees what is committed by then, and no other guarded
                        transaction of the resource commits while the row is locked. What was read *before* the guard
                        may be older than that: such a transaction is refused. It is known by the tables that the
                        transaction has touched, for PostgreSQL keeps a lock on each until the end.
    repeatable read,    the transaction sees one moment. If another guarded transaction committed after that moment, the
    serializable        row has changed since, and PostgreSQL refuses with 40001, which is `RetryTransaction` here.

A transaction that was refused is aborted on the server too, so that a program that goes on all the same cannot commit,
unless it rolls back to a savepoint from before the guard: that takes the refusal back, as it does with any error.
"""

from __future__ import annotations

import functools
import json
import re
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from leasehold.errors import ConfigurationError, LeaseholdError, RetryTransaction
from leasehold.fencing.token import refused, wrong_lock
from leasehold.sql.errors import is_retryable, objects_from_before, sqlstate
from leasehold.sql.identifiers import escaped, literal, quoted
from leasehold.sql.one_table import home_among, no_schema
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from leasehold.fencing.token import Token
    from leasehold.sql.wires import Wire

__all__ = ["SCHEMA", "raise_fence"]

_TABLE = "leasehold_guard"
SCHEMA = """\
CREATE TABLE IF NOT EXISTS leasehold_guard (
  resource pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
  lock pg_catalog.text COLLATE pg_catalog."C",             -- namespace and name of the one lock that guards it
  exclusive_fence bigint NOT NULL,                         -- the highest fence of an exclusive holder that was here
  exclusive_grant pg_catalog.text COLLATE pg_catalog."C",  -- which grant that was, as a digest
  shared_fence bigint NOT NULL,                            -- the highest fence of a shared holder
  CONSTRAINT leasehold_guard_pkey PRIMARY KEY (resource)
) WITH (fillfactor = 50)
"""

# Every name is qualified, operators too: a role that may create things in a schema of the caller's search path could
# put its own in the place of PostgreSQL's, and they would run as the caller.

# trust -> how many tables of the user's the transaction has touched (0 where that does no harm or is trusted), and the
# fences that it has raised already, which the triggers of `leasehold schema fence` read, too. A setting of this name
# ends with the transaction.
_BEFORE = """
before AS MATERIALIZED (
  SELECT
    CASE WHEN NOT CAST(%(trust)s AS boolean)
      AND pg_catalog.current_setting('transaction_isolation')
        OPERATOR(pg_catalog.=) ANY (ARRAY['read committed', 'read uncommitted']) THEN (
      SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks AS held
      WHERE held.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()
        AND held.locktype OPERATOR(pg_catalog.=) 'relation' AND held.relation OPERATOR(pg_catalog.>=) 16384
        AND held.relation OPERATOR(pg_catalog.<>) CAST(@table_text@ AS pg_catalog.regclass)
        AND held.relation OPERATOR(pg_catalog.<>) CAST(@index_text@ AS pg_catalog.regclass)
    ) ELSE 0 END AS touched,
    CASE WHEN pg_catalog.current_setting('leasehold.fences', true) OPERATOR(pg_catalog.<>) ''
      THEN pg_catalog.current_setting('leasehold.fences', true) ELSE '{}' END AS fences
)"""

# resource, lock, fence, grant, trust -> one row if the holder may pass, with what was before; the third column says
# whether this grant was here already (a statement does not see its own changes). A number whose grant is not known is
# taken for the grant that it equals.
_EXCLUSIVE = f"""
WITH {_BEFORE.strip()}, raised AS (
  INSERT INTO @table@ AS kept (resource, lock, exclusive_fence, exclusive_grant, shared_fence)
  VALUES (CAST(%(resource)s AS pg_catalog.text), CAST(%(lock)s AS pg_catalog.text), CAST(%(fence)s AS bigint),
    CAST(%(grant)s AS pg_catalog.text), 0)
  ON CONFLICT (resource) DO UPDATE SET
    lock = coalesce(kept.lock, excluded.lock), exclusive_fence = excluded.exclusive_fence,
    exclusive_grant = CASE WHEN kept.exclusive_fence OPERATOR(pg_catalog.=) excluded.exclusive_fence
      THEN coalesce(kept.exclusive_grant, excluded.exclusive_grant) ELSE excluded.exclusive_grant END
  WHERE coalesce(kept.lock OPERATOR(pg_catalog.=) excluded.lock, true)
    AND (excluded.exclusive_fence OPERATOR(pg_catalog.>) kept.exclusive_fence
      OR (excluded.exclusive_fence OPERATOR(pg_catalog.=) kept.exclusive_fence
        AND coalesce(kept.exclusive_grant OPERATOR(pg_catalog.=) excluded.exclusive_grant, true)))
    AND excluded.exclusive_fence OPERATOR(pg_catalog.>) kept.shared_fence
  RETURNING 1
)
SELECT before.touched, before.fences, coalesce(
    (SELECT kept.exclusive_fence OPERATOR(pg_catalog.=) CAST(%(fence)s AS bigint)
        AND kept.exclusive_grant OPERATOR(pg_catalog.=) CAST(%(grant)s AS pg_catalog.text)
     FROM @table@ AS kept WHERE kept.resource OPERATOR(pg_catalog.=) CAST(%(resource)s AS pg_catalog.text)), false),
  pg_catalog.set_config('leasehold.fences', CAST(CAST(before.fences AS pg_catalog.jsonb) OPERATOR(pg_catalog.||)
    pg_catalog.jsonb_build_object(CAST(%(resource)s AS pg_catalog.text), CAST(%(fence)s AS bigint))
    AS pg_catalog.text), true)
FROM before, raised
"""  # noqa: S608 - put together from constants

_MARK_SHARED = """pg_catalog.set_config('leasehold.fences', CAST(CAST(before.fences AS pg_catalog.jsonb)
  OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object(CAST(%(resource)s AS pg_catalog.text), NULL)
  AS pg_catalog.text), true)"""

# resource, lock, fence, trust -> one row if this reader has raised the fence before; then readers do not wait for each
# other.
_SHARED_AGAIN = f"""
WITH {_BEFORE.strip()}, raised AS (
  SELECT 1 FROM @table@ AS kept
  WHERE kept.resource OPERATOR(pg_catalog.=) CAST(%(resource)s AS pg_catalog.text)
    AND kept.lock OPERATOR(pg_catalog.=) CAST(%(lock)s AS pg_catalog.text)
    AND kept.exclusive_fence OPERATOR(pg_catalog.<) CAST(%(fence)s AS bigint)
    AND kept.shared_fence OPERATOR(pg_catalog.>=) CAST(%(fence)s AS bigint)
  FOR SHARE
)
SELECT before.touched, before.fences, true, {_MARK_SHARED} FROM before, raised
"""  # noqa: S608 - put together from constants

# resource, lock, fence, trust -> one row if the holder may pass
_SHARED = f"""
WITH {_BEFORE.strip()}, raised AS (
  INSERT INTO @table@ AS kept (resource, lock, exclusive_fence, shared_fence)
  VALUES (CAST(%(resource)s AS pg_catalog.text), CAST(%(lock)s AS pg_catalog.text), 0, CAST(%(fence)s AS bigint))
  ON CONFLICT (resource) DO UPDATE SET
    lock = coalesce(kept.lock, excluded.lock), shared_fence = greatest(kept.shared_fence, excluded.shared_fence)
  WHERE coalesce(kept.lock OPERATOR(pg_catalog.=) excluded.lock, true)
    AND excluded.shared_fence OPERATOR(pg_catalog.>) kept.exclusive_fence
  RETURNING 1
)
SELECT before.touched, before.fences, false, {_MARK_SHARED} FROM before, raised
"""  # noqa: S608 - put together from constants

_STATE = """
SELECT kept.lock, kept.exclusive_fence, kept.shared_fence FROM @table@ AS kept
WHERE kept.resource OPERATOR(pg_catalog.=) CAST(%(resource)s AS pg_catalog.text)
"""

# -> the schemas that have such a table, where one would be made, and what `before` would say if there were none
_LOOK = """
SELECT (
    SELECT CAST(pg_catalog.jsonb_agg(n.nspname) AS pg_catalog.text)
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
    WHERE c.relname OPERATOR(pg_catalog.=) 'leasehold_guard' AND c.relkind OPERATOR(pg_catalog.=) ANY (ARRAY['r', 'p'])
      AND c.relpersistence OPERATOR(pg_catalog.<>) 't'),
  CAST(pg_catalog.current_schema() AS pg_catalog.text), (
    SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks AS held
    WHERE held.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()
      AND held.locktype OPERATOR(pg_catalog.=) 'relation' AND held.relation OPERATOR(pg_catalog.>=) 16384)
"""

# Only one transaction makes the table: two that do it at once would end with an error about PostgreSQL's own tables.
_ALONE = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('leasehold_guard', 0))"

# A transaction that made the table has touched parts of it that have no name here; no resource has an empty name.
MADE_HERE = ""
_MADE_HERE = """SELECT pg_catalog.set_config('leasehold.fences', '{"": null}', true)"""

_ABORT = "DO $$ BEGIN RAISE EXCEPTION 'leasehold: the guard refused this transaction' USING ERRCODE = 'LH001'; END $$"

# In which schema the table was seen, by connection.
_SEEN: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()


@functools.lru_cache(256)
def _in_schema(statement: str, schema: str) -> str:
    """The statement for the table in that schema."""
    table = f"{quoted(schema, 'a schema')}.leasehold_guard"
    texts = {"@table@": table, "@table_text@": literal(table), "@index_text@": literal(f"{table}_pkey")}
    return re.sub("@[a-z_]+@", lambda found: escaped(texts[found[0]]), statement)


async def raise_fence(
    wire: Wire, token: Token, *, trust_earlier_reads: bool = False, schema: str | None = None
) -> None:
    """Let the token pass and remember it, or refuse it."""
    if wire.transaction() is Transaction.AUTOCOMMIT:
        raise ConfigurationError(
            "guard() was called outside a transaction, on a connection that commits every statement by itself: there "
            "it would protect nothing. Call it first inside a transaction block"
        )
    if "\0" in token.resource or "\0" in (token.lock or ""):
        raise ConfigurationError("PostgreSQL cannot store a NUL character, and the lock or the resource has one")
    try:
        home = await _find_table(wire, schema, trust_earlier_reads)
        await _pass_or_refuse(wire, token, home, trust_earlier_reads)
    except LeaseholdError:
        with suppress(Exception):
            await wire.query(_ABORT, {})
        raise
    except Exception as error:
        _explain(wire, error)
        raise


async def _pass_or_refuse(wire: Wire, token: Token, home: str, trust: bool) -> None:  # noqa: FBT001 - only passed on
    values = {"resource": token.resource, "lock": token.lock, "fence": token.fence, "trust": trust}
    if token.shared:
        rows = (await wire.query(_in_schema(_SHARED_AGAIN, home), values)).rows
        rows = rows or (await wire.query(_in_schema(_SHARED, home), values)).rows
    else:
        rows = (await wire.query(_in_schema(_EXCLUSIVE, home), {**values, "grant": token.grant})).rows
    if not rows:
        await _refuse(wire, token, home)
    touched, fences, was_here = rows[0][:3]
    known = json.loads(fences)
    if trust or token.resource in known:
        return  # or: this very transaction was here before
    if touched and MADE_HERE not in known:
        raise _used_before()
    if wire.holds_objects and not was_here:
        raise objects_from_before()


async def _refuse(wire: Wire, token: Token, home: str) -> NoReturn:
    lock, exclusive, shared = (await wire.query(_in_schema(_STATE, home), {"resource": token.resource})).rows[0]
    if token.lock is not None and lock is not None and lock != token.lock:
        raise wrong_lock(token, lock)
    name = (lock or "").partition(":")[2] or None
    raise refused(token, exclusive if token.shared else max(exclusive, shared), name)


async def _find_table(wire: Wire, schema: str | None, trust: bool) -> str:  # noqa: FBT001 - only passed on
    """The schema of the one table of the database; it is looked for once per connection, and made if there is none.

    Wherever it is, all programs use this one, whatever their search paths: two would not know of each other's fences.
    """
    driver = wire.driver
    seen = _seen_at(driver)
    if seen is not None and schema in (None, seen):
        return seen
    found, _, touched = await _look(wire)
    home = home_among(found, schema, _TABLE)
    if home is not None:
        with suppress(TypeError):  # without weak references to its connections, the table is looked for every time
            _SEEN[driver] = home
        return home
    if touched and not trust:
        raise _used_before()
    return await _make_table(wire, schema)


async def _make_table(wire: Wire, schema: str | None) -> str:
    await wire.query(_ALONE, {})
    found, current, _ = await _look(wire)  # another transaction may have been faster, in another schema
    home = home_among(found, schema, _TABLE)
    if home is None:
        home = schema or current
        if home is None:
            raise no_schema(_TABLE, "leasehold schema guard")
        await wire.query(_in_schema(SCHEMA.replace("leasehold_guard (", "@table@ ("), home), {})
    await wire.query(_MADE_HERE, {})  # not remembered: the table goes again if this transaction is rolled back
    return home


def _seen_at(driver: object) -> str | None:
    try:
        return _SEEN.get(driver)
    except TypeError:
        return None


async def _look(wire: Wire) -> tuple[list[str], str | None, int]:
    ((found, current, touched),) = (await wire.query(_LOOK, {})).rows
    return sorted(json.loads(found or "[]")), current, touched


def _used_before() -> ConfigurationError:
    return ConfigurationError(
        "this transaction had used other tables before guard() was called: what it read there may be older than the "
        "fence. Call guard() first in the transaction, for every resource that it needs; or, if those tables have "
        "nothing to do with the resource, with trust_earlier_reads=True"
    )


def _explain(wire: Wire, error: Exception) -> None:
    """Raise an error that says what to do, for those that a guard may meet; others are left as they are."""
    state = sqlstate(error)
    if is_retryable(error):
        raise RetryTransaction(
            "PostgreSQL could not bring this transaction into an order with another one: roll back and run the whole "
            "transaction again, guard() included"
        ) from error
    if state == "42P01":  # the table that was seen is gone
        with suppress(TypeError):
            _SEEN.pop(wire.driver, None)
        raise RetryTransaction(
            "the table leasehold_guard is not where it was: roll back and run the transaction again, and it is looked "
            "for or made"
        ) from error
    if state == "42501":
        raise ConfigurationError(
            "this account may not create or write the table leasehold_guard: let its owner run the output of "
            "`leasehold schema guard`, and GRANT SELECT, INSERT, UPDATE on it"
        ) from error
    if state == "25006":
        raise ConfigurationError(
            "guard() has to write, also for a shared lease, and this transaction or server is read-only: use a "
            "read-write transaction on the primary"
        ) from error
