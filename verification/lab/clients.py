"""The client processes of a cell: started, stopped, killed, replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from verification.lab import watcher
from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.lab.history import Pen
    from verification.lab.workloads import Order

__all__ = ["Clients"]

ROOT = Path(__file__).resolve().parents[2]
END_LIMIT = 25.0  # longer than a client may wait for a file that another keeps
LOOK = 0.05


class Clients:
    """By their number; a client that was killed is replaced by one with a new number."""

    def __init__(self, pen: Pen, log: Path, make_order: Callable[[int], Order], environment: dict[str, str]) -> None:
        self._pen = pen
        self._log = log
        self._make_order = make_order
        self._environment = {**os.environ, **environment, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self._next = 1
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self._threads: dict[int, int] = {}
        self.group_of: Callable[[int], int | None] = lambda _: None

    def add(self) -> int:
        """Start one more; its number."""
        number = self._next
        order = replace(self._make_order(number), number=number)
        self._next += order.threads
        group = self.group_of(number)
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "verification.lab.client", order.to_json()],
                env=self._environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[order.pipe],
                group=group,
                process_group=0,
            )
        watcher.watch_process(process.pid, signal.SIGKILL)
        self.running[number] = process
        self._threads[number] = order.threads
        return number

    def numbers(self, process: int) -> range:
        """The clients that are threads of a process."""
        return range(process, process + self._threads[process])

    def process_of(self, client: int) -> int:
        """The process in which a client runs."""
        return max(number for number in self._threads if number <= client)

    def signal(self, number: int, which: signal.Signals) -> None:
        """Send a signal to one that runs."""
        process = self.running.get(number)
        if process is not None and process.poll() is None:
            process.send_signal(which)

    def wake_all(self) -> None:
        """Whoever is stopped goes on."""
        for number in self.running:
            self.signal(number, signal.SIGCONT)

    def kill(self, number: int) -> None:
        """At once; nothing of it is awaited but its end.

        Its end is noted before the signal as well: what the system frees with a process may be granted to another one
        before the process is seen to have ended. What it was granted between the two ends with the second.
        """
        process = self.running.pop(number)
        self._note_end(number)
        process.kill()
        process.wait()
        self._ended(number, process)

    def end(self) -> int:
        """Let all end in good order; how many did not, and were killed."""
        for number in self.running:
            self.signal(number, signal.SIGTERM)
        deadline = time.monotonic() + END_LIMIT
        while any(process.poll() is None for process in self.running.values()) and time.monotonic() < deadline:
            self.wake_all()  # again and again: one may be about to stop itself
            time.sleep(LOOK)
        stuck = 0
        for number, process in list(self.running.items()):
            if process.poll() is None:
                stuck += 1
                process.kill()
                process.wait()
            self._ended(number, process)
        self.running.clear()
        return stuck

    def _ended(self, number: int, process: subprocess.Popen[bytes]) -> None:
        watcher.forget_process(process.pid, signal.SIGKILL)
        self._note_end(number)

    def _note_end(self, number: int) -> None:
        for client in self.numbers(number):
            self._pen.note(Kind.ENDED, process=client)

    def failed(self) -> list[int]:
        """Those that have ended with an error by themselves."""
        return [number for number, process in self.running.items() if process.poll() not in (None, 0)]
