"""What the simulation found in the Redis store, each as a small history of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from leasehold._backends.redis.backend import RedisBackend
from leasehold._backends.redis.notifications import HandOver, Waiter
from leasehold._core.validity import believed_until
from leasehold.errors import BackendUnavailable
from leasehold.spi import Place
from leasehold.values import Grant, Mode, Refusal
from tests.simulation.redis_bench import Bench
from verification.simulation import SimRuntime


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
    """It did not: the hand-over had no receiver, so it was skipped and queued again, time after time."""
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


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SHARED])
@pytest.mark.parametrize("refusal", ["NOREPLICAS", "READONLY", "MISCONF", "OOM"])
def test_no_message_announces_a_grant_that_the_server_refuses_to_make(refusal: str, mode: Mode) -> None:
    """One did: a release notified the next waiter, then the server refused its first write: two holders."""
    bench = Bench()
    holder, waiter = bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim(mode=mode))
        place = await waiter.join(bench.claim())
        assert isinstance(grant, Grant)
        assert isinstance(place, Place)
        bench.server.refuses = f"{refusal} not now"
        with suppress(BackendUnavailable):
            await holder.release(grant)
        notified = await bench.main.wait(place.signal, bench.main.now() + 0.5)
        bench.server.refuses = ""
        state = await holder.inspect("k")
        assert state is not None
        (holding,) = state.holdings
        assert (holding.fence != grant.fence) == notified, "the notified waiter has it, and no other"

    bench.run(history())


@pytest.mark.parametrize("refusal", ["NOREPLICAS", "READONLY", "MISCONF", "OOM"])
def test_no_message_announces_a_grant_that_the_call_of_a_third_would_have_made(refusal: str) -> None:
    """One did: once min_hold was over, the next call handed it over, and nothing had to be written before."""
    bench = Bench()
    holder, waiter, third = bench.client(), bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim(min_hold=1.0))
        place = await waiter.join(bench.claim())
        assert isinstance(grant, Grant)
        assert isinstance(place, Place)
        assert await holder.release(grant)
        await bench.main.sleep(1.5)
        bench.server.refuses = f"{refusal} not now"
        with suppress(BackendUnavailable):
            await third.try_acquire(bench.claim())
        notified = await bench.main.wait(place.signal, bench.main.now() + 0.2)
        bench.server.refuses = ""
        state = await holder.inspect("k")
        assert (state is not None and bool(state.holdings)) == notified

    bench.run(history())


def keeps_its_place(bench: Bench, waiter: RedisBackend, then: Callable[[], None]) -> None:
    """Whether a waiter of a ttl of one second has its place for seven, while others look at the queue."""
    holder, follower = bench.client(), bench.client()

    async def stand_behind() -> None:
        """Whoever lost its place would come behind this one."""
        place = await follower.join(bench.claim(ttl=1.0))
        for _ in range(100):
            await bench.main.sleep(0.1)
            assert isinstance(place, Place)
            place = await follower.turn(place)

    async def history() -> None:
        assert isinstance(await holder.try_acquire(bench.claim(ttl=60.0)), Grant)
        answer = await waiter.join(bench.claim(ttl=1.0))
        then()
        bench.main.spawn(stand_behind(), "follower")
        while bench.world.now < 7.0:
            assert isinstance(answer, Place)
            assert answer.ahead == 0
            await bench.main.sleep(answer.recheck)
            answer = await waiter.turn(answer)

    bench.run(history())


def test_a_waiter_keeps_its_place_while_its_subscription_is_dead() -> None:
    """It did not: its client waited for a dead connection to answer before it asked for the place."""
    bench = Bench()
    waiter = bench.client()

    def deafen() -> None:
        bench.silence_subscriptions()
        waiter._listener.verify(waiter._names.keys("k"))

    keeps_its_place(bench, waiter, deafen)


def test_a_waiter_keeps_its_place_while_replicas_lag() -> None:
    """It did not: it waited a second for them every time, although its place lives no longer."""
    bench = Bench()
    bench.server.lag = 100.0
    keeps_its_place(bench, bench.client(acks=1), lambda: None)


def test_a_claim_on_a_server_that_holds_off_has_a_place_in_the_queue() -> None:
    """It had none: it was refused, and asked again at once, thousands of times until the time was over."""
    bench = Bench()
    bench.server.restart_empty()
    first, second = bench.client(strict=5.0), bench.client(strict=5.0)
    claims = [bench.claim(ttl=3.0), bench.claim(ttl=3.0)]

    async def history() -> None:
        places = [await first.join(claims[0]), await second.join(claims[1])]
        assert [place.ahead for place in places if isinstance(place, Place)] == [0, 1]
        assert isinstance(await first.try_acquire(bench.claim(ttl=3.0)), Refusal)
        while isinstance(places[0], Place):
            assert places[0].recheck > 0.1
            await bench.main.sleep(places[0].recheck)
            assert isinstance(places[1], Place)
            places = [await first.turn(places[0]), await second.turn(places[1])]
        assert isinstance(places[0], Grant)
        assert isinstance(places[1], Place)

    bench.run(history())
    assert bench.world.now == pytest.approx(5.0, abs=0.1)


def test_a_late_copy_of_a_first_request_does_not_change_how_a_waiter_is_called() -> None:
    bench = Bench()
    holder, waiter = bench.client(), bench.client()
    claim = bench.claim()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim())
        place = await waiter.join(claim)
        assert isinstance(grant, Grant)
        assert isinstance(place, Place)
        assert isinstance(await waiter.try_acquire(claim), Refusal)
        await holder.release(grant)
        assert await bench.main.wait(place.signal, bench.main.now() + 0.1), "it is called at once"

    bench.run(history())


def test_strict_mode_holds_off_for_a_name_that_the_promoted_replica_does_not_know() -> None:
    """It did not: it went by the age of the replica's process, which proves nothing about when it was promoted."""
    bench = Bench()
    first, second = bench.client(strict=5.0), bench.client(strict=5.0)
    bench.server.lag = 1.0

    async def history() -> None:
        assert isinstance(await first.try_acquire(bench.claim(ttl=3.0)), Grant)
        bench.server.fail_over()
        began = bench.world.now
        while not isinstance(await second.try_acquire(bench.claim(ttl=3.0)), Grant):
            await bench.main.sleep(0.1)
        assert bench.world.now > began + 3.0

    bench.run(history())


