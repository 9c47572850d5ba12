"""What all calls of one client share while it is open: runtime, store, keeper, events, background work.

A client is opened by its first call on each event loop (see `open_clients`), and again in a forked child, which gets an
`OpenClient` of its own and leaves the parent's untouched.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from leasehold._core.backoff import GRACE
from leasehold._core.cleanup import Cleanup
from leasehold._core.keeper import Keeper
from leasehold._core.local_queue import local_queues
from leasehold._core.states import HELD
from leasehold._core.waiting_calls import WaitingCalls
from leasehold._log import logger
from leasehold._record import field, record
from leasehold.errors import ConfigurationError
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from leasehold._core.events import Events
    from leasehold._core.linger import LingeringTenure
    from leasehold._core.local_queue import LocalQueues
    from leasehold._core.tenure import Tenure
    from leasehold._face.lock_spec import LockSpec
    from leasehold.spi import Backend, Runtime
    from leasehold.values import Mode

__all__ = ["OpenClient", "open_client"]


@record(slots=True, eq=False)
class OpenClient:
    """An open client; nothing is replaced after it has got its home."""

    runtime: Runtime
    backend: Backend
    keeper: Keeper
    events: Events
    connect_timeout: float
    waiting_calls: WaitingCalls
    cleanup: Cleanup
    has_queue: bool  # whether waiters of one lock come in order of their arrival
    local: LocalQueues | None  # where calls that wait for one lock wait in turn
    close_patience: float  # 0 where the clock is turned by hand: it stands still while `close` waits
    current: Callable[[], Hashable]  # the running thread or task, for calls that run at home
    entered: WeakValueDictionary[tuple[str, Mode, Hashable], Tenure] = field(default_factory=WeakValueDictionary)
    """The re-entrant locks that each thread or task holds."""
    parked: dict[str, LingeringTenure] = field(default_factory=dict)
    """By key, the leases that the program has released, and that the next call may have: see `linger`."""
    seen: dict[str, int] = field(default_factory=dict)
    """By key, the highest fence that a guarded resource reported since the last acquire."""
    builds: dict[str, Any] = field(default_factory=dict)
    """By key, the builds of caches that are under way."""
    home: Hashable = None
    """The event loop that all of it belongs to; None where there is no such thing, and before the first call."""
    until_home_ends: object = None
    """What closes it before that loop ends."""

    def is_at_home(self) -> bool:
        """Whether the running event loop, if there is one, is the one that it belongs to."""
        return self.home is None or self.home is self.runtime.home()

    def require_home(self, name: str) -> None:
        """Refuse to use the lease of this name on another event loop: its connections and workers are on its own."""
        if not self.is_at_home():
            raise ConfigurationError(
                f"the lease of {name!r} belongs to the event loop that it was acquired on: await its methods there, or "
                "acquire the lock on this loop; check(), remaining() and fence can be used on any",
                name=name,
                backend=self.backend.label,
            )

    def enter_again(self, spec: LockSpec) -> Tenure | None:
        """The tenure of a re-entrant lock that the running thread or task holds already, with one handle more."""
        tenure = self.entered.get((spec.key, spec.mode, self.runtime.current()))
        with self.keeper.guard:
            if tenure is None or tenure.settle(self.runtime.now()) or tenure.state is not HELD:
                return None
            tenure.handles += 1
        return tenure

    async def close(self, limit: float = math.inf) -> None:
        """End the waiting calls, then the leases, then the background work, then the connections; by the limit.

        Waiting calls that are frozen do not end.
        """
        if not self.waiting_calls.is_frozen:
            self.waiting_calls.close()
        try:
            await self.end_parked(limit)
            await self.keeper.close(limit)  # which warns of leases that are still held
        except GeneratorExit:  # nothing can be awaited any more
            raise
        except BaseException:
            await self._close_connections(limit)
            raise
        await self._close_connections(limit)

    async def end_parked(self, limit: float = math.inf) -> None:
        """Give back what the program has released."""
        if self.parked:
            from leasehold._core.linger import end_parked  # noqa: PLC0415 - the call that parked one has loaded it

            await end_parked(self, limit)

    async def unpark(self, key: str) -> None:
        """Give back the lease of this key if it is parked: a call waits for it that cannot take it."""
        if key in self.parked:
            from leasehold._core.linger import unpark  # noqa: PLC0415 - the call that parked one has loaded it

            await unpark(self, key)

    async def _close_connections(self, limit: float) -> None:
        now = self.runtime.now()
        await self.waiting_calls.finish(min(now + min(GRACE, self.close_patience), limit))
        await self.cleanup.close(min(now + self.close_patience, limit))
        await self.backend.close()

    def abandon(self) -> None:
        """Its event loop does not run any more: end the leases, and close what can be closed without it."""
        self.keeper.abandon()
        closing = self.backend.close()
        try:
            while closing.send(None) is None:  # up to where it would wait for more than the next turn of the loop
                pass
        except StopIteration:
            pass
        except Exception:
            logger.debug("the connections of an event loop that has ended could not be closed", exc_info=True)
        finally:
            closing.close()

    def bury(self) -> None:
        """Forget everything in a forked child: it belongs to the parent."""
        self.keeper.bury()
        self.parked.clear()
        self.cleanup.bury()
        if self.local is not None:
            self.local.bury()

    def note_fence(self, key: str, fence: int) -> None:
        """Remember that a resource has seen this fence and would refuse a lower one; see `fence_repair`."""
        with self.keeper.guard:
            self.seen[key] = max(fence, self.seen.get(key, 0))


def open_client(
    runtime: Runtime, backend: Backend, events: Events, connect_timeout: float, close_patience: float
) -> OpenClient:
    """Everything that a client has while it is open; no I/O."""
    keeper, waiting_calls, cleanup = Keeper(runtime, backend, events), WaitingCalls(runtime), Cleanup(runtime)
    has_queue = Capability.FIFO in backend.capabilities
    local = local_queues(runtime, backend, keeper, waiting_calls)
    return OpenClient(
        runtime,
        backend,
        keeper,
        events,
        connect_timeout,
        waiting_calls,
        cleanup,
        has_queue,
        local,
        close_patience,
        runtime.current,
    )
