"""How a case is run: on threads or on asyncio. The simulator brings a driver of its own."""

from __future__ import annotations

import linecache
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from leasehold._runtimes.clock import SYSTEM_CLOCK
from leasehold._runtimes.threads import ThreadRuntime, run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import FrameType

    from leasehold._runtimes.clock import Clock
    from leasehold.spi import Runtime

__all__ = ["DRIVERS", "AsyncioDriver", "Driver", "Interrupted", "ThreadDriver"]

_CONTRACT = str(Path(__file__).parent)
_PACKAGE = str(Path(__file__).parents[2])


class Interrupted(BaseException):
    """What a signal handler might raise."""


class Driver(Protocol):
    """A runtime, a way to run a coroutine on it to its end, and a way to interrupt one."""

    name: str

    def runtime(self, clock: Clock | None = None) -> Runtime:
        """The runtime of one process; without a clock, on real (or the simulator's) time."""

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run it to its end."""

    async def breathe(self) -> None:
        """Give other tasks a chance to run."""

    async def interrupt(self, make: Callable[[], Coroutine[Any, Any, Any]], at: int, within: str = "") -> bool:
        """Run a coroutine and interrupt it at its n-th opportunity; False if it had fewer.

        `within`: only where the code of these folders of the package runs, for drivers that look at lines.
        """


class ThreadDriver:
    """Blocking: an interruption is an exception raised between any two lines, as signal handlers do it."""

    name = "threads"

    def runtime(self, clock: Clock | None = None) -> Runtime:
        """A thread runtime."""
        return ThreadRuntime(clock or SYSTEM_CLOCK)

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Finish it with one send."""
        run(coroutine)

    async def breathe(self) -> None:
        """Let other threads run."""
        time.sleep(0.001)

    async def interrupt(self, make: Callable[[], Coroutine[Any, Any, Any]], at: int, within: str = "") -> bool:
        """Raise at the n-th line that the coroutine executes inside the library.

        A line that is executed many times counts for its first two: what a third would leave, they leave too.
        """
        left = at
        folders = tuple(str(Path(_PACKAGE) / folder) for folder in within.split() or ("",))
        visits: Counter[tuple[str, int]] = Counter()
        entered: set[tuple[int, int]] = set()

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if not _is_ours(frame, folders):
                return None
            if event == "line" and _may_be_interrupted(frame, entered) and _is_new(frame, visits):
                left -= 1
                if left == 0:
                    sys.settrace(None)
                    raise Interrupted
            return trace

        coroutine = make()
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            run(coroutine)
        except Interrupted:
            return True
        finally:
            sys.settrace(before)
            coroutine.close()
        return False


def _is_ours(frame: FrameType, folders: tuple[str, ...]) -> bool:
    """By the folder of the package: a checkout, or an environment, may well lie in a folder called leasehold too."""
    path = frame.f_code.co_filename
    return path.startswith(folders) and not path.startswith(_CONTRACT)


def _is_new(frame: FrameType, visits: Counter[tuple[str, int]]) -> bool:
    place = (frame.f_code.co_filename, frame.f_lineno)
    visits[place] += 1
    return visits[place] <= 2


def _may_be_interrupted(frame: FrameType, entered: set[tuple[int, int]]) -> bool:
    """Whether a signal handler could really raise here.

    The interpreter handles signals after calls and on jumps: never between the end of a `with` block and its
    `__exit__` (the second visit to that line), and never on a line that does nothing by itself. A trace function can
    raise in both places, where no exception table covers it, so it must be kept from them.
    """
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    if line in ("try:", "finally:", "else:", "pass"):
        return False
    if not line.startswith("with "):
        return True
    place = (id(frame), frame.f_lineno)
    first = place not in entered
    entered.add(place)
    return first


class AsyncioDriver:
    """asyncio: an interruption is a cancelled task."""

    name = "asyncio"

    def runtime(self, clock: Clock | None = None) -> Runtime:
        """An asyncio runtime."""
        from leasehold._runtimes.asyncio import AsyncioRuntime  # noqa: PLC0415 - asyncio only when it is used

        return AsyncioRuntime(clock or SYSTEM_CLOCK)

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run it on a loop of its own."""
        import asyncio  # noqa: PLC0415

        asyncio.run(coroutine)

    async def breathe(self) -> None:
        """Let other tasks run."""
        import asyncio  # noqa: PLC0415

        await asyncio.sleep(0.001)

    async def interrupt(self, make: Callable[[], Coroutine[Any, Any, Any]], at: int, _within: str = "") -> bool:
        """Cancel the task at its n-th suspension."""
        import asyncio  # noqa: PLC0415

        async def cancelled_on_the_way() -> None:
            await _Counted(make(), at, lambda: asyncio.current_task().cancel())  # type: ignore[union-attr]

        task = asyncio.create_task(cancelled_on_the_way())
        await asyncio.wait([task])
        if task.cancelled():
            return True
        await task
        return False


class _Counted:
    """An awaitable that does something at the n-th suspension of another."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], at: int, action: Callable[[], object]) -> None:
        self._coroutine = coroutine
        self._left = at
        self._action = action

    def __await__(self) -> Any:
        steps = self._coroutine.__await__()
        advance: Callable[[], Any] = lambda: steps.send(None)  # noqa: E731
        while True:
            try:
                waiting_for = advance()
            except StopIteration as done:
                return done.value
            self._left -= 1
            if self._left == 0:
                self._action()
            advance = yield from self._suspend(waiting_for, steps)

    def _suspend(self, waiting_for: Any, steps: Any) -> Any:
        try:
            yield waiting_for
        except BaseException as error:
            thrown = error
            return lambda: steps.throw(thrown)
        return lambda: steps.send(None)


DRIVERS: tuple[type[Driver], ...] = (ThreadDriver, AsyncioDriver)
