"""A simulated Redis server, clients of it, and time that passes on command."""

from __future__ import annotations

from typing import Any, TypeVar

from leasehold._backends.redis.backend import RedisBackend
from leasehold._backends.redis.options import Options
from leasehold.values import Claim, Holder, Mode
from verification.simulation import SimRuntime, World
from verification.simulation.network import Link
from verification.simulation.redis.server import SimRedis
from verification.simulation.redis.store import open_plain
from verification.simulation.redis.wire import SimSubscription

T = TypeVar("T")


class Bench:
    """One world with one server; every client is a process of its own."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.server = SimRedis(self.world)
        self.main = SimRuntime(self.world.process("main"))
        self.links: list[Link] = []
        self._numbers = 0

    def client(self, *, shared: bool = True, rate: float = 1.0, **options: Any) -> RedisBackend:
        """A backend in a process of its own, whose clock has this rate."""
        process = self.world.process(f"p{len(self.links)}", rate=rate)
        link = Link(process, timeout=1.0)
        self.links.append(link)
        return open_plain(self.server, link, SimRuntime(process), Options(**options), shared=shared)

    def claim(self, ttl: float = 10.0, mode: Mode = Mode.EXCLUSIVE, capacity: int = 1, min_hold: float = 0.0) -> Claim:
        """A claim of its own."""
        self._numbers += 1
        return Claim("k", f"owner{self._numbers}", ttl, mode, capacity, min_hold, Holder("host", self._numbers))

    def run(self, coroutine: Any) -> Any:
        """Run it to its end, in the main process."""
        return self.world.run(coroutine, self.main.process)

    def silence_subscriptions(self) -> None:
        """From now on no message arrives on the connections for messages, and nobody is told."""
        for session in self.server.sessions.values():
            if isinstance(session, SimSubscription):
                session._down.is_silent = True
