"""Connecting, and waiting for a socket: on a thread, and on an event loop. All that the two kinds of wire differ in."""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from leasehold.backends.postgres.line import Line, Wire
    from leasehold.spi import Runtime

__all__ = ["AsyncioWire", "BlockingWire", "wire_for"]


def wire_for(runtime: Runtime) -> Wire:
    """The wire that a runtime can wait on: one that never suspends blocks, as its `sleep` shows."""
    probe: Any = runtime.sleep(0)
    try:
        probe.send(None)
    except StopIteration:
        return BlockingWire()
    finally:
        probe.close()
    return AsyncioWire()


class BlockingWire:
    """Blocks the calling thread; a signal handler that raises interrupts it."""

    async def connect(self, parameters: dict[str, Any]) -> psycopg.BaseConnection[Any]:
        """See `Wire`."""
        return psycopg.Connection.connect(**parameters, autocommit=True, prepare_threshold=None)

    async def readable(self, line: Line, seconds: float) -> bool:
        """See `Wire`."""
        return _poll(line, seconds)

    async def writable(self, line: Line, seconds: float) -> bool:
        """See `Wire`."""
        if hasattr(select, "poll"):
            poller = select.poll()
            poller.register(line.pgconn.socket, select.POLLOUT)
            return bool(poller.poll(max(seconds, 0.0) * 1000))
        return bool(select.select([], [line.pgconn.socket], [], max(seconds, 0.0))[1])

    def is_readable(self, line: Line) -> bool:
        """See `Wire`."""
        return _poll(line, 0.0)

    def interrupt(self, line: Line) -> None:
        """See `Wire`."""
        _end(line)


class AsyncioWire:
    """Suspends the calling task."""

    async def connect(self, parameters: dict[str, Any]) -> psycopg.BaseConnection[Any]:
        """See `Wire`."""
        return await psycopg.AsyncConnection.connect(**parameters, autocommit=True, prepare_threshold=None)

    async def readable(self, line: Line, seconds: float) -> bool:
        """See `Wire`."""
        loop = _loop()
        return await _ready(loop, line.pgconn.socket, seconds, loop.add_reader, loop.remove_reader)

    async def writable(self, line: Line, seconds: float) -> bool:
        """See `Wire`."""
        loop = _loop()
        return await _ready(loop, line.pgconn.socket, seconds, loop.add_writer, loop.remove_writer)

    def is_readable(self, line: Line) -> bool:
        """See `Wire`."""
        return _poll(line, 0.0)

    def interrupt(self, line: Line) -> None:
        """See `Wire`."""
        _end(line)


def _poll(line: Line, seconds: float) -> bool:
    """Block until there is something to read, or the time is over."""
    if not hasattr(select, "poll"):
        return bool(select.select([line.pgconn.socket], [], [], max(seconds, 0.0))[0])
    if line.poller is None:
        line.poller = select.poll()
        line.poller.register(line.pgconn.socket, select.POLLIN)
    return bool(line.poller.poll(max(seconds, 0.0) * 1000))


def _end(line: Line) -> None:
    """End the stream, so that whoever waits for it finds out. The descriptor stays with whoever closes the line."""
    with suppress(OSError), socket.socket(fileno=os.dup(line.pgconn.socket)) as stream:
        stream.shutdown(socket.SHUT_RDWR)


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


def _loop() -> asyncio.AbstractEventLoop:
    from asyncio import get_running_loop  # noqa: PLC0415 - a blocking program does not load it here

    return get_running_loop()
