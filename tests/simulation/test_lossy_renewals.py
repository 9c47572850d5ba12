"""Renewals on a network that loses packets: enough tries per ttl, none too many for a store that is only slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.memory import MemoryStore
from leasehold._face.client import AsyncClient
from verification.simulation.network import Link, NetworkStore
from verification.simulation.runtime import SimRuntime
from verification.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

TTL, MINUTE, SEEDS = 5.0, 60.0, 40


class Census:
    """Counts requests; judges nothing."""

    def __init__(self) -> None:
        self.renewals = 0

    def sent(self, process: object, verb: str, subject: object) -> None:
        self.renewals += verb == "renew"

    def applied(self, *_: object) -> None:
        pass

    def failed(self, *_: object) -> None:
        pass


def holds_for_a_minute(seed: int, disturb: Callable[[Link], None]) -> tuple[bool, int]:
    """Whether a lease of five seconds survives a minute on such a network, and how many renewals were sent."""
    world, census = World(seed), Census()
    runtime = SimRuntime(world.process("holder"))
    link = Link(runtime.process, timeout=2.0)
    store = NetworkStore(MemoryStore(clock=lambda: world.now), link, census, queueing=True)

    async def hold() -> bool:
        client = AsyncClient(store, runtime, ttl=TTL)
        lease: Any = await client.lock("x").acquire()
        disturb(link)
        await runtime.sleep(MINUTE)
        held = lease.loss is None
        link.weather.calm()
        await lease.release()
        await client.close()
        return held

    try:
        return world.run(hold(), runtime.process), census.renewals
    finally:
        world.end()


def lossy(link: Link) -> None:
    link.weather.request_loss = 0.3
    link.weather.reply_loss = 0.7 * 0.3


def slow(link: Link) -> None:
    link.weather.slow = 200.0  # a packet takes up to 0.8 s, so an answer up to 1.7 s


def survivors(disturb: Callable[[Link], None]) -> tuple[int, int]:
    outcomes = [holds_for_a_minute(seed, disturb) for seed in range(SEEDS)]
    return sum(held for held, _ in outcomes), sum(sent for _, sent in outcomes)


def test_leases_survive_a_network_that_loses_a_third_of_all_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    often, _ = survivors(lossy)
    monkeypatch.setattr("leasehold._core.keeper.hedge_after", lambda ttl, usual: ttl / 3)
    seldom, _ = survivors(lossy)
    assert often >= 0.9 * SEEDS
    assert seldom <= 0.5 * often


def test_a_network_that_works_sees_three_renewals_per_ttl_and_no_more() -> None:
    held, sent = survivors(lambda link: None)
    assert held == SEEDS
    assert sent <= SEEDS * 3.2 * MINUTE / TTL


def test_a_slow_store_keeps_its_leases_and_is_asked_little_more_often() -> None:
    held, sent = survivors(slow)
    assert held >= 0.95 * SEEDS
    assert sent <= SEEDS * 1.4 * 3.2 * MINUTE / TTL
