"""Every call on a closed client, under way or later, raises `ClientClosed`, and never that the store is away."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.errors import ClientClosed
from leasehold.spi import Place
from tests.stores.redis.redis_calls import VERBS, backend_of, claim_of, no_answer_to_a_connection, unread
from tests.stores.support import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold.spi import Runtime
    from leasehold.testing import contract
    from verification.lab.proxy import FaultProxy
    from verification.lab.redis import RedisServer

LIMIT = 10.0  # a third of what the store itself would take


async def closed_while_it_waits(
    backend: Any, runtime: Runtime, call: Callable[[], Awaitable[Any]], ready: Callable[[], bool]
) -> list[BaseException]:
    """How the call ends that is under way once `ready` is set."""
    errors: list[BaseException] = []

    async def wait() -> None:
        try:
            await call()
        except Exception as error:
            errors.append(error)

    task = runtime.spawn(wait(), "caller")
    for _ in range(6000):
        if ready():
            break
        await runtime.sleep(0.005)
    await runtime.sleep(0.05)
    await backend.close()
    assert await task.join(runtime.now() + LIMIT), "it still waits"
    return errors


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("query", ["", "acks=1"])
def test_call_that_waits_for_an_answer_ends_when_its_client_is_closed(
    driver: contract.Driver, redis_proxy: FaultProxy, verb: str, query: str
) -> None:
    async def body() -> None:
        async with backend_of(driver, f"redis://127.0.0.1:{redis_proxy.port}/0?{query}") as (backend, runtime):
            await backend.inspect("leasehold:name")
            redis_proxy.lose(b"{leasehold:name}", then="silence")
            call = lambda: VERBS[verb](backend, runtime.now() + 60)  # noqa: E731 - it is called once
            (error,) = await closed_while_it_waits(backend, runtime, call, lambda: redis_proxy.done > 0)
            assert isinstance(error, ClientClosed)
            assert error.backend == backend.label

    driver.run(body())


@pytest.mark.parametrize("where", [no_answer_to_a_connection, unread], ids=["connecting", "greeting"])
def test_call_that_waits_for_a_connection_ends_when_its_client_is_closed(driver: contract.Driver, where: Any) -> None:
    async def body(port: int) -> None:
        for verb in ("try_acquire", "renew", "release"):
            async with backend_of(driver, f"redis://:secret@127.0.0.1:{port}/0") as (backend, runtime):
                call = lambda verb=verb, backend=backend: VERBS[verb](backend, runtime.now() + 60)  # noqa: E731
                (error,) = await closed_while_it_waits(backend, runtime, call, lambda: True)
                assert isinstance(error, ClientClosed)

    with where() as port:
        driver.run(body(port))


def test_every_call_after_the_end_raises_that_the_client_is_closed(
    driver: contract.Driver, redis_server: RedisServer
) -> None:
    async def body() -> None:
        async with backend_of(driver, redis_server.url) as (backend, runtime):
            await backend.inspect("leasehold:name")
            await backend.close()
            for verb in VERBS.values():
                with pytest.raises(ClientClosed):
                    await verb(backend, runtime.now() + 60)
            with pytest.raises(ClientClosed):
                await backend.inspect("leasehold:name")

    driver.run(body())


def test_closing_wakes_every_waiter_with_an_error(driver: contract.Driver, redis_server: RedisServer) -> None:
    async def body() -> None:
        async with backend_of(driver, redis_server.url) as (backend, runtime):
            assert await backend.try_acquire(claim_of("o1"))
            place = await backend.join(claim_of("o2"))
            assert isinstance(place, Place)
            await backend.close()
            assert await runtime.wait(place.signal, runtime.now() + LIMIT), "it is not woken"
            with pytest.raises(ClientClosed):
                await backend.turn(place)

    redis_server.flush()
    driver.run(body())


def test_closing_takes_no_time_from_threads_that_use_their_own_client(redis_server: RedisServer) -> None:
    """Threads that talk while their client is closed end with one error, and leave no connection behind."""
    redis_server.flush()
    before = {each["id"] for each in redis_server.clients()}  # of earlier tests, until the garbage collector runs
    client = leasehold.connect(redis_server.url)
    errors: list[BaseException] = []

    def connections() -> int:
        return len({each["id"] for each in redis_server.clients()} - before)

    def work(number: int) -> None:
        try:
            while True:
                client.lock(f"n{number}").acquire().release()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: connections() >= 2)
    client.close()
    for thread in threads:
        thread.join(60)
    assert len(errors) == 4
    eventually(lambda: connections() == 0, "a connection was left")
