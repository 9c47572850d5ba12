"""The tables of PostgreSQL behind the back of the store, and a crowd at one name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._record import replace
from leasehold._runtimes.threads import ThreadRuntime
from leasehold.values import Claim, Grant, Holder, Mode

if TYPE_CHECKING:
    import psycopg

__all__ = ["KEY", "RUNTIME", "Tables", "claim", "crowd"]

KEY = "leasehold:job"
RUNTIME = ThreadRuntime()


def claim(**changes: Any) -> Claim:
    return replace(
        Claim(KEY, RUNTIME.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("db-3", 7, "nightly", "the report")), **changes
    )


class Tables:
    """The tables, looked at and changed behind the back of the store; instants are seconds from now."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode(), values).fetchall()

    def change(self, what: str, which: str = "true", table: str = "claim") -> None:
        self.connection.execute(f"UPDATE leasehold.{table} SET {what} WHERE {which}".encode())

    def in_seconds(self, column: str, which: str = "true", table: str = "claim") -> float:
        ((left,),) = self.ask(
            f"SELECT date_part('epoch', {column} - clock_timestamp()) FROM leasehold.{table} WHERE {which}"
        )
        return float(left)

    def dump(self) -> list[tuple[Any, ...]]:
        return [
            *self.ask("SELECT c::text FROM leasehold.claim AS c ORDER BY number"),
            *self.ask("SELECT l::text FROM leasehold.lock AS l ORDER BY key"),
        ]

    def bells(self) -> list[Any]:
        return [bell for (bell,) in self.ask("SELECT bell FROM leasehold.claim WHERE state = 3 ORDER BY number")]


async def crowd(backend: Any, waiting: int = 1, **changes: Any) -> tuple[Grant, list[Any]]:
    held = await backend.try_acquire(claim())
    return held, [await backend.join(claim(**changes)) for _ in range(waiting)]
