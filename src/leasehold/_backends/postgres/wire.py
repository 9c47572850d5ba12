"""How a runtime connects and waits for a socket of psycopg: `blocking_wire` on a thread, `asyncio_wire` on a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import BaseConnection

    from leasehold._backends.postgres.connection import Connection
    from leasehold.spi import Runtime

__all__ = ["CHECK_EVERY", "Wire", "wire_for"]

CHECK_EVERY = 0.1  # how often a wait for a new connection checks whether it is still of use


class Wire(Protocol):
    """What a connection needs of its runtime."""

    async def connect(
        self, parameters: dict[str, Any], seconds: float, is_over: Callable[[], bool]
    ) -> BaseConnection[object]:
        """Connect; `TimeoutError` if the time is over first, or once `is_over` is true."""

    async def readable(self, connection: Connection, seconds: float) -> bool:
        """Wait until there is something to read; False if the time is over first."""

    async def writable(self, connection: Connection, seconds: float) -> bool:
        """Wait until there is room to write; False if the time is over first."""

    async def watch(self, connection: Connection, seconds: float) -> bool:
        """The same as `readable`, beside a call that may use the connection at the same time."""

    def interrupt(self, connection: Connection) -> None:
        """End a wait for this connection, from any thread; it cannot be used afterwards."""


def wire_for(runtime: Runtime) -> Wire:
    """The wire that fits the runtime. Loaded here: a blocking program does not import asyncio for this."""
    if runtime.blocking:
        from leasehold._backends.postgres.blocking_wire import BlockingWire  # noqa: PLC0415 - see above

        return BlockingWire()
    from leasehold._backends.postgres.asyncio_wire import AsyncioWire  # noqa: PLC0415

    return AsyncioWire()
