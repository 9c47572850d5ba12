"""The program on a terminal that is asked something and answers: a pseudo-terminal, and keys."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.processes.command_line import LIMIT, PYTHON, SOURCE

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Asked"]

# a new session has no terminal until it asks for one
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Asked:
    """`leasehold WORDS` on a terminal of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._terminal, inside = pty.openpty()
        self.process = subprocess.Popen(
            [PYTHON, "-I", "-S", "-c", TAKE_TERMINAL, PYTHON, "-m", "leasehold", *words],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80"},
        )
        os.close(inside)
        self._seen = ""

    def expect(self, pattern: str) -> None:
        """Read until it is there; what came before is forgotten."""
        while (found := re.search(pattern, self._seen, re.DOTALL)) is None:
            readable, _, _ = select.select([self._terminal], [], [], LIMIT)
            assert readable, f"waited in vain for {pattern!r} after {self._seen!r}"
            self._seen += os.read(self._terminal, 4096).decode()
        self._seen = self._seen[found.end() :]

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def press_until_it_ends(self, key: str) -> None:
        """Press a key as a person does: again, if it came in the moment between the question and the reading."""
        end = time.monotonic() + LIMIT
        while self.process.poll() is None and time.monotonic() < end:
            self.type(key)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it printed to the end."""
        with suppress(OSError):  # the other side of the terminal is closed
            while more := os.read(self._terminal, 4096).decode():
                self._seen += more
        return self.process.wait(LIMIT), self._seen

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._terminal)
