"""Connections that a thread opens for a caller with a deadline.

Connecting blocks for as long as the network likes: a name that is looked up, a host that is silent, a handshake. So a
thread of its own connects, and the caller waits for it no longer than it has use for the answer. A connection that
comes later than that serves the next caller.
"""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from leasehold.errors import BackendUnavailable, ClientClosed, LeaseholdError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.spi import Runtime, Signal

__all__ = ["Openings", "no_connection"]


class Closable(Protocol):
    """A connection."""

    def close(self) -> None:
        """Close it."""


C = TypeVar("C", bound=Closable)


def no_connection(label: str) -> BackendUnavailable:
    """What to raise when the time was over before there was a connection."""
    return BackendUnavailable(
        f"{label} cannot be reached: no connection in time; check whether the server and the way to it are up",
        backend=label,
    )


class _Opening(Generic[C]):
    """One that is under way. A caller that leaves first marks it `abandoned`."""

    __slots__ = ("abandoned", "connection", "error", "over")

    def __init__(self, over: Signal) -> None:
        self.over = over
        self.connection: C | None = None
        self.error: LeaseholdError | None = None
        self.abandoned = False


class Openings(Generic[C]):
    """All that are under way in one wire."""

    def __init__(self, runtime: Runtime, label: str) -> None:
        self._runtime = runtime
        self._label = label
        self._guard = runtime.guard() if runtime.blocking else threading.Lock()  # a loop's own guards no threads
        self._under_way: set[_Opening[C]] = set()
        self._closed = False

    async def open(self, connect: Callable[[], C], keep: Callable[[C], None], until: float) -> C:
        """A new connection, if there is one in time; `keep` takes one that came too late."""
        opening: _Opening[C] = _Opening(self._runtime.signal())
        self._under_way.add(opening)
        try:
            await self._start(connect, keep, opening)
            if not self._closed:  # `close` sets the signal only of openings that it sees
                await self._runtime.wait(opening.over, None if until == math.inf else until)
        finally:
            self._under_way.discard(opening)
            with self._guard:
                connection, error = opening.connection, opening.error
                opening.abandoned = connection is None
        if self._closed:
            if connection is not None:
                connection.close()
            raise ClientClosed(backend=self._label)
        if error is not None:
            raise error
        if connection is None:
            raise no_connection(self._label)
        return connection

    def close(self) -> None:
        """End every wait, and refuse what is opened from now on."""
        self._closed = True
        for opening in tuple(self._under_way):
            opening.over.set()

    async def _start(self, connect: Callable[[], C], keep: Callable[[C], None], opening: _Opening[C]) -> None:
        if not self._runtime.blocking:  # where a spawned task would block the event loop
            work = threading.Thread(target=self._connect, args=(connect, keep, opening), daemon=True)
            work.name = "leasehold connection"
            work.start()
            return
        connecting = self._connect_beside(connect, keep, opening)
        try:
            self._runtime.spawn(connecting, "leasehold connection")
        except RuntimeError:  # no more threads: the interpreter ends, or there are too many
            connecting.close()
            self._connect(connect, keep, opening)

    async def _connect_beside(self, connect: Callable[[], C], keep: Callable[[C], None], opening: _Opening[C]) -> None:
        self._connect(connect, keep, opening)

    def _connect(self, connect: Callable[[], C], keep: Callable[[C], None], opening: _Opening[C]) -> None:
        try:
            connection = connect()
        except LeaseholdError as error:
            opening.error = error
        else:
            with self._guard:
                opening.connection = connection
                abandoned = opening.abandoned
            if abandoned:
                keep(connection)
        finally:
            with suppress(RuntimeError):  # the event loop has been closed meanwhile
                opening.over.set()
