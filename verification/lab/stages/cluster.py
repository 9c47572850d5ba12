"""A Redis Cluster: three masters with a replica each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.process import wait_until
from verification.lab.redis_cluster import ClusterNode, RedisCluster
from verification.lab.stages.base import Address, Stage
from verification.lab.stages.redis import DURABLE, count_clients

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from verification.lab.process import ServerProcess

__all__ = ["make"]


class ClusterStage(Stage):
    """See the module."""

    name = "cluster"
    discovers = True

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self._cluster = RedisCluster(replicas=True, settings=DURABLE if fault == "kill" else ())
        self.servers = self._cluster.nodes
        self._slot = -1

    def url(self, addresses: Sequence[Address]) -> str:
        del addresses  # every node tells all
        return self._cluster.url

    def start(self) -> None:
        self.make_fit()
        self._cluster.start()

    def remove(self) -> None:
        self._cluster.stop()

    def _owner(self) -> ClusterNode:
        """The master that has the lock's slot."""
        if self._slot < 0:
            keys = [node.ask("RANDOMKEY") for node in self._cluster.masters]
            self._slot = self._cluster.slot_of(next(key for key in keys if key))
        return self._cluster.owner_of(self._slot)

    def victims(self) -> list[ServerProcess]:
        owner = self._owner()
        return [owner] if owner.is_running else []

    def fail_over(self) -> str:
        owner = self._owner()
        wait_until(self._is_whole, "the nodes do not serve")
        owner.kill()
        wait_until(lambda: self._owner() is not owner, "no replica was promoted")
        return "a master was killed, its replica promoted"

    def _is_whole(self) -> bool:
        return all(self._cluster._serves(node) for node in self._cluster.nodes)

    def restart_empty(self) -> str:
        owner = self._owner()
        owner.kill()
        owner.start()
        return "a master was killed and came back empty"

    def connections(self) -> int:
        return count_clients(self._cluster.nodes)


def make(fault: str, _: Path) -> Stage:
    """Six nodes."""
    return ClusterStage(fault)
