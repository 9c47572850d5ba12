"""Undoes in the background what no call can wait for: claims in doubt are withdrawn, releases are tried again.

One worker per client, started when there is something to do. It goes on until each thing is done or its ttl has done
it, with longer and longer pauses while the store is away.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leasehold._core.backoff import GRACE, OUTAGE
from leasehold._core.events import logger
from leasehold.errors import BackendUnavailable, ClientClosed, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leasehold.spi import Runtime, Task

__all__ = ["Cleanup"]

MOST_CHORES = 10_000  # with so many undone the ttl has to do it
PAUSE_WHEN_CLOSING = 0.1


@dataclass(frozen=True, slots=True)
class _Chore:
    name: str  # of the lock
    perform: Callable[[float], Coroutine[Any, Any, None]]
    ends: float  # when the ttl has done it


class Cleanup:
    """The chores of one client."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._guard = runtime.guard()
        self._signal = runtime.signal()
        self._chores: deque[_Chore] = deque()
        self._worker: Task | None = None
        self._closing = False
        self._failures = 0
        self._due = math.inf  # when the next thing is to be tried

    def take(self, name: str, perform: Callable[[float], Coroutine[Any, Any, None]], ends: float) -> None:
        """Perform this in the background until it does not fail or its end is reached; returns at once.

        It is called with the instant until which one try may take, and must be something that may be done twice.
        """
        if len(self._chores) >= MOST_CHORES:
            logger.warning("too much is to be cleaned up; the ttl of a claim on %r will end it", name)
            return
        self._chores.append(_Chore(name, perform, ends))
        with self._guard:
            if self._worker is None:
                self._failures, self._due = 0, self._runtime.now()
                self._worker = self._runtime.spawn(self._work(), "leasehold cleanup")

    async def close(self, deadline: float) -> None:
        """Try everything at once, and give up what is not done by the deadline: the ttl does it."""
        self._closing = True
        self._signal.set()
        worker = self._worker
        if worker is not None and not await worker.join(deadline):
            logger.debug("%d claims are left to their ttl", len(self._chores))
        self._chores.clear()

    def bury(self) -> None:
        """We are a forked child: the parent cleans up."""
        self._guard = self._runtime.guard()
        self._chores.clear()
        self._worker = None

    def is_quiet(self) -> bool:
        """Whether nothing is due or under way, for tests that turn the clock by hand."""
        return self._runtime.now() < self._due

    async def _work(self) -> None:
        try:
            while (chore := self._next()) is not None:
                if not await self._is_done(chore):
                    self._chores.append(chore)
                    await self._pause()
        except BaseException:  # the event loop is shut down: the next chore must find that there is no worker
            self._worker = None
            raise

    def _next(self) -> _Chore | None:
        with self._guard:
            if not self._chores:
                self._worker, self._due = None, math.inf
                return None
            return self._chores.popleft()

    async def _is_done(self, chore: _Chore) -> bool:
        """Try once; True also if there is no sense in another try."""
        now = self._runtime.now()
        if now >= chore.ends:
            return True
        try:
            await chore.perform(min(chore.ends, now + GRACE))
        except (BackendUnavailable, OutcomeUnknown):
            logger.debug("could not clean up %r yet", chore.name, exc_info=True)
            return False
        except ClientClosed:
            self._chores.clear()
        except Exception:  # noqa: BLE001 - the others must be cleaned up too
            logger.debug("could not clean up %r; its ttl will do it", chore.name, exc_info=True)
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
