"""The world of a simulation: one virtual clock, one source of chance, tasks that run one at a time, timers.

It knows processes and tasks, and nothing of locks, stores or networks. Everything that happens follows from the seed:
which of the ready tasks runs next, and when each timer fires. When nothing is ready, time jumps to the next timer.

A crashed process is one whose tasks are never resumed. They are not closed either: no line of theirs runs any more, as
after a power cut. They are kept until the world ends, so that no finalizer runs protocol code before that.
"""

from __future__ import annotations

import contextvars
import heapq
import math
import random
from contextlib import suppress
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

__all__ = ["Cancelled", "Process", "SimTask", "Stuck", "Timer", "World", "WorldEnded", "park"]

T = TypeVar("T")

STEP = 1e-5  # what one step of a task costs, so that time also passes for a program that only computes
MAX_LOOKS = 1_000  # how often a task may find a deadline passed within one step
DIGEST_MASK = (1 << 64) - 1


class Cancelled(BaseException):
    """Thrown into a task that is cancelled; `origin` is the scope that did it, or None."""

    def __init__(self, origin: object = None) -> None:
        super().__init__("cancelled")
        self.origin = origin


class WorldEnded(BaseException):
    """Thrown at whatever still wants to wait after the end of the world."""


class Stuck(Exception):
    """Nothing can ever happen again, or too much happens without an end."""


class Timer:
    """Something that will happen, unless it is cancelled first."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Let it not happen."""
        self.callback = None


class SimTask:
    """A coroutine that the world runs step by step."""

    __slots__ = (
        "__weakref__",
        "_scheduled",
        "cancels",
        "context",
        "coroutine",
        "done",
        "error",
        "joiners",
        "name",
        "number",
        "process",
        "quiet",
        "result",
    )

    def __init__(self, process: Process, coroutine: Coroutine[Any, Any, Any], name: str, number: int) -> None:
        self.process = process
        self.coroutine = coroutine
        self.context = contextvars.copy_context()  # as asyncio gives each task one
        self.name = name
        self.number = number
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.cancels: list[object] = []  # the origins of cancellations that were not delivered yet
        self.joiners: list[SimTask] = []
        self.quiet = False  # its error is handled elsewhere, and not a failure of the program
        self._scheduled = False

    def wake(self) -> None:
        """Run again as soon as the world chooses this task."""
        if self._scheduled or self.done:
            return
        self._scheduled = True
        self.process.enqueue(self)

    def cancel(self, origin: object = None) -> None:
        """Throw `Cancelled` into it where it waits."""
        if not self.done:
            self.cancels.append(origin)
            self.wake()

    def step(self) -> None:
        """Run until it waits again or ends."""
        self._scheduled = False
        try:
            if self.cancels:
                self.context.run(self.coroutine.throw, Cancelled(self.cancels.pop(0)))
            else:
                self.context.run(self.coroutine.send, None)
        except StopIteration as end:
            self.result = end.value
        except BaseException as error:  # whatever ends a task is its result
            self.error = error
        else:
            return
        self.done = True
        self.process.ended(self)
        for joiner in self.joiners:
            joiner.wake()


class Process:
    """A computer of its own: a clock with its own rate, tasks, and a life that can be paused or ended."""

    def __init__(self, world: World, name: str, *, rate: float = 1.0, offset: float = 0.0) -> None:
        self.world = world
        self.name = name
        self.paused = False
        self.crashed = False
        self.resumed_at = -math.inf  # when the last pause ended
        self.tasks: dict[int, SimTask] = {}  # those that have not ended
        self._rate = rate
        self._offset = offset
        self._frozen: list[SimTask] = []

    def clock(self) -> float:
        """What this computer's clock shows; it goes on during a pause."""
        return self._offset + self.world.now * self._rate

    def instant(self, local: float) -> float:
        """The first moment of the world at which the clock shows at least `local`."""
        moment = (local - self._offset) / self._rate
        while self._offset + moment * self._rate < local:
            moment = math.nextafter(moment, math.inf)  # its own step, which may be larger than that of `local`
        return moment

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> SimTask:
        """Start a task."""
        task = SimTask(self, coroutine, name, self.world.next_number())
        self.tasks[task.number] = task
        task.wake()
        return task

    def pause(self) -> None:
        """Run nothing of this process until `resume`."""
        if not self.paused and not self.crashed:
            self.paused = True
            self._frozen += self.world.withdraw_ready(self)

    def resume(self) -> None:
        """Go on; everything that became ready meanwhile is ready now."""
        if self.paused and not self.crashed:
            self.paused = False
            self.resumed_at = self.world.now
            frozen, self._frozen = self._frozen, []
            for task in frozen:
                self.world.ready(task)

    def crash(self) -> None:
        """Never run anything of this process again."""
        self.world.withdraw_ready(self)
        self._frozen = []
        self.crashed = True

    def enqueue(self, task: SimTask) -> None:
        """A task of ours can run."""
        if self.crashed:
            return
        if self.paused:
            self._frozen.append(task)
        else:
            self.world.ready(task)

    def ended(self, task: SimTask) -> None:
        """A task of ours is over."""
        del self.tasks[task.number]
        if task.error is not None and not isinstance(task.error, Cancelled) and not task.quiet:
            self.world.failures.append(task)


