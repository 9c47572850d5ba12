"""The line about the wait for the lock: after a silent second it is printed, and on a terminal kept up to date.

Elsewhere it is printed once, and again only when the reason changes: the lock is busy, or the store cannot be reached.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from math import inf, isinf
from typing import TYPE_CHECKING

from leasehold.cli.durations import show_duration
from leasehold.cli.output import is_lively, printable, who
from leasehold.events import StoreReached, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._blocking import Client
    from leasehold.cli.output import Console
    from leasehold.events import Event
    from leasehold.values import LockState

__all__ = ["WaitLine", "describe_outage", "describe_wait"]

SILENT = 1.0
REFRESH = 1.0
UNSURE = 3.0  # without a holder in sight the store is probably failing, and its own line comes within this time


def describe_wait(name: str, waited: float, limit: float | None, state: LockState | None) -> str:
    """The wait and the holder, in one line."""
    until = "" if limit is None else f", giving up after {show_duration(limit)}"
    line = f"waiting for {name!r} ({show_duration(waited)} so far{until})"
    if state is not None and state.paused is not None:
        return f"{line}: {state.paused}; {len(state.waiting)} in the queue"
    if state is None or not state.holdings:
        return line
    first = state.holdings[0]
    others = f" and {len(state.holdings) - 1} more" if len(state.holdings) > 1 else ""
    reason = f" ({first.holder.reason})" if first.holder.reason else ""
    queue = f"; {len(state.waiting)} in the queue"
    return f"{line}: held by {who(first.holder)}{others}{reason} for {show_duration(first.held_for)}{queue}"


def describe_outage(store: str, left: float, error: str) -> str:
    """The outage, and how long the store is still tried, in one line."""
    trying = "trying for ever" if isinf(left) else f"trying for {show_duration(left)} more"
    return f"cannot reach {store}, {trying}: {error}"


class WaitLine:
    """Prints while the main thread waits for the lock; a context manager around the wait."""

    def __init__(self, client: Client, name: str, console: Console, limit: float | None) -> None:
        self._client = client
        self._name = name
        self._console = console
        self._limit = limit
        self._started = time.monotonic()
        self._outage: tuple[float, str] | None = None  # until when the store is tried, and its error
        self._lively = is_lively()
        self._over = threading.Event()
        self._turn = threading.Lock()
        self._width = 0
        self._printed: bool | None = None  # the last line on a pipe or in a file was about an outage
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
        if event.name != self._name:
            return
        if isinstance(event, StoreUnreachable):
            self._outage = (time.monotonic() + event.remaining, event.error)
        elif isinstance(event, StoreReached):
            self._outage = None

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
                    self._overwrite(printable(f"leasehold: {line}"))
                elif self._printed is not (outage is not None) and self._is_sure(outage, state):
                    self._printed = outage is not None
                    self._console.note(line)

    def _is_sure(self, outage: object, state: LockState | None) -> bool:
        if outage is not None or (state is not None and (state.holdings or state.paused is not None)):
            return True
        return time.monotonic() - self._started >= UNSURE

    def _line(self, outage: tuple[float, str] | None, state: LockState | None) -> str:
        now = time.monotonic()
        if outage is None:
            return describe_wait(self._name, now - self._started, self._limit, state)
        until, error = outage
        return describe_outage(self._client.store, inf if isinf(until) else max(0.0, until - now), error)

    def _state(self) -> LockState | None:
        try:
            return self._client.inspect(self._name)
        except Exception:  # noqa: BLE001 - the wait itself reports errors; this line is a courtesy
            return None

    def _overwrite(self, line: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write("\r" + line.ljust(self._width) + ("" if line else "\r"))
            sys.stderr.flush()
        self._width = len(line)
