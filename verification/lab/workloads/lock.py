"""Acquire and release: most holds are short, some are longer than the ttl and need renewals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.workloads.holding import take_turns

if TYPE_CHECKING:
    from verification.lab.adapters import Grant
    from verification.lab.workloads import Client

__all__ = ["run"]

SHORT = (0.0, 0.03)
LONG = (1.1, 1.6)  # in ttls


def run(client: Client) -> None:
    """Hold, and do nothing."""

    def section(grant: Grant, _: int) -> None:
        if client.random.random() < client.order.long_rate:
            end = client.random.uniform(*LONG) * client.order.ttl
            while end > 0 and grant.remaining() > 0 and not client.stop.is_set():
                client.stop.wait(0.02)
                end -= 0.02
        else:
            client.stop.wait(client.random.uniform(*SHORT))

    take_turns(client, section)
