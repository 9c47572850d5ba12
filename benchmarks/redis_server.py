"""A redis-server of our own that can be pinned to cores, and the barest client there is for it."""

from __future__ import annotations

import os
import shutil
import socket
from importlib import import_module
from pathlib import Path
from typing import Any

from verification.lab import redis as lab

__all__ = ["BareClient", "RedisServer", "why_missing"]


def why_missing() -> str:
    """Why there can be no such server or client; empty if there can."""
    if shutil.which("redis-server") is None:
        return "no redis-server on the PATH (Debian and Ubuntu: apt install redis-server)"
    try:
        import_module("hiredis")
    except ImportError:
        return "hiredis is not installed"
    return ""


class RedisServer(lab.RedisServer):
    """Starts with the object and ends with `close`. Nothing is kept on disk."""

    def __init__(self) -> None:
        super().__init__("benchmark")
        self.start()

    def pin(self, cores: set[int]) -> None:
        """Let it run on these cores only, with all its threads."""
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)

    def close(self) -> None:
        """End it."""
        self.remove()


class BareClient:
    """A socket and a parser: SET NX and DEL, one round trip each, nothing around them."""

    def __init__(self, port: int) -> None:
        hiredis: Any = import_module("hiredis")
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self._take = hiredis.pack_command(("SET", "bench", "a" * 32, "NX", "PX", "30000"))
        self._give = hiredis.pack_command(("DEL", "bench"))

    def pairs(self, count: int) -> None:
        """Take and give so many times."""
        for _ in range(count):
            if self._ask(self._take) != b"OK" or self._ask(self._give) != 1:
                raise RuntimeError("redis-server did not do what was asked")

    def _ask(self, request: bytes) -> Any:
        self._socket.sendall(request)
        while (answer := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(4096))
        return answer

    def close(self) -> None:
        """Hang up."""
        self._socket.close()
