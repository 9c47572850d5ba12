"""Three ZooKeeper servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.stages.base import Address, Stage
from verification.lab.zookeeper import Ensemble

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["make"]


class ZooKeeperStage(Stage):
    """See the module."""

    name = "zookeeper"
    ttl = 2.0

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self._ensemble = Ensemble()
        self.servers = self._ensemble.servers

    def url(self, addresses: Sequence[Address]) -> str:
        return "zk://" + ",".join(f"{host}:{port}" for host, port in addresses)

    def fail_over(self) -> str:
        leader = self._ensemble.leader()
        leader.kill()
        self._ensemble.leader()
        return "the leader was killed, another was elected"

    def connections(self) -> int:
        return sum(server.sessions() for server in self._ensemble.servers)


def make(fault: str, _: Path) -> Stage:
    """An ensemble of three."""
    return ZooKeeperStage(fault)
