"""Making a new lock file, and recognising one: ours or another program's, this version's or another's, this boot's.

Must not know what a claim is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import BackendRejected
from leasehold.kit.pauses import OWNER
from leasehold.kit.rules import ABANDONED_KEPT

if TYPE_CHECKING:
    import sqlite3

    from leasehold._backends.sqlite.host import Host
    from leasehold._backends.sqlite.options import Location

__all__ = ["APPLICATION_ID", "VERSION", "set_up"]

APPLICATION_ID = 0x4C_45_41_53  # "LEAS"; file(1) shows it
VERSION = 1
PAGE_SIZE = 1024  # every grant writes a page to the log; a small one is quicker (only a new file takes it)
LOG_PAGES = 4000  # a log as large as SQLite's default, in our pages: the request that fills it waits for the disk
# Where each request waits for the disk anyway: until the log is full for the first time its file grows, and then every
# wait is for the file system's own log as well.
LOG_PAGES_WHEN_FULL = 1000


def set_up(connection: sqlite3.Connection, location: Location, host: Host, synchronous: str) -> None:
    """Check the file, make its tables if it is new, and forget the leases of an earlier boot."""
    connection.execute(f"PRAGMA synchronous={synchronous}")  # one of three words, checked with the URL
    log_pages = LOG_PAGES_WHEN_FULL if synchronous == "full" else LOG_PAGES
    connection.execute(f"PRAGMA wal_autocheckpoint={log_pages}")
    if _is_current(connection, host):
        return
    connection.execute("BEGIN")  # one view of the file: another process may be making its tables right now
    try:
        _refuse_others(connection, location)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise BackendRejected(
            f"the file system of {location.path} cannot share memory between processes, which SQLite's log needs; "
            "use a local disk",
            backend=location.label,
        )
    connection.execute("BEGIN IMMEDIATE")
    try:
        _refuse_others(connection, location)  # another process may have been faster
        if _number(connection, "user_version") == 0:
            _create(connection, host)
        _enter_boot(connection, host)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_current(connection: sqlite3.Connection, host: Host) -> bool:
    """The common case, found by reading only."""
    if _number(connection, "user_version") != VERSION or _number(connection, "application_id") != APPLICATION_ID:
        return False
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        return False
    return _is_this_boot(connection, host)


def _refuse_others(connection: sqlite3.Connection, location: Location) -> None:
    version, application = _number(connection, "user_version"), _number(connection, "application_id")
    if application == APPLICATION_ID:
        if version > VERSION:
            raise _rejected(
                location,
                f"was made by a newer leasehold (version {version} of its tables, this one knows "
                f"{VERSION}); upgrade leasehold here too",
            )
        if version < VERSION:
            raise _rejected(
                location,
                f"was made by an older leasehold (version {version} of its tables, this one knows "
                f"{VERSION}); stop the programs that use it and delete it",
            )
        return
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application or version or tables:
        raise _rejected(location, "is a SQLite database of another program; locks need a file of their own")


def _create(connection: sqlite3.Connection, host: Host) -> None:
    from pathlib import Path  # noqa: PLC0415 - only for a new file

    text = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
    for statement in text.strip().split(";\n"):  # executescript would commit what is open
        connection.execute(statement)
    connection.execute("INSERT INTO host (boot) VALUES (?)", (host.boot,))
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={VERSION}")


def _enter_boot(connection: sqlite3.Connection, host: Host) -> None:
    """A lease of another boot is dead, and its holder did not release it. Records live on, by the wall clock."""
    if _is_this_boot(connection, host):
        return
    now, wall = host.now(), host.wall()
    connection.execute(
        "UPDATE lock SET abandoned_until = ?, shape = 2, owner = NULL "
        "WHERE shape = 1 OR abandoned_until > 0 OR key IN (SELECT key FROM claim WHERE state = 1)",
        (now + ABANDONED_KEPT,),
    )
    connection.execute("DELETE FROM claim WHERE owner <> ?", (OWNER,))
    connection.execute("UPDATE claim SET since = ?, expires = ? + ttl", (now, now))  # pauses: belong to no process
    connection.execute(
        "UPDATE lock SET shape = 0 WHERE shape = 2 AND abandoned_until = 0 AND key NOT IN (SELECT key FROM claim)"
    )
    connection.execute("UPDATE record SET expires = ? + min(ttl, expires_wall - ?)", (now, wall))
    connection.execute("UPDATE host SET boot = ?", (host.boot,))


def _is_this_boot(connection: sqlite3.Connection, host: Host) -> bool:
    if connection.execute("SELECT boot FROM host").fetchone() != (host.boot,):
        return False
    if host.boot:
        return True
    # Where the system does not name its boots, a lease that begins in the future gives an old one away.
    query = (
        "SELECT EXISTS (SELECT 1 FROM lock WHERE shape = 1 AND since > ?) "
        "OR EXISTS (SELECT 1 FROM claim WHERE state = 1 AND since > ?)"
    )
    return bool(connection.execute(query, (host.now(), host.now())).fetchone() == (0,))


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    (value,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(value)


def _rejected(location: Location, what: str) -> BackendRejected:
    return BackendRejected(f"the lock file {location.path} {what}", backend=location.label)
