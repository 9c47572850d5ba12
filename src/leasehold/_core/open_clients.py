"""The open clients of one client: one for each event loop that it is used on, so that all loops can share the client.

Connections, background work and leases belong to one loop, its home: pytest has a loop for each test, Starlette's
`TestClient` for each client, `asyncio.run` for each call. Where there are no loops, home is None and there is one.

An open client ends with its loop. A loop that is shut down in order (`asyncio.run` and every framework do that) closes
it first, while requests can still be sent. One that was closed without that is found by the next call on another loop,
or by `close`: what can be closed without a loop is closed then. Either way a lease that was still held is treated like
one that was dropped: it is lost here, with a warning, and its ttl frees it in the store.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from leasehold._core.backoff import GRACE
from leasehold.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable
    from typing import Any

    from leasehold._core.open_client import OpenClient
    from leasehold.spi import Runtime

__all__ = ["OpenClients", "close_at_home"]

LAST_RELEASES = 0.5  # how long a loop that is shut down waits for leases that other generators release in their turn
LOOK_AGAIN = 0.01


class OpenClients:
    """By home, what the client has while it is open there."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._guard = runtime.guard()
        self._is_closed = False
        self._unused: OpenClient | None = None  # opened where no loop ran; the first loop to come has it
        self.by_home: dict[Hashable, OpenClient] = {}

    def here(self, make: Callable[[], OpenClient]) -> OpenClient:
        """The one of the event loop that runs now; opened if need be."""
        home = self._runtime.home()
        with self._guard:
            self._require_open()
            found = self.by_home.get(home)
            if found is not None:
                return found
            opened = self._unused or make()
            opened.home = home
            if home is not None:
                opened.current = partial(self._runtime.current_at, home)
            opened.until_home_ends = self._runtime.before_end(partial(self._end, home, opened))
            self._unused, self.by_home[home] = None, opened
        self._abandon_ended()
        return opened

    def anywhere(self, make: Callable[[], OpenClient]) -> OpenClient:
        """One of them, to ask what its store is like: that needs no event loop."""
        if self._runtime.blocking or self._runtime.home() is not None:
            return self.here(make)
        with self._guard:
            self._require_open()
            opened = next(iter(self.by_home.values()), self._unused)
            if opened is None:
                self._unused = opened = make()
        return opened

    def all(self) -> list[OpenClient]:
        """Those that are open."""
        with self._guard:
            return self._everything()

    def take(self) -> list[OpenClient]:
        """Refuse every further call; returns what has to be closed."""
        with self._guard:
            self._is_closed = True
            unused, opened = self._unused, list(self.by_home.values())
            self._forget_all()
        if unused is not None:
            unused.abandon()  # no call has used it, and none may wait here: perhaps no loop runs
        return opened

    def take_after_fork(self) -> list[OpenClient]:
        """In a forked child: start without any; returns what is the parent's."""
        self._guard = self._runtime.guard()
        opened = self._everything()
        self._forget_all()
        return opened

    def _everything(self) -> list[OpenClient]:
        return [*self.by_home.values(), *([] if self._unused is None else [self._unused])]

    def _forget_all(self) -> None:
        self._unused = None
        self.by_home.clear()

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClientClosed

    async def _end(self, home: Hashable, opened: OpenClient) -> None:
        """The loop is being shut down; its tasks are over, but generators of the program may still release leases."""
        if self.by_home.get(home) is not opened:  # it has been closed
            return
        runtime = self._runtime
        until = runtime.now() + min(LAST_RELEASES, opened.close_patience)
        await opened.end_parked()  # nothing else gives it back on this loop
        while opened.keeper.tenures() and runtime.now() < until:
            await runtime.sleep(LOOK_AGAIN)
            await opened.end_parked()
        self.by_home.pop(home, None)
        opened.keeper.abandon()
        await opened.close(runtime.now() + GRACE)

    def _abandon_ended(self) -> None:
        for home in [home for home in list(self.by_home) if self._runtime.has_ended(home)]:
            opened = self.by_home.pop(home, None)
            if opened is not None:
                opened.abandon()


async def close_at_home(
    all_opened: list[OpenClient], close: Callable[[OpenClient], Coroutine[Any, Any, None]], deadline: float
) -> None:
    """Close each on its own event loop, all at the same time; by the deadline those of other loops are left alone."""

    async def close_elsewhere(opened: OpenClient) -> None:
        if not await opened.runtime.at_home(opened.home, partial(close, opened), deadline):
            opened.abandon()

    here = [opened for opened in all_opened if opened.is_at_home()]
    others = [opened for opened in all_opened if opened not in here]
    closing = [opened.runtime.spawn(close_elsewhere(opened), "leasehold closing") for opened in others]
    try:
        for opened in here:
            await close(opened)
    finally:
        for task in closing:
            await task.join(deadline)
