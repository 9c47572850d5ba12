"""The states of locks, for operators. Reading takes no write lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._backends.sqlite import statements as sql
from leasehold._backends.sqlite.rows import FOLDED, SqliteRows, holder_of
from leasehold.kit import rules
from leasehold.values import Holding, LockState, Mode

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from leasehold._backends.sqlite.host import Host

__all__ = ["inspect", "list_states"]


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
            state = _folded(key, rest, now) if rest[0] == FOLDED else rules.inspect(SqliteRows(connection, key, now))
            if state is not None:
                states.append(state)
        return states
    finally:
        connection.execute("COMMIT")


def _folded(key: str, values: list[Any], now: float) -> LockState | None:
    _, fence, since, expires, host, pid, label, reason = values
    if expires <= now:
        return None
    holding = Holding(holder_of(host, pid, label, reason), fence, now - since, expires - now)
    return LockState(key, Mode.EXCLUSIVE, 1, (holding,), ())
