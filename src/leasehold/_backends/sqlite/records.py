"""Records: small values that expire, written under a fence. Each request is one statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._backends.sqlite import statements as sql
from leasehold._backends.sqlite.connection import single_change
from leasehold.values import Reading, Record

if TYPE_CHECKING:
    import sqlite3

    from leasehold._backends.sqlite.host import Host

__all__ = ["read_record", "write_record"]


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
