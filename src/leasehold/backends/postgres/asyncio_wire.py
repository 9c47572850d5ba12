"""Connecting, and waiting for a socket, on an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from leasehold.backends.postgres.blocking_wire import shut_down
from leasehold.backends.postgres.wire import CHECK_EVERY
from leasehold.kit.asyncio_waits import AsyncioWaits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold.backends.postgres.connection import Connection

T = TypeVar("T")

__all__ = ["AsyncioWire", "in_time_async"]


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


async def in_time_async(
    make: Callable[[], Awaitable[T]],
    undo: Callable[[T], Awaitable[object]],
    seconds: float,
    is_over: Callable[[], bool] = lambda: False,
) -> T:
    """Run in another task what may be slow to cancel, and give up on it with `TimeoutError` if it takes too long.

    A result that comes after that is undone in the other task.
    """

    async def work() -> T:
        made = await make()
        if abandoned:
            await undo(made)
            raise TimeoutError
        return made

    abandoned: list[bool] = []
    loop = asyncio.get_running_loop()
    task, ends = loop.create_task(work()), loop.time() + seconds
    task.add_done_callback(_retrieve_error)
    try:
        while not task.done():
            if loop.time() >= ends or is_over():
                raise TimeoutError
            await asyncio.wait({task}, timeout=max(min(CHECK_EVERY, ends - loop.time()), 0.0))
    except GeneratorExit:
        abandoned.append(True)
        raise
    except BaseException:
        abandoned.append(True)
        if task.done() and not task.cancelled() and task.exception() is None:
            await undo(task.result())
        task.cancel()
        raise
    return task.result()


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    """Mark the error as seen: asyncio would log that of a task whose waiter has given up."""
    if not task.cancelled():
        task.exception()


async def _finish(late: psycopg.BaseConnection[Any]) -> None:
    late.pgconn.finish()
