"""The line that says whom we wait for: silent for a second, then once; on a terminal it is kept up to date."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from leasehold.cli.durations import spoken
from leasehold.cli.output import is_lively, printable, who

if TYPE_CHECKING:
    from leasehold.blocking import Client
    from leasehold.cli.output import Talk
    from leasehold.values import LockState

__all__ = ["WaitLine", "describe_wait"]

SILENT = 1.0
REFRESH = 1.0


def describe_wait(name: str, state: LockState | None) -> str:
    """Whom we wait for, in one line."""
    line = f"waiting for {name!r}"
    if state is None or not state.holdings:
        return line
    first = state.holdings[0]
    others = f" and {len(state.holdings) - 1} more" if len(state.holdings) > 1 else ""
    reason = f" ({first.holder.reason})" if first.holder.reason else ""
    queue = f", queue {len(state.waiting)}"
    return f"{line}, held by {who(first.holder)}{others}{reason} since {spoken(first.held_for)}{queue}"


class WaitLine:
    """Talks while the main thread waits for the lock; use it as a context manager around the wait."""

    def __init__(self, client: Client, name: str, talk: Talk) -> None:
        self._client = client
        self._name = name
        self._talk = talk
        self._lively = is_lively()
        self._over = threading.Event()
        self._turn = threading.Lock()
        self._width = 0

    def __enter__(self) -> WaitLine:
        if not self._talk.is_quiet:
            threading.Thread(target=self._speak, name="leasehold wait line", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._turn:
            self._over.set()
            if self._width:
                self._overwrite("")

    def _speak(self) -> None:
        pause = SILENT
        while not self._over.wait(pause):
            pause = REFRESH
            line = describe_wait(self._name, self._state())
            with self._turn:
                if self._over.is_set():
                    return
                if not self._lively:
                    self._talk.note(line)
                    return
                self._overwrite(printable(f"leasehold: {line}"))

    def _state(self) -> LockState | None:
        try:
            return self._client.inspect(self._name)
        except Exception:  # noqa: BLE001 - the wait itself reports trouble; this line is a courtesy
            return None

    def _overwrite(self, line: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write("\r" + line.ljust(self._width) + ("" if line else "\r"))
            sys.stderr.flush()
        self._width = len(line)
