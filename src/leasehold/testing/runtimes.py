"""Threads and asyncio on a manual clock: every wait is known to the clock, which wakes it when its time has come.

Workers, which the library spawns, are known from calls of the user's by a context variable: a clock jumps for the sake
of calls only.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from leasehold._runtimes.asyncio import AsyncioRuntime, AsyncioSignal
from leasehold._runtimes.threads import ThreadRuntime, ThreadSignal
from leasehold.testing.standstill import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leasehold.spi import Runtime, Signal, Task
    from leasehold.testing.clock import ManualClock

__all__ = ["ManualAsyncioRuntime", "ManualThreadRuntime"]


class _Worker:
    """A task whose end is waited for on a manual clock."""

    def __init__(
        self, runtime: Runtime, spawn: Callable[[Coroutine[Any, Any, None], str], Task], work: Any, name: str
    ) -> None:
        self._runtime = runtime
        self._over = runtime.signal()
        self._task = spawn(self._perform(work), name)

    async def _perform(self, work: Coroutine[Any, Any, None]) -> None:
        _RUNNING.set(self)
        try:
            await work
        finally:
            self._over.set()

    async def join(self, deadline: float | None = None) -> bool:
        """Wait for the end of the task; a task does not wait for itself."""
        if _RUNNING.get() is self:
            return True
        return await self._runtime.wait(self._over, deadline) and await self._task.join()


_RUNNING: ContextVar[_Worker | None] = ContextVar("leasehold_worker", default=None)


def _is_a_call() -> bool:
    return _RUNNING.get() is None


async def _sleep(runtime: Runtime, seconds: float) -> None:
    await runtime.wait(runtime.signal(), runtime.now() + seconds)


class ManualThreadRuntime(ThreadRuntime):
    """Threads on a manual clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._manual = clock

    async def wait(self, signal: Signal, deadline: float | None) -> bool:
        """Block until the flag is up or the clock has reached the deadline."""
        assert isinstance(signal, ThreadSignal)
        thread = threading.get_native_id()
        with Wait(self._manual, signal, deadline, is_a_call=_is_a_call(), thread=thread) as clock:
            return signal.wait(clock, deadline)

    async def sleep(self, seconds: float) -> None:
        """Wait for the clock."""
        await _sleep(self, seconds)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Task:
        """Run it on a thread that is known to be a worker's."""
        return _Worker(self, super().spawn, coroutine, name)


class ManualAsyncioRuntime(AsyncioRuntime):
    """Tasks on a manual clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._manual = clock

    async def wait(self, signal: Signal, deadline: float | None) -> bool:
        """Suspend until the flag is up or the clock has reached the deadline."""
        assert isinstance(signal, AsyncioSignal)
        with Wait(self._manual, signal, deadline, is_a_call=_is_a_call()) as clock:
            return await signal.wait(clock, deadline)

    async def sleep(self, seconds: float) -> None:
        """Wait for the clock, or let other tasks run."""
        await (_sleep(self, seconds) if seconds > 0 else super().sleep(0))

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Task:
        """Run it as a task that is known to be a worker's."""
        return _Worker(self, super().spawn, coroutine, name)
