"""The subscription that brings hand-overs to a client: which messages it takes, and how it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.redis.calls import pack
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._urls import find_store
from leasehold.errors import ClientClosed, OutcomeUnknown
from leasehold.spi import Place, Runtime
from leasehold.values import Claim, Grant, Holder, Mode
from tests.stores.support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.testing import contract
    from verification.lab.proxy import FaultProxy
    from verification.lab.redis import RedisServer
    from verification.lab.redis_cluster import RedisCluster

LIMIT = 30.0


def claim(runtime: Runtime, name: str = "name") -> Claim:
    return Claim(f"leasehold:{name}", runtime.owner(), 10.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


async def until(runtime: Runtime, condition: Callable[[], object], what: str) -> None:
    end = runtime.now() + LIMIT
    while not condition():
        assert runtime.now() < end, what
        await runtime.sleep(0.01)


def test_connection_that_opens_while_its_client_is_closed_does_not_stay(
    driver: contract.Driver, redis_server: RedisServer, redis_proxy: FaultProxy
) -> None:
    """It did, with threads together with the thread that received from it."""

    async def body() -> None:
        runtime = driver.runtime()
        holder: Any = find_store(redis_server.url).open_backend(runtime)
        waiter: Any = find_store(f"redis://127.0.0.1:{redis_proxy.port}").open_backend(runtime)
        grant = await holder.try_acquire(claim(runtime))
        assert isinstance(grant, Grant)
        assert not isinstance(await waiter.try_acquire(claim(runtime)), Grant)

        async def wait() -> None:
            with pytest.raises(ClientClosed):
                await waiter.join(claim(runtime))

        before = redis_proxy.accepted
        redis_proxy.delay(to_client=0.5)
        task = runtime.spawn(wait(), "waiter")
        await until(runtime, lambda: redis_proxy.accepted > before, "it does not listen")
        await waiter.close()
        redis_proxy.delay()
        assert await task.join(runtime.now() + LIMIT)
        await until(runtime, lambda: redis_proxy.links == 0, "a connection stays")
        await holder.release(grant)
        await holder.close()

    driver.run(body())


async def a_holder_and_a_waiter(runtime: Runtime, url: str) -> tuple[Any, Grant, Any, Place]:
    """Two clients: the lock of the first one, and the place of the second, which a message can reach."""
    holder: Any = find_store(url).open_backend(runtime)
    waiter: Any = find_store(url).open_backend(runtime)
    grant = await holder.try_acquire(claim(runtime))
    assert isinstance(grant, Grant)
    place = await waiter.join(claim(runtime))
    deadline = runtime.now() + LIMIT
    while not waiter._listener.wake_address(waiter._names.keys(place.claim.key)):
        assert runtime.now() < deadline, "the subscription is confirmed"
        await runtime.sleep(0.01)
        place = await waiter.turn(place)
    assert isinstance(place, Place)
    return holder, grant, waiter, place


def test_waiter_is_woken_when_the_connection_for_messages_ends(
    driver: contract.Driver, redis_server: RedisServer
) -> None:
    """No message can reach it any more, so it has to ask, and to subscribe anew."""

    async def body() -> None:
        runtime = driver.runtime()
        holder, grant, waiter, place = await a_holder_and_a_waiter(runtime, redis_server.url)
        place.signal.clear()
        assert redis_server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        await until(runtime, place.signal.is_set, "it is woken")
        await waiter.withdraw(place.claim, doubt=False)
        await holder.release(grant)
        for backend in (holder, waiter):
            await backend.close()

    driver.run(body())


def test_subscription_that_missed_a_hand_over_is_not_relied_on_until_it_is_confirmed_again(
    driver: contract.Driver, redis_server: RedisServer
) -> None:
    """A connection without traffic can be dead for hours and look alive."""

    async def body() -> None:
        runtime = driver.runtime()
        holder, grant, waiter, place = await a_holder_and_a_waiter(runtime, redis_server.url)
        waiter._listener._received = lambda *_: None  # from now on it is deaf
        assert await holder.release(grant) is True
        heir = await waiter.turn(place)
        assert isinstance(heir, Grant)
        assert not waiter._listener.wake_address(waiter._names.keys(place.claim.key))
        assert await waiter.release(heir) is True
        for backend in (holder, waiter):
            await backend.close()

    driver.run(body())


@pytest.mark.parametrize(
    "words", ["hello", "", "g\n{owner}", "g\n{owner}\n1\n2\n3\nx", "g\n{owner}\n1\n2\n3\n4\n5", b"\xff\n\xff", "\n\n\n"]
)
def test_foreign_messages_on_the_channel_are_ignored_and_do_no_harm(
    driver: contract.Driver, redis_server: RedisServer, words: str | bytes
) -> None:
    """It did, with threads: the thread ended, and every turn was found by asking from then on."""

    async def body() -> None:
        runtime = driver.runtime()
        holder: Any = find_store(redis_server.url).open_backend(runtime)
        waiter: Any = find_store(redis_server.url).open_backend(runtime)
        grant = await holder.try_acquire(claim(runtime))
        place = await waiter.join(claim(runtime))
        assert isinstance(place, Place)
        message = words.format(owner=place.claim.owner) if isinstance(words, str) else words
        assert redis_server.ask("PUBLISH", waiter._listener._channel, message) == 1
        assert await holder.release(grant)
        assert await runtime.wait(place.signal, runtime.now() + LIMIT), "it is deaf"
        handed = await waiter.turn(place)
        assert isinstance(handed, Grant)
        assert handed.since is not None, "it was found by asking"
        assert await waiter.release(handed)
        await waiter.close()
        await holder.close()

    redis_server.flush()
    driver.run(body())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whatever_ends_a_subscription_is_reported(driver: contract.Driver, redis_server: RedisServer) -> None:
    """It was not, with threads: all waiters relied on a connection without a reader."""

    async def body() -> None:
        runtime = driver.runtime()
        backend: Any = find_store(redis_server.url).open_backend(runtime)
        lost = runtime.signal()

        def on_message(_: object) -> None:
            raise RuntimeError("a bug of ours")

        router = backend._router
        subscription = await router.wire.subscribe(
            await router.node_for(backend._names.keys("k")), on_message, lost.set
        )
        subscription.send(pack("SUBSCRIBE", "channel"))
        assert await runtime.wait(lost, runtime.now() + LIMIT)
        await backend.close()

    driver.run(body())
    # Its thread reports that a moment later, which must not be in another test.
    eventually(lambda: all(thread.name != "leasehold redis messages" for thread in threading.enumerate()))


def test_client_is_notified_again_after_a_slot_has_moved(driver: contract.Driver, cluster_nodes: RedisCluster) -> None:
    """It did not: any error to a subscription was taken for a missing right, for ever and for every name."""
    cluster_nodes.flush()
    slot = cluster_nodes.slot_of("{leasehold:name}")

    async def body() -> None:
        runtime = driver.runtime()
        holder: Any = find_store(cluster_nodes.url).open_backend(runtime)
        waiter: Any = find_store(cluster_nodes.url).open_backend(runtime)
        grant = await holder.try_acquire(claim(runtime))
        place = await waiter.join(claim(runtime))
        keys = waiter._names.keys("leasehold:name")
        assert waiter._listener.wake_address(keys)
        cluster_nodes.move(slot)
        await until(
            runtime, lambda: not waiter._listener.wake_address(keys), "it relies on a server that has it no more"
        )
        end = runtime.now() + LIMIT
        while not waiter._listener.wake_address(keys):
            assert runtime.now() < end, "it never listens again"
            place = await waiter.turn(place)
            assert isinstance(place, Place)
            (grant,) = await holder.renew([grant])
            await runtime.sleep(0.1)
        place = await waiter.turn(place)
        assert await holder.release(grant)
        assert await runtime.wait(place.signal, runtime.now() + LIMIT)
        handed = await waiter.turn(place)
        assert handed.since is not None, "it was found by asking"
        assert await waiter.release(handed)
        await waiter.close()
        await holder.close()

    driver.run(body())


def test_short_question_is_given_up_in_time_behind_a_long_one(redis_proxy: FaultProxy) -> None:
    """It was not: a timer that was set for a call long answered was left to run, and nothing looked before."""

    async def body() -> None:
        backend: Any = find_store(f"redis://127.0.0.1:{redis_proxy.port}").open_backend(AsyncioRuntime())
        router = backend._router
        node = await router.node_for(backend._names.keys("k"))
        await router.wire.exchange(node, pack("PING"), 1, LIMIT)
        redis_proxy.lose(b"ECHO", then="silence")
        long = asyncio.ensure_future(router.wire.exchange(node, pack("ECHO", "long"), 1, LIMIT))
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            await router.wire.exchange(node, pack("ECHO", "short"), 1, 0.25)
        assert time.monotonic() - began < LIMIT / 2
        assert not long.done(), "it has still time"
        with pytest.raises(OutcomeUnknown):
            await router.wire.exchange(node, pack("ECHO", "short"), 1, 0.25)
        long.cancel()
        await backend.close()

    asyncio.run(body())
