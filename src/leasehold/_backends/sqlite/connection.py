"""One connection to a lock file: opened at first use, shared by the threads of a client, closed before a fork.

SQLite lets one connection write at a time, so a second connection per client would only wait for the first; a mutex
does that faster. SQLite's own way to wait is not used: it sleeps where an event loop may be running. A request that
finds the file busy raises `Busy`, and the backend asks again.

Before a fork every connection of the process is closed, and opened again when it is needed. A child that inherited one
would believe that it has SQLite's locks on the file, which belong to the parent alone, and the parent could then remove
the log that the child writes to.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from typing import TYPE_CHECKING, ParamSpec, TypeVar, TypeVarTuple, Unpack
from urllib.parse import quote

from leasehold._backends.sqlite.errors import is_busy, is_fatal, translated
from leasehold._backends.sqlite.lock_file import identity, is_missing, prepare
from leasehold._backends.sqlite.schema import set_up
from leasehold.errors import BackendUnavailable, ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.sqlite.host import Host
    from leasehold._backends.sqlite.options import Location

__all__ = ["Busy", "LockFile", "single_change", "transaction"]

LOOK_AGAIN = 0.01  # how old the knowledge may be that the open file is still the one that others find

P = ParamSpec("P")
T = TypeVar("T")
Given = TypeVarTuple("Given")


class Busy(BackendUnavailable):
    """Another connection writes at this moment; nothing was done."""


class _CommitFailed(Exception):
    """The commit itself failed."""


class _Opening(sqlite3.Connection):
    """A connection that may never open: then there is nothing to close, and trying to would print a traceback."""


class _Connection(_Opening):
    """A connection that is closed with the last reference to it; newer Pythons would only warn."""

    __del__ = sqlite3.Connection.close  # not a function of Python: no signal handler can raise in the middle of it


class LockFile:
    """A client's way to a lock file."""

    _connection: sqlite3.Connection | None = None

    def __init__(self, location: Location, host: Host, synchronous: str) -> None:
        self.location = location
        self.host = host
        self._synchronous = synchronous
        self._mutex = threading.RLock()  # re-entrant: a signal handler may use a lock of its own
        self._identity: tuple[int, int, int] | None = None
        self._look_again = 0.0
        self._closed = False
        _FILES.add(self)

    def perform(self, work: Callable[[sqlite3.Connection, Unpack[Given]], T], *given: *Given) -> T:
        """Do some work on the open connection; errors come in our own words."""
        with self._mutex:
            try:
                connection = self._connection
                if connection is None or connection.in_transaction or self.host.now() > self._look_again:
                    connection = self._usable()
                return work(connection, *given)
            except sqlite3.Error as error:
                raise self._failed(error) from error
            except _CommitFailed as failure:
                cause = failure.__cause__
                assert isinstance(cause, sqlite3.Error)  # noqa: S101 - for the type checker
                raise self._failed(cause, committing=True) from cause

    def is_missing(self) -> bool:
        """Whether there is no file, so that a mere look need not make one."""
        return not self._closed and is_missing(self.location)

    def close(self) -> None:
        """Let go of the file; may be called twice."""
        with self._mutex:
            self._closed = True
            self._drop()

    def _usable(self) -> sqlite3.Connection:
        """The open connection, or a new one if the file was deleted or replaced; refused if it got a second name."""
        connection = self._connection
        if connection is not None and connection.in_transaction:
            raise BackendUnavailable("a signal handler used a lock in the middle of another call of its thread")
        if connection is None or identity(self.location) != self._identity:
            connection = self._open()
        self._look_again = self.host.now() + LOOK_AGAIN
        return connection

    def _open(self) -> sqlite3.Connection:
        if self._closed:
            raise ClientClosed(backend=self.location.label)
        self._drop()
        before = prepare(self.location)
        connection = sqlite3.connect(
            f"file:{quote(self.location.path)}?mode=rw",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            factory=_Opening,
        )
        connection.__class__ = _Connection
        try:
            set_up(connection, self.location, self.host, self._synchronous)
        except BaseException:
            connection.close()
            raise
        self._connection, self._identity = connection, before
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _failed(self, error: sqlite3.Error, *, committing: bool = False) -> Exception:
        if is_busy(error):
            return Busy(str(translated(error, self.location, committing=False)), backend=self.location.label)
        if is_fatal(error):
            self._drop()
        return translated(error, self.location, committing=committing)

    # --- fork

    def before_fork(self) -> None:
        """No thread is inside SQLite, and nothing is open."""
        self._mutex.acquire()
        if self._connection is not None and not self._connection.in_transaction:
            self._drop()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._mutex.release()

    def after_fork_in_child(self) -> None:
        """Never close here what a fork behind Python's back left open: it is the parent's."""
        self._mutex = threading.RLock()
        if self._connection is not None:
            _LEFT_TO_THE_PARENT.append(self._connection)
            self._connection = None


def transaction(connection: sqlite3.Connection, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do the work as one change, or not at all."""
    committing = False
    try:
        connection.execute("BEGIN IMMEDIATE")
        answer = work(*args, **kwargs)
        committing = True
        connection.execute("COMMIT")
    except BaseException as error:
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if committing and isinstance(error, sqlite3.Error):
            raise _CommitFailed from error
        raise
    return answer


def single_change(connection: sqlite3.Connection, statement: str, values: tuple[object, ...]) -> bool:
    """One statement that is a transaction of its own; whether it changed a row."""
    try:
        return connection.execute(statement, values).rowcount > 0
    except sqlite3.Error as error:
        raise _CommitFailed from error


_FILES: weakref.WeakSet[LockFile] = weakref.WeakSet()
_LEFT_TO_THE_PARENT: list[sqlite3.Connection] = []
_FORKING = threading.RLock()  # two threads that fork at once take the same mutexes one after the other
_HELD: list[LockFile] = []


def _before_fork() -> None:
    _FORKING.acquire()
    for file in list(_FILES):
        file.before_fork()
        _HELD.append(file)


def _after_fork_in_parent() -> None:
    while _HELD:
        _HELD.pop().after_fork_in_parent()
    _FORKING.release()


def _after_fork_in_child() -> None:
    global _FORKING  # noqa: PLW0603 - locks of the parent's threads mean nothing here
    _FORKING = threading.RLock()
    _HELD.clear()
    for file in list(_FILES):
        file.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
