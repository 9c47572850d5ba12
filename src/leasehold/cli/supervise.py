"""The wrapper's loop while the command runs: one thread, woken by signals, by the keeper and by the clock.

It knows processes and one lease; it does not know how the lock was got or what the exit code will be called.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.groups import runs_on
from leasehold.cli.guardian import now, signal_group
from leasehold.cli.renewals import Renewals
from leasehold.cli.signals import FORWARDED

if TYPE_CHECKING:
    from leasehold.blocking import Lease
    from leasehold.cli.child import Child
    from leasehold.cli.guarding import Guard
    from leasehold.cli.output import Talk
    from leasehold.cli.signals import Signals
    from leasehold.cli.terminal import Terminal
    from leasehold.events import Event

__all__ = ["Supervisor"]

LONGEST_SLEEP = 1.0
GROUP_LOOK = 0.02  # how often to see whether the group has gone, once that is what we wait for
STUBBORN = 2.0  # how long to wait for a group to vanish after KILL; beyond that it hangs in the kernel
TO_THE_CHILD_ONLY = (signal.SIGUSR1, signal.SIGUSR2)  # their default action would end innocent helpers
KEYBOARD_STOPS = (signal.SIGTTIN, signal.SIGTTOU)


class Supervisor:
    """Watches one command under one lease until the command has ended."""

    def __init__(
        self,
        child: Child,
        lease: Lease,
        *,
        guard: Guard,
        signals: Signals,
        terminal: Terminal,
        talk: Talk,
        ttl: float,
        kill_after: float,
        max_hold: float | None,
        wait_group: bool,
    ) -> None:
        self._child = child
        self._group = child.pid
        self._guard = guard
        self._signals = signals
        self._terminal = terminal
        self._lease = lease
        self._talk = talk
        self._renewals = Renewals(lease.name, ttl, talk)
        self._pulse = min(LONGEST_SLEEP, ttl / 6)
        self._kill_after = kill_after
        self._hold_until = float("inf") if max_hold is None else now() + max_hold
        self._wait_group = wait_group
        self._kill_at = float("inf")
        self._killed_at: float | None = None
        self._interrupts = 0
        self._stopped = False
        self._lease_told = 0.0
        self.status: int | None = None  # as waitpid gives it
        self.stopped_for: int | None = None  # the exit code that says why we ended the command, if we did

    def note(self, event: Event) -> None:
        """Something happened to the lease; may be called from any thread."""
        self._renewals.note(event)
        self._signals.wake()

    def may_start(self) -> bool:
        """Whether the lease is still ours now; also tells the guardian how long, before there is anything to guard."""
        self._look_at_lease()
        return self.stopped_for is None

    def watch(self) -> None:
        """Return when the command has ended, and its group too where that was asked for or ordered."""
        while True:
            self._look_at_child()
            self._look_at_lease()
            if self.status is not None and self._group_is_done():
                break
            self._look_at_guard()
            self._look_at_clock()
            for number in self._signals.collect(self._patience()):
                self._handle(number)
        self._terminal.take_back()
        self._guard.dismiss()

    @property
    def exit_code(self) -> int:
        """The command's own code, or 128+N."""
        code = os.waitstatus_to_exitcode(self.status or 0)
        return code if code >= 0 else exit_codes.for_signal(-code)

    # --- looking

    def _look_at_child(self) -> None:
        flags = os.WNOHANG | os.WUNTRACED | os.WCONTINUED
        while self.status is None:
            pid, status = os.waitpid(self._group, flags)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self._child_stopped(os.WSTOPSIG(status))
            elif os.WIFCONTINUED(status):
                self._stopped = False
            else:
                self.status = status
                self._child.is_over = True
                self._talk.detail(f"the command ended with status {self.exit_code}")

    def _look_at_lease(self) -> None:
        loss = self._lease.loss
        if loss is not None:
            if self.stopped_for != exit_codes.LEASE_LOST:
                self._talk.error(f"lost the lease of {self._lease.name!r} ({loss.reason}): {loss.detail}")
                self._stop(exit_codes.LEASE_LOST)
            return
        instant, remaining = now(), self._lease.remaining()
        ends = instant + remaining
        if ends > self._lease_told + 0.001:
            self._lease_told = ends
            self._guard.lease_until(ends)
            self._renewals.confirmed(instant)
        self._renewals.look(instant, remaining)

    def _look_at_guard(self) -> None:
        try:
            pid, _ = os.waitpid(self._guard.pid, os.WNOHANG)
            if pid == 0:
                return
        except ChildProcessError:
            pass
        try:
            self._guard.replace()
        except OSError as error:
            if self.stopped_for is None:
                self._talk.error(f"the guardian died and cannot be replaced ({error}); stopping the command")
                self._stop(exit_codes.INTERNAL)
        else:
            self._talk.detail("the guardian died and was replaced")

    def _look_at_clock(self) -> None:
        instant = now()
        if instant >= self._hold_until:
            self._hold_until = float("inf")
            if self.stopped_for is None:
                self._talk.error(f"--max-hold of {self._lease.name!r} has passed; stopping the command")
                self._stop(exit_codes.MAX_HOLD)
        if instant >= self._kill_at:
            self._kill()

    def _group_is_done(self) -> bool:
        if self.stopped_for is None and self._killed_at is None and not self._wait_group:
            if self._talk.is_verbose and runs_on(self._group):
                self._talk.detail("processes of the command's group run on without the lock; see --wait-group")
            return True
        if not runs_on(self._group):
            return True
        if self._killed_at is not None and now() >= self._killed_at + STUBBORN:
            self._talk.error("processes of the command's group did not end after KILL")
            return True
        return False

    def _patience(self) -> float:
        """How long nothing can be due."""
        longest = self._pulse if self.status is None else GROUP_LOOK
        return min(longest, min(self._kill_at, self._hold_until) - now(), max(self._lease.remaining(), 0.01))

    # --- acting

    def _stop(self, code: int) -> None:
        """End the whole group: TERM now, KILL after a while."""
        self.stopped_for = code
        if self._killed_at is None and self._kill_at == float("inf"):
            self._kill_at = now() + self._kill_after
            self._guard.killing_at(self._kill_at)
            self._signal_group(signal.SIGTERM)
        self._hold_until = float("inf")

    def _kill(self) -> None:
        self._kill_at = float("inf")
        if self._killed_at is None:
            self._killed_at = now()
        signal_group(self._group, signal.SIGKILL)

    def _handle(self, number: int) -> None:
        if number == signal.SIGCONT:
            self._continue_child()
        elif number in TO_THE_CHILD_ONLY:
            if self.status is None:
                os.kill(self._group, number)
        elif number == signal.SIGINT and self._interrupts:
            self._talk.note("interrupted again; killing the command")
            self._kill()
        elif number in FORWARDED:
            self._interrupts += number == signal.SIGINT
            self._signal_group(number)

    def _signal_group(self, number: int) -> None:
        signal_group(self._group, number)
        if self._stopped:
            signal_group(self._group, signal.SIGCONT)  # a stopped process cannot act on it

    def _child_stopped(self, number: int) -> None:
        self._stopped = True
        if number in KEYBOARD_STOPS and self._terminal.hand_over():
            signal_group(self._group, signal.SIGCONT)
        elif self._terminal.take_back() or (number in KEYBOARD_STOPS and self._terminal.is_present):
            self._terminal.stop_with_child()  # comes back when the shell continues us, with SIGCONT in the inbox
        else:
            self._talk.detail("the command was stopped; the lock stays held")

    def _continue_child(self) -> None:
        """The shell continued us; the command goes on only if the lock is still ours."""
        self._look_at_lease()
        if self._stopped and self.stopped_for is None:
            self._terminal.hand_over()
            signal_group(self._group, signal.SIGCONT)
