"""A Redis Cluster of three masters, with a replica each if wanted; slots can be moved while it is used."""

from __future__ import annotations

import re
from binascii import crc_hqx
from contextlib import ExitStack
from typing import TYPE_CHECKING

from verification.lab.process import free_port, wait_until
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ClusterNode", "RedisCluster"]

SLOTS = 16384
MASTERS = 3


class ClusterNode(RedisServer):
    """One node. Its bus has a port of its own, because the usual distance of 10000 may leave the range."""

    def __init__(self, *, program: str | None = None, settings: Sequence[str] = ()) -> None:
        self.bus = free_port()
        lines = ["cluster-enabled yes", "cluster-node-timeout 2000", f"cluster-port {self.bus}", *settings]
        super().__init__("cluster", program=program, settings=lines)

    @property
    def id(self) -> str:
        """What the cluster calls it."""
        text: bytes = self.ask("CLUSTER", "MYID")
        return text.decode()


class RedisCluster:
    """Three masters with a third of the slots each; use it as a context manager.

    `replicas`: a replica for each. `settings`: further lines of every node's configuration.
    """

    def __init__(self, *, program: str | None = None, replicas: bool = False, settings: Sequence[str] = ()) -> None:
        count = 2 * MASTERS if replicas else MASTERS
        self.nodes = [ClusterNode(program=program, settings=settings) for _ in range(count)]
        self._running = ExitStack()

    @property
    def masters(self) -> list[ClusterNode]:
        """Those that had slots at the start."""
        return self.nodes[:MASTERS]

    @property
    def replicas(self) -> list[ClusterNode]:
        """Those that followed a master at the start, in the same order."""
        return self.nodes[MASTERS:]

    @property
    def url(self) -> str:
        """The URL that names all nodes."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}"

    def start(self) -> None:
        """Start the nodes, join them and wait until each of them serves."""
        for number, node in enumerate(self.nodes):
            self._running.callback(node.remove)
            node.start()
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        edges = [SLOTS * number // MASTERS for number in range(MASTERS + 1)]
        for number, master in enumerate(self.masters):
            master.ask("CLUSTER", "ADDSLOTSRANGE", edges[number], edges[number + 1] - 1)
        first, *others = self.nodes
        for node in others:
            first.ask("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus)
        wait_until(lambda: all(self._knows_all(node) for node in self.nodes), "the nodes do not know each other")
        for master, replica in zip(self.masters, self.replicas, strict=False):
            replica.ask("CLUSTER", "REPLICATE", master.id)
        wait_until(lambda: all(self._serves(node) for node in self.nodes), "the cluster does not serve")

    def _knows_all(self, node: RedisServer) -> bool:
        return _cluster_info(node)["cluster_known_nodes"] == str(len(self.nodes))

    def _serves(self, node: RedisServer) -> bool:
        if _cluster_info(node)["cluster_state"] != "ok":
            return False
        facts = node.info("replication")
        return facts["role"] == "master" or facts["master_link_status"] == "up"

    # --- slots

    def slot_of(self, key: str | bytes) -> int:
        """The slot of a key: of what is in its first pair of braces, if there is anything."""
        text = key.encode() if isinstance(key, str) else key
        tag = re.search(rb"\{([^}]+)\}", text)
        return crc_hqx(tag[1] if tag else text, 0) % SLOTS

    def owner_of(self, slot: int) -> ClusterNode:
        """The node that has a slot now, in the eyes of the first node that runs."""
        witness = next(node for node in self.nodes if node.is_running)
        for first, last, (_, port, *_), *_ in witness.ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise LookupError(f"no node has slot {slot}")

    def begin_move(self, slot: int) -> ClusterNode:
        """Open a slot for its move to another master, which is returned: keys that are not there yet answer ASK."""
        source = self.owner_of(slot)
        target = next(node for node in self.masters if node is not source and node.is_running)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        return target

    def finish_move(self, slot: int, target: ClusterNode) -> None:
        """Take the keys along and announce it to all nodes: the old owner answers MOVED from now on."""
        source = self.owner_of(slot)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        name = target.id
        for node in (target, source, *self.masters):
            if node.is_running:
                node.ask("CLUSTER", "SETSLOT", slot, "NODE", name)

    def move(self, slot: int) -> ClusterNode:
        """Move a slot with its keys to another master."""
        target = self.begin_move(slot)
        self.finish_move(slot, target)
        return target

    # --- life

    def flush(self) -> None:
        """Remove everything from every master."""
        for node in self.nodes:
            if node.is_role("master"):
                node.flush()

    def stop(self) -> None:
        """End all."""
        self._running.close()

    def __enter__(self) -> RedisCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _cluster_info(node: RedisServer) -> dict[str, str]:
    text: str = node.ask("CLUSTER", "INFO").decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
