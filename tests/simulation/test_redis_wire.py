"""The simulated wire: what travels keeps its order within a connection, and can be lost, late, or too late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leasehold._backends.redis.backend import RedisBackend
from leasehold.errors import BackendUnavailable, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import Claim, Grant
from tests.simulation.redis_bench import Bench


def keys_left(bench: Bench) -> int:
    return len(bench.server.database.present())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("weather", "applied"), [("request_loss", False), ("reply_loss", True)])
def test_a_loss_is_an_unknown_outcome(shared: bool, weather: str, applied: bool) -> None:
    bench = Bench()
    client = bench.client(shared=shared)

    async def history() -> None:
        await client.release(Grant(bench.claim(), 1, 1.0))  # the connection is open
        setattr(bench.links[0].weather, weather, 1.0)
        with pytest.raises(OutcomeUnknown):
            await client._router.command(await client._router.node_for(client._names.keys("k")), "SET", "k", "v")

    bench.run(history())
    assert (keys_left(bench) > 0) is applied


def test_a_server_that_is_down_refuses_and_nothing_is_applied() -> None:
    bench = Bench()
    client = bench.client()
    bench.server.is_down = True

    async def history() -> None:
        with pytest.raises(BackendUnavailable):
            await client.try_acquire(bench.claim())

    bench.run(history())
    assert keys_left(bench) == 0


def test_a_restart_is_noticed_at_once_or_not_at_all() -> None:
    for in_silence in (False, True):
        bench = Bench()
        client = bench.client(shared=True)

        async def history(bench: Bench = bench, client: RedisBackend = client, in_silence: bool = in_silence) -> float:
            await client.try_acquire(bench.claim())
            bench.server.stall(0.5)
            task = bench.main.start(fails(client, bench.claim()), "caller")
            await bench.main.sleep(0.1)
            bench.server.hang_up_on_all(in_silence=in_silence)
            began = bench.world.now
            await task.join()
            return bench.world.now - began

        assert (bench.run(history()) > 0.3) is in_silence


async def fails(client: RedisBackend, claim: Claim) -> None:
    with pytest.raises(OutcomeUnknown):
        await client.try_acquire(claim)


def test_a_zombie_is_applied_after_its_caller_gave_up() -> None:
    bench = Bench()
    client, rival = bench.client(), bench.client()

    async def history() -> None:
        assert isinstance(await rival.try_acquire(bench.claim(ttl=0.1)), Grant)  # the server knows the script now
        await client._look(client._names.keys("k"))
        bench.links[0].weather.zombie = 1.0
        await fails(client, bench.claim(ttl=60.0))
        assert isinstance(grant := await rival.try_acquire(bench.claim()), Grant), "it has not arrived yet"
        assert await rival.release(grant)
        await bench.main.sleep(10.0)
        assert not isinstance(await rival.try_acquire(bench.claim()), Grant)

    bench.run(history())


def test_a_late_answer_is_not_taken_for_another_questions() -> None:
    """A caller that is cancelled leaves its place in the line of replies."""
    bench = Bench()
    client = bench.client(shared=True)
    claims = [bench.claim(), bench.claim()]

    async def history() -> None:
        await client.try_acquire(replace(bench.claim(), key="other"))  # the server knows the script now
        task = bench.main.start(ask(claims[0]), "cancelled")
        await bench.main.sleep(0.0001)
        task.task.cancel()
        await task.join()
        answer = await client.try_acquire(claims[1])
        assert not isinstance(answer, Grant), "the first one has it"

    async def ask(claim: Claim) -> None:
        await client.try_acquire(claim)

    bench.run(history())


def test_a_message_travels_and_can_be_lost() -> None:
    for loss, rung in ((0.0, True), (1.0, False)):
        bench = Bench()
        holder, waiter = bench.client(), bench.client()

        async def history(
            bench: Bench = bench, holder: RedisBackend = holder, waiter: RedisBackend = waiter, loss: float = loss
        ) -> bool:
            grant = await holder.try_acquire(bench.claim())
            place = await waiter.join(bench.claim())
            assert isinstance(grant, Grant)
            assert isinstance(place, Place)
            bench.links[1].weather.reply_loss = loss
            await holder.release(grant)
            await bench.main.wait(place.signal, bench.main.now() + 1)
            return waiter._listener.waiter(place.claim.owner).handed is not None  # type: ignore[union-attr]

        assert bench.run(history()) is rung


def test_a_crash_closes_the_connection_at_the_server_or_not() -> None:
    """A process that is killed closes its connections; a host that loses its power does not."""
    seen = set()
    for seed in range(20):
        bench = Bench(seed)
        holder, waiter = bench.client(), bench.client()

        async def history(bench: Bench = bench, holder: RedisBackend = holder, waiter: RedisBackend = waiter) -> int:
            await holder.try_acquire(bench.claim())
            await waiter.join(bench.claim())
            bench.links[1].process.crash()
            assert bench.links[1].on_crash is not None
            bench.links[1].on_crash()
            await bench.main.sleep(1)
            return sum(len(members) for members in bench.server.subscribers.values())

        seen.add(bench.run(history()))
        bench.world.end()
    assert seen == {0, 1}
