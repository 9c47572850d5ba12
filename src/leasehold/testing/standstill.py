"""Finds out that all of a program waits, and then lets the clocks of tests jump to the next instant that is waited for.

Two things have to be known. Waits on a manual clock are registered here: each is idle until its signal is set or its
deadline is reached. All else that a program may be doing, in threads and event loops of its own, is seen from outside:
a thread that has run since the last look, or is able to run, is not at a standstill, and a loop with a task that can
go on is a thread that runs. Threads that are older than the clock, and have never looked at it, are bystanders: they
may run, as the timers and watchdogs of a test runner do. What cannot be seen is whether a thread that sleeps or waits
for a network is about to go on by itself; so the standstill has to last for a while, the `autojump` of the clock,
before the first jump.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["WAITS", "Jumping", "Wait", "Wakeable", "present_threads"]

_logger = logging.getLogger("leasehold.testing")

STEP = 0.002  # real seconds between two looks
MOST_BUSY = 10  # looks in a row that what a jump has woken may take; after that it was not only the jump
PATIENCE = 5.0  # real seconds without a jump that are worth a warning
TASKS = "/proc/self/task"


class Wakeable(Protocol):
    """A signal whose waiters can be made to look at the clock again."""

    def is_set(self) -> bool:
        """Whether the wait is over."""

    def wake(self) -> None:
        """Let the waiters look again; from any thread."""


class Jumping(Protocol):
    """A clock that this module makes jump."""

    autojump: float | None
    bystanders: set[int]

    @property
    def is_running(self) -> bool:
        """Whether it moves by itself, as fast as real time."""

    def now(self) -> float:
        """The current instant."""

    def jump_to(self, instant: float) -> bool:
        """Move ahead to this instant; False if the clock is running."""


class Wait:
    """A thread waits on a clock for a signal or a deadline, while the block runs.

    `is_a_call`: of the user's, and not a worker of the library, whose waits are no reason to jump. `thread` is the
    number of a thread that does nothing else meanwhile.

    It is also the clock that the waiting runtime looks at: one that is infinitely far from the deadline until it is
    reached. So no real timer is set, which would make the waiting thread or loop run now and then.
    """

    granularity: float | None = None

    def __init__(
        self, clock: Jumping, signal: Wakeable, deadline: float | None, *, is_a_call: bool, thread: int | None = None
    ) -> None:
        self.clock = clock
        self.signal = signal
        self.deadline: float = math.inf if deadline is None else deadline
        self.is_a_call = is_a_call
        self.thread = thread

    def now(self) -> float:
        """The instant, if it matters to this wait."""
        now = self.clock.now()
        return now if now >= self.deadline or self.clock.is_running else -math.inf

    def is_idle(self) -> bool:
        """Whether the wait goes on: nothing that it waits for has happened."""
        return not self.signal.is_set() and self.clock.now() < self.deadline

    def __enter__(self) -> Wait:
        WAITS.add(self)
        if self.is_a_call and self.clock.autojump is not None:
            _WATCHMAN.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        WAITS.discard(self)


WAITS: set[Wait] = set()  # of all clocks; changed and copied by single calls, so that threads may share it


class _OtherThreads:
    """Whether the other threads of this process stand still, as far as the operating system can tell."""

    def __init__(self) -> None:
        self._last: dict[int, bytes] = {}
        self.runners: set[int] = set()  # the threads that did not stand still at the last look

    def stand_still(self, without: set[int]) -> bool:
        """Whether none has run since the last look, and none is able to; some do not count."""
        seen = self._look(without | {threading.get_native_id()})
        last, self._last = self._last, seen
        self.runners = {number for number, facts in seen.items() if last.get(number) != facts or facts[:1] in b"RD"}
        return not self.runners and len(seen) == len(last)

    def _look(self, without: set[int]) -> dict[int, bytes]:
        """By thread, its state and how often it was switched; where that is unknown, the processor time of all."""
        try:
            numbers = present_threads() - without
        except OSError:
            used = round((time.process_time() - time.thread_time()) * 10_000)
            return {0: b"S %d %d" % (used, threading.active_count())}
        return {number: facts for number in numbers if (facts := _facts(number)) is not None}


def present_threads() -> set[int]:
    """The numbers of the threads of this process; OSError where the operating system does not tell them."""
    return {int(entry) for entry in os.listdir(TASKS)}  # noqa: PTH208 - hundreds of times a second


def _facts(number: int) -> bytes | None:
    """State and switches of a thread of this process; None if it has ended."""
    try:
        with open(f"{TASKS}/{number}/status", "rb") as file:  # noqa: PTH123 - as above
            status = file.read()
    except OSError:
        return None
    state, switches = status.index(b"State:\t") + 7, status.index(b"voluntary_ctxt_switches")
    return status[state : state + 1] + status[switches:]


class _Watchman:
    """A thread that looks around while calls of the user's wait on a manual clock. One for all clocks."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look around from now on, until no call waits."""
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="leasehold autojump", daemon=True)
                self._thread.start()

    def _waited_for(self) -> dict[Jumping, set[Wakeable]]:
        """The clocks that calls of the user's wait on, with their signals; the end of this thread if there are none."""
        signals: dict[Jumping, set[Wakeable]] = {}
        with self._guard:
            for wait in tuple(WAITS):
                if wait.is_a_call and wait.clock.autojump is not None:
                    signals.setdefault(wait.clock, set()).add(wait.signal)
            if not signals:
                self._thread = None
        return signals

    def _work(self) -> None:
        others, standstill = _OtherThreads(), _Standstill()
        before: dict[Jumping, set[Wakeable]] = {}
        while signals := self._waited_for():
            waits = tuple(WAITS)
            known = {wait.thread for wait in waits if wait.thread is not None and wait.is_idle()}
            are_idle = all(wait.is_idle() for wait in waits if wait.clock in signals)
            bystanders = set.intersection(*(clock.bystanders for clock in signals))
            if others.stand_still(known | bystanders) and are_idle and signals == before:
                for clock, awaited in signals.items():
                    standstill.perhaps_jump(clock, awaited)
            else:
                standstill.is_over(lambda: _names(others.runners))
            before = signals
            time.sleep(STEP)


