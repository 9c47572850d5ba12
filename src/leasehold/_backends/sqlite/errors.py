"""SQLite's error codes in the words of our error tree, each with what to do.

The one question that matters is whether the request may have been applied. SQLite undoes a transaction whose commit it
did not report, with one exception: an I/O error while committing leaves that open.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from leasehold._backends.sqlite.options import Location

__all__ = ["BUSY", "is_busy", "is_fatal", "translated"]

BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})

_ADVICE = {
    sqlite3.SQLITE_READONLY: "cannot be written: give this user the right to write the file and its directory",
    sqlite3.SQLITE_PERM: "may not be used by this user: change its rights",
    sqlite3.SQLITE_AUTH: "may not be used by this user: change its rights",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: check the rights of the file, of the -wal and -shm files beside it and "
    "of the directory",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full or a quota is used up; make room (nothing was changed)",
    sqlite3.SQLITE_CORRUPT: "is damaged: stop the programs that use it, move it and its -wal and -shm files away, and "
    "start again with a new one (locks of running programs are forgotten by that)",
    sqlite3.SQLITE_NOTADB: "is not a SQLite file: give the URL of another file, or move this one away",
    sqlite3.SQLITE_NOLFS: "is too large for its file system; use another one",
    sqlite3.SQLITE_TOOBIG: "does not take a value of that size; a record has at most about a gigabyte",
}


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection is at work, so that the same request may succeed a moment later."""
    return _primary(error) in BUSY


def is_fatal(error: sqlite3.Error) -> bool:
    """Whether the connection should be thrown away before the next try."""
    return _primary(error) not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL}


def translated(error: sqlite3.Error, location: Location, *, committing: bool) -> BackendError:
    """The error to raise; `committing` says that the failed statement was to make the change last."""
    code = _primary(error)
    what = f"the lock file {location.path}"
    if code in BUSY:
        return BackendUnavailable(
            f"{what} stayed locked by another connection; end the program that keeps a transaction open on it",
            backend=location.label,
        )
    if code in _ADVICE:
        return BackendRejected(f"{what} {_ADVICE[code]} (SQLite: {error})", backend=location.label)
    if code == sqlite3.SQLITE_IOERR:
        if committing:
            return OutcomeUnknown(
                f"{what}: the disk failed during the commit (SQLite: {error})", backend=location.label
            )
        return BackendUnavailable(f"{what}: the disk failed (SQLite: {error})", backend=location.label)
    return BackendRejected(
        f"{what} does not have the tables of this version of leasehold, or was changed by another program "
        f"(SQLite: {error}); give the URL of another file",
        backend=location.label,
    )


def _primary(error: sqlite3.Error) -> int:
    """The code without its extension; an error of Python's own module has none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
