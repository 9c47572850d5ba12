"""The client processes of the lab."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from verification.lab import watcher
from verification.lab.clients import Clients
from verification.lab.history import Kind, Pen, now, read_history

if TYPE_CHECKING:
    from pathlib import Path


class Sleeper(subprocess.Popen[bytes]):
    """A process that knows when it was killed."""

    killed_at = 0.0

    def kill(self) -> None:
        self.killed_at = now()
        super().kill()


def test_a_client_has_ended_before_it_is_killed(tmp_path: Path) -> None:
    """What the system frees with it may be granted before its end is seen: that is not two holders."""
    history = tmp_path / "history"
    unused: Any = None
    with history.open("wb") as file:
        clients = Clients(Pen(file.fileno(), 0), tmp_path / "log", unused, {})
        process = Sleeper([sys.executable, "-c", "import time; time.sleep(600)"])
        watcher.watch_process(process.pid, signal.SIGKILL)
        clients.running[1], clients._threads[1] = process, 1
        clients.kill(1)
    before, after = read_history(history)
    assert (before.kind, before.process) == (after.kind, after.process) == (Kind.ENDED, 1)
    assert before.t <= process.killed_at <= after.t
