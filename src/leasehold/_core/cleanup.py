"""Background clean-up for calls that cannot wait for it: claims in doubt are withdrawn, failed releases repeated.

One worker per client, started when there is something to do. It repeats each action until it succeeds or its ttl has
made it pointless, with growing pauses while the store does not answer.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from leasehold._core.backoff import GRACE, OUTAGE
from leasehold._log import logger
from leasehold._record import record
from leasehold.errors import BackendUnavailable, ClientClosed, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leasehold.spi import Runtime, Task

__all__ = ["Cleanup"]

MOST_ACTIONS = 10_000  # beyond so many the ttl has to free the locks, so that memory is bounded
PAUSE_WHEN_CLOSING = 0.1


@record(frozen=True, slots=True)
class _Action:
    name: str  # of the lock
    perform: Callable[[float], Coroutine[Any, Any, None]]
    ends: float  # when the ttl has done the same


class Cleanup:
    """The unfinished actions of one client, and the worker that performs them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._guard = runtime.guard()
        self._signal = runtime.signal()
        self._actions: deque[_Action] = deque()
        self._worker: Task | None = None
        self._closing = False
        self._failures = 0
        self._due = math.inf  # when the next try starts

    def add(self, name: str, perform: Callable[[float], Coroutine[Any, Any, None]], ends: float) -> None:
        """Perform this in the background until it succeeds or its end is reached; returns at once.

        `perform` gets the instant until which one try may take. It must be safe to repeat.
        """
        if len(self._actions) >= MOST_ACTIONS:
            logger.warning("the store has been away for too long to clean up after %r; its ttl will free it", name)
            return
        self._actions.append(_Action(name, perform, ends))
        with self._guard:
            if self._worker is None:
                self._failures, self._due = 0, self._runtime.now()
                self._worker = self._runtime.spawn(self._work(), "leasehold cleanup")

    async def close(self, deadline: float) -> None:
        """Try everything at once; what is not done by the deadline is left to its ttl."""
        self._closing = True
        self._signal.set()
        worker = self._worker
        if worker is not None and not await worker.join(deadline):
            logger.debug("%d claims are left to their ttl", len(self._actions))
        self._actions.clear()

    def bury(self) -> None:
        """Forget everything in a forked child: the parent cleans up."""
        self._guard = self._runtime.guard()
        self._actions.clear()
        self._worker = None

    def is_quiet(self) -> bool:
        """Whether nothing is due or under way, for tests that turn the clock by hand."""
        return self._runtime.now() < self._due

    async def _work(self) -> None:
        try:
            while (action := self._next()) is not None:
                if not await self._is_done(action):
                    self._actions.append(action)
                    await self._pause()
        except BaseException:  # the event loop is shut down: `add` must not count on this worker any more
            self._worker = None
            raise

    def _next(self) -> _Action | None:
        with self._guard:
            if not self._actions:
                self._worker, self._due = None, math.inf
                return None
            return self._actions.popleft()

    async def _is_done(self, action: _Action) -> bool:
        """Try once; True also if another try would be pointless."""
        now = self._runtime.now()
        if now >= action.ends:
            return True
        try:
            await action.perform(min(action.ends, now + GRACE))
        except (BackendUnavailable, OutcomeUnknown):
            logger.debug("could not clean up %r yet", action.name, exc_info=True)
            return False
        except ClientClosed:
            self._actions.clear()
        except Exception:
            logger.debug("could not clean up %r; its ttl will free it", action.name, exc_info=True)
        self._failures = 0
        return True

    async def _pause(self) -> None:
        pause = OUTAGE.delay(self._failures, self._runtime.random())
        self._failures += 1
        self._due = self._runtime.now() + pause
        if self._closing:
            await self._runtime.sleep(min(pause, PAUSE_WHEN_CLOSING))
        else:
            await self._runtime.wait(self._signal, self._due)
