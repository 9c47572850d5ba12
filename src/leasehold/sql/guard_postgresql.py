"""The guard in PostgreSQL: one statement that raises the fence, and keeps the resource's row locked until the commit.

Why no update is lost, at each level of isolation:

    read committed      every later statement of the transaction sees what is committed by then, and no other guarded
                        transaction of the resource commits while the row is locked. What was read *before* the guard
                        may be older than that: such a transaction is refused. It is known by the tables that the
                        transaction has touched, for PostgreSQL keeps a lock on each until the end.
    repeatable read,    the transaction sees one moment. If another guarded transaction committed after that moment, the
    serializable        row has changed since, and PostgreSQL refuses with 40001, which is `RetryTransaction` here.

A transaction that was refused is aborted on the server too, so that a program that goes on all the same cannot commit.
"""

from __future__ import annotations

import json
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from leasehold.errors import ConfigurationError, LeaseholdError, RetryTransaction
from leasehold.fencing.token import refused, wrong_lock
from leasehold.sql.trouble import is_retryable, sqlstate
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from leasehold.fencing.token import Token
    from leasehold.sql.wires import Wire

__all__ = ["SCHEMA", "raise_fence"]

SCHEMA = """\
CREATE TABLE IF NOT EXISTS leasehold_guard (
  resource text COLLATE "C" NOT NULL,
  lock text COLLATE "C",               -- namespace and name of the one lock that guards it
  exclusive_fence bigint NOT NULL,     -- the highest fence of an exclusive holder that was here
  exclusive_grant text COLLATE "C",    -- which grant that was, as a digest
  shared_fence bigint NOT NULL,        -- the highest fence of a shared holder
  CONSTRAINT leasehold_guard_pkey PRIMARY KEY (resource)
) WITH (fillfactor = 50)
"""

# trust -> how many tables of the user's the transaction has touched (0 where that does no harm or is trusted), and the
# fences that it has raised already, which the triggers of `leasehold schema fence` read, too. A setting of this name
# ends with the transaction.
_BEFORE = """
before AS MATERIALIZED (
  SELECT
    CASE WHEN NOT CAST(%(trust)s AS boolean)
      AND current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN (
      SELECT count(*) FROM pg_catalog.pg_locks AS held
      WHERE held.pid = pg_backend_pid() AND held.locktype = 'relation' AND held.relation >= 16384
        AND held.relation NOT IN (CAST('leasehold_guard' AS regclass), CAST('leasehold_guard_pkey' AS regclass))
    ) ELSE 0 END AS touched,
    coalesce(nullif(current_setting('leasehold.fences', true), ''), '{}') AS fences
)"""

# resource, lock, fence, grant, trust -> one row if the holder may pass, with what was before; the third column says
# whether this grant was here already (a statement does not see its own changes). A number whose grant is not known is
# taken for the grant that it equals.
_EXCLUSIVE = f"""
WITH {_BEFORE.strip()}, raised AS (
  INSERT INTO leasehold_guard AS kept (resource, lock, exclusive_fence, exclusive_grant, shared_fence)
  VALUES (CAST(%(resource)s AS text), CAST(%(lock)s AS text), CAST(%(fence)s AS bigint), CAST(%(grant)s AS text), 0)
  ON CONFLICT (resource) DO UPDATE SET
    lock = coalesce(kept.lock, excluded.lock), exclusive_fence = excluded.exclusive_fence,
    exclusive_grant = CASE WHEN kept.exclusive_fence = excluded.exclusive_fence
      THEN coalesce(kept.exclusive_grant, excluded.exclusive_grant) ELSE excluded.exclusive_grant END
  WHERE coalesce(kept.lock = excluded.lock, true)
    AND (excluded.exclusive_fence > kept.exclusive_fence
      OR (excluded.exclusive_fence = kept.exclusive_fence
        AND coalesce(kept.exclusive_grant = excluded.exclusive_grant, true)))
    AND excluded.exclusive_fence > kept.shared_fence
  RETURNING 1
)
SELECT before.touched, before.fences, coalesce(
    (SELECT exclusive_fence = CAST(%(fence)s AS bigint) AND exclusive_grant = CAST(%(grant)s AS text)
     FROM leasehold_guard WHERE resource = CAST(%(resource)s AS text)), false),
  set_config('leasehold.fences', CAST(CAST(before.fences AS jsonb)
    || jsonb_build_object(CAST(%(resource)s AS text), CAST(%(fence)s AS bigint)) AS text), true)
FROM before, raised
"""  # noqa: S608 - put together from constants

