"""`transaction_lock(tx, name)`: a lock that lasts exactly as long as the caller's own transaction, in PostgreSQL.

No lease, no ttl, no fence, and nothing to release: the database frees it with the commit, the rollback or the end of
the connection, and what is written in the transaction appears at that very moment. So it protects what is in this
database, and nothing else.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from leasehold._runtimes.threads import run
from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.sql.wires import Transaction, async_twin, wire_of

if TYPE_CHECKING:
    from leasehold.sql.wires import Wire

__all__ = ["transaction_lock", "transaction_lock_async"]

_FUNCTIONS = {
    (False, True): "pg_catalog.pg_advisory_xact_lock",
    (False, False): "pg_catalog.pg_try_advisory_xact_lock",
    (True, True): "pg_catalog.pg_advisory_xact_lock_shared",
    (True, False): "pg_catalog.pg_try_advisory_xact_lock_shared",
}
LONGEST_NAME = 512


def transaction_lock(
    tx: Any, name: str, *, wait: bool = True, shared: bool = False, namespace: str = "leasehold"
) -> bool:
    """Lock `name` until the end of the transaction that `tx` is in; False if `wait=False` and another has it.

    `tx` is a connection, cursor or session inside a transaction: of psycopg, SQLAlchemy or Django, as for `guard`.
    The same transaction may lock a name twice. `shared`: together with other shared ones. Locks of this kind and leases
    of a store do not know of each other.

    Call it before the first read, at READ COMMITTED: a transaction that sees the database as of an earlier moment
    would decide on old values once the lock is had; at REPEATABLE READ its writes then fail with 40001. Two
    transactions that lock two names in opposite order deadlock, and PostgreSQL ends one of them: lock in a fixed
    order. Errors of the database pass through as the driver raises them. Raises `ConfigurationError` outside a
    transaction, where the lock would be gone at once, and for other databases.
    """
    wire = wire_of(tx)
    if wire.is_async:
        raise ConfigurationError(f"{kind_of(tx)} is async: write await transaction_lock_async(tx, name)")
    return run(_lock(wire, name, namespace, wait=wait, shared=shared))


async def transaction_lock_async(
    tx: Any, name: str, *, wait: bool = True, shared: bool = False, namespace: str = "leasehold"
) -> bool:
    """The same as `transaction_lock` for asyncio: psycopg's and SQLAlchemy's async classes, asyncpg."""
    twin = async_twin(tx)
    if twin is not None:
        had: bool = await twin.run_sync(
            lambda blocking: transaction_lock(blocking, name, wait=wait, shared=shared, namespace=namespace)
        )
        return had
    wire = wire_of(tx)
    if not wire.is_async:
        raise ConfigurationError(f"{kind_of(tx)} is not async: write transaction_lock(tx, name)")
    return await _lock(wire, name, namespace, wait=wait, shared=shared)


async def _lock(wire: Wire, name: str, namespace: str, *, wait: bool, shared: bool) -> bool:
    number = _number(name, namespace)
    if wire.dialect == "mysql":
        raise ConfigurationError(
            "transaction_lock is for PostgreSQL: the named locks of MySQL and MariaDB (GET_LOCK) belong to the session "
            "and outlive the transaction. Lock a row of your own with SELECT ... FOR UPDATE, which ends with it"
        )
    if wire.dialect != "postgresql":
        raise ConfigurationError(f"transaction_lock is for PostgreSQL, not {wire.dialect}; there a row lock may do")
    if wire.transaction() is Transaction.AUTOCOMMIT:
        raise ConfigurationError(
            "transaction_lock was called outside a transaction, where the lock would be gone at once; open one first"
        )
    function = _FUNCTIONS[bool(shared), bool(wait)]
    answer = await wire.query(f"SELECT {function}(CAST(%(number)s AS bigint))", {"number": number})
    return wait or answer.rows[0][0] is True


def _number(name: str, namespace: str) -> int:
    """64 bits of a strong hash over namespace and name; each is hashed first, so that no two pairs look alike."""
    digest = blake2b(digest_size=8, person=b"leasehold tx")
    for text in (namespace, name):
        if not text or len(str(text).encode()) > LONGEST_NAME:
            raise ConfigurationError(f"a name has 1 to {LONGEST_NAME} bytes of UTF-8, not {text!r}")
        digest.update(blake2b(text.encode()).digest())
    return int.from_bytes(digest.digest(), "big", signed=True)
