"""Where a worker gets its transactions: an engine, a Django alias, or a function that gives a connection or a block.

A source belongs to one thread or task, keeps its connection, and begins one transaction after the other. The same code
serves both faces: what has to be awaited is awaited, and with a driver that blocks there is nothing to await.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol

from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.sql.calls import call_either
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from leasehold.sql.wires import Wire

__all__ = ["TransactionSource", "open_source"]


class TransactionSource(Protocol):
    """Transactions, one after the other."""

    def begin(self, *, claims: bool = False) -> AbstractAsyncContextManager[Any]:
        """One that is committed at the end of its block, or rolled back by an error; `claims`: it only claims."""

    def plain(self) -> AbstractAsyncContextManager[Any]:
        """A connection before its first statement, for what must not be in a transaction."""

    async def close(self) -> None:
        """Let go of the connection."""


def open_source(database: Any, *, is_async: bool) -> TransactionSource:
    """For what was given to `run` or `run_async`."""
    if isinstance(database, str):
        if is_async:
            raise ConfigurationError("a Django database is used with run(): Django's connections are not async")
        return _DjangoSource(database)
    if hasattr(database, "sync_engine") or (hasattr(database, "begin") and hasattr(database, "dialect")):
        if hasattr(database, "sync_engine") != is_async:
            raise ConfigurationError("run() needs an Engine, and run_async() an AsyncEngine")
        return _FunctionSource(database.connect, is_async=is_async, keeps=False)
    if not callable(database) or hasattr(database, "cursor"):
        raise ConfigurationError(
            f"a worker needs an Engine, the alias of a Django database, or a function that gives a connection, not "
            f"{kind_of(database)}: a connection can serve only one thread"
        )
    return _FunctionSource(database, is_async=is_async, keeps=True)


class _DjangoSource:
    """`transaction.atomic`, on the connection of this thread."""

    def __init__(self, alias: str) -> None:
        self._alias = alias

    @asynccontextmanager
    async def begin(self, *, claims: bool = False) -> AsyncIterator[Any]:  # noqa: ARG002 - Django's level is the user's
        from django.db import connections, transaction  # noqa: PLC0415 - only for its users

        connections[self._alias].close_if_unusable_or_obsolete()
        with transaction.atomic(using=self._alias):
            yield self._alias

    @asynccontextmanager
    async def plain(self) -> AsyncIterator[Any]:
        yield self._alias

    async def close(self) -> None:
        from django.db import connections  # noqa: PLC0415

        connections[self._alias].close()


class _FunctionSource:
    """A function that gives a connection, or a block that is a transaction."""

    def __init__(self, function: Any, *, is_async: bool, keeps: bool) -> None:
        self._function = function
        self._is_async = is_async
        self._keeps = keeps  # else what pools connections
        self._connection: Any = None

    @asynccontextmanager
    async def begin(self, *, claims: bool = False) -> AsyncIterator[Any]:
        connection = await self._open()
        if not hasattr(connection, "close"):
            async with self._entered(connection) as tx, _Begun(tx, None, claims=claims):
                yield tx
            return
        try:
            async with _Begun(connection, connection, claims=claims):
                yield connection
        except GeneratorExit:
            raise
        except BaseException:
            await self.close()  # its state is not known; a new one costs little
            raise
        if not self._keeps:
            await self.close()

    @asynccontextmanager
    async def plain(self) -> AsyncIterator[Any]:
        connection = await self._open()
        if not hasattr(connection, "close"):
            async with self._entered(connection) as tx:
                yield tx
            return
        try:
            yield connection
            if hasattr(connection, "commit"):
                await _settled(connection.commit())
        finally:
            await self.close()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                await _settled(connection.close())

    async def _open(self) -> Any:
        """The connection that is kept, a new one, or a block."""
        if self._connection is not None:
            return self._connection
        made = self._function()
        if hasattr(made, "__await__"):
            if not self._is_async:
                if hasattr(made, "close"):
                    made.close()
                raise ConfigurationError("run() needs a function whose connections block; for this one use run_async()")
            made = await made
        if hasattr(made, "close"):
            self._connection = made
        return made

    @asynccontextmanager
    async def _entered(self, transaction: Any) -> AsyncIterator[Any]:
        if hasattr(transaction, "__aenter__") and self._is_async:
            async with transaction as tx:
                yield tx
        elif hasattr(transaction, "__enter__") and not self._is_async:
            with transaction as tx:
                yield tx
        else:
            raise ConfigurationError(f"the function gave {kind_of(transaction)}, which is no connection and no block")


class _Begun:
    """A transaction on a connection, whichever way it opens them; `connection` is None where a block ends it."""

    def __init__(self, tx: Any, connection: Any, *, claims: bool) -> None:
        self._tx = tx
        self._connection = connection
        self._claims = claims
        self._by_statement = False

    async def __aenter__(self) -> None:
        await call_either(self._tx, self._begin)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, Exception):
            return  # the caller closes the connection: nothing is sent while a task is being cancelled
        verb = "commit" if kind is None else "rollback"
        if self._by_statement:
            await call_either(self._tx, lambda wire: self._send(wire, verb.upper()))
        elif self._connection is not None:
            await _settled(getattr(self._connection, verb)())

    async def _begin(self, wire: Wire) -> None:
        state = wire.transaction()
        if self._claims and wire.dialect == "mysql" and state is not Transaction.OPEN:
            # For the next transaction only. Under repeatable read a claim would lock the gaps between jobs as well.
            await wire.query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", {})
        if state is Transaction.AUTOCOMMIT:
            await wire.query("BEGIN IMMEDIATE" if wire.dialect == "sqlite" else "BEGIN", {})
            self._by_statement = True

    async def _send(self, wire: Wire, statement: str) -> None:
        await wire.query(statement, {})


async def _settled(value: Any) -> Any:
    return await value if isawaitable(value) else value