_MARK_SHARED = """set_config('leasehold.fences', CAST(CAST(before.fences AS jsonb)
  || jsonb_build_object(CAST(%(resource)s AS text), NULL) AS text), true)"""

# resource, lock, fence, trust -> one row if this reader has raised the fence before; then readers do not wait for each
# other.
_SHARED_AGAIN = f"""
WITH {_BEFORE.strip()}, raised AS (
  SELECT 1 FROM leasehold_guard AS kept
  WHERE kept.resource = CAST(%(resource)s AS text) AND kept.lock = CAST(%(lock)s AS text)
    AND kept.exclusive_fence < CAST(%(fence)s AS bigint) AND kept.shared_fence >= CAST(%(fence)s AS bigint)
  FOR SHARE
)
SELECT before.touched, before.fences, true, {_MARK_SHARED} FROM before, raised
"""  # noqa: S608 - put together from constants

# resource, lock, fence, trust -> one row if the holder may pass
_SHARED = f"""
WITH {_BEFORE.strip()}, raised AS (
  INSERT INTO leasehold_guard AS kept (resource, lock, exclusive_fence, shared_fence)
  VALUES (CAST(%(resource)s AS text), CAST(%(lock)s AS text), 0, CAST(%(fence)s AS bigint))
  ON CONFLICT (resource) DO UPDATE SET
    lock = coalesce(kept.lock, excluded.lock), shared_fence = greatest(kept.shared_fence, excluded.shared_fence)
  WHERE coalesce(kept.lock = excluded.lock, true) AND excluded.shared_fence > kept.exclusive_fence
  RETURNING 1
)
SELECT before.touched, before.fences, false, {_MARK_SHARED} FROM before, raised
"""  # noqa: S608 - put together from constants

_STATE = """
SELECT lock, exclusive_fence, shared_fence FROM leasehold_guard WHERE resource = CAST(%(resource)s AS text)
"""

# -> whether the table is there, and what `before` would say if it were not
_LOOK = """
SELECT to_regclass('leasehold_guard') IS NOT NULL, (
  SELECT count(*) FROM pg_catalog.pg_locks AS held
  WHERE held.pid = pg_backend_pid() AND held.locktype = 'relation' AND held.relation >= 16384)
"""

# Only one transaction makes the table: two that do it at once would end with an error about PostgreSQL's own tables.
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('leasehold_guard', 0))"

# A transaction that made the table has touched parts of it that have no name here; no resource has an empty name.
MADE_HERE = ""
_MADE_HERE = """SELECT set_config('leasehold.fences', '{"": null}', true)"""

_ABORT = "DO $$ BEGIN RAISE EXCEPTION 'leasehold: the guard refused this transaction' USING ERRCODE = 'LH001'; END $$"

# Connections on which the table was seen; another schema may hide it there later, which is noticed.
_READY: weakref.WeakSet[object] = weakref.WeakSet()