def test_strict_mode_holds_off_when_the_first_primary_is_promoted_again() -> None:
    """It did not: the name of its process was the one that it had last seen there."""
    bench = Bench()
    first, second = bench.client(strict=5.0), bench.client(strict=5.0)

    async def granted(client: RedisBackend) -> Grant:
        while not isinstance(answer := await client.try_acquire(bench.claim(ttl=3.0)), Grant):
            await bench.main.sleep(0.1)
        return answer

    async def history() -> None:
        assert await first.release(await granted(first))
        bench.server.fail_over()
        bench.server.lag = 100.0
        await granted(first)
        bench.server.fail_over()
        began = bench.world.now
        await granted(second)
        assert bench.world.now > began + 3.0

    bench.run(history())


def test_a_hand_over_to_a_process_with_a_slow_clock_is_not_believed_for_too_long() -> None:
    """It was: the margin for drift did not cover the time that the waiter had waited, on the server's clock."""
    bench = Bench()
    holder, waiter = bench.client(), bench.client(rate=0.991)
    process = bench.links[1].process

    async def history() -> None:
        first = await holder.try_acquire(bench.claim(ttl=60.0))
        place = await waiter.join(bench.claim(ttl=6.0))
        assert isinstance(first, Grant)
        assert isinstance(place, Place)
        await bench.main.sleep(2.9)
        await holder.release(first)
        made_at = bench.world.now
        await bench.main.wait(place.signal, bench.main.now() + 1)
        grant = await waiter.turn(place)
        assert isinstance(grant, Grant)
        assert grant.since is not None, "it came by message"
        assert process.instant(believed_until(grant.since, grant.ttl)) < made_at + grant.ttl

    bench.run(history())


