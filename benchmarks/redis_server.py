"""A redis-server of our own that can be pinned to cores, and the barest clients there are for it."""

from __future__ import annotations

import os
import shutil
import socket
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verification.lab import redis as lab

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BareClient", "RedisServer", "ScriptClient", "ScriptPipeline", "why_missing"]

OWNER = "a" * 32
TTL_MS = "30000"

# What every lock with a fence has to do, and nothing else: take the key if it is free and mint the next fence; give the
# key back if it is still ours.
_ACQUIRE = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local fence = math.max(tonumber(redis.call('GET', KEYS[2]) or '0') + 1, now)
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', 86400000)
return fence
"""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


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

    def pinned(self, run: Callable[[int], None], client_on: set[int], server_on: set[int]) -> Callable[[int], None]:
        """The same work, with this process and the server on these cores only."""

        def run_there(count: int) -> None:
            before = os.sched_getaffinity(0)
            self.pin(server_on)
            os.sched_setaffinity(0, client_on)
            try:
                run(count)
            finally:
                os.sched_setaffinity(0, before)
                self.pin(before)

        return run_there

    def commands(self) -> int:
        """How many commands it has done so far, those inside scripts not counted, `INFO` itself neither."""
        text: str = self.ask("INFO", "commandstats").decode()
        calls = dict(line.removeprefix("cmdstat_").split(":", 1) for line in text.splitlines() if ":calls=" in line)
        return sum(int(calls[name].split(",")[0].partition("=")[2]) for name in calls if name in _SENT_BY_CLIENTS)

    def close(self) -> None:
        """End it."""
        self.remove()


# A script's own commands are counted under their own names, so only those count that a lock library sends by itself.
_SENT_BY_CLIENTS = frozenset({"blpop", "del", "eval", "evalsha", "publish", "set", "setnx", "subscribe"})


class BareClient:
    """A socket and a parser: SET NX and DEL, one round trip each, nothing around them."""

    def __init__(self, port: int) -> None:
        self.hiredis: Any = import_module("hiredis")
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self.hiredis.Reader()
        self._take, self._give = self.requests(self.hiredis.pack_command)

    def requests(self, pack: Callable[[tuple[str, ...]], bytes]) -> tuple[bytes, bytes]:
        """What to send."""
        return pack(("SET", "bench", OWNER, "NX", "PX", TTL_MS)), pack(("DEL", "bench"))

    def pairs(self, count: int) -> None:
        """Take and give so many times."""
        for _ in range(count):
            if not self.ask(self._take) or self.ask(self._give) != 1:
                raise RuntimeError("redis-server refused a bare command; is another client using its key?")

    def ask(self, request: bytes) -> Any:
        """One round trip."""
        self._socket.sendall(request)
        while (answer := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(4096))
        return answer

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class ScriptClient(BareClient):
    """The floor of a lock with a fence: the same with a script each, of which the first mints the fence."""

    def requests(self, pack: Callable[[tuple[str, ...]], bytes]) -> tuple[bytes, bytes]:
        take, give = (self.ask(pack(("SCRIPT", "LOAD", text))).decode() for text in (_ACQUIRE, _RELEASE))
        keys = ("{bench}", "{bench}:fence")
        return pack(("EVALSHA", take, "2", *keys, OWNER, TTL_MS)), pack(("EVALSHA", give, "1", keys[0], OWNER))


class ScriptPipeline(ScriptClient):
    """The same for many names: all acquires in one write, then all releases in one write."""

    def __init__(self, port: int, size: int) -> None:
        self._size = size
        super().__init__(port)

    def requests(self, pack: Callable[[tuple[str, ...]], bytes]) -> tuple[bytes, bytes]:
        take, give = (self.ask(pack(("SCRIPT", "LOAD", text))).decode() for text in (_ACQUIRE, _RELEASE))
        names = [f"{{many-{number}}}" for number in range(self._size)]
        takes = [pack(("EVALSHA", take, "2", name, f"{name}:fence", OWNER, TTL_MS)) for name in names]
        return b"".join(takes), b"".join(pack(("EVALSHA", give, "1", name, OWNER)) for name in names)

    def pairs(self, count: int) -> None:
        """Take and give all names so many times."""
        for _ in range(count):
            if not all(self._ask_all(self._take)) or not all(self._ask_all(self._give)):
                raise RuntimeError("redis-server refused a bare command; is another client using its key?")

    def _ask_all(self, request: bytes) -> list[Any]:
        self._socket.sendall(request)
        answers: list[Any] = []
        while len(answers) < self._size:
            while (answer := self._reader.gets()) is not False:
                answers.append(answer)
            if len(answers) < self._size:
                self._reader.feed(self._socket.recv(65536))
        return answers
