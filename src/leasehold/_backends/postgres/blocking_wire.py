"""Connecting, and waiting for a socket, on the calling thread."""

from __future__ import annotations

import select
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

from leasehold._backends.postgres.connection import poller_for
from leasehold._backends.postgres.deadlines import in_time
from leasehold.kit.waits import shut_down as shut_down_socket

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.postgres.connection import Connection

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
    """End every wait for this connection. Its user closes the descriptor."""
    with suppress(OSError):
        shut_down_socket(connection.pgconn.socket)
