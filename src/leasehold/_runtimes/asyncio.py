"""The asyncio runtime: waits are futures, the keeper is a task, a lost lease cancels the task that holds it."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from leasehold._runtimes.clock import SYSTEM_CLOCK, look_again
from leasehold._runtimes.event_loops import before_shutdown, forget_tasks, running_loop
from leasehold._runtimes.randomness import fresh_owner, jitter
from leasehold._runtimes.scatter import scatter_over_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Sequence
    from contextlib import AbstractContextManager

    from leasehold._runtimes.clock import Clock
    from leasehold.spi import Request, Scope, Signal, Startable, Task

__all__ = ["AsyncioRuntime", "AsyncioSignal"]

T = TypeVar("T")


class AsyncioSignal:
    """A flag that may be raised from any thread and is waited for on one loop."""

    __slots__ = ("__weakref__", "_loop", "_thread", "_up", "_waiters")

    def __init__(self) -> None:
        self._up = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def set(self) -> None:
        """Raise the flag and wake all waiters."""
        self._up = True
        if self._loop is not None:
            self.wake()

    def wake(self) -> None:
        """Let all waiters look again at the flag and at the clock; from any thread."""
        if self._loop is None:
            return  # there has been no waiter yet
        try:
            if threading.get_ident() == self._thread:
                self._wake()
            else:
                self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed, and its waiters with it
            self._waiters.clear()

    def clear(self) -> None:
        """Lower the flag."""
        self._up = False

    def is_set(self) -> bool:
        """Whether the flag is up."""
        return self._up

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, clock: Clock, deadline: float | None) -> bool:
        """Suspend until the flag is up or the deadline is reached."""
        self._loop = loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        while not self._up:
            timeout = None if deadline is None else deadline - clock.now()
            if timeout is not None and timeout <= 0:
                break
            await self._wait_once(loop, look_again(timeout, clock))
        return self._up

    async def _wait_once(self, loop: asyncio.AbstractEventLoop, timeout: float | None) -> None:
        waiter = loop.create_future()
        self._waiters.add(waiter)
        timer = None if timeout is None else loop.call_later(timeout, _finish, waiter)
        try:
            if not self._up:  # it may have been raised by another thread just now
                await waiter
        finally:
            self._waiters.discard(waiter)
            if timer is not None:
                timer.cancel()


class AsyncioTask:
    """A task whose end can be waited for without being cancelled along."""

    def __init__(self, task: asyncio.Task[None], clock: Clock) -> None:
        self._task = task
        self._clock = clock

    async def join(self, deadline: float | None = None) -> bool:
        """Wait for the task to end; a task does not wait for itself."""
        if self._task is asyncio.current_task():
            return True
        while not self._task.done():
            timeout = None if deadline is None else deadline - self._clock.now()
            if timeout is not None and timeout <= 0:
                return False
            await asyncio.wait([self._task], timeout=look_again(timeout, self._clock))
        return True


class AsyncioScope:
    """Cancels the task that entered it, by the protocol of `asyncio.timeout`.

    The number of cancellations that were pending on entry is remembered, so that one that came from elsewhere is never
    swallowed.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine of ours always runs in a task
        self._task = task
        self._pending = task.cancelling()
        self._cancelled = False
        self._over = False

    def cancel(self) -> None:
        """Cancel the body."""
        if not self._over and not self._cancelled:
            self._cancelled = True
            self._task.cancel("leasehold: the lease is lost")

    def loss_is_raised(self) -> None:
        """If the body itself is calling, it gets an exception and needs no cancellation."""
        if _current_task() is self._task:
            self._over = True

    async def leave(self, error: BaseException | None) -> bool:
        """Take our cancellation back; True if it is what ended the body."""
        self._over = True
        if not self._cancelled:
            return False
        ours = self._task.uncancel() <= self._pending and isinstance(error, asyncio.CancelledError)
        await self._swallow_undelivered()
        return ours

    async def _swallow_undelivered(self) -> None:
        """Before 3.13 `uncancel` leaves a cancellation that was not delivered yet to hit the code after the block."""
        if sys.version_info >= (3, 13) or self._task.cancelling() > self._pending:
            return
        if getattr(self._task, "_must_cancel", False):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if self._task.cancelling() > self._pending:
                    raise


