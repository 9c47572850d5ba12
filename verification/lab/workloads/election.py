"""Candidates that campaign for ever and read, several hundred times a second, whether they lead."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import leasehold
from verification.lab.history import Kind, now

if TYPE_CHECKING:
    from leasehold._blocking.election import Term
    from verification.lab.workloads import Client

__all__ = ["run"]

LOOK = 0.005
SAY = 0.05  # a term is written down so often, and once more when another instant would change the picture
TERM = (0.3, 1.5)  # in ttls, after which a leader resigns
AGAIN = 0.1


def run(client: Client) -> None:
    """Campaign in a thread, read in this one."""
    order = client.order
    while not client.stop.is_set():
        try:
            with leasehold.connect(order.url) as connection:
                _campaign(client, connection)
        except Exception as error:
            client.pen.note(Kind.FAILED, detail=f"{type(error).__name__}: {error}")
            client.stop.wait(AGAIN)


def _campaign(client: Client, connection: leasehold.Client) -> None:
    ttl = client.order.ttl
    election = connection.election("leader", ttl=ttl, renew_deadline=ttl * 2 / 3, retry=ttl / 8)

    def body(term: Term) -> None:
        client.pen.note(Kind.GRANTED, fence=term.fence, until=now(), call=term.fence)
        term.lost.wait(client.random.uniform(*TERM) * ttl)

    def campaign() -> None:
        with suppress(leasehold.LeaseholdError):
            election.run(body)

    campaigning = threading.Thread(target=campaign, daemon=True)
    campaigning.start()
    said = 0.0
    while not client.stop.is_set() and campaigning.is_alive():
        before = now()
        term = election.term if election.is_leader else None
        if term is not None and before - said > SAY:
            said = client.pen.note(Kind.LEADS, t=before, fence=term.fence)
        client.stop.wait(LOOK)