class World:
    """Everything there is, made from one seed."""

    def __init__(self, seed: int, *, max_steps: int = 2_000_000) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self.digest = 0  # of all scheduling decisions
        self.current: SimTask | None = None
        self.looks = 0  # at something that is over, without waiting, in this step
        self.guarded = 0  # how many guards the running task is inside
        self.over = False
        self.halted = False  # a checker has seen enough
        self.processes: list[Process] = []
        self.failures: list[SimTask] = []  # tasks that ended with an error and had no joiner
        self.trace: list[tuple[Any, ...]] = []
        self.on_step: Callable[[], object] | None = None
        self._max_steps = max_steps
        self._ready: list[SimTask] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = 0
        self.signals = 0  # how many were made

    # --- making things

    def process(self, name: str, *, rate: float = 1.0, offset: float = 0.0) -> Process:
        """A new computer."""
        process = Process(self, name, rate=rate, offset=offset)
        self.processes.append(process)
        return process

    def at(self, moment: float, callback: Callable[[], object]) -> Timer:
        """Let something happen at a moment."""
        timer = Timer(callback)
        heapq.heappush(self._timers, (moment, self.next_number(), timer))
        return timer

    def after(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Let something happen later."""
        return self.at(self.now + seconds, callback)

    def note(self, *facts: Any) -> None:
        """Write a line of the trace. Facts must not depend on anything but the seed."""
        self.trace.append((self.now, *facts))

    def looked(self) -> None:
        """The running task looked at a deadline that has passed; one that does so for ever would never wait."""
        self.looks += 1
        if self.looks > MAX_LOOKS:
            raise Stuck("a task spins without waiting")

    def next_number(self) -> int:
        """A number that was not used before."""
        self._numbers += 1
        return self._numbers

    # --- running

    def run(self, coroutine: Coroutine[Any, Any, T], process: Process) -> T:
        """Run a coroutine in a process to its end, with all that happens beside it; returns or raises what it does."""
        task = process.spawn(coroutine, "main")
        task.quiet = True  # its error is passed on below
        while not task.done and not self.halted:
            self._turn()
        if task.error is not None:
            raise task.error
        return task.result  # type: ignore[no-any-return]

    def end(self) -> None:
        """Close all that is left; nothing that runs now can wait any more."""
        self.over = True
        self.on_step = None
        for process in self.processes:
            while process.tasks:  # one that is closed may start another
                _, task = process.tasks.popitem()
                with suppress(BaseException):  # what it does now does not matter
                    task.context.run(task.coroutine.close)

    def ready(self, task: SimTask) -> None:
        """This task may be chosen."""
        self._ready.append(task)

    def withdraw_ready(self, process: Process) -> list[SimTask]:
        """Take the ready tasks of a process back."""
        mine = [task for task in self._ready if task.process is process]
        self._ready = [task for task in self._ready if task.process is not process]
        return mine

    def _turn(self) -> None:
        """Fire what is due, then let one task, chosen by chance, run one step."""
        self._fire()
        ready = self._ready
        if not ready:
            if not self._timers:
                raise Stuck("nothing is ready and no timer is set")
            self.now = max(self.now, self._timers[0][0])
            return
        self.steps += 1
        if self.steps > self._max_steps:
            raise Stuck(f"still busy after {self._max_steps} steps")
        index = int(self.random.random() * len(ready)) if len(ready) > 1 else 0
        task = ready[index]
        ready[index] = ready[-1]
        ready.pop()
        self.digest = (self.digest * 1_000_003 + task.number) & DIGEST_MASK
        self.current = task
        self.looks = 0
        task.step()
        self.current = None
        if self.guarded:
            raise AssertionError(f"{task.name} waited inside a guard")
        self.now += STEP
        if self.on_step is not None:
            self.on_step()

    def _fire(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            callback = heapq.heappop(timers)[2].callback
            if callback is not None:
                callback()


@coroutine
def park(world: World) -> Generator[None, None, None]:
    """Wait until the running task is woken; the caller looks again at what it waits for."""
    if world.over:
        raise WorldEnded
    if world.guarded:
        raise AssertionError("a task waits inside a guard")
    yield
