"""One Redis server. It keeps nothing, except where a kill is to be survived: then every write is on disk first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.redis import RedisServer
from verification.lab.stages.base import Address, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["DURABLE", "RedisStage", "count_clients", "make"]

DURABLE = ("appendonly yes", "appendfsync always")


class RedisStage(Stage):
    """See the module."""

    name = "redis"
    disk_size = 8

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.server = RedisServer(settings=DURABLE if fault in ("kill", "disk full") else ())
        self.servers = [self.server]

    def url(self, addresses: Sequence[Address]) -> str:
        host, port = addresses[0]
        return f"redis://{host}:{port}/0"

    def restart_empty(self) -> str:
        self.server.kill()
        self.server.start()
        return "the server was killed and came back empty"

    def connections(self) -> int:
        return count_clients([self.server])


def count_clients(servers: Sequence[RedisServer]) -> int:
    """Connections of clients; replicas and Sentinels have theirs too."""
    everyone = [client for server in servers for client in server.clients()]
    return sum(
        not ({"S", "M"} & set(client["flags"])) and not client["name"].startswith("sentinel") for client in everyone
    )


def make(fault: str, _: Path) -> Stage:
    """One server."""
    return RedisStage(fault)
