"""Signals to the wrapper: while it waits for the lock they end the wait, afterwards they are passed on.

Handlers only write to a pipe, which wakes the wrapper's loop; every decision is made there.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["ENDING", "FORWARDED", "Interrupted", "Signals"]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
WAKE = 0  # not a signal: another thread has an event for the loop


class Interrupted(BaseException):
    """A signal ended the wait for the lock; not an `Exception`, so that nothing on the way swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Signals:
    """Collects signals from its making until `restore`."""

    def __init__(self) -> None:
        self._waiting = False
        self._kept: list[int] = []  # collected, but not handed out yet
        self._inbox, self._outbox = os.pipe()
        os.set_blocking(self._inbox, False)
        os.set_blocking(self._outbox, False)
        self._before = {}
        for number in (*FORWARDED, signal.SIGCHLD, signal.SIGCONT):
            # What the caller ignores stays ignored (nohup), but for SIGCHLD, which announces the end of the child.
            if number is signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        # Taking the terminal back from the child's group would stop the wrapper otherwise.
        self._before[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        self._previous_wakeup = signal.set_wakeup_fd(self._outbox, warn_on_full_buffer=False)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        """The number also went into the pipe, written by the interpreter itself."""
        if self._waiting and number in ENDING:
            self._waiting = False  # a second one must not interrupt the clean-up
            raise Interrupted(number)

    def wait_begins(self) -> None:
        """From now on a signal that would end the program raises `Interrupted`; so does one that is pending."""
        self._waiting = True
        for number in self.collect(0.0):
            if number in ENDING:
                self._waiting = False
                raise Interrupted(number)

    def wait_ended(self) -> None:
        """From now on signals are only collected. USR1 and USR2 are dropped: their command does not run yet."""
        self._waiting = False
        self._kept = [number for number in self.collect(0.0) if number in ENDING]

    def wake(self) -> None:
        """End the current `collect`; may be called from any thread."""
        with suppress(OSError):  # full, so the loop wakes anyway; or closed, so there is no loop
            os.write(self._outbox, bytes([WAKE]))

    def collect(self, timeout: float) -> list[int]:
        """The signals that have arrived; waits up to `timeout` for the first."""
        if self._kept:
            kept, self._kept = self._kept, []
            return kept
        select.select([self._inbox], [], [], max(0.0, timeout))
        try:
            return [number for number in os.read(self._inbox, 4096) if number != WAKE]
        except BlockingIOError:
            return []

    def restore(self) -> None:
        """Put everything back as it was."""
        signal.set_wakeup_fd(self._previous_wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._inbox)
        os.close(self._outbox)
