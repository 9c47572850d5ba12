"""The blocking runtime: nothing ever suspends, so a coroutine is finished by one `send(None)`.

A wait blocks the calling thread inside the coroutine. A signal handler that raises interrupts any
wait, and the exception passes through the coroutine like any other.
"""

from __future__ import annotations

import select
import threading
import time
from _thread import LockType, allocate_lock, start_new_thread
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from leasehold._runtimes.clock import SYSTEM_CLOCK, look_again
from leasehold._runtimes.homes import WithoutLoops
from leasehold._runtimes.randomness import fresh_owner, jitter
from leasehold._runtimes.scatter import scatter_over_tasks
from leasehold._runtimes.stopped_loop import notice_stopped_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Sequence
    from contextlib import AbstractContextManager

    from leasehold._runtimes.clock import Clock
    from leasehold.spi import Pollable, Request, Scope, Signal, Task

__all__ = ["ThreadRuntime", "ThreadSignal", "run"]

T = TypeVar("T")

LONGEST_WAIT = 3600.0  # the operating system refuses some longer ones; the waiter just looks again


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Finish a coroutine that never suspends; an error names the one that did."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        coroutine.close()
    name = getattr(coroutine, "__qualname__", coroutine)
    raise RuntimeError(f"{name} suspended under the blocking runtime, where each call of a store has to block")


class ThreadSignal:
    """A flag whose waiters each block on a lock of their own.

    Not a `threading.Condition`: that enters its lock in Python code, where a signal handler that raises can leave the
    lock taken for ever. Here nothing is taken that would have to be given back.
    """

    def __init__(self) -> None:
        self._up = False
        self._waiters: list[LockType] = []

    def set(self) -> None:
        """Raise the flag and wake all waiters; one that comes later sees the flag."""
        self._up = True
        if self._waiters:
            self.wake()

    def wake(self) -> None:
        """Let all waiters look again at the flag and at the clock.

        Each waiter removes itself. Were it removed here, a signal handler that raises in between could leave one asleep
        for ever.
        """
        for waiter in tuple(self._waiters):  # a later one sees the flag
            try:
                waiter.release()
            except RuntimeError:  # it is awake already
                continue

    def clear(self) -> None:
        """Lower the flag."""
        self._up = False

    def is_set(self) -> bool:
        """Whether the flag is up."""
        return self._up

    def wait(self, clock: Clock, deadline: float | None) -> bool:
        """Block until the flag is up or the deadline is reached."""
        while not self._up:
            timeout = None if deadline is None else deadline - clock.now()
            if timeout is not None and timeout <= 0:
                break
            self._wait_once(look_again(timeout, clock))
        return self._up

    def _wait_once(self, timeout: float | None) -> None:
        waiter = allocate_lock()
        waiter.acquire()
        try:
            self._waiters.append(waiter)
            if not self._up:  # it may have been raised before we were known
                waiter.acquire(timeout=-1 if timeout is None else min(timeout, LONGEST_WAIT))
        finally:
            with suppress(ValueError):  # interrupted before it was there
                self._waiters.remove(waiter)


