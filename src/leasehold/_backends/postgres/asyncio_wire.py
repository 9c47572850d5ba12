"""Connecting, and waiting for a socket, on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from leasehold._backends.postgres.blocking_wire import shut_down
from leasehold._backends.postgres.deadlines import in_time_async
from leasehold.kit.asyncio_waits import AsyncioWaits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold._backends.postgres.connection import Connection

__all__ = ["AsyncioWire"]


class AsyncioWire:
    """Suspends the calling task."""

    _waits = AsyncioWaits()

    async def connect(
        self, parameters: dict[str, Any], seconds: float, is_over: Callable[[], bool]
    ) -> psycopg.BaseConnection[Any]:
        def make() -> Awaitable[psycopg.BaseConnection[Any]]:
            return psycopg.AsyncConnection.connect(**parameters, autocommit=True, prepare_threshold=None)

        return await in_time_async(make, _finish, seconds, is_over)

    async def readable(self, connection: Connection, seconds: float) -> bool:
        return await self._waits.readable(connection.pgconn.socket, seconds)

    async def writable(self, connection: Connection, seconds: float) -> bool:
        return await self._waits.writable(connection.pgconn.socket, seconds)

    async def watch(self, connection: Connection, seconds: float) -> bool:
        try:
            descriptor = connection.pgconn.socket
        except psycopg.Error:  # closed
            return True
        return await self._waits.watch(descriptor, seconds)

    def interrupt(self, connection: Connection) -> None:
        shut_down(connection)


async def _finish(late: psycopg.BaseConnection[Any]) -> None:
    late.pgconn.finish()
