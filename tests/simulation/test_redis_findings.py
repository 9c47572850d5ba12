"""What the simulation found in the Redis store, each as a small history of its own."""

from __future__ import annotations

import pytest

from leasehold.spi import Place
from leasehold.values import Grant, Mode
from tests.simulation.redis_bench import Bench


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SHARED])
def test_a_clock_that_is_set_back_does_not_keep_a_released_lock(mode: Mode) -> None:
    """It did: a release counted min_hold from a moment that lay in the future then, and kept the lock until it."""
    bench = Bench()
    holder, waiter = bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim(mode=mode))
        assert isinstance(grant, Grant)
        place = await waiter.join(bench.claim())
        assert isinstance(place, Place)
        bench.server.step_clock(-3600)
        assert await holder.release(grant)
        assert isinstance(await waiter.turn(place), Grant)

    bench.run(history())


def test_a_clock_that_is_set_back_does_not_prolong_min_hold() -> None:
    bench = Bench()
    holder, rival = bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim(min_hold=2.0))
        assert isinstance(grant, Grant)
        bench.server.step_clock(-3600)
        assert await holder.release(grant)
        assert not isinstance(await rival.try_acquire(bench.claim()), Grant)
        await bench.main.sleep(2.1)
        assert isinstance(await rival.try_acquire(bench.claim()), Grant)

    bench.run(history())
