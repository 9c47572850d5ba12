"""Read, think, write back, under the lock: one counter behind the guard, one without, in the same section.

Both counters go through the same pauses, so that the unfenced one is the control: if it loses nothing while clients are
paused in the middle, the run has shown nothing. A client never looks whether its lease is lost while it does so: a
process that is paused in the wrong place cannot either.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from leasehold import StaleFence
from leasehold.sql import guard, is_retryable
from verification.lab import counter_databases
from verification.lab.history import Kind
from verification.lab.workloads.holding import take_turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.lab.adapters import Grant
    from verification.lab.counter_databases import CounterDatabase
    from verification.lab.workloads import Client

__all__ = ["make_tables", "run"]

LONG = 1.3  # in ttls
TRIES = 50


def make_tables(url: str) -> None:
    """Two counters at 0; the guard makes its own table."""
    with closing(counter_databases.connect(url)) as database:
        for name in ("fenced", "unfenced"):
            with database.transaction():
                database.run(f"CREATE TABLE {name} (n bigint NOT NULL)")
                database.run(f"INSERT INTO {name} VALUES (0)")


def run(client: Client) -> None:
    """Updates, a few in each turn."""
    with closing(counter_databases.connect(client.order.data)) as database:
        updates = _Updates(client, database)

        def section(grant: Grant, call: int) -> None:
            for _ in range(client.random.randint(1, client.order.in_a_row)):
                if grant.remaining() <= 0 or client.stop.is_set():
                    return
                updates.one(grant, call)

        take_turns(client, section)


class _Updates:
    def __init__(self, client: Client, database: CounterDatabase) -> None:
        self._client = client
        self._database = database
        self._pen = client.pen

    def one(self, grant: Grant, call: int) -> None:
        """One of each kind. The fenced one may be refused; the other is written whatever happened meanwhile."""
        fenced = self._read(grant) if grant.lease is not None else 0
        if fenced is None:
            self._pen.note(Kind.REFUSED, call=call, fence=grant.fence, detail="read")
            return
        unfenced = self._whole(lambda: self._database.number("SELECT n FROM unfenced"))
        self._think(call)
        self._whole(lambda: self._database.run(f"UPDATE unfenced SET n = {unfenced + 1}"))
        self._pen.note(Kind.UNFENCED, call=call, value=unfenced + 1)
        if grant.lease is not None:
            self._write(grant, call, fenced + 1)

    def _read(self, grant: Grant) -> int | None:
        def unit() -> int:
            guard(self._database.driver, grant.lease)
            return self._database.number("SELECT n FROM fenced")

        try:
            return self._whole(unit)
        except StaleFence:
            return None

    def _write(self, grant: Grant, call: int, value: int) -> None:
        def unit() -> int:
            guard(self._database.driver, grant.lease)
            return self._database.run(f"UPDATE fenced SET n = {value}")

        self._pen.note(Kind.WRITING, call=call, fence=grant.fence, value=value)
        try:
            self._whole(unit)
        except StaleFence:
            self._pen.note(Kind.REFUSED, call=call, fence=grant.fence, value=value, detail="write")
        else:
            self._pen.note(Kind.WROTE, call=call, fence=grant.fence, value=value)

    def _whole(self, unit: Callable[[], int]) -> int:
        """In a transaction of its own; what the database asks to run again is run again, from its beginning."""
        for _ in range(TRIES):
            try:
                with self._database.transaction():
                    result = unit()
            except Exception as error:
                self._database.rollback()
                if not is_retryable(error):
                    raise
            else:
                return result
        raise RuntimeError(f"the database refused {TRIES} times")

    def _think(self, call: int) -> None:
        """Between the read and the write: for a moment, for longer than a ttl, or stopped as a whole."""
        chance = self._client.random.random()
        if chance < self._client.order.stop_rate:
            self._client.stop_itself(call)
        elif chance > 1 - self._client.order.long_rate:
            time.sleep(LONG * self._client.order.ttl)
        else:
            time.sleep(self._client.random.uniform(0.0, self._client.order.think))
