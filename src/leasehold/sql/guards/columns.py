"""`fenced_update`: a fence kept in a column of the user's own table, for rows that are written without reading first.

The row itself remembers the highest fence. That refuses a late writer of this row, and nothing more: a program
that reads a row and writes it back must raise the fence *before the read*, or an update can be lost between the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._runtimes.threads import run
from leasehold._words import kind_of
from leasehold.errors import ConfigurationError, StaleFence
from leasehold.fencing.checks import note_passed
from leasehold.fencing.token import feed_back, refused, token_of
from leasehold.sql.tables.rows import Rows
from leasehold.sql.wires import async_twin, wire_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold._blocking import Lease
    from leasehold._face.lease import AsyncLease
    from leasehold.fencing.token import Token
    from leasehold.sql.wires import Wire

__all__ = ["fenced_update", "fenced_update_async"]


def fenced_update(
    tx: Any,
    lease: Lease | AsyncLease | int,
    table: str | tuple[str, str],
    values: Mapping[str, object],
    *,
    where: Mapping[str, object],
    column: str = "fence",
) -> bool:
    """Write one row unless a newer holder has written it; False if there is no such row.

    `table` is a name, or a pair of schema and name; names are taken as they are. `where` names the row by its key.
    `column` is a whole number, not null, 0 at first, and remembers the highest fence. With empty `values` only the
    fence is raised: do that before you read a row that you will write back.

    Promises that the row is not overwritten by a late writer that calls this, too; one statement, so it holds also
    outside a transaction. It does not promise anything about what was read before. Raises `StaleFence` for a late
    writer. Equal fences pass, for a number does not say which grant it belongs to.
    """
    wire = wire_of(tx)
    if wire.is_async:
        raise ConfigurationError(f"{kind_of(tx)} is async: write await fenced_update_async(tx, ...)")
    try:
        written = run(_update(wire, _token(lease, table), table, values, where=where, column=column))
    except StaleFence as refusal:
        raise feed_back(lease, refusal) from None
    return _noted(written)


async def fenced_update_async(
    tx: Any,
    lease: Lease | AsyncLease | int,
    table: str | tuple[str, str],
    values: Mapping[str, object],
    *,
    where: Mapping[str, object],
    column: str = "fence",
) -> bool:
    """The same as `fenced_update` for asyncio; see `guard_async` for what it takes."""
    twin = async_twin(tx)
    if twin is not None:
        done = await twin.run_sync(
            lambda blocking: fenced_update(blocking, lease, table, values, where=where, column=column)
        )
        return bool(done)
    wire = wire_of(tx)
    if not wire.is_async:
        raise ConfigurationError(f"{kind_of(tx)} is not async: write fenced_update(tx, ...)")
    try:
        written = await _update(wire, _token(lease, table), table, values, where=where, column=column)
    except StaleFence as refusal:
        raise feed_back(lease, refusal) from None
    return _noted(written)


def _noted(written: bool) -> bool:  # noqa: FBT001 - only passed on
    if written:
        note_passed()
    return written


def _token(lease: Lease | AsyncLease | int, table: str | tuple[str, str]) -> Token:
    resource = table if isinstance(table, str) else ".".join(table)
    token = token_of(lease, resource)
    if token.shared:
        raise ConfigurationError("this lease is shared with others: it allows to read, and not to write")
    return token


async def _update(
    wire: Wire,
    token: Token,
    table: str | tuple[str, str],
    values: Mapping[str, object],
    *,
    where: Mapping[str, object],
    column: str,
) -> bool:
    if not where or column in values or column in where:
        raise ConfigurationError(f"where= must name the row by its key, and {column!r} is set by fenced_update itself")
    rows_of = Rows(wire, table)
    changed = ", ".join([*rows_of.changes(values), f"{rows_of.column(column)} = %(fence)s"])
    this_row, fence = rows_of.fits(where), rows_of.qualified(column)
    bound = rows_of.bound("key", where)
    # Names are quoted, and everything else is a value.
    update = f"UPDATE {rows_of.name} SET {changed} WHERE {this_row} AND {fence} <= %(fence)s"  # noqa: S608 - see above
    count = (await wire.query(update, {**bound, **rows_of.bound("value", values), "fence": token.fence})).count
    if count == 1:
        return True
    if count > 1:
        raise rows_of.several(count, where)
    # MySQL: the newest row, not the one of a snapshot; and it does not count a row whose values were the same before.
    on_mysql = wire.dialect == "mysql"
    present = " FOR UPDATE" if on_mysql else ""
    look = f"SELECT {fence} FROM {rows_of.name} WHERE {this_row}{present}"  # noqa: S608 - see above
    rows = (await wire.query(look, bound)).rows
    if on_mysql and rows == [(token.fence,)]:
        return True
    if rows:
        raise refused(token, max(seen for (seen,) in rows))
    return False
