"""The wire for asyncpg: connections, those that a pool lends, and transaction blocks.

asyncpg has no autocommit to switch off: outside a block of `connection.transaction()`, and without a BEGIN of the
user's own, every statement is committed by itself.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from asyncpg import Connection
from asyncpg.transaction import Transaction as Block

from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.sql.wires import Answer, Transaction
from leasehold.sql.wires.names import in_style

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AsyncpgWire", "gives_rows", "make_wire"]


class AsyncpgWire:
    """An `asyncpg.Connection`, or the proxy of one that a pool has lent."""

    dialect = "postgresql"
    is_async = True
    holds_objects = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        # A pool makes a new proxy for each loan; behind it is the connection, which lives as long as the session.
        self.driver: Any = getattr(connection, "_con", connection)

    def transaction(self) -> Transaction:
        return Transaction.OPEN if self._connection.is_in_transaction() else Transaction.AUTOCOMMIT

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        text, bound = in_style(statement, values, "numeric_dollar")
        if gives_rows(text):
            records = await self._connection.fetch(text, *bound)
            return Answer([tuple(row) for row in records], len(records), tuple(records[0].keys()) if records else ())
        status = await self._connection.execute(text, *bound)
        count = status.rpartition(" ")[2]  # "UPDATE 1", "INSERT 0 1"; others end with a word
        return Answer([], int(count) if count.isdigit() else 0)


# What is inside of these says nothing about the statement as a whole.
_QUOTED = re.compile(r""""(?:[^"]|"")*"|'(?:[^']|'')*'|--[^\n]*|\$\$.*?\$\$""", re.DOTALL)
_INNERMOST = re.compile(r"\([^()]*\)")
_VERB = re.compile(r"\b(SELECT|VALUES|TABLE|SHOW|INSERT|UPDATE|DELETE|MERGE|CREATE|ALTER|DROP|DO)\b", re.IGNORECASE)
_RETURNING = re.compile(r"\bRETURNING\b", re.IGNORECASE)
_READS = {"SELECT", "VALUES", "TABLE", "SHOW"}


@functools.lru_cache(256)
def gives_rows(statement: str) -> bool:
    """Whether a statement is answered with rows: asyncpg gives either the rows or how many were changed."""
    plain, before = _QUOTED.sub(" ", statement), ""
    while plain != before:
        plain, before = _INNERMOST.sub(" ", plain), plain
    verb = _VERB.search(plain)
    if verb is None:
        return False
    return verb[0].upper() in _READS or _RETURNING.search(plain) is not None


def make_wire(tx: Any) -> AsyncpgWire:
    """For a connection, also one that a pool has lent, or for a transaction block of one."""
    connection = getattr(tx, "_connection", None) if isinstance(tx, Block) else tx
    if not isinstance(connection, Connection):
        raise ConfigurationError(
            f"leasehold.sql takes a connection or transaction of asyncpg, not {kind_of(tx)}: "
            "async with pool.acquire() as connection, connection.transaction(): await guard_async(connection, lease)"
        )
    if connection.is_closed():
        raise ConfigurationError("this connection of asyncpg is closed, or was given back to its pool")
    return AsyncpgWire(connection)
