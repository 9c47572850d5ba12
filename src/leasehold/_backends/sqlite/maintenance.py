"""Cleaning away what is not needed any more, a small slice at a time, by every client that uses the file.

A client counts the requests that may have added a row, and its worker cleans a slice once in a while, beside them. A
name's row carries its fence, so it may go only when the wall clock alone gives higher fences than that, with a day to
spare for a clock that is set back.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

from leasehold._backends.sqlite import statements as sql
from leasehold._backends.sqlite.connection import transaction
from leasehold._backends.sqlite.rows import SqliteRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.sqlite.host import Host

__all__ = ["Cleaning"]

EVERY = 256  # requests that may each add a row
SLICE = 1024  # rows looked at then: far more than can have been added, so that cleaning keeps up
SPARE = 86_400.0


class Cleaning:
    """Walks round and round through the keys. `start` has `clean` performed soon, by a worker."""

    def __init__(self, host: Host, start: Callable[[], None]) -> None:
        self._host = host
        self._start = start
        self._requests = 0
        self._lock_position = ""
        self._record_position = ""

    def tick(self) -> None:
        """Count a request that may have added a row."""
        self._requests += 1
        if self._requests >= EVERY:
            self._requests = 0
            self._start()

    def clean(self, connection: sqlite3.Connection) -> None:
        """Clean one slice. If the file is busy, another time will do."""
        with contextlib.suppress(sqlite3.OperationalError):
            transaction(connection, self._clean, connection)

    def clean_all(self, connection: sqlite3.Connection) -> None:
        """Go through everything now."""
        self._lock_position = self._record_position = ""
        for clean, position in ((self._clean_locks, "_lock_position"), (self._clean_records, "_record_position")):
            transaction(connection, clean, connection)
            while getattr(self, position):
                transaction(connection, clean, connection)

    def _clean(self, connection: sqlite3.Connection) -> None:
        self._clean_locks(connection)
        self._clean_records(connection)

    def _clean_locks(self, connection: sqlite3.Connection) -> None:
        now, after = self._host.now(), self._lock_position
        number, last = connection.execute(sql.SLICE_OF_LOCKS, (after, SLICE)).fetchone()
        self._lock_position = _next_position(number, last)
        if last is not None:
            keys = connection.execute(sql.EXPIRED_KEYS, (after, last, now, now, now)).fetchall()
            for (key,) in keys:
                SqliteRows(connection, key, now).enter().settle()  # waiters find out by themselves
            connection.execute(sql.CLEAN_LOCKS, (after, last, self._old_fence()))

    def _clean_records(self, connection: sqlite3.Connection) -> None:
        now, after = self._host.now(), self._record_position
        number, last = connection.execute(sql.SLICE_OF_RECORDS, (after, SLICE)).fetchone()
        self._record_position = _next_position(number, last)
        if last is not None:
            connection.execute(sql.CLEAN_RECORDS, (after, last, now, self._old_fence()))

    def _old_fence(self) -> int:
        """A fence that the wall clock passed a day ago."""
        return int((self._host.wall() - SPARE) * 1_000_000)


def _next_position(number: int, last: str) -> str:
    """Start again as soon as the end is seen: where new names sort last, as dates do, it would never be passed."""
    return last if number == SLICE else ""
