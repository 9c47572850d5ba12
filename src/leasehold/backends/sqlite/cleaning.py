"""Cleaning away what nobody needs any more, a small slice at a time, by whoever uses the file.

A name's row carries its fence, so it may go only when the wall clock alone gives higher fences than that, with a day to
spare for a clock that is set back.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

from leasehold.backends.sqlite import statements as sql
from leasehold.backends.sqlite.entry import Entry
from leasehold.backends.sqlite.file import transaction

if TYPE_CHECKING:
    from leasehold.backends.sqlite.host import Host

__all__ = ["Cleaner"]

EVERY = 256  # requests that may each add a row
SLICE = 512  # rows looked at then: more than can have been added, so that cleaning keeps up
SPARE = 86_400.0


class Cleaner:
    """Walks round and round through the keys."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._requests = 0
        self._lock_position = ""
        self._record_position = ""

    def tick(self, connection: sqlite3.Connection) -> None:
        """Count a request, and clean a slice once in a while. If the file is busy, another time will do."""
        self._requests += 1
        if self._requests < EVERY:
            return
        self._requests = 0
        with contextlib.suppress(sqlite3.OperationalError):
            transaction(connection, self._clean, connection)

    def clean_all(self, connection: sqlite3.Connection) -> None:
        """Go through everything now."""
        self._lock_position = self._record_position = ""
        transaction(connection, self._clean, connection)
        while self._lock_position or self._record_position:
            transaction(connection, self._clean, connection)

    def _clean(self, connection: sqlite3.Connection) -> None:
        now = self._host.now()
        after = self._lock_position
        (last,) = connection.execute(sql.SLICE_OF_LOCKS, (after, SLICE)).fetchone()
        self._lock_position = last or ""
        if last is not None:
            keys = connection.execute(sql.EXPIRED_KEYS, (after, last, now)).fetchall()
            for (key,) in keys:
                Entry(connection, key, now).settle()  # waiters find out by themselves
            safe = int((self._host.wall() - SPARE) * 1_000_000)
            connection.execute(sql.CLEAN_LOCKS, (after, last, safe))
        after = self._record_position
        (last,) = connection.execute(sql.SLICE_OF_RECORDS, (after, SLICE)).fetchone()
        self._record_position = last or ""
        if last is not None:
            connection.execute(sql.CLEAN_RECORDS, (after, last, now))
