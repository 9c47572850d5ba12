"""The callbacks of an election: functions or coroutine functions of the user's, whose errors change nothing."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from leasehold._log import logger
from leasehold.errors import ClientClosed, LeaseholdError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold._face.client import AsyncClient
    from leasehold._patterns.observation import AsyncObservation
    from leasehold.spi import Runtime, Task
    from leasehold.values import Leader, Loss

__all__ = ["Callbacks", "EndOfTerm", "Watch"]


class Callbacks:
    """What to call when this process is elected, when it stops leading, and when another leader is seen."""

    def __init__(
        self,
        name: str,
        on_elected: Callable[[Any], object] | None,
        on_lost: Callable[[Loss], object] | None,
        on_new_leader: Callable[[Leader], object] | None,
    ) -> None:
        self._name = name
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._on_new_leader = on_new_leader

    async def elected(self, term: object) -> None:
        """Before the body begins."""
        await self._call(self._on_elected, term)

    def end_of_term(self, client: AsyncClient) -> EndOfTerm:
        """What calls `on_lost` for one term."""
        return EndOfTerm(self, client._runtime)

    async def new_leader(self, leader: Leader) -> None:
        """Another leader was seen, perhaps this process itself."""
        await self._call(self._on_new_leader, leader)

    def watch(self, observation: AsyncObservation, client: AsyncClient) -> Watch:
        """Begin to look for new leaders; without a callback for them nothing is looked for."""
        watch = Watch(self, observation, self._name)
        if self._on_new_leader is not None:
            watch.task = client._runtime.spawn(watch.follow(), "leasehold observer")
        return watch

    async def _call(self, function: Callable[[Any], object] | None, fact: object) -> None:
        result = self._begin(function, fact)
        if result is not None:
            await self._finish(result)

    def _begin(self, function: Callable[[Any], object] | None, fact: object) -> Awaitable[object] | None:
        """Call it; what is left to await, if it is a coroutine function."""
        if function is None:
            return None
        try:
            result = function(fact)
        except Exception:  # noqa: BLE001 - a callback must never change who leads
            self._complain(function)
            return None
        return result if inspect.isawaitable(result) else None

    async def _finish(self, result: Awaitable[object]) -> None:
        try:
            await result
        except Exception:  # noqa: BLE001
            self._complain(result)

    def _complain(self, function: object) -> None:
        logger.exception("%r failed, a callback of the election %r, which is not affected", function, self._name)


class EndOfTerm:
    """Calls `on_lost` once for one term: when it is lost, beside the body, or when it was resigned.

    It must not refer to the term: see `Block`.
    """

    def __init__(self, callbacks: Callbacks, runtime: Runtime) -> None:
        self._callbacks = callbacks
        self._runtime = runtime
        self._guard = runtime.guard()
        self._called = False

    def beside(self, loss: Loss) -> None:
        """The term is lost while the body may still run: a coroutine gets a task of its own."""
        if self._is_first():
            result = self._callbacks._begin(self._callbacks._on_lost, loss)
            if result is not None:
                self._runtime.spawn(self._callbacks._finish(result), "leasehold on_lost")

    async def after(self, loss: Loss) -> None:
        """The body has ended, and the lease was given back."""
        if self._is_first():
            await self._callbacks._call(self._callbacks._on_lost, loss)

    def _is_first(self) -> bool:
        with self._guard:
            called, self._called = self._called, True
        return not called


class Watch:
    """Looks for new leaders beside a campaign, and calls `on_new_leader`."""

    def __init__(self, callbacks: Callbacks, observation: AsyncObservation, name: str) -> None:
        self._callbacks = callbacks
        self._observation = observation
        self._name = name
        self.task: Task | None = None

    async def follow(self) -> None:
        """Call back for each leader, until stopped or until the client is closed."""
        try:
            async for leader in self._observation:
                if leader is not None:
                    await self._callbacks.new_leader(leader)
        except ClientClosed:
            return
        except LeaseholdError:
            logger.exception("cannot look who leads %r any more; on_new_leader is not called", self._name)

    def look_now(self) -> None:
        """Something has changed: do not wait for the next turn."""
        self._observation._look_now()

    def stop(self) -> None:
        """End it. A callback that hangs is left to itself."""
        self._observation.stop()
