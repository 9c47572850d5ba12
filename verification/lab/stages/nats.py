"""A NATS server with JetStream; for a failover three of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.nats import NatsCluster, NatsServer
from verification.lab.stages.base import Address, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["make"]


class NatsStage(Stage):
    """See the module."""

    name = "nats"
    ttl = 2.0
    has_clock = False

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self._cluster = NatsCluster() if fault == "failover" else None
        self.servers = self._cluster.members if self._cluster else [NatsServer()]

    def url(self, addresses: Sequence[Address]) -> str:
        hosts = ",".join(f"{host}:{port}" for host, port in addresses)
        return f"nats://{hosts}?replicas={len(self.servers)}"

    def start(self) -> None:
        if self._cluster:
            self._cluster.start()
        else:
            super().start()

    def revive(self) -> None:
        """After the disk was full JetStream answers no change until an operator starts its server again."""
        if self.disks:
            for server in self.servers:
                server.stop()
        super().revive()

    def fail_over(self) -> str:
        assert self._cluster is not None
        self._cluster.leader().kill()
        self._cluster.leader()
        return "the leader was killed, another was elected"


def make(fault: str, _: Path) -> Stage:
    """One server, or three."""
    return NatsStage(fault)
