"""The simulated runtime: the `Runtime` port on the virtual clock of a `World`.

It knows nothing of workloads, stores or faults, so that any coroutine written for the port can be run on it: see
`drive`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from leasehold._runtimes.homes import WithoutLoops
from leasehold._runtimes.scatter import scatter_over_tasks
from verification.simulation.world import Cancelled, World, park

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Sequence
    from contextlib import AbstractContextManager

    from leasehold.spi import Request, Runtime, Scope, Signal, Task
    from verification.simulation.world import Process, SimTask

__all__ = ["Run", "SimRuntime", "SimTaskHandle", "drive"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class SimSignal:
    """A flag; waiting tasks are woken in order of arrival, and chance decides which runs first."""

    __slots__ = ("__weakref__", "_number", "_up", "waiters")

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self._up = False
        self.waiters: list[SimTask] = []

    def set(self) -> None:
        """Raise the flag and wake all who wait."""
        self._up = True
        waiters, self.waiters = self.waiters, []
        for task in waiters:
            task.wake()

    def clear(self) -> None:
        """Lower the flag."""
        self._up = False

    def is_set(self) -> bool:
        """Whether the flag is up."""
        return self._up

    def __hash__(self) -> int:
        """By number, so that a set of signals has the same order in every run of a seed."""
        return self._number


class SimGuard:
    """A mutex in a world where one task runs at a time: it only makes sure that no task waits inside."""

    __slots__ = ("_world",)

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None:
        self._world.guarded += 1

    def __exit__(self, *_: object) -> None:
        self._world.guarded -= 1


class SimScope:
    """Cancels the task that entered it, if this process is one of those that can."""

    def __init__(self, task: SimTask, *, interrupts: bool) -> None:
        self._task = task
        self._interrupts = interrupts
        self._cancelled = False
        self._over = False

    def cancel(self) -> None:
        """Cancel the body."""
        if self._interrupts and not self._over and not self._cancelled:
            self._cancelled = True
            self._task.cancel(self)

    def loss_is_raised(self) -> None:
        """If the body itself is calling, it gets an exception and needs no cancellation."""
        if self._task.process.world.current is self._task:
            self._over = True

    async def leave(self, error: BaseException | None) -> bool:
        """Take our cancellation back; True if it is what ended the body."""
        self._over = True
        if self in self._task.cancels:
            self._task.cancels.remove(self)
        return isinstance(error, Cancelled) and error.origin is self


class SimTaskHandle:
    """The end of a task can be waited for."""

    def __init__(self, runtime: SimRuntime, task: SimTask) -> None:
        self.task = task
        self._runtime = runtime

    async def join(self, deadline: float | None = None) -> bool:
        """Wait for the end of the task; a task does not wait for itself."""
        if self.task is self._runtime.world.current:
            return True
        while not self.task.done:
            if deadline is not None and self._runtime.now() >= deadline:
                return False
            await self._runtime.park_in(self.task.joiners, deadline)
        return True


class SimRuntime(WithoutLoops):
    """Time, waiting and workers of one simulated process.

    `interrupts`: whether a lost lease cancels its holder, as under asyncio, or only sets `lost`, as with threads.
    """

    blocking = False
    switches = True

    def __init__(self, process: Process, *, interrupts: bool = True) -> None:
        self.process = process
        self.world = process.world
        self.interrupts = interrupts

    def now(self) -> float:
        """Seconds on this process' own clock."""
        return self.process.clock()

    def random(self) -> float:
        """A number in [0, 1), from the seed."""
        return self.world.random.random()

    def owner(self) -> str:
        """128 bits, from the seed."""
        return f"{self.world.random.getrandbits(128):032x}"

    def current(self) -> Hashable:
        """The running task."""
        return self.world.current

    def guard(self) -> AbstractContextManager[Any]:
        """A check that no task waits inside."""
        return SimGuard(self.world)

    def signal(self) -> Signal:
        """A new flag."""
        self.world.signals += 1
        return SimSignal(self.world.signals)

    def scope(self) -> Scope:
        """A scope around the running task."""
        return SimScope(self._running(), interrupts=self.interrupts)

    async def wait(self, signal: Signal, deadline: float | None) -> bool:
        """Suspend the task until the flag is up or the deadline is reached."""
        assert isinstance(signal, SimSignal)
        while not signal.is_set():
            if deadline is not None and self.now() >= deadline:
                self.world.looked()
                return False
            await self.park_in(signal.waiters, deadline)
        return True

    async def sleep(self, seconds: float) -> None:
        """Suspend the task."""
        deadline = self.now() + seconds
        no_waiters: list[SimTask] = []
        await self.switch()
        while self.now() < deadline:
            await self.park_in(no_waiters, deadline)

    async def switch(self) -> None:
        """Let another task run, if chance wants it."""
        self._running().wake()
        await park(self.world)

    async def offload(self, call: Callable[[], T]) -> T:
        """Call it: nothing in a simulated process blocks."""
        return call()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Task:
        """Run it as a task of this process."""
        return self.start(coroutine, name)

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> SimTaskHandle:
        """Run it as a task that can also be cancelled."""
        return SimTaskHandle(self, self.process.spawn(coroutine, name))

    async def shielded(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it; if the task is cancelled meanwhile, run it again in a task of its own before passing that on."""
        try:
            return await operation()
        except Cancelled as first:
            cleanup = self.process.spawn(operation(), "clean-up")
            cleanup.quiet = True  # the cancellation matters more than its error
            later: list[object] = []
            while not cleanup.done:
                try:
                    await self.park_in(cleanup.joiners, None)
                except Cancelled as another:
                    later.append(another.origin)
            self._running().cancels += [origin for origin in later if origin is not first.origin]
            raise

    async def scatter(
        self,
        requests: Sequence[Request[T]],
        enough: Callable[[Sequence[T | Exception | None]], bool],
        deadline: float,
    ) -> Sequence[T | Exception | None]:
        """Ask all in tasks of their own."""
        return await scatter_over_tasks(self, requests, enough, deadline)

    async def park_in(self, crowd: list[SimTask], deadline: float | None) -> None:
        """Wait among the crowd until woken or the deadline is reached, whichever comes first."""
        task = self._running()
        timer = None
        if deadline is not None and deadline != math.inf:
            timer = self.world.at(self.process.instant(deadline), task.wake)
        crowd.append(task)
        try:
            await park(self.world)
        finally:
            if timer is not None:
                timer.cancel()
            if task in crowd:
                crowd.remove(task)

    def _running(self) -> SimTask:
        task = self.world.current
        if task is None:
            raise AssertionError("only a task can wait")
        return task


class Run(Protocol):
    """Finishes a coroutine in a world."""

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it to its end; returns or raises what it does."""


def drive(seed: int) -> tuple[Runtime, Run]:
    """A runtime in a world of its own, and a function that runs any coroutine there to its end."""
    world = World(seed)
    process = world.process("driver")

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        return world.run(coroutine, process)

    return SimRuntime(process), run
