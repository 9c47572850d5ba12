"""Several independent servers for Redlock, in the state of nodes that have been running for long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._backends.redlock.calls import MARKER
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RedlockNodes", "settle"]


def settle(server: RedisServer, max_ttl: float, nodes: int = 5) -> None:
    """Write the marker that this node would have if it had been used for years."""
    terms = f"{round(max_ttl * 1000)}/{nodes}"
    server.ask("DEL", MARKER)
    server.ask("HSET", MARKER, "r", server.info("server")["run_id"], "s", "1000", "x", terms)


class RedlockNodes:
    """Some nodes; `answer_timeout` goes into the URL, and every further keyword is a server's."""

    def __init__(
        self, number: int = 5, *, max_ttl: float = 30.0, answer_timeout: float = 0.05, **settings: Any
    ) -> None:
        self.max_ttl = max_ttl
        self._options = {"max_ttl": max_ttl, "answer_timeout": answer_timeout}
        self.servers = [RedisServer(f"redlock-{place}", **settings) for place in range(number)]

    def start(self) -> None:
        """Start all, and let them have been running for long."""
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()
            settle(server, self.max_ttl, len(self.servers))

    def settle(self) -> None:
        """Let all nodes have been running for long."""
        for server in self.servers:
            settle(server, self.max_ttl, len(self.servers))

    def url(self, addresses: Sequence[tuple[str, int]] | None = None, **options: object) -> str:
        """The URL of the store; some nodes may be reached through a proxy."""
        places = addresses or [server.address for server in self.servers]
        hosts = ",".join(f"{host}:{port}" for host, port in places)
        query = "&".join(f"{name}={value}" for name, value in {**self._options, **options}.items())
        return f"redlock://{hosts}?{query}"

    def remove(self) -> None:
        """End all."""
        for server in self.servers:
            server.remove()

    def __enter__(self) -> RedlockNodes:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
