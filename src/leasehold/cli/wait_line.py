"""The line about the wait for a lock: after a silent second it is printed, and on a terminal kept up to date.

It shows what is waited for (a holder, a pause, a store that does not answer, nodes that sit out), for how long so far,
and until when. On a pipe or in a file it is printed when that changes, and else now and then: the pauses grow, so that
a wait of hours leaves a page and not a book.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from math import inf, isinf
from typing import TYPE_CHECKING

from leasehold.cli.durations import show_duration
from leasehold.cli.output import printable, who
from leasehold.cli.style import is_lively, shorten, terminal_width
from leasehold.events import StoreReached, StoreUnreachable, WaitBegan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold import Client
    from leasehold.cli.output import Console
    from leasehold.events import Event
    from leasehold.values import LockState

__all__ = ["WaitLine", "describe_outage", "describe_time", "describe_wait"]

SILENT = 1.0
REFRESH = 1.0
UNSURE = 3.0  # without a holder in sight the store is probably failing, and its own line comes within this time
REMINDER = 10.0  # between the first two lines on a pipe about the same reason; then twice that, and so on
LONGEST_PAUSE = 600.0
LONGEST_NAME = 24  # characters, in a line that is written over: the holder must have room


def describe_wait(line: str, state: LockState | None) -> str:
    """The holder, behind a line about the wait."""
    if state is not None and state.paused is not None:
        return f"{line}: {state.paused}; {len(state.waiting)} in the queue"
    if state is None or not state.holdings:
        return line
    first = state.holdings[0]
    others = f" and {len(state.holdings) - 1} more" if len(state.holdings) > 1 else ""
    reason = f" ({first.holder.reason})" if first.holder.reason else ""
    queue = f"; {len(state.waiting)} in the queue"
    return f"{line}: held by {who(first.holder)}{others}{reason} for {show_duration(first.held_for)}{queue}"


def describe_outage(line: str, store: str, left: float, outage: StoreUnreachable) -> str:
    """The outage, and how long the store is still tried, behind a line about the wait."""
    if outage.back_in is not None:
        soon = show_duration(max(0.0, outage.back_in - (outage.remaining - left)))
        return f"{line}: {store} can grant no lock for another {soon} (leasehold doctor shows why)"
    trying = "trying for ever" if isinf(left) else f"trying for {show_duration(left)} more"
    return f"{line}: cannot reach {store}, {trying}: {outage.error}"


def describe_time(name: str, waited: float, limit: float | None, *, short: bool) -> str:
    """For which lock, how long so far, and until when; `short` for a line that is written over."""
    if short:
        until = "" if limit is None else f" of {show_duration(limit)}"
        return f"waiting for {shorten(repr(name), LONGEST_NAME, middle=True)} ({show_duration(waited)}{until})"
    until = "" if limit is None else f", giving up after {show_duration(limit)}"
    return f"waiting for {name!r} ({show_duration(waited)} so far{until})"


class WaitLine:
    """Prints while the main thread waits for locks; a context manager around the wait."""

    def __init__(self, client: Client, names: Sequence[str], console: Console, limit: float | None) -> None:
        self._client = client
        self._names = names
        self._name = names[0]  # the one that is waited for now
        self._console = console
        self._limit = limit
        self._started = time.monotonic()
        self._outage: tuple[float, StoreUnreachable] | None = None  # until when the store is tried
        self._lively = is_lively()
        self._over = threading.Event()
        self._turn = threading.Lock()
        self._width = 0
        self._reminders = _Reminders()
        self._unsubscribe: Callable[[], None] | None = None

    def __enter__(self) -> WaitLine:
        if not self._console.is_quiet:
            self._unsubscribe = self._client.on_event(self._note)
            threading.Thread(target=self._print, name="leasehold wait line", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
        with self._turn:
            self._over.set()
            if self._width:
                self._overwrite("")

    def _note(self, event: Event) -> None:
        """Called from the thread in which the event happens."""
        if event.name not in self._names:
            return
        if isinstance(event, StoreUnreachable):
            self._name, self._outage = event.name, (time.monotonic() + event.remaining, event)
        elif isinstance(event, StoreReached):
            self._outage = None
        elif isinstance(event, WaitBegan):
            self._name = event.name

    def _print(self) -> None:
        pause = SILENT
        while not self._over.wait(pause):
            pause = REFRESH
            state = self._state() if self._outage is None else None
            outage = self._outage  # it may have begun during the look
            line = self._line(outage, state)
            with self._turn:
                if self._over.is_set():
                    return
                if self._lively:
                    self._overwrite(printable(line))
                elif self._is_sure(outage, state) and self._reminders.is_due((self._name, outage is not None)):
                    self._console.note(line)

    def _is_sure(self, outage: object, state: LockState | None) -> bool:
        if outage is not None or (state is not None and (state.holdings or state.paused is not None)):
            return True
        return time.monotonic() - self._started >= UNSURE

    def _line(self, outage: tuple[float, StoreUnreachable] | None, state: LockState | None) -> str:
        now = time.monotonic()
        line = describe_time(self._name, now - self._started, self._limit, short=self._lively)
        if outage is None:
            return describe_wait(line, state)
        until, event = outage
        left = inf if isinf(until) else max(0.0, until - now)
        return describe_outage(line, self._client.store, left, event)

    def _state(self) -> LockState | None:
        try:
            return self._client.inspect(self._name)
        except Exception:  # noqa: BLE001 - the wait itself reports errors; this line is a courtesy
            return None

    def _overwrite(self, line: str) -> None:
        width = terminal_width(sys.stderr)
        if width is not None:
            line = shorten(line, width - 1)  # a line that wrapped could not be written over
        with suppress(OSError, ValueError):
            sys.stderr.write("\r" + line.ljust(self._width) + ("" if line else "\r"))
            sys.stderr.flush()
        self._width = len(line)


class _Reminders:
    """When a line is due: at once for another reason, and for the same one after pauses that grow."""

    def __init__(self) -> None:
        self._reason: object = None
        self._pause = REMINDER
        self._next = 0.0

    def is_due(self, reason: object) -> bool:
        """True once per pause; the caller that gets True must print."""
        now = time.monotonic()
        if reason != self._reason:
            self._reason, self._pause = reason, REMINDER
        elif now < self._next:
            return False
        else:
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        self._next = now + self._pause
        return True