def test_a_hand_over_after_a_missed_recheck_is_believed_for_its_claim_window_only() -> None:
    """The server hands over to such a waiter for half of its place's life: it may be dead, and the next one waits."""
    bench = Bench()
    holder, waiter = bench.client(), bench.client(rate=0.991)  # a clock just slow enough not to see the miss
    process = bench.links[1].process

    async def history() -> None:
        first = await holder.try_acquire(bench.claim(ttl=60.0))
        place = await waiter.join(bench.claim(ttl=10.0))
        assert isinstance(first, Grant)
        assert isinstance(place, Place)
        await bench.main.sleep(3.0)
        await holder.release(first)
        made_at = bench.world.now
        assert await bench.main.wait(place.signal, bench.main.now() + 1)
        grant = await waiter.turn(place)
        state = await holder.inspect("k")
        assert state is not None
        assert 2.5 < state.holdings[0].expires_in <= 3.0, "the server granted a claim window"
        assert isinstance(grant, Grant)
        assert grant.since is not None, "it came by message"
        assert grant.ttl == 3.0
        assert process.instant(believed_until(grant.since, grant.ttl)) < made_at + 3.1
        (renewed,) = await waiter.renew([grant])
        assert isinstance(renewed, Grant)
        assert (renewed.ttl, renewed.since) == (10.0, None), "a renewal brings the whole ttl"

    bench.run(history())


@pytest.mark.parametrize(("step", "pause"), [(0.5, 2.3), (2.0, 3.2), (5.0, 5.2)])
def test_a_step_of_the_clock_does_not_hide_behind_a_process_that_stood_still(step: float, pause: float) -> None:
    """It did: a hand-over taken up late was believed for as much too long as the server's clock had stepped ahead."""
    bench = Bench()
    holder, waiter = bench.client(), bench.client()
    process = bench.links[1].process

    async def history() -> None:
        first = await holder.try_acquire(bench.claim(ttl=60.0))
        place = await waiter.join(bench.claim())
        assert isinstance(first, Grant)
        assert isinstance(place, Place)
        await bench.main.sleep(0.5)
        bench.server.step_clock(step)
        await holder.release(first)
        made_at = bench.world.now
        await bench.main.sleep(pause)
        asked_at = bench.world.now
        grant = await waiter.turn(place)
        if isinstance(grant, Refusal):  # what was handed over is over by now, and its place with it
            grant = await waiter.join(bench.claim())
        assert isinstance(grant, Grant)
        since, counts_from = (asked_at, asked_at) if grant.since is None else (grant.since, made_at)
        assert process.instant(believed_until(since, grant.ttl)) < counts_from + grant.ttl

    bench.run(history())


@pytest.mark.parametrize("apart", [0, 1, 2])
def test_a_hand_over_within_the_millisecond_of_the_join_is_believed_and_not_from_the_future(apart: int) -> None:
    """It was asked about again: stamps are cut off to milliseconds, so one looked as if it lay ahead of our clock."""
    bench = Bench()
    waiting = bench.client()
    claim = bench.claim()
    runtime = SimRuntime(bench.links[0].process)

    async def history() -> None:
        await bench.main.sleep(1.0)
        took = max(0, apart - 1) / 1000 + 0.0001  # nearly a millisecond less than the stamps say
        waiter = Waiter(runtime.signal(), waiting._names.keys(claim.key), sent=runtime.now() - took, stamp=10_000)
        waiter.handed = HandOver(fence=7, at=10_000 + apart, abandoned=False, ttl=claim.ttl)
        grant = waiting._handed_over(claim, waiter)
        assert grant is not None
        assert grant.since is not None
        assert waiter.sent <= grant.since <= runtime.now()

    bench.run(history())