class _Standstill:
    """How long nothing has moved, and whether the last thing that moved was a jump of ours."""

    def __init__(self) -> None:
        self._since = self._fruitless_since = time.monotonic()
        self._busy = 0  # looks since the last jump that found a thread at work
        self._jumped_for: dict[Jumping, set[Wakeable]] = {}
        self._warned = False

    def is_over(self, runners: Callable[[], str]) -> None:
        """A thread was at work."""
        self._since = now = time.monotonic()
        self._busy += 1
        if now - self._fruitless_since > PATIENCE and not self._warned:
            self._warned = True
            _logger.warning(
                "a call waits on the clock of a ManualStore, which stands still while other threads run (%s); "
                "call clock.advance(), or pass_time(), or let them wait",
                runners(),
            )

    def perhaps_jump(self, clock: Jumping, signals: set[Wakeable]) -> None:
        """Jump if the standstill has lasted, or if calls still wait for the same signals as at the last jump."""
        goes_on = self._busy <= MOST_BUSY and self._jumped_for.get(clock) == signals
        if not goes_on and time.monotonic() - self._since < (clock.autojump or 0.0):
            return
        earliest = min((wait.deadline for wait in tuple(WAITS) if wait.clock is clock), default=math.inf)
        if earliest < math.inf and clock.jump_to(earliest):
            self._jumped_for[clock] = signals
            self._busy, self._fruitless_since = 0, time.monotonic()


def _names(numbers: set[int]) -> str:
    known = {thread.native_id: thread.name for thread in threading.enumerate()}
    return ", ".join(sorted(known.get(number, f"thread {number}") for number in numbers)) or "unknown"


def _forget_the_parent() -> None:
    """In a forked child: the thread is not there, and no wait is."""
    global _WATCHMAN  # noqa: PLW0603 - its mutex may be taken by a thread that does not exist here
    _WATCHMAN = _Watchman()
    WAITS.clear()


_WATCHMAN = _Watchman()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parent)
