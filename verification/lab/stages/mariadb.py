"""A MariaDB server; for a failover with a replica, behind an address that moves to what is promoted."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from verification.lab.mariadb import REPLICATED, MariadbServer, mariadb_url
from verification.lab.proxy import FaultProxy
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
        self._numbers = count(1)
        self._primary = self._server()
        self._replica: MariadbServer | None = None
        self._address: FaultProxy | None = None
        self.servers = [self._primary]

    def _server(self) -> MariadbServer:
        if self.fault != "failover":
            return MariadbServer()
        return MariadbServer({**REPLICATED, "server-id": str(next(self._numbers))})

    @property
    def addresses(self) -> list[Address]:
        return [self._address.address if self._address else ("127.0.0.1", self._primary.port)]

    def url(self, addresses: Sequence[Address]) -> str:
        return mariadb_url(addresses[0][1], DATABASE)

    def start(self) -> None:
        super().start()
        self._primary.make_database(DATABASE)
        if self.fault == "failover":
            self._address = FaultProxy(("127.0.0.1", self._primary.port))
            self._address.start()
            self._follow()

    def _follow(self) -> None:
        """A new replica of the present primary."""
        self._replica = self._server()
        self.servers = [self._primary, self._replica]
        self._replica.start()
        self._replica.follow(self._primary)

    def fail_over(self) -> str:
        assert self._replica is not None
        assert self._address is not None
        self._primary.wait_caught_up(self._replica)
        old, self._primary = self._primary, self._replica
        old.kill()
        self._primary.promote()
        self._address.aim(("127.0.0.1", self._primary.port))
        old.remove()
        self._follow()
        return "the primary was killed, the replica promoted"

    def remove(self) -> None:
        super().remove()
        if self._address is not None:
            self._address.stop()

    def connections(self) -> int:
        question = f"SELECT count(*) FROM information_schema.processlist WHERE db = '{DATABASE}'"
        ((found,),) = self._primary.run(question)
        return int(str(found))


def make(fault: str, _: Path) -> Stage:
    """One server, or two."""
    return MariadbStage(fault)
