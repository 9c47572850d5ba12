"""How a runtime waits for a socket: here on the calling thread, in `asyncio_waits` on an event loop.

For stores that speak their protocol themselves over a socket that does not block.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from leasehold.spi import Runtime

__all__ = ["BlockingWaits", "Waits", "shut_down", "waits_for"]


class Waits(Protocol):
    """What a connection needs of its runtime."""

    async def readable(self, descriptor: int, seconds: float) -> bool:
        """Wait until there is something to read; False if the time is over first."""

    async def writable(self, descriptor: int, seconds: float) -> bool:
        """Wait until there is room to write; False if the time is over first."""

    async def watch(self, descriptor: int, seconds: float) -> bool:
        """The same as `readable`, beside a call that may use the socket at the same time; True if it is closed."""


def waits_for(runtime: Runtime) -> Waits:
    """The one that fits the runtime. Loaded here: a blocking program does not import asyncio for this."""
    if runtime.blocking:
        return BlockingWaits()
    from leasehold.kit.asyncio_waits import AsyncioWaits  # noqa: PLC0415 - see above

    return AsyncioWaits()


class BlockingWaits:
    """Blocks the calling thread; a signal handler that raises ends the wait."""

    async def readable(self, descriptor: int, seconds: float) -> bool:
        return _ready(descriptor, seconds, write=False)

    async def writable(self, descriptor: int, seconds: float) -> bool:
        return _ready(descriptor, seconds, write=True)

    async def watch(self, descriptor: int, seconds: float) -> bool:
        return descriptor < 0 or _ready(descriptor, seconds, write=False)


def _ready(descriptor: int, seconds: float, *, write: bool) -> bool:
    seconds = max(seconds, 0.0)
    if not hasattr(select, "poll"):
        here = [descriptor]
        return any(select.select([] if write else here, here if write else [], [], seconds))
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT if write else select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def shut_down(descriptor: int) -> None:
    """Shut the stream down, which ends every wait for it. Its user closes the descriptor."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as stream:
        stream.shutdown(socket.SHUT_RDWR)