class AsyncioRuntime:
    """Time, waiting and workers on event loops: each call serves the one that runs."""

    blocking = False
    switches = False

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.now = clock.now  # type: ignore[method-assign]  # several times in every call
        self.owner = fresh_owner  # type: ignore[method-assign]
        self.current = asyncio.current_task  # type: ignore[method-assign]
        self.current_at = asyncio.current_task  # type: ignore[assignment, method-assign]
        self.home = running_loop  # type: ignore[method-assign]
        self._tasks: set[asyncio.Task[Any]] = set()  # the loop itself knows tasks only weakly

    def now(self) -> float:
        """Seconds on the clock that leases live on."""
        return self._clock.now()

    def random(self) -> float:
        """A number in [0, 1) for jitter."""
        return jitter()

    def owner(self) -> str:
        """128 random bits."""
        return fresh_owner()

    def current(self) -> Hashable:
        """The running task."""
        return _current_task()

    def guard(self) -> AbstractContextManager[Any]:
        """One thread runs everything, and nothing awaits inside a guard: there is nothing to keep out.

        So anything would do. This one is written in C, which `contextlib.nullcontext` is not.
        """
        return threading.RLock()

    def signal(self) -> Signal:
        """A new flag."""
        return AsyncioSignal()

    def scope(self) -> Scope:
        """A scope around the running task."""
        return AsyncioScope()

    async def wait(self, signal: Signal, deadline: float | None) -> bool:
        """Suspend the task until the flag is up or the deadline is reached."""
        assert isinstance(signal, AsyncioSignal)  # noqa: S101 - for the type checker
        return await signal.wait(self._clock, deadline)

    async def sleep(self, seconds: float) -> None:
        """Suspend the task."""
        granularity = self._clock.granularity
        if granularity is None or seconds <= 0:
            await asyncio.sleep(seconds)
            return
        deadline = self.now() + seconds
        while self.now() < deadline:  # noqa: ASYNC110 - a clock that is turned by hand gives no event
            await asyncio.sleep(granularity)

    async def switch(self) -> None:
        """Tasks are switched at awaits of the store."""

    async def offload(self, call: Callable[[], T]) -> T:
        """Call it on a thread of the loop's default executor, with the caller's context variables."""
        work = asyncio.get_running_loop().run_in_executor(None, partial(copy_context().run, call))
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait([work])  # unlike awaiting the future itself, this does not cancel it
            except asyncio.CancelledError as interruption:
                cancelled = cancelled or interruption
        if cancelled is not None:
            if not work.cancelled():
                work.exception()  # retrieved, so that it is not logged: the cancellation matters more
            raise cancelled
        return work.result()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Task:
        """Run it as a task."""
        return AsyncioTask(self._create_task(coroutine, name), self._clock)

    async def shielded(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it; if the task is cancelled meanwhile, run it again in a task of its own before passing that on."""
        try:
            return await operation()
        except asyncio.CancelledError:
            task = self._create_task(operation(), "leasehold clean-up")
            while not task.done():
                try:
                    await asyncio.wait([task])
                except asyncio.CancelledError:  # cancelled once more; the first one is passed on
                    continue
            if not task.cancelled():
                task.exception()  # looked at: the cancellation matters more
            raise

    async def scatter(
        self,
        requests: Sequence[Request[T]],
        enough: Callable[[Sequence[T | Exception | None]], bool],
        deadline: float,
    ) -> Sequence[T | Exception | None]:
        """Start all at once, or send each in a task of its own where a request cannot be started."""
        if self._clock.granularity is None and all(hasattr(request, "start") for request in requests):
            return await _Round(cast("Sequence[Startable[T]]", requests), enough).until(deadline - self.now())
        return await scatter_over_tasks(self, requests, enough, deadline)

    def home(self) -> asyncio.AbstractEventLoop | None:
        """The running loop."""
        return running_loop()

    def current_at(self, home: asyncio.AbstractEventLoop) -> Hashable:
        """The running task of this loop."""
        return asyncio.current_task(home)

    def has_ended(self, home: asyncio.AbstractEventLoop) -> bool:
        """Whether it is closed; then the tasks that it has left are forgotten."""
        if home.is_closed():
            self._tasks.difference_update(forget_tasks(home))
        return home.is_closed()

    def before_end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> object:
        """As an asynchronous generator that is closed along with others."""
        return before_shutdown(close)

    async def at_home(
        self, home: asyncio.AbstractEventLoop, operation: Callable[[], Coroutine[Any, Any, None]], deadline: float
    ) -> bool:
        """Run it as a task of that loop, and wait for it on this one."""
        if self.has_ended(home) or not home.is_running():
            return False
        done = AsyncioSignal()

        async def perform() -> None:
            try:
                await operation()
            finally:
                done.set()

        try:
            home.call_soon_threadsafe(lambda: self._create_task(perform(), "leasehold closing"))
        except RuntimeError:  # closed just now
            return False
        await done.wait(self._clock, deadline)
        return True

    def _create_task(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Round:
    """Many requests that were started together; answers come by themselves."""

    def __init__(
        self, requests: Sequence[Startable[T]], enough: Callable[[Sequence[T | Exception | None]], bool]
    ) -> None:
        self._requests = requests
        self._enough = enough
        self._answers: list[Any] = [None] * len(requests)
        self._open = len(requests)
        self._over = asyncio.get_running_loop().create_future()

    async def until(self, timeout: float) -> list[Any]:
        for place, request in enumerate(self._requests):
            try:
                request.start(partial(self._answered, place))
            except Exception as error:  # noqa: BLE001 - it is this request's answer
                self._answered(place, error)
        timer = asyncio.get_running_loop().call_later(max(timeout, 0.0), _finish, self._over)
        try:
            await self._over
        finally:
            timer.cancel()
        return list(self._answers)

    def _answered(self, place: int, answer: Any) -> None:
        self._answers[place] = answer
        self._open -= 1
        if not self._over.done() and (self._open == 0 or self._enough(self._answers)):
            self._over.set_result(None)


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return None


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