class ThreadTask:
    """A coroutine that a daemon thread finishes.

    The thread is started by another thread, which does nothing else: `Thread.start` waits in Python code, and a signal
    handler that raises there leaves the threading module in disorder. Signal handlers run on the main thread only.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None], name: str, clock: Clock) -> None:
        self._clock = clock
        self._over = ThreadSignal()
        self._thread = threading.Thread(target=self._finish, args=(coroutine,), name=name, daemon=True)
        start_new_thread(self._thread.start, ())

    def _finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            run(coroutine)
        finally:
            self._over.set()

    async def join(self, deadline: float | None = None) -> bool:
        """Wait for the thread to end; a thread does not wait for itself."""
        if self._thread is threading.current_thread():
            return True
        if not self._over.wait(self._clock, deadline):
            return False
        self._thread.join()
        return True


class ThreadScope:
    """A thread cannot be interrupted, so a loss only sets `lost` and calls `on_lost`."""

    def cancel(self) -> None:
        """A thread cannot be interrupted."""

    def loss_is_raised(self) -> None:
        """Nothing to remember."""

    async def leave(self, error: BaseException | None) -> bool:  # noqa: ARG002
        """No error is ever ours."""
        return False


_NO_INTERRUPTION = ThreadScope()


class ThreadRuntime(WithoutLoops):
    """Time, waiting and workers for blocking programs."""

    blocking = True
    switches = False

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.now = clock.now  # type: ignore[method-assign]  # several times in every call
        self.owner = fresh_owner  # type: ignore[method-assign]
        self.current = threading.current_thread  # type: ignore[method-assign]

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
        """The running thread; the object, because thread numbers are used again."""
        return threading.current_thread()

    def guard(self) -> AbstractContextManager[Any]:
        """A re-entrant lock: a signal handler may use a lease while its thread is inside a guard."""
        return threading.RLock()

    def signal(self) -> Signal:
        """A new flag."""
        return ThreadSignal()

    def scope(self) -> Scope:
        """A scope that cannot interrupt, and so needs no state of its own."""
        return _NO_INTERRUPTION

    async def wait(self, signal: Signal, deadline: float | None) -> bool:
        """Block the thread until the flag is up or the deadline is reached."""
        assert isinstance(signal, ThreadSignal)  # noqa: S101 - for the type checker
        notice_stopped_loop()
        return signal.wait(self._clock, deadline)

    async def sleep(self, seconds: float) -> None:
        """Block the thread."""
        if self._clock.granularity is None:
            time.sleep(seconds)  # noqa: ASYNC251 - blocking is what this runtime is for
            return
        deadline = self.now() + seconds
        while self.now() < deadline:
            time.sleep(self._clock.granularity)  # noqa: ASYNC251

    async def switch(self) -> None:
        """Threads are switched by the interpreter."""

    async def offload(self, call: Callable[[], T]) -> T:
        """Call it: blocking is what this runtime does."""
        return call()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Task:
        """Run it on a daemon thread of its own."""
        return ThreadTask(coroutine, name, self._clock)

    async def shielded(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it; if a signal handler raises meanwhile, run it again before that exception goes on."""
        try:
            return await operation()
        except (Exception, GeneratorExit):
            raise
        except BaseException:
            await operation()
            raise

    async def scatter(
        self,
        requests: Sequence[Request[T]],
        enough: Callable[[Sequence[T | Exception | None]], bool],
        deadline: float,
    ) -> Sequence[T | Exception | None]:
        """Send all, then poll, on the calling thread; requests that cannot be polled get a thread each."""
        if all(hasattr(request, "receive") for request in requests):  # `isinstance` with a protocol is slow
            return _Poll(cast("Sequence[Pollable[T]]", requests), enough).until(self._clock, deadline)
        return await scatter_over_tasks(self, requests, enough, deadline)


class _Poll:
    """Many requests on one thread: each is sent without waiting, then whatever is readable is read.

    With `poll`, not with a selector of the standard library: the one that it prefers is made for descriptors that stay,
    and costs several system calls for each that comes and goes.
    """

    def __init__(
        self, requests: Sequence[Pollable[T]], enough: Callable[[Sequence[T | Exception | None]], bool]
    ) -> None:
        self._requests = requests
        self._enough = enough
        self._answers: list[Any] = [None] * len(requests)
        self._waiting: dict[int, int] = {}  # the place of the request that waits on a descriptor
        self._poll = poll() if poll is not None else _SelectPoll()

    def until(self, clock: Clock, deadline: float) -> list[Any]:
        poll, answers, waiting = self._poll, self._answers, self._waiting
        for place, request in enumerate(self._requests):
            try:
                request.send()
                descriptor = request.fileno()
            except Exception as error:  # noqa: BLE001 - it is this request's answer
                answers[place] = error
            else:
                waiting[descriptor] = place
                poll.register(descriptor, POLLIN)
        while waiting and not self._enough(answers):
            # Sending may have used up the time, where one request had to connect: what is there by then still counts.
            timeout = max(0.0, deadline - clock.now())
            readable = poll.poll((look_again(timeout, clock) or 0.0) * 1000)
            if not readable and timeout <= 0:
                break
            for descriptor, _ in readable:
                self._receive(descriptor, waiting[descriptor])
        return answers

    def _receive(self, descriptor: int, place: int) -> None:
        try:
            answer = self._requests[place].receive()
            if answer is None:
                return
            (self._answers[place],) = answer
        except Exception as error:  # noqa: BLE001 - it is this request's answer
            self._answers[place] = error
        del self._waiting[descriptor]
        self._poll.unregister(descriptor)  # the request may have closed it; only the number is used here


class _SelectPoll:
    """The same where the operating system has no `poll`."""

    def __init__(self) -> None:
        self._descriptors: set[int] = set()

    def register(self, descriptor: int, _: int) -> None:
        self._descriptors.add(descriptor)

    def unregister(self, descriptor: int) -> None:
        self._descriptors.discard(descriptor)

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        readable, _, _ = select.select(self._descriptors, [], [], milliseconds / 1000)
        return [(descriptor, POLLIN) for descriptor in readable]


poll: Callable[[], Any] | None = getattr(select, "poll", None)
POLLIN: int = getattr(select, "POLLIN", 1)
