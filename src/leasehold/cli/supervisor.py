"""The wrapper's loop while the command runs: one thread, woken by signals, by the keeper and by the clock.

It knows processes and one lease; it does not know how the lock was acquired or what the report will say.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.child import group_is_alive
from leasehold.cli.renewal_notices import RenewalNotices
from leasehold.cli.signals import FORWARDED
from leasehold.cli.watchdog import now, signal_group

if TYPE_CHECKING:
    from leasehold.cli.child import Child
    from leasehold.cli.held import Held
    from leasehold.cli.lease_record import LeaseRecord
    from leasehold.cli.output import Console
    from leasehold.cli.signals import Signals
    from leasehold.cli.terminal import Terminal
    from leasehold.cli.watchdog_handle import WatchdogHandle
    from leasehold.events import Event

__all__ = ["Supervisor"]

LONGEST_SLEEP = 1.0
GROUP_LOOK = 0.02  # how often to check whether the group has gone, once only that is waited for
STUBBORN = 2.0  # how long a group may take to vanish after KILL; beyond that it hangs in the kernel
TO_THE_CHILD_ONLY = (signal.SIGUSR1, signal.SIGUSR2)  # their default action would end the helpers of the command
KEYBOARD_STOPS = (signal.SIGTTIN, signal.SIGTTOU)


class Supervisor:
    """Watches one command under what it holds until the command has ended."""

    def __init__(
        self,
        child: Child,
        held: Held,
        *,
        record: LeaseRecord,
        watchdog: WatchdogHandle,
        signals: Signals,
        terminal: Terminal,
        console: Console,
        ttl: float,
        kill_after: float,
        max_hold: float | None,
        wait_group: bool,
    ) -> None:
        self._child = child
        self._group = child.pid
        self._watchdog = watchdog
        self._signals = signals
        self._terminal = terminal
        self._held = held
        self._record = record
        self._console = console
        self._renewals = RenewalNotices(held, ttl, console)
        self._pulse = min(LONGEST_SLEEP, ttl / 6)
        self._kill_after = kill_after
        self._hold_until = float("inf") if max_hold is None else now() + max_hold
        self._wait_group = wait_group
        self._kill_at = float("inf")
        self._killed_at: float | None = None
        self._interrupts = 0
        self._stopped = False
        self.is_ending: bool = False  # a signal that would end the wrapper was passed on
        self.status: int | None = None  # as waitpid gives it
        self.stopped_for: int | None = None  # the exit code for the reason why the command was stopped, if it was

    def note(self, event: Event) -> None:
        """Something happened to the lease; may be called from any thread."""
        self._renewals.note(event)
        self._signals.wake()

    def may_start(self) -> bool:
        """Whether the lease is held now; also sends its end to the watchdog, before there is anything to watch."""
        self._check_lease()
        return self.stopped_for is None

    def watch(self) -> None:
        """Return when the command has ended, and its group too after --wait-group or a stop."""
        while True:
            self._check_child()
            self._check_lease()
            if self.status is not None and self._group_is_done():
                break
            self._check_watchdog()
            self._check_clock()
            for number in self._signals.collect(self._patience()):
                self._handle(number)
        self._terminal.take_back()
        self._watchdog.dismiss()

    @property
    def exit_code(self) -> int:
        """The command's own code, or 128+N."""
        code = os.waitstatus_to_exitcode(self.status or 0)
        return code if code >= 0 else exit_codes.for_signal(-code)

    # --- what has changed

    def _check_child(self) -> None:
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
                self._console.detail(f"the command ended with status {self.exit_code}")

    def _check_lease(self) -> None:
        loss = self._held.loss
        if loss is not None:
            if self.stopped_for != exit_codes.LEASE_LOST:
                self._record.lasts_until(0.0)
                self._console.error(
                    f"lost the lease of {self._held.title} ({loss.reason}): {loss.detail}; stopping the command"
                )
                self._stop(exit_codes.LEASE_LOST)
            return
        instant, remaining = now(), self._held.remaining()
        if self._renewals.look(instant, remaining):
            self._watchdog.lease_until(instant + remaining)
            self._record.lasts_until(instant + remaining)

    def _check_watchdog(self) -> None:
        try:
            pid, _ = os.waitpid(self._watchdog.pid, os.WNOHANG)
            if pid == 0:
                return
        except ChildProcessError:
            pass
        try:
            self._watchdog.replace()
        except OSError as error:
            if self.stopped_for is None:
                self._console.error(f"the watchdog process died and cannot be replaced ({error}); stopping the command")
                self._stop(exit_codes.INTERNAL)
        else:
            self._console.detail("the watchdog process died and was replaced")

    def _check_clock(self) -> None:
        instant = now()
        if instant >= self._hold_until:
            self._console.error(f"--max-hold of {self._held.title} is over; stopping the command")
            self._stop(exit_codes.MAX_HOLD)
        if instant >= self._kill_at:
            self._kill()

    def _group_is_done(self) -> bool:
        if self.stopped_for is None and self._killed_at is None and not self._wait_group:
            if self._console.is_verbose and group_is_alive(self._group):
                self._console.detail(
                    "processes of the command's group still run, without the lock; --wait-group waits for them"
                )
            return True
        if not group_is_alive(self._group):
            return True
        if self._killed_at is not None and now() >= self._killed_at + STUBBORN:
            self._console.error(
                "processes of the command's group did not end after KILL; giving the lock back without them"
            )
            return True
        return False

    def _patience(self) -> float:
        """How long nothing can be due."""
        longest = self._pulse if self.status is None else GROUP_LOOK
        return min(longest, min(self._kill_at, self._hold_until) - now(), max(self._held.remaining(), 0.01))

    # --- what follows from it

    def _stop(self, code: int) -> None:
        """End the whole group: TERM now, KILL after a while."""
        self.stopped_for = code
        if self._killed_at is None and self._kill_at == float("inf"):
            self._kill_at = now() + self._kill_after
            self._watchdog.killing_at(self._kill_at)
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
            self._console.note("interrupted again; killing the command")
            self._kill()
        elif number in FORWARDED:
            self.is_ending = True
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
            self._terminal.stop_with_child()  # returns when the shell continues the wrapper, with SIGCONT in the inbox
        else:
            self._console.detail("the command was stopped (SIGSTOP); the lock stays held")

    def _continue_child(self) -> None:
        """The shell continued the wrapper; the command goes on only if the lease is still held."""
        self._check_lease()
        if self._stopped and self.stopped_for is None:
            self._terminal.hand_over()
            signal_group(self._group, signal.SIGCONT)
