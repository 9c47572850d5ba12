"""Connecting, and waiting for a socket, on an event loop."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import psycopg

from leasehold.backends.postgres.blocking_wire import shut_down
from leasehold.backends.postgres.patience import in_time_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold.backends.postgres.connection import Connection

__all__ = ["AsyncioWire"]


class AsyncioWire:
    """Suspends the calling task."""

    async def connect(
        self, parameters: dict[str, Any], seconds: float, is_over: Callable[[], bool]
    ) -> psycopg.BaseConnection[Any]:
        def make() -> Awaitable[psycopg.BaseConnection[Any]]:
            return psycopg.AsyncConnection.connect(**parameters, autocommit=True, prepare_threshold=None)

        return await in_time_async(make, _finish, seconds, is_over)

    async def readable(self, connection: Connection, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        return await _ready(loop, connection.pgconn.socket, seconds, loop.add_reader, loop.remove_reader)

    async def writable(self, connection: Connection, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        return await _ready(loop, connection.pgconn.socket, seconds, loop.add_writer, loop.remove_writer)

    async def watch(self, connection: Connection, seconds: float) -> bool:
        try:  # a loop takes one reader for each descriptor, so this is a second one of the same socket
            loop, descriptor = asyncio.get_running_loop(), os.dup(connection.pgconn.socket)
        except psycopg.Error:  # closed
            return True
        try:
            return await _ready(loop, descriptor, seconds, loop.add_reader, loop.remove_reader)
        finally:
            os.close(descriptor)

    def interrupt(self, connection: Connection) -> None:
        shut_down(connection)


async def _finish(late: psycopg.BaseConnection[Any]) -> None:
    late.pgconn.finish()


async def _ready(
    loop: asyncio.AbstractEventLoop,
    descriptor: int,
    seconds: float,
    watch: Callable[..., object],
    forget: Callable[[int], object],
) -> bool:
    ready: asyncio.Future[bool] = loop.create_future()
    timer = loop.call_later(max(seconds, 0.0), _settle, ready, False)  # noqa: FBT003 - called by position
    watch(descriptor, _settle, ready, True)  # noqa: FBT003
    try:
        return await ready
    finally:
        forget(descriptor)
        timer.cancel()


def _settle(future: asyncio.Future[bool], value: bool) -> None:  # noqa: FBT001
    if not future.done():
        future.set_result(value)
