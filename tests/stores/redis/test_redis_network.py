"""Redis behind a network that swallows, loses, delays and cuts; on threads and on asyncio."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._face.client import AsyncClient
from leasehold._urls import find_store
from leasehold.values import Grant, LossReason
from tests.stores.half_open import gets_its_turn, keeps_its_lease
from tests.stores.redis.redis_calls import claim_of
from tests.stores.support import opened

if TYPE_CHECKING:
    from leasehold.testing import contract
    from verification.lab.proxy import FaultProxy
    from verification.lab.redis import RedisServer

ENDINGS = ["cut", "silence"]
WORD = b"{leasehold:name}"  # only the requests about this lock


def through(proxy: FaultProxy) -> str:
    """Through the proxy; an answer that does not come is waited for a shorter time than usual."""
    return f"redis://127.0.0.1:{proxy.port}/0?answer_timeout=0.5"


async def holdings(client: AsyncClient, name: str = "name") -> list[int]:
    """The fences of its holders in the store; there are no waiters."""
    state = await client.inspect(name)
    if state is None:
        return []
    assert state.waiting == ()
    return [holding.fence for holding in state.holdings]


async def nothing_is_left(client: AsyncClient, name: str = "name") -> None:
    assert await client.inspect(name) is None
    lease = await client.lock(name).try_acquire()
    assert lease is not None
    assert await lease.release()


# --- one answer, or one request, is lost


@pytest.mark.parametrize("then", ENDINGS)
@pytest.mark.parametrize("timeout", [0, 30])
def test_acquire_whose_answer_was_lost_finds_its_own_grant(
    driver: contract.Driver, redis_proxy: FaultProxy, redis_server: RedisServer, then: str, timeout: float
) -> None:
    async def body() -> None:
        async with opened(driver, through(redis_proxy)) as client, opened(driver, redis_server.url) as witness:
            await nothing_is_left(client, "warm")
            redis_proxy.swallow(WORD, then=then)
            try:
                lease = await client.lock("name").acquire(timeout=timeout)
            except leasehold.OutcomeUnknown:
                assert timeout == 0, "there was time enough to find out"
                await nothing_is_left(witness)
                return
            redis_proxy.wait_done()
            assert await holdings(witness) == [lease.fence], "granted twice, or blocked by itself"
            lease.check()
            assert await lease.release()
            await nothing_is_left(witness)

    driver.run(body())


@pytest.mark.parametrize("then", ENDINGS)
def test_release_whose_answer_was_lost_has_freed_the_lock(
    driver: contract.Driver, redis_proxy: FaultProxy, redis_server: RedisServer, then: str
) -> None:
    async def body() -> None:
        async with opened(driver, through(redis_proxy)) as client, opened(driver, redis_server.url) as witness:
            lease = await client.lock("name").acquire()
            redis_proxy.swallow(WORD, then=then)
            assert await lease.release() is True
            redis_proxy.wait_done()
            await nothing_is_left(witness)
            assert await lease.release() is False

    driver.run(body())


def test_release_whose_answer_was_lost_does_not_free_the_next_holder(
    driver: contract.Driver, redis_proxy: FaultProxy, redis_server: RedisServer
) -> None:
    async def body() -> None:
        async with opened(driver, through(redis_proxy)) as client, opened(driver, redis_server.url) as other:
            await nothing_is_left(client, "warm")  # the server knows the script, so what is swallowed was applied
            lease = await client.lock("name").acquire()
            redis_proxy.swallow(WORD, count=3)
            redis_proxy.delay(to_client=0.1)
            try:
                await lease.release()
            except leasehold.OutcomeUnknown:
                redis_proxy.heal()
            successor = await other.lock("name", ttl=30).try_acquire()
            assert successor is not None
            assert successor.fence > lease.fence
            await lease.release()
            assert await holdings(other) == [successor.fence]
            await successor.release()

    driver.run(body())


@pytest.mark.parametrize("then", ENDINGS)
def test_renewal_whose_answer_was_lost_does_not_cost_the_lease(
    driver: contract.Driver, redis_proxy: FaultProxy, redis_server: RedisServer, then: str
) -> None:
    async def body() -> None:
        async with opened(driver, through(redis_proxy)) as client, opened(driver, redis_server.url) as witness:
            lease = await client.lock("name", ttl=2).acquire()
            redis_proxy.swallow(WORD, then=then)
            assert not await lease.lost.wait(3)
            assert redis_proxy.done == 1
            lease.check()
            assert await holdings(witness) == [lease.fence]
            assert await lease.release()

    driver.run(body())


@pytest.mark.parametrize("then", ENDINGS)
def test_requests_that_were_lost_are_sent_again(
    driver: contract.Driver, redis_proxy: FaultProxy, redis_server: RedisServer, then: str
) -> None:
    async def body() -> None:
        async with opened(driver, through(redis_proxy)) as client, opened(driver, redis_server.url) as witness:
            await nothing_is_left(client, "warm")
            redis_proxy.lose(WORD, then=then)
            lease = await client.lock("name").acquire(timeout=30)
            redis_proxy.wait_done(1)
            assert await holdings(witness) == [lease.fence]
            redis_proxy.lose(WORD, then=then)
            assert await lease.release()
            redis_proxy.wait_done(2)
            await nothing_is_left(witness)

    driver.run(body())


def test_request_that_arrives_after_its_claim_was_withdrawn_takes_nothing(
    driver: contract.Driver, redis_proxy: FaultProxy, redis_server: RedisServer
) -> None:
    """It hung in the network while its client gave up; then it is delivered."""

    async def body() -> None:
        async with opened(driver, through(redis_proxy)) as client, opened(driver, redis_server.url) as witness:
            await nothing_is_left(client, "warm")
            blocker = await witness.lock("name", ttl=30).acquire()
            redis_proxy.keep_back(WORD)
            with pytest.raises(leasehold.AcquireTimeout):
                await client.lock("name", ttl=30).acquire(timeout=1)
            redis_proxy.wait_done()
            assert await blocker.release()
            redis_proxy.deliver()
            await driver.runtime().sleep(0.2)
            assert await holdings(witness) == [], "the late request took the lock, without a holder"
            await nothing_is_left(witness)

    driver.run(body())


@pytest.mark.parametrize("then", ENDINGS)
def test_every_operator_s_call_survives_a_lost_answer_or_raises_that(
    driver: contract.Driver, redis_proxy: FaultProxy, then: str
) -> None:
    async def body() -> None:
        async with opened(driver, through(redis_proxy)) as client:
            lease = await client.lock("name", ttl=30).acquire()
            questions: list[tuple[bytes, Any]] = [
                (WORD, lambda: client.inspect("name")),
                (WORD, lambda: client.raise_fence("name", lease.fence + 10, reason="test")),
                (WORD, lambda: client.break_lock("name", fence=lease.fence, reason="test")),
            ]
            for done, (word, question) in enumerate(questions, 1):
                redis_proxy.swallow(word, then=then)
                try:
                    await question()
                except leasehold.BackendError as error:
                    assert isinstance(error, leasehold.OutcomeUnknown | leasehold.BackendUnavailable)
                redis_proxy.wait_done(done)
            await lease.release()

    driver.run(body())


# --- the network is gone


def test_holder_learns_within_its_ttl_that_packets_vanish(driver: contract.Driver, redis_proxy: FaultProxy) -> None:
    async def body() -> None:
        async with opened(driver, through(redis_proxy)) as client:
            lease = await client.lock("name", ttl=2).acquire()
            redis_proxy.black_hole()
            began = time.monotonic()
            assert await lease.lost.wait(30)
            assert time.monotonic() - began < 2 + 2
            assert lease.loss is not None
            assert lease.loss.reason is LossReason.UNCONFIRMED
            with pytest.raises(leasehold.LeaseLost):
                lease.check()
            redis_proxy.heal()
            again = await client.lock("name", ttl=30).acquire(timeout=60)
            assert again.fence > lease.fence
            assert await lease.release() is False
            again.check()
            assert await again.release()

    driver.run(body())


def test_acquire_into_a_black_hole_ends_in_time_with_an_unknown_outcome(
    driver: contract.Driver, redis_proxy: FaultProxy
) -> None:
    async def body() -> None:
        async with opened(driver, through(redis_proxy)) as client:
            await nothing_is_left(client, "warm")
            redis_proxy.black_hole()
            began = time.monotonic()
            with pytest.raises(leasehold.BackendError) as caught:
                await client.lock("name").acquire(timeout=1)
            assert isinstance(caught.value, leasehold.OutcomeUnknown | leasehold.BackendUnavailable)
            assert time.monotonic() - began < 30
            redis_proxy.heal()
            lease = await client.lock("name").acquire(timeout=60)
            assert await lease.release()

    driver.run(body())


def test_half_open_connection_does_not_cost_the_lease(
    driver: contract.Driver, redis_proxy: FaultProxy, redis_server: RedisServer
) -> None:
    driver.run(keeps_its_lease(driver, redis_proxy, through(redis_proxy), redis_server.url, ttl=3))


def test_renewal_beside_one_on_a_half_open_connection_is_answered_before_that_is_given_up(
    driver: contract.Driver, redis_proxy: FaultProxy
) -> None:
    """With asyncio it was sent on the same connection, and was lost as well."""

    async def body() -> None:
        runtime = driver.runtime()
        url = f"redis://127.0.0.1:{redis_proxy.port}/0?answer_timeout=10"
        backend: Any = find_store(url).open_backend(runtime)
        grant = await backend.try_acquire(claim_of())
        redis_proxy.half_open()
        answers: list[Any] = []

        async def renew() -> None:
            answers.append(await backend.renew([grant], runtime.now() + 30))

        first = runtime.spawn(renew(), "first")
        await runtime.sleep(2.1)  # a fifth of the time that there is for an answer
        (renewed,) = await backend.renew([grant], runtime.now() + 7)
        assert isinstance(renewed, Grant)
        assert not answers
        redis_proxy.cut()
        assert await first.join(runtime.now() + 60)
        await backend.close()

    driver.run(body())


def test_waiter_on_a_half_open_connection_still_gets_its_turn(
    driver: contract.Driver, redis_proxy: FaultProxy, redis_server: RedisServer
) -> None:
    driver.run(gets_its_turn(driver, redis_proxy, through(redis_proxy), redis_server.url, ttl=30, within=60))


def test_waiter_whose_connections_are_cut_again_and_again_still_gets_its_turn(
    driver: contract.Driver, redis_proxy: FaultProxy, redis_server: RedisServer
) -> None:
    async def body() -> None:
        async with opened(driver, through(redis_proxy)) as client, opened(driver, redis_server.url) as other:
            runtime = driver.runtime()
            first = await other.lock("name", ttl=30).acquire()
            got: list[int] = []

            async def wait() -> None:
                lease = await client.lock("name", ttl=30).acquire(timeout=100)
                got.append(lease.fence)
                await lease.release()

            task = runtime.spawn(wait(), "waiter")
            await until_waiting(other, driver)
            for _ in range(5):
                redis_proxy.cut()
                await runtime.sleep(0.05)
            assert await first.release()
            redis_proxy.cut()
            assert await task.join(runtime.now() + 60)
            assert got
            assert got[0] > first.fence
            await nothing_is_left(other)

    driver.run(body())


@pytest.mark.parametrize("how", ["cut", "half_open"])
def test_one_dead_connection_is_enough_to_distrust_the_others(redis_proxy: FaultProxy, how: str) -> None:
    """A client of many threads keeps several connections, and all of them died together."""
    with leasehold.connect(through(redis_proxy)) as client:
        lease = client.lock("name", ttl=30).acquire()
        redis_proxy.delay(to_client=0.1)
        threads = [threading.Thread(target=client.inspect, args=("name",)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        redis_proxy.delay()
        assert redis_proxy.links >= 4, "there are not several connections"
        getattr(redis_proxy, how)()
        assert lease.release() is True
        assert client.lock("name").acquire(timeout=0).release()


async def until_waiting(client: AsyncClient, driver: contract.Driver) -> None:
    runtime = driver.runtime()
    end = runtime.now() + 60
    while True:
        state = await client.inspect("name")
        if state is not None and len(state.waiting) == 1:
            return
        assert runtime.now() < end, "there is no waiter in the queue"
        await runtime.sleep(0.01)


def test_server_that_refuses_connections_is_unavailable_at_once_and_waited_for(
    driver: contract.Driver, redis_proxy: FaultProxy
) -> None:
    async def body() -> None:
        async with opened(driver, through(redis_proxy)) as client:
            runtime = driver.runtime()
            redis_proxy.refuse()
            with pytest.raises(leasehold.BackendUnavailable):
                await client.lock("name").acquire(timeout=0)

            async def come_back() -> None:
                await runtime.sleep(0.5)
                redis_proxy.accept()

            task = runtime.spawn(come_back(), "healer")
            lease = await client.lock("name").acquire(timeout=60)
            assert await task.join(runtime.now() + 60)
            assert await lease.release()

    driver.run(body())


def test_slow_network_only_makes_it_slow(driver: contract.Driver, redis_proxy: FaultProxy) -> None:
    async def body() -> None:
        redis_proxy.delay(to_server=0.1, to_client=0.1)
        async with opened(driver, through(redis_proxy)) as client:
            lease = await client.lock("name", ttl=2).acquire(timeout=30)
            assert not await lease.lost.wait(3)
            began = time.monotonic()
            assert await lease.release()
            assert time.monotonic() - began >= 0.2

    driver.run(body())
