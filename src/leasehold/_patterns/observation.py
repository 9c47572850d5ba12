"""Who leads an election, seen from outside: an iterator over the changes. The async face, which is the core face.

No store of ours announces a new holder to others than its waiters, so this asks now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._log import logger
from leasehold.errors import BackendUnavailable, OutcomeUnknown
from leasehold.values import Leader

if TYPE_CHECKING:
    from leasehold._face.client import AsyncClient
    from leasehold.values import LockState

__all__ = ["AsyncObservation", "leader_of"]


def leader_of(name: str, state: LockState | None) -> Leader | None:
    """The leader as the store has it; not one that an operator ended, nor one that has resigned."""
    for holding in () if state is None else state.holdings:
        if holding.broken is None and not holding.cooling:
            return Leader(name, holding.holder, holding.fence)
    return None


class AsyncObservation:
    """The changes of a leader: `async for leader in election.observe()`. It ends when `stop` is called."""

    def __init__(self, client: AsyncClient, name: str, every: float, jitter: float) -> None:
        self._client = client
        self._name = name
        self._every = every
        self._jitter = jitter
        self._signal = client._runtime.signal()
        self._stopped = False
        self._looked = False
        self._last: Leader | None = None

    def stop(self) -> None:
        """End the iteration, also from another thread or task."""
        self._stopped = True
        self._signal.set()

    def _look_now(self) -> None:
        """Look again without waiting for the next turn."""
        self._signal.set()

    def __aiter__(self) -> AsyncObservation:
        return self

    async def __anext__(self) -> Leader | None:
        while not self._stopped:
            if not self._looked:
                self._last = leader_of(self._name, await self._client.inspect(self._name))
                self._looked = True
                return self._last
            await self._pause()
            if await self._has_changed():
                return self._last
        raise StopAsyncIteration

    async def _pause(self) -> None:
        opened = self._client._open()
        stretch = 1 + (self._jitter - 1) * opened.runtime.random()
        try:
            await opened.waiting_calls.wait(self, self._signal, opened.runtime.now() + self._every * stretch)
        finally:
            opened.waiting_calls.ended(self)
        if not self._stopped:
            self._signal.clear()

    async def _has_changed(self) -> bool:
        """Look again; a store that cannot be reached is no news."""
        if self._stopped:
            return False
        try:
            leader = leader_of(self._name, await self._client.inspect(self._name))
        except (BackendUnavailable, OutcomeUnknown):
            logger.debug("could not look who leads %r; looking again", self._name, exc_info=True)
            return False
        if leader == self._last:
            return False
        self._last = leader
        return True
