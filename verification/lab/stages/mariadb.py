"""A MariaDB server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.mariadb import MariadbServer, mariadb_url
from verification.lab.stages.base import Address, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["make"]

DATABASE = "lab"


class MariadbStage(Stage):
    """See the module."""

    name = "mariadb"
    disk_size = 300

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self._server = MariadbServer()
        self.servers = [self._server]

    def url(self, addresses: Sequence[Address]) -> str:
        return mariadb_url(addresses[0][1], DATABASE)

    def start(self) -> None:
        super().start()
        self._server.make_database(DATABASE)

    def connections(self) -> int:
        question = f"SELECT count(*) FROM information_schema.processlist WHERE db = '{DATABASE}'"
        ((count,),) = self._server.run(question)
        return int(str(count))


def make(fault: str, _: Path) -> Stage:
    """One server."""
    return MariadbStage(fault)
