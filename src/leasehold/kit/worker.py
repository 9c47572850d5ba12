"""`Worker`: work beside the callers', on one background task per store connection.

It starts when there is work, lingers for a while so that a loop of short needs does not start it each time, ends by
itself, and is joined at close. Nothing waits for it but `close`.

It survives signal handlers that raise at any point of `start`: the task is recorded last, so an interruption may start
a second task, but never leaves a record of one that does not run. A coroutine that is made and never started is
reported by the interpreter when it is collected; here it is made only when its first step is taken.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from leasehold._lazy import lazy

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Generator
    from types import TracebackType

    from leasehold.spi import Runtime, Task
else:
    logging = lazy("logging")

__all__ = ["Worker", "spawn_late"]

LINGER = 2.0
LONGEST_JOIN = 2.0


class Worker:
    """Performs `work` once for every `start`, several starts at once being one; the work must bound its own time.

    `is_needed` keeps an idle task from ending, where `wake` may come from a thread that cannot start one.
    """

    def __init__(
        self,
        runtime: Runtime,
        work: Callable[[], Awaitable[object]],
        name: str,
        *,
        linger: float = LINGER,
        is_needed: Callable[[], bool] = bool,
    ) -> None:
        self._runtime = runtime
        self._work = work
        self._name = name
        self._linger = linger
        self._is_needed = is_needed
        self._guard = runtime.guard()
        self._signal = runtime.signal()
        self._run: _Run | None = None
        self._closed = False

    def start(self) -> None:
        """Have the work performed soon. Under asyncio, call it in the event loop."""
        run = self._run
        self._signal.set()
        if run is not None and run.process == os.getpid():
            return
        if run is not None:  # a forked child: the task and whatever its guard protected are the parent's
            self._guard = self._runtime.guard()
        with self._guard:
            if self._run is run and not self._closed:
                fresh = _Run(os.getpid())
                fresh.task = spawn_late(self._runtime, lambda: self._perform(fresh), self._name)
                self._run = fresh  # last: see above

    def wake(self) -> None:
        """The same from any thread, while the task runs."""
        self._signal.set()

    async def close(self) -> None:
        """End the task after the work it is doing, and wait for that for a bounded time. May be called twice."""
        self._closed = True
        self._signal.set()
        run = self._run
        if run is not None and run.task is not None and run.process == os.getpid():
            await run.task.join(self._runtime.now() + LONGEST_JOIN)

    async def _perform(self, run: _Run) -> None:
        try:
            while not self._closed:
                self._signal.clear()
                try:
                    await self._work()
                except Exception:  # noqa: BLE001 - it is logged, and tried again
                    logging.getLogger("leasehold.worker").debug(
                        "%s failed; it is tried again when it is due", self._name, exc_info=True
                    )
                if not await self._is_wanted(run):
                    return
        except BaseException:  # the event loop is shut down: the next start must find that nothing runs
            self._run = None
            raise

    async def _is_wanted(self, run: _Run) -> bool:
        """Linger; False once the task may end."""
        while not self._closed:
            if await self._runtime.wait(self._signal, self._runtime.now() + self._linger):
                return True
            if not self._is_needed() and self._retire(run):
                return False
        return False

    def _retire(self, run: _Run) -> bool:
        with self._guard:
            if self._signal.is_set():
                return False
            if self._run is run:
                self._run = None
            return True


class _Run:
    """One task of the worker."""

    __slots__ = ("process", "task")

    def __init__(self, process: int) -> None:
        self.process = process
        self.task: Task | None = None


def spawn_late(runtime: Runtime, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> Task:
    """Spawn work whose coroutine is made with its first step. It must handle its own errors."""
    return runtime.spawn(_Late(work), name)


class _Late(Coroutine[Any, Any, None]):
    def __init__(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._make = make
        self._made: Coroutine[Any, Any, None] | None = None

    def send(self, value: Any) -> Any:
        return self._coroutine().send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        trace: TracebackType | None = None,
    ) -> Any:
        return self._coroutine().throw(kind, value, trace)  # type: ignore[arg-type]  # passed on as it came

    def close(self) -> None:
        if self._made is not None:
            self._made.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._coroutine().__await__()

    def _coroutine(self) -> Coroutine[Any, Any, None]:
        if self._made is None:
            self._made = self._make()
        return self._made
