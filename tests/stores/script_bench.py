"""Scripts of a Redis store, called one by one over the simulated database; time passes on command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.redis.database import Database
from verification.simulation.redis.lua import ScriptEngine

if TYPE_CHECKING:
    from leasehold._backends.redis.scripts import Script

__all__ = ["DAY", "START", "ScriptBench"]

START = 1_800_000_000_000  # milliseconds: a whole minute
DAY = 86_400_000


class ScriptBench:
    """One server, as its scripts see it."""

    def __init__(self) -> None:
        self.us = 123
        self.ms = START
        self.run_id = "abc"
        self.uptime = 0
        self.replication = ""
        self.receivers = 1
        self.published: list[tuple[str, str, list[str]]] = []
        self.database = Database()
        self._engine = ScriptEngine(self._execute)
        self.pass_time(0)

    @property
    def now_us(self) -> int:
        """What its clock shows."""
        return self.ms * 1000 + self.us

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass."""
        self.ms += milliseconds
        self.database.now_ms = self.ms

    def _execute(self, words: list[bytes]) -> Any:
        match words[0].upper():
            case b"TIME":
                return [b"%d" % (self.ms // 1000), b"%d" % (self.now_us % 1_000_000)]
            case b"INFO":
                if words[1:] == [b"replication"]:
                    return self.replication.encode()
                return f"# Server\r\nrun_id:{self.run_id}\r\nuptime_in_seconds:{self.uptime}\r\n".encode()
            case b"PUBLISH" | b"SPUBLISH":
                self.published.append((words[0].decode(), words[1].decode(), words[2].decode().split("\n")))
                return self.receivers
        return self.database.run(words)

    def call(self, script: Script, keys: list[str], *arguments: object) -> Any:
        """The reply."""
        words = [str(argument).encode() for argument in arguments]
        return self._engine.run(script.text, [key.encode() for key in keys], words)

    def do(self, *words: object) -> Any:
        """One command."""
        return self.database.run([str(word).encode() for word in words])

    def fields(self, key: str) -> dict[str, str]:
        """A hash."""
        found = self.do("HGETALL", key)
        return {name.decode(): value.decode() for name, value in zip(found[::2], found[1::2], strict=True)}

    def left(self, key: str) -> int:
        """For how many milliseconds a key stays; -1: for ever, -2: it is not there."""
        return int(self.do("PTTL", key))
