"""A PostgreSQL server; for a failover with a streaming standby, behind an address that moves to what is promoted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.postgres import PostgresServer, postgres_url
from verification.lab.proxy import FaultProxy
from verification.lab.stages.base import Address, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["make"]

DATABASE = "lab"


class PostgresStage(Stage):
    """See the module."""

    name = "postgresql"
    disk_size = 160

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self._primary = PostgresServer()
        self._standby: PostgresServer | None = None
        self._address: FaultProxy | None = None
        self.servers = [self._primary]

    @property
    def addresses(self) -> list[Address]:
        return [self._address.address if self._address else ("127.0.0.1", self._primary.port)]

    def url(self, addresses: Sequence[Address]) -> str:
        return postgres_url(addresses[0][1], DATABASE, "postgres")

    def start(self) -> None:
        super().start()
        self._primary.make_database(DATABASE)
        if self.fault == "failover":
            self._address = FaultProxy(("127.0.0.1", self._primary.port))
            self._address.start()
            self._follow()

    def _follow(self) -> None:
        """A new standby of the present primary."""
        self._standby = self._primary.standby()
        self.servers = [self._primary, self._standby]
        self._standby.start()

    def fail_over(self) -> str:
        assert self._standby is not None
        assert self._address is not None
        self._primary.wait_caught_up(self._standby)
        old, self._primary = self._primary, self._standby
        old.kill()
        self._primary.promote()
        self._address.aim(("127.0.0.1", self._primary.port))
        old.remove()
        self._follow()
        return "the primary was killed, the standby promoted"

    def remove(self) -> None:
        super().remove()
        if self._address is not None:
            self._address.stop()

    def connections(self) -> int:
        question = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{DATABASE}'"
        ((count,),) = self._primary.run(question)
        return int(str(count))


def make(fault: str, _: Path) -> Stage:
    """One server, or two."""
    return PostgresStage(fault)
