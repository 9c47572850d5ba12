"""A job per slot: every client tries every slot, one of them runs it, and its run is recorded.

A body may run twice, where its client was killed or lost its lease before the run was recorded. It is recorded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import leasehold
from verification.lab.history import Kind

if TYPE_CHECKING:
    from verification.lab.workloads import Client

__all__ = ["run"]

WORK = (0.0, 0.05)
BREATH = 0.05


def run(client: Client) -> None:
    """Slot after slot."""
    slot = 0
    with leasehold.connect(client.order.url) as connection:
        while not client.stop.is_set():
            slot += 1
            try:
                _try(client, connection, slot)
            except leasehold.LeaseholdError as error:
                client.pen.note(Kind.FAILED, detail=f"{type(error).__name__}: {error}")
                client.stop.wait(BREATH)


def _try(client: Client, connection: leasehold.Client, slot: int) -> None:
    client.pen.note(Kind.ACQUIRE, call=slot)
    once = connection.once(f"job-{slot}", every="1h", ttl=client.order.ttl, on_conflict="standby")

    def body() -> None:
        client.pen.note(Kind.RAN, detail=str(slot))
        client.stop.wait(client.random.uniform(*WORK))

    result = once.run(body)
    client.pen.note(Kind.DONE if result.ran else Kind.BUSY, call=slot, detail=str(slot))