async def raise_fence(wire: Wire, token: Token, *, trust_earlier_reads: bool = False) -> None:
    """Let the token pass and remember it, or refuse it."""
    if wire.transaction() is Transaction.AUTOCOMMIT:
        raise ConfigurationError(
            "guard() was called outside a transaction, on a connection that commits every statement by itself: there "
            "it would protect nothing. Call it first inside a transaction block"
        )
    if "\0" in token.resource or "\0" in (token.lock or ""):
        raise ConfigurationError("PostgreSQL cannot store a NUL character, and the lock or the resource has one")
    try:
        await _make_table(wire, trust_earlier_reads)
        await _pass_or_refuse(wire, token, trust_earlier_reads)
    except LeaseholdError:
        with suppress(Exception):
            await wire.query(_ABORT, {})
        raise
    except Exception as error:
        _explain_trouble(wire, error)
        raise


async def _pass_or_refuse(wire: Wire, token: Token, trust: bool) -> None:  # noqa: FBT001 - only passed on
    values = {"resource": token.resource, "lock": token.lock, "fence": token.fence, "trust": trust}
    if token.shared:
        rows = (await wire.query(_SHARED_AGAIN, values)).rows or (await wire.query(_SHARED, values)).rows
    else:
        rows = (await wire.query(_EXCLUSIVE, {**values, "grant": token.grant})).rows
    if not rows:
        await _refuse(wire, token)
    touched, fences, was_here = rows[0][:3]
    known = json.loads(fences)
    if trust or token.resource in known:
        return  # or: this very transaction was here before
    if touched and MADE_HERE not in known:
        raise _used_before()
    if wire.holds_objects and not was_here:
        raise ConfigurationError(
            "this session holds objects that were read before guard() was called: what they say may be older than the "
            "fence. Call guard() first in a fresh session, or session.expire_all() before it"
        )


async def _refuse(wire: Wire, token: Token) -> NoReturn:
    lock, exclusive, shared = (await wire.query(_STATE, {"resource": token.resource})).rows[0]
    if token.lock is not None and lock is not None and lock != token.lock:
        raise wrong_lock(token, lock)
    name = (lock or "").partition(":")[2] or None
    raise refused(token, exclusive if token.shared else max(exclusive, shared), name)


async def _make_table(wire: Wire, trust: bool) -> None:  # noqa: FBT001 - only passed on
    """Once per connection: look for the table, and make it if it is not there."""
    driver = wire.driver
    if driver in _READY:
        return
    ((there, touched),) = (await wire.query(_LOOK, {})).rows
    if there:
        with suppress(TypeError):  # a driver whose connections cannot be known weakly is asked every time
            _READY.add(driver)
        return
    if touched and not trust:
        raise _used_before()
    await wire.query(_ALONE, {})
    await wire.query(SCHEMA, {})  # not remembered: it goes again if this transaction is rolled back
    await wire.query(_MADE_HERE, {})


def _used_before() -> ConfigurationError:
    return ConfigurationError(
        "this transaction had used other tables before guard() was called: what it read there may be older than the "
        "fence. Call guard() first in the transaction, for every resource that it needs; or, if those tables have "
        "nothing to do with the resource, with trust_earlier_reads=True"
    )


def _explain_trouble(wire: Wire, error: Exception) -> None:
    """Say what to do about the errors that a guard may meet; others are raised as they are."""
    state = sqlstate(error)
    if is_retryable(error):
        raise RetryTransaction(
            "PostgreSQL could not bring this transaction into an order with another one: roll back and run the whole "
            "transaction again, guard() included"
        ) from error
    if state == "42P01":  # the search path has changed since the table was seen
        _READY.discard(wire.driver)
        raise RetryTransaction(
            "the table leasehold_guard is not in the search path of this transaction: roll back and run it again, and "
            "the table will be made"
        ) from error
    if state == "42501":
        raise ConfigurationError(
            "this account may not create or write the table leasehold_guard: let its owner run the output of "
            "`leasehold schema guard`, and GRANT SELECT, INSERT, UPDATE on it"
        ) from error
    if state == "25006":
        raise ConfigurationError(
            "guard() has to write, also for a shared lease, and this transaction or server is read-only"
        ) from error
