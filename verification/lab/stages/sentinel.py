"""A Redis primary, a replica and three Sentinels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.sentinel import SentinelGroup
from verification.lab.stages.base import Address, Stage
from verification.lab.stages.redis import DURABLE, count_clients

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from verification.lab.process import ServerProcess

__all__ = ["make"]


class SentinelStage(Stage):
    """See the module."""

    name = "sentinel"
    discovers = True

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self._group = SentinelGroup(settings=DURABLE if fault == "kill" else ())
        self.servers = self._group.servers

    @property
    def addresses(self) -> list[Address]:
        return [("127.0.0.1", server.port) for server in [*self._group.servers, *self._group.sentinels]]

    def url(self, addresses: Sequence[Address]) -> str:
        del addresses  # the Sentinels tell them
        return self._group.url

    def start(self) -> None:
        self.make_fit()
        self._group.start()

    def remove(self) -> None:
        self._group.stop()

    def victims(self) -> list[ServerProcess]:
        """The primary: what happens to the replica alone is felt by no client."""
        return [self._group.primary] if self._group.primary.is_running else []

    def fail_over(self) -> str:
        self._group.wait_settled()
        self._group.fail_over()
        return "the primary was killed, the replica promoted"

    def restart_empty(self) -> str:
        primary = self._group.primary
        primary.kill()
        primary.start()
        return "the primary was killed and came back empty"

    def connections(self) -> int:
        return count_clients(self._group.servers)


def make(fault: str, _: Path) -> Stage:
    """Five processes."""
    return SentinelStage(fault)
