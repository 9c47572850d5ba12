"""What operators and patterns ask of the file: states of locks and records. Reading takes no write lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.backends.sqlite import statements as sql
from leasehold.backends.sqlite.entry import Row, State
from leasehold.backends.sqlite.file import single_change
from leasehold.values import Holder, Holding, LockState, Mode, Reading, Record

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from leasehold.backends.sqlite.host import Host

__all__ = ["inspect", "list_states", "read_record", "write_record"]


def inspect(connection: sqlite3.Connection, host: Host, key: str) -> LockState | None:
    """Who holds and who waits."""
    return next(iter(_states(connection, host.now(), key, key.__eq__)), None)


def list_states(connection: sqlite3.Connection, host: Host, prefix: str) -> list[LockState]:
    """All locks in use whose key starts with the prefix, in order of key."""
    return _states(connection, host.now(), prefix, lambda key: key.startswith(prefix))


def _states(connection: sqlite3.Connection, now: float, first: str, belongs: Callable[[str], bool]) -> list[LockState]:
    """The states of the keys from `first` on for as long as they belong, in one snapshot."""
    connection.execute("BEGIN")
    try:
        states = []
        for key, *rest in connection.execute(sql.USED, (first,)):
            if not belongs(key):  # the order is that of code points: all that belong come in a row
                break
            state = _plain(key, rest, now) if rest[0] == 1 else _unfolded(connection, key, now)
            if state is not None:
                states.append(state)
        return states
    finally:
        connection.execute("COMMIT")


def _plain(key: str, values: list[Any], now: float) -> LockState | None:
    _, fence, since, expires, host, pid, label, reason = values
    if expires <= now:
        return None
    holding = Holding(Holder(host, pid, label, reason), fence, now - since, expires - now)
    return LockState(key, Mode.EXCLUSIVE, 1, (holding,), ())


def _unfolded(connection: sqlite3.Connection, key: str, now: float) -> LockState | None:
    rows = [Row._make(values) for values in connection.execute(sql.IN_USE, (key, now))]
    if not rows:
        return None
    held = sorted((row for row in rows if row.state != State.WAITING), key=lambda row: row.number)
    holdings = tuple(
        Holding(
            row.holder, row.fence, now - row.since, row.expires - now, row.broken, cooling=row.state == State.COOLING
        )
        for row in held
    )
    waiting = tuple(row.holder for row in rows if row.state == State.WAITING)
    first = held[0] if held else rows[0]
    return LockState(key, Mode(first.mode), first.capacity, holdings, waiting)


def read_record(connection: sqlite3.Connection, host: Host, key: str, fence: int) -> Reading:
    """The record, if it has not run out; and let no lower fence write from now on."""
    if fence:
        single_change(connection, sql.RAISE_FENCE, (key, fence))
    now = host.now()
    value, highest, expires = connection.execute(sql.READ_RECORD, (key,)).fetchone() or (b"", 0, 0.0)
    record = Record(key, value, highest, expires - now) if expires > now else None
    return Reading(record, highest, host.wall())


def write_record(connection: sqlite3.Connection, host: Host, record: Record) -> bool:
    """Store it unless a higher fence was here."""
    now = host.now()
    values = (record.key, record.value, record.fence, now + record.ttl, host.wall() + record.ttl, record.ttl)
    return single_change(connection, sql.WRITE_RECORD, values)
