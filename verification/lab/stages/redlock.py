"""Five independent Redis nodes. One that was restarted sits out for a while, so that at most two are at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from verification.lab.redlock import RedlockNodes
from verification.lab.stages.base import Address, Stage
from verification.lab.stages.redis import count_clients

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from verification.lab.process import ServerProcess

__all__ = ["make"]

MAX_TTL = 2.0
SITS_OUT = MAX_TTL + 4.0 + 1.0  # twice the bound of the clocks, and a second
AT_ONCE = 2


class RedlockStage(Stage):
    """See the module."""

    name = "redlock"

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self._nodes = RedlockNodes(5, max_ttl=MAX_TTL, answer_timeout=0.3)
        self.servers = self._nodes.servers
        self._restarts: list[float] = []

    def url(self, addresses: Sequence[Address]) -> str:
        return self._nodes.url(list(addresses))

    def start(self) -> None:
        self.make_fit()
        self._nodes.start()

    def victims(self) -> list[ServerProcess]:
        """Any node, or none while a further one would take the majority away."""
        if self.fault == "pause servers":
            return super().victims()
        recent = [when for when in self._restarts if time.monotonic() - when < SITS_OUT]
        return super().victims() if len(recent) < AT_ONCE else []

    def revive(self) -> None:
        if any(not server.is_running for server in self.servers):
            self._restarts.append(time.monotonic())
        super().revive()

    def restart_empty(self) -> str:
        nodes = self.victims()
        if not nodes:
            return "enough nodes sit out"
        node = nodes[len(self._restarts) % len(nodes)]
        node.kill()
        self.revive()
        return "a node was killed and came back empty"

    def connections(self) -> int:
        return count_clients(self._nodes.servers)

    def held(self) -> int:
        """It lists nothing; keys of leases have their ttl."""
        return 0


def make(fault: str, _: Path) -> Stage:
    """Five nodes."""
    return RedlockStage(fault)
