"""Another process that holds or waits, as its parent sees it; it runs `etcd_worker.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKER = Path(__file__).with_name("etcd_worker.py")


class Worker:
    """The other end of `etcd_worker.py`."""

    def __init__(self, url: str, name: str, ttl: float, prefix: Sequence[str] = ()) -> None:
        command = [*prefix, sys.executable, str(WORKER), url, name, str(ttl)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self) -> list[str]:
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> list[str]:
        """Let it release; what it says about that."""
        output, _ = self._process.communicate(timeout=60)
        return output.split()

    def __enter__(self) -> Worker:
        assert self.line() == ["waiting"]
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