def test_several_holders_keep_out_programs_that_lock_by_set_nx_until_the_last_is_over() -> None:
    """Our own scripts look at each holder; others see only the holder key."""
    bench = Bench()
    client = bench.client()
    keys = client._names.keys("k")

    async def is_kept_out() -> bool:
        node = await client._router.node_for(keys)
        (found,) = await client._router.commands(node, ("EXISTS", keys.slot_key.decode()), timeout=1.0)
        return bool(found)

    async def history() -> None:
        for ttl in (1.0, 10.0):
            assert isinstance(await client.try_acquire(bench.claim(ttl=ttl, mode=Mode.SHARED)), Grant)
        await bench.main.sleep(2.0)
        assert await is_kept_out()
        await bench.main.sleep(9.0)
        assert not await is_kept_out()

    bench.run(history())


def test_a_fence_from_far_ahead_is_remembered_until_the_clock_has_caught_up() -> None:
    """A program that comes from another store brings its fences, and its first grant may be the only one."""
    bench = Bench()
    day = 86_400.0
    ahead = bench.server.now_us + round(2 * day * 1e6)
    moved, others = bench.client(fence_floor=ahead), bench.client()

    async def history() -> None:
        first = await moved.try_acquire(bench.claim())
        assert isinstance(first, Grant)
        assert first.fence > ahead
        bench.world.now += day + 3_600.0
        bench.server.database.now_ms = bench.server.now_us // 1000
        second = await others.try_acquire(bench.claim())
        assert isinstance(second, Grant)
        assert second.fence > first.fence

    bench.run(history())


def test_a_claim_whose_place_has_ended_is_not_refused_a_free_lock() -> None:
    """It was: the script knew of its place from before it cleaned up, and kept the lock free for it."""
    bench = Bench()
    holder, waiter = bench.client(), bench.client()

    async def history() -> None:
        assert isinstance(await holder.try_acquire(bench.claim()), Grant)
        claim = bench.claim()
        assert isinstance(await waiter.join(claim), Place)
        await bench.main.sleep(12)  # its own place and the grant before it are over
        assert isinstance(await waiter.try_acquire(claim), Grant)

    bench.run(history())


def test_a_waiter_that_is_alone_and_was_passed_over_learns_that_no_message_reaches_it() -> None:
    """It did not: its turn found the lock free, so that every hand-over to it went astray again."""
    bench = Bench()
    holder, waiter = bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim())
        place = await waiter.join(bench.claim())
        assert isinstance(grant, Grant)
        assert isinstance(place, Place)
        bench.server.lose_listeners()
        assert await holder.release(grant)
        assert isinstance(await waiter.turn(place), Refusal)
        await bench.main.sleep(0.1)  # it subscribes again
        grant = await holder.try_acquire(bench.claim())
        place = await waiter.join(bench.claim())
        assert isinstance(grant, Grant)
        assert isinstance(place, Place)
        assert await holder.release(grant)
        await bench.main.sleep(0.1)
        assert place.signal.is_set(), "the hand-over went astray"
        assert isinstance(await waiter.turn(place), Grant)

    bench.run(history())


def test_strict_mode_is_not_deceived_by_a_server_that_starts_again_while_a_client_asks() -> None:
    """It was: a client that stood still had asked the server before, and told the new one of the old one's age."""
    bench = Bench()
    rival, client = bench.client(strict=5.0), bench.client(strict=5.0)
    link = bench.links[1]

    def start_again_at_the_next_request() -> None:
        link.ambush = bench.server.restart_empty

    async def history() -> None:
        await bench.main.sleep(60)
        assert isinstance(await rival.try_acquire(bench.claim(ttl=3.0)), Grant)
        link.ambush = start_again_at_the_next_request
        for _ in range(2):
            assert isinstance(await client.try_acquire(bench.claim(ttl=3.0)), Refusal)
        await bench.main.sleep(5.1)
        assert isinstance(await client.try_acquire(bench.claim(ttl=3.0)), Grant)

    bench.run(history())
