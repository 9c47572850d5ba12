"""`guard(tx, lease)`: the one statement at the start of a transaction that keeps a late writer out.

Each database has a module of its own, which is loaded when it is used. `wires` knows the drivers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from leasehold._runtimes.threads import run
from leasehold._words import kind_of
from leasehold.errors import ConfigurationError, StaleFence
from leasehold.fencing.checks import note_passed
from leasehold.fencing.token import feed_back, token_of
from leasehold.sql.wires import async_twin, wire_of

if TYPE_CHECKING:
    from leasehold._blocking import Lease
    from leasehold._face.lease import AsyncLease
    from leasehold.fencing.token import Token
    from leasehold.sql.wires import Wire

__all__ = ["guard", "guard_async", "guard_schema"]

DIALECTS = {
    "mysql": "leasehold.sql.guards.mysql",
    "postgresql": "leasehold.sql.guards.postgresql",
    "sqlite": "leasehold.sql.guards.sqlite",
}


class Dialect(Protocol):
    """A module that guards one kind of database."""

    SCHEMA: str

    async def raise_fence(self, wire: Wire, token: Token, *, trust_earlier_reads: bool, schema: str | None) -> None:
        """Let the token pass and remember it, or refuse it."""


def guard(
    tx: Any,
    lease: Lease | AsyncLease | int,
    *,
    resource: str | None = None,
    trust_earlier_reads: bool = False,
    schema: str | None = None,
) -> None:
    """Let this transaction go on only if no later holder has been here; call it first, before the first read.

    `tx` is a connection, cursor or session inside a transaction: of psycopg, sqlite3, PyMySQL, SQLAlchemy
    (`Connection`, `Session`) or Django (a connection, or its alias). A connection that opens transactions by itself is
    made to open one. `lease` is a lease of a lock or of a read/write lock, or the number of a fence that another
    process was given, with `resource`. `resource` names what is protected, if that is more or less than what the
    lock's name says; it belongs to one lock for ever. `trust_earlier_reads` says that what this transaction has
    read before has nothing to do with the resource, as when a framework has looked up the user first; that cannot
    be checked. `schema` is where the guard's table is in PostgreSQL, for databases in which each schema has data,
    and a table of the guard, of its own; without it there is one table for the whole database, wherever it was made
    first. In MySQL it is another database than the current one.

    Promises that no acknowledged write of a later holder is overwritten, as long as every writer of the resource calls
    the guard first in its transaction and the database keeps what it committed. Raises `StaleFence` for a late writer;
    `RetryTransaction` when the database could not put two transactions in order, which says nothing about the fence;
    and `ConfigurationError` outside a transaction, where it would protect nothing, and after an earlier read, where
    that can be known. It makes its table on first use, in MySQL only where no transaction is open yet. Let `StaleFence`
    leave the whole transaction: a rollback to a savepoint takes the refusal back, and what is written after that is
    committed; not in MySQL, where the refusal ends the transaction.
    """
    token = token_of(lease, resource)
    wire = wire_of(tx)
    if wire.is_async:
        raise ConfigurationError(f"{kind_of(tx)} is async: write await guard_async(tx, lease)")
    try:
        run(_load(wire.dialect).raise_fence(wire, token, trust_earlier_reads=trust_earlier_reads, schema=schema))
    except StaleFence as refusal:
        raise feed_back(lease, refusal) from None
    note_passed()


async def guard_async(
    tx: Any,
    lease: Lease | AsyncLease | int,
    *,
    resource: str | None = None,
    trust_earlier_reads: bool = False,
    schema: str | None = None,
) -> None:
    """The same as `guard` for asyncio: psycopg's and SQLAlchemy's async classes, asyncpg, aiosqlite, aiomysql, asyncmy.

    Of asyncpg: a connection, one that a pool has lent, or a transaction block. Of aiosqlite: a connection or a cursor.

    It has a name of its own because a `guard` that has to be awaited in some programs would, where that is forgotten,
    guard nothing; a call of the wrong one of the two is refused.
    """
    token = token_of(lease, resource)
    twin = async_twin(tx)
    if twin is not None:
        await twin.run_sync(
            lambda blocking: guard(
                blocking, lease, resource=resource, trust_earlier_reads=trust_earlier_reads, schema=schema
            )
        )
        return
    wire = wire_of(tx)
    if not wire.is_async:
        raise ConfigurationError(f"{kind_of(tx)} is not async: write guard(tx, lease)")
    try:
        await _load(wire.dialect).raise_fence(wire, token, trust_earlier_reads=trust_earlier_reads, schema=schema)
    except StaleFence as refusal:
        raise feed_back(lease, refusal) from None
    note_passed()


def guard_schema(dialect: str = "sqlite") -> str:
    """The statement that makes the guard's table, for programs that may not create tables themselves."""
    return _load(dialect).SCHEMA


def _load(dialect: str) -> Dialect:
    if dialect not in DIALECTS:
        raise ConfigurationError(f"no guard for {dialect!r}; there is one for {', '.join(sorted(DIALECTS))}")
    return cast("Dialect", import_module(DIALECTS[dialect]))
