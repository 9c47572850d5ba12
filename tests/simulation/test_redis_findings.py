"""What the simulation found in the Redis store, each as a small history of its own."""

from __future__ import annotations

import pytest

from leasehold.spi import Place
from leasehold.values import Grant, Mode, Refusal
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


def test_a_client_whose_connection_for_messages_died_in_silence_gets_its_turn() -> None:
    """It did not: nobody heard the hand-over, so it was skipped and stood in line again, time after time."""
    bench = Bench()
    rival, waiter = bench.client(), bench.client()

    async def history() -> int:
        grant = await rival.try_acquire(bench.claim())
        answer = await waiter.join(bench.claim(ttl=3.0))
        bench.server.lose_listeners()
        turns = 0
        while isinstance(answer, Place):
            assert isinstance(grant, Grant)
            await rival.release(grant)
            grant = await rival.try_acquire(bench.claim())
            await bench.main.sleep(answer.recheck)
            answer = await waiter.turn(answer)
            turns += 1
            if isinstance(answer, Refusal):
                answer = await waiter.join(bench.claim(ttl=3.0))
        assert isinstance(answer, Grant)
        return turns

    assert bench.run(history()) < 6


def test_a_waiter_keeps_its_place_while_its_client_cannot_hear() -> None:
    """It did not: its client waited for a dead connection to answer before it asked for the place."""
    bench = Bench()
    holder, waiter = bench.client(), bench.client()

    async def ask_all_the_time() -> None:
        for _ in range(100):
            await bench.main.sleep(0.1)
            await holder.try_acquire(bench.claim())

    async def history() -> None:
        assert isinstance(await holder.try_acquire(bench.claim(ttl=60.0)), Grant)
        answer = await waiter.join(bench.claim(ttl=1.0))
        bench.silence_ears()
        waiter._pushes.doubt(waiter._names.keys("k"))
        bench.main.spawn(ask_all_the_time(), "rival")
        for _ in range(20):
            assert isinstance(answer, Place)
            await bench.main.sleep(1 / 3)
            answer = await waiter.turn(answer)

    bench.run(history())
