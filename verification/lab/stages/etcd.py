"""Three etcd members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.etcd import EtcdCluster
from verification.lab.stages.base import Address, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["make"]


class EtcdStage(Stage):
    """See the module."""

    name = "etcd"
    ttl = 2.0
    has_clock = False

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self._cluster = EtcdCluster()
        self.servers = self._cluster.members

    def url(self, addresses: Sequence[Address]) -> str:
        return "etcd://" + ",".join(f"{host}:{port}" for host, port in addresses)

    def fail_over(self) -> str:
        leader = self._cluster.leader()
        leader.kill()
        self._cluster.leader([member for member in self._cluster.members if member is not leader])
        return "the leader was killed, another was elected"

    def connections(self) -> int:
        """Leases of clients: each is kept alive on a connection."""
        return self._cluster.members[0].kept_alive()


def make(fault: str, _: Path) -> Stage:
    """Three members."""
    return EtcdStage(fault)
