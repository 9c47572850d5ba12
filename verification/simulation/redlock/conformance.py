"""A simulated node against a real Redis: the scripts of Redlock, at the same microsecond, drawn at random."""

from __future__ import annotations

import random
from typing import Any

from leasehold._backends.redlock.calls import GONE, LOCK, MARKER
from leasehold._backends.redlock.scripts import script
from verification.lab.redis import RedisServer
from verification.lab.resp import ErrorReply
from verification.simulation.redis.conformance import TOLD, Twin
from verification.simulation.redis.database import CommandError

__all__ = ["Twins", "against", "real_server"]

TERMS = "10/5"  # a node sits out for 10 ms and two windows
SAT_OUT = "30000"
WINDOW_US = 2_000_000


def real_server() -> RedisServer:
    """One of its own."""
    return RedisServer("conformance")


class Twins:
    """A real node, a simulated one, and the numbers that were proposed."""

    def __init__(self, server: RedisServer, seed: int) -> None:
        self._random = random.Random(seed)
        self._real = server.connect()
        self._real.ask("FLUSHALL")
        self._twin = Twin()
        info = self._real.ask("INFO", "server").decode()
        self._twin.run_id = next(line[7:].strip() for line in info.splitlines() if line.startswith("run_id:"))
        self._fences = [1]
        self._digests: dict[str, bytes] = {}
        self._sit_out()

    def _sit_out(self) -> None:
        """Both have known everything for long enough."""
        seconds, micros = self._real.ask("TIME")
        self._twin.at_us = int(seconds) * 1_000_000 + int(micros)
        since = str(self._twin.at_us // 1000 - int(SAT_OUT))
        words = ["HSET", MARKER, "r", self._twin.run_id, "s", since, "x", TERMS]
        self._real.ask(*words)
        self._twin.execute(self._twin.ear, 1, [word.encode() for word in words])

    def one(self) -> tuple[Any, Any, Any]:
        """See `Comparison`."""
        if self._random.random() < 0.01:
            self._real.ask("DEL", MARKER)
            self._twin.execute(self._twin.ear, 1, [b"DEL", MARKER.encode()])
        elif self._random.random() < 0.05:
            self._sit_out()
        name, keys, arguments = self._draw()
        return (name, keys, arguments), self._ask_real(name, keys, arguments), self._ask_twin(name, keys, arguments)

    def close(self) -> None:
        """See `Comparison`."""
        self._real.close()

    def _ask_real(self, name: str, keys: list[str], arguments: list[str]) -> Any:
        digest = self._digests.get(name)
        if digest is None:
            digest = self._digests[name] = self._real.ask("SCRIPT", "LOAD", TOLD % script(name).text)
        try:
            answer = self._real.ask("EVALSHA", digest, len(keys), *keys, *arguments)
        except ErrorReply as error:
            return str(error).split()[0]
        self._twin.at_us = int(answer[0]) * 1_000_000 + int(answer[1])
        reply: Any = answer[3] if len(answer) > 3 else None
        if name == "vote" and reply[0] == 1:
            self._fences = [*self._fences[-8:], reply[2]]
        return reply

    def _ask_twin(self, name: str, keys: list[str], arguments: list[str]) -> Any:
        words = [word.encode() for word in (str(len(keys)), *keys, *arguments)]
        reply = self._twin.execute(self._twin.ear, 1, [b"EVAL", script(name).text, *words])
        return str(reply).split()[0] if isinstance(reply, CommandError) else reply

    def _draw(self) -> tuple[str, list[str], list[str]]:
        draw = self._random
        lock, owner = f"{LOCK}{draw.randrange(3)}", f"o{draw.randrange(4)}"
        gone, ttl = f"{GONE}{owner}", str(draw.choice([5, 20, 80, 2000]))
        fence = str(draw.choice(self._fences))
        near = self._twin.at_us + draw.choice([0, 0, 1000, 3 * WINDOW_US, -3 * WINDOW_US])
        match draw.choice(
            ["vote", "vote", "vote", "renew", "renew", "release", "repair", "withdraw", "break", "other"]
        ):
            case "vote":
                return "vote", [MARKER, lock, gone], [owner, str(near), ttl, '{"host":"h","pid":1}', TERMS]
            case "renew":
                other = f"{LOCK}{draw.randrange(3)}"
                return "renew", [MARKER, lock, other], [TERMS, owner, fence, ttl, owner, fence, ttl]
            case "release":
                return "release", [lock], [owner, fence]
            case "repair":
                return "repair", [lock, gone], [owner, fence, ttl, '{"host":"h","pid":1}']
            case "withdraw":
                return "withdraw", [lock, f"{gone}{draw.randrange(9)}"], [owner, draw.choice(["0", "100000"])]
            case "break":
                return "break", [lock], [fence, "stuck", draw.choice("01")]
        if draw.random() < 0.2:
            return "raise_fence", [lock], [fence]
        if draw.random() < 0.3:
            return "greet", [MARKER], [draw.choice([TERMS, "99/3"])]
        return "look", [f"{LOCK}{number}" for number in range(3)], []


def against(server: RedisServer, seed: int) -> Twins:
    """The comparison with this server."""
    return Twins(server, seed)
