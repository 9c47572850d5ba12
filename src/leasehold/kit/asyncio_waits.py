"""Waiting for a socket on an event loop: see `waits`. And closing one whose loop is closed."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AsyncioWaits", "close_without_loop"]


class AsyncioWaits:
    """Suspends the calling task."""

    async def readable(self, descriptor: int, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        return await _ready(loop, descriptor, seconds, loop.add_reader, loop.remove_reader)

    async def writable(self, descriptor: int, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        return await _ready(loop, descriptor, seconds, loop.add_writer, loop.remove_writer)

    async def watch(self, descriptor: int, seconds: float) -> bool:
        try:  # a loop takes one reader for each descriptor, so this is a second one of the same socket
            loop, second = asyncio.get_running_loop(), os.dup(descriptor)
        except OSError:  # closed
            return True
        try:
            return await _ready(loop, second, seconds, loop.add_reader, loop.remove_reader)
        finally:
            os.close(second)


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


def close_without_loop(transport: Any) -> None:
    """Close the socket of a connection whose loop is closed, which would stay open until it is collected."""
    with suppress(RuntimeError):  # it counts as closing from here on, and cannot schedule the rest
        transport.abort()
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)
    end = getattr(below, "_call_connection_lost", None)  # what asyncio's own transports would have the loop call
    if end is not None:
        with suppress(RuntimeError, AttributeError):  # of a protocol that wants to schedule something
            end(None)
