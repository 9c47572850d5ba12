"""Connecting, and waiting for a socket, on the calling thread."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

from leasehold.backends.postgres.connection import poller_for
from leasehold.backends.postgres.patience import in_time
from leasehold.backends.postgres.wire import CHECK_EVERY
from leasehold.kit.waits import shut_down as shut_down_socket

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.backends.postgres.connection import Connection

__all__ = ["BlockingWire", "shut_down"]


class BlockingWire:
    """Blocks the calling thread; a signal handler that raises ends the wait."""

    async def connect(
        self, parameters: dict[str, Any], seconds: float, is_over: Callable[[], bool]
    ) -> psycopg.BaseConnection[Any]:
        # On a thread of its own: psycopg waits for two seconds at the least, and for as long as resolving a name takes.
        def make() -> psycopg.BaseConnection[Any]:
            return psycopg.Connection.connect(**parameters, autocommit=True, prepare_threshold=None)

        return in_time(make, lambda made: made.pgconn.finish(), seconds, is_over)

    async def readable(self, connection: Connection, seconds: float) -> bool:
        return bool(connection.poller.poll(max(seconds, 0.0) * 1000))

    async def writable(self, connection: Connection, seconds: float) -> bool:
        if hasattr(select, "poll"):
            poller = select.poll()
            poller.register(connection.pgconn.socket, select.POLLOUT)
            return bool(poller.poll(max(seconds, 0.0) * 1000))
        return bool(select.select([], [connection.pgconn.socket], [], max(seconds, 0.0))[1])

    async def watch(self, connection: Connection, seconds: float) -> bool:
        try:
            poller = poller_for(connection.pgconn)  # its own: two threads cannot use one
            return bool(poller.poll(max(seconds, 0.0) * 1000))
        except psycopg.Error:  # closed meanwhile
            return True

    def interrupt(self, connection: Connection) -> None:
        shut_down(connection)


def shut_down(connection: Connection) -> None:
    """Shut the stream down, which ends every wait for it. Its user closes the descriptor."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.pgconn.socket)) as stream:
        stream.shutdown(socket.SHUT_RDWR)
    """End every wait for this connection. Its user closes the descriptor."""
    with suppress(OSError):
        shut_down_socket(connection.pgconn.socket)


def in_time(
    make: Callable[[], T], undo: Callable[[T], object], seconds: float, is_over: Callable[[], bool] = lambda: False
) -> T:
    """Run on another thread what cannot be interrupted, and give up on it with `TimeoutError` if it takes too long.

    A result that comes after that is undone on the other thread.
    """
    work = _Work(make, undo)
    threading.Thread(target=work.run, name="leasehold postgres connect", daemon=True).start()
    ends = monotonic() + seconds
    try:
        while not work.done.wait(min(CHECK_EVERY, max(ends - monotonic(), 0.0))):
            if monotonic() >= ends or is_over():
                raise TimeoutError
    except BaseException:
        work.abandon()
        raise
    return work.result()


class _Work(Generic[T]):
    """A result that one thread makes for another, which may give up on it."""

    def __init__(self, make: Callable[[], T], undo: Callable[[T], object]) -> None:
        self._make = make
        self._undo = undo
        self._outcome: list[T] = []  # popped exactly once, by the user of the result or by its undoing
        self._error: BaseException | None = None
        self._abandoned = False
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self._outcome.append(self._make())
        except BaseException as error:  # noqa: BLE001 - raised on the thread that waits
            self._error = error
        self.done.set()
        if self._abandoned:
            self._undo_it()

    def abandon(self) -> None:
        self._abandoned = True
        if self.done.is_set():
            self._undo_it()

    def _undo_it(self) -> None:
        with suppress(IndexError):
            made = self._outcome.pop()
            with suppress(Exception):
                self._undo(made)

    def result(self) -> T:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._outcome.pop()
