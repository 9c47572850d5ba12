"""Whether the processes of a case get the processor in time, and the store's server what it needs to answer.

A case in real time counts in units of a short ttl. On a machine that lets a process wait for a good part of that unit,
leases run out that a healthy host would have kept, and the case proves nothing about the store. So three delays are
measured; see `runner` for what follows from them. This process: a thread wants to wake up every few milliseconds. The
store's server, which may wait for the processor or the disk while this process does not: its calls are timed. The other
processes of a case: each sends a beat through a pipe every few milliseconds, unless a call of its store takes longer
than that, and the thread here watches for it, so that a process that is starved right now is seen too, although it can
report nothing.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from leasehold.spi import Backend

__all__ = ["CallsUnderWay", "Pace", "Pulse", "beat"]

INTERVAL = 0.01
VERBS = (
    "try_acquire", "renew", "release", "withdraw", "join", "turn",
    "inspect", "list", "break_", "raise_fence", "pause", "resume", "read", "write",
)  # fmt: skip


class Pace:
    """Measures, while its block runs, in seconds.

    `worst`: the longest delay in being scheduled, of this process or of one whose pulse is watched. `slowest`: the
    longest call of a store that is watched.
    """

    def __init__(self) -> None:
        self.worst: float = 0.0
        self.slowest: float = 0.0
        self._pulses: list[Pulse] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="leasehold contract pace", daemon=True)

    def watch(self, backend: Backend) -> None:
        """Measure the calls of this connection, below whatever a case puts in between."""
        _wrap(backend, self._measured)

    def follow(self, pulse: Pulse) -> None:
        """Measure the process that sends this pulse."""
        self._pulses.append(pulse)

    def _measured(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(call)
        async def perform(*arguments: Any, **options: Any) -> Any:
            began = time.monotonic()
            try:
                return await call(*arguments, **options)
            finally:
                self.slowest = max(self.slowest, time.monotonic() - began)

        return perform

    def __enter__(self) -> Pace:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _measure(self) -> None:
        before = time.monotonic()
        while not self._over.wait(INTERVAL):
            now = time.monotonic()
            self.worst = max(self.worst, now - before - INTERVAL, *[pulse.lateness(now) for pulse in self._pulses])
            before = now


class Pulse:
    """The beat of another process, from the end that reads it. It is measured from its first beat on."""

    def __init__(self) -> None:
        self.writing: int
        self._reading, self.writing = os.pipe()
        for descriptor in (self._reading, self.writing):
            os.set_blocking(descriptor, False)
        self._guard = threading.Lock()
        self._last: float | None = None  # when it beat last; None: not yet, or it has ended
        self._is_measured = True

    def lateness(self, now: float) -> float:
        """For how long there has been no beat, beyond what is usual between two looks at it."""
        with self._guard:
            if not self._is_measured:
                return 0.0
            last = self._last
            try:
                beats = os.read(self._reading, 65_536)
            except BlockingIOError:
                pass  # none since the last look
            else:
                self._last = now if beats else None  # without a byte: the process has ended
            return 0.0 if last is None or self._last is None else now - last - 2 * INTERVAL

    def pause(self) -> None:
        """The case stops this process on purpose: that is no delay of the machine."""
        with self._guard:
            self._is_measured = False

    def resume(self) -> None:
        """The case lets it go on: from now on it has to beat again."""
        with self._guard:
            self._last = time.monotonic()
            self._is_measured = True

    def close(self) -> None:
        """It is not measured any more."""
        with self._guard:
            self._is_measured = False
            reading, self._reading = self._reading, -1
            if reading >= 0:
                os.close(reading)


class CallsUnderWay:
    """When the calls of a store began that have not ended yet, in a process that sends a pulse."""

    def __init__(self) -> None:
        self._began: dict[object, float] = {}

    def watch(self, backend: Backend) -> None:
        """Note the calls of this connection."""
        _wrap(backend, self._noted)

    def are_slow(self) -> bool:
        """Whether one takes longer than a beat."""
        began = tuple(self._began.values())
        return bool(began) and time.monotonic() - min(began) > INTERVAL

    def _noted(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(call)
        async def perform(*arguments: Any, **options: Any) -> Any:
            number = object()
            self._began[number] = time.monotonic()
            try:
                return await call(*arguments, **options)
            finally:
                del self._began[number]

        return perform


def _wrap(backend: Backend, wrapper: Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]) -> None:
    if hasattr(backend, "__dict__"):
        for verb in VERBS:
            if hasattr(backend, verb):
                setattr(backend, verb, wrapper(getattr(backend, verb)))


def beat(descriptor: int, calls: CallsUnderWay) -> None:
    """Send beats from this process, in a thread of their own, until the reading end is closed."""

    def send() -> None:
        with suppress(OSError):
            while True:
                with suppress(BlockingIOError):  # the reader is slow
                    if not calls.are_slow():
                        os.write(descriptor, b".")
                time.sleep(INTERVAL)

    threading.Thread(target=send, name="leasehold contract pulse", daemon=True).start()
