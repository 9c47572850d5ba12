"""A call to Redis ends by the instant it was given, wherever the packets vanish and whatever else it has to wait for.

The store itself is given thirty seconds for everything, the calls less than one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.errors import BackendError, BackendUnavailable, OutcomeUnknown
from leasehold.values import Grant, Refusal
from tests.stores.redis.redis_calls import VERBS, backend_of, claim_of, failure_of, no_answer_to_a_connection, unread
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold.testing import contract
    from verification.lab.proxy import FaultProxy
    from verification.lab.redis_cluster import RedisCluster
    from verification.lab.sentinel import SentinelGroup

MOMENT = 0.3
FAR_TOO_LONG = 10.0  # a third of what the store itself would take


async def fails_in_time(
    answer: Callable[[float], Awaitable[Any]], now: float, moment: float = MOMENT
) -> BaseException | None:
    """Its failure, which does not come much too late."""
    began = time.monotonic()
    error = await failure_of(answer(now + moment))
    assert time.monotonic() - began < FAR_TOO_LONG
    return error


@pytest.mark.parametrize("verb", VERBS)
def test_call_ends_in_time_when_its_answer_does_not_come(
    driver: contract.Driver, redis_proxy: FaultProxy, verb: str
) -> None:
    async def body() -> None:
        async with backend_of(driver, f"redis://127.0.0.1:{redis_proxy.port}/0") as (backend, runtime):
            await backend.inspect("leasehold:name")
            redis_proxy.black_hole()
            # Who waits spends half of the time on hearing messages, and what is left must be enough to ask.
            moment = 2.0 if verb in ("join", "turn") else MOMENT
            error = await fails_in_time(lambda until: VERBS[verb](backend, until), runtime.now(), moment)
            assert isinstance(error, OutcomeUnknown), "it was sent"

    driver.run(body())


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("where", [no_answer_to_a_connection, unread], ids=["connecting", "greeting"])
def test_call_ends_in_time_when_there_is_no_connection(driver: contract.Driver, verb: str, where: Any) -> None:
    async def body(port: int) -> None:
        async with backend_of(driver, f"redis://:secret@127.0.0.1:{port}/0") as (backend, runtime):
            error = await fails_in_time(lambda until: VERBS[verb](backend, until), runtime.now())
            assert isinstance(error, BackendUnavailable), "nothing was sent"

    with where() as port:
        driver.run(body(port))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "url", ["redis+sentinel://127.0.0.1:{0},127.0.0.1:{0}/mymaster", "redis+cluster://127.0.0.1:{0}"]
)
def test_call_ends_in_time_when_the_right_server_cannot_be_found(driver: contract.Driver, verb: str, url: str) -> None:
    async def body(port: int) -> None:
        async with backend_of(driver, url.format(port)) as (backend, runtime):
            error = await fails_in_time(lambda until: VERBS[verb](backend, until), runtime.now())
            assert isinstance(error, BackendError)

    with unread() as port:
        driver.run(body(port))


@pytest.mark.parametrize("query", ["strict=0.01", "acks=1"])
def test_careful_call_ends_in_time_too(driver: contract.Driver, redis_proxy: FaultProxy, query: str) -> None:
    async def body() -> None:
        async with backend_of(driver, f"redis://127.0.0.1:{redis_proxy.port}/0?{query}") as (backend, runtime):
            await backend.inspect("leasehold:name")
            redis_proxy.black_hole()
            await fails_in_time(lambda until: backend.try_acquire(claim_of(), until), runtime.now())

    driver.run(body())


def test_replicas_that_do_not_acknowledge_are_not_waited_for_beyond_the_call(
    driver: contract.Driver, redis_server: RedisServer
) -> None:
    async def body() -> None:
        url = f"{redis_server.url}?acks=1&acks_timeout=30"
        async with backend_of(driver, url) as (backend, runtime):
            error = await fails_in_time(lambda until: backend.try_acquire(claim_of(), until), runtime.now(), 3.0)
            assert isinstance(error, BackendUnavailable)
            assert "0 of 1 replicas" in str(error), "there was time enough to ask and to undo it"
            assert await backend.inspect("leasehold:name") is None

    redis_server.flush()
    driver.run(body())


def test_call_without_any_time_left_sends_nothing(driver: contract.Driver, redis_server: RedisServer) -> None:
    async def body() -> None:
        async with backend_of(driver, redis_server.url) as (backend, runtime):
            for _ in range(2):  # without a connection, and with one
                for verb in VERBS.values():
                    error = await failure_of(verb(backend, runtime.now() - 1))
                    assert isinstance(error, BackendUnavailable)
                assert await backend.inspect("leasehold:name") is None

    redis_server.flush()
    driver.run(body())


def test_silent_sentinel_leaves_time_for_the_others(driver: contract.Driver, sentinel_group: SentinelGroup) -> None:
    async def body(port: int) -> None:
        address, _, service = sentinel_group.url.removeprefix("redis+sentinel://").partition("/")
        async with backend_of(driver, f"redis+sentinel://127.0.0.1:{port},{address}/{service}") as (backend, runtime):
            answer = await backend.try_acquire(claim_of("o1", "found"), runtime.now() + 10)
            assert isinstance(answer, Grant)
            assert await backend.release(answer)

    with unread() as port:
        driver.run(body(port))


def test_silent_node_leaves_time_for_the_others(driver: contract.Driver, cluster_nodes: RedisCluster) -> None:
    async def body(port: int) -> None:
        address = cluster_nodes.url.removeprefix("redis+cluster://")
        async with backend_of(driver, f"redis+cluster://127.0.0.1:{port},{address}") as (backend, runtime):
            answer = await backend.try_acquire(claim_of("o1", "found"), runtime.now() + 10)
            assert isinstance(answer, Grant)
            assert await backend.release(answer)

    with unread() as port:
        driver.run(body(port))


def test_caller_with_little_time_does_not_cost_others_their_answers(
    driver: contract.Driver, redis_proxy: FaultProxy
) -> None:
    """The late answer to the first is dropped; the others get theirs, each its own."""

    async def body() -> None:
        async with backend_of(driver, f"redis://127.0.0.1:{redis_proxy.port}/0") as (backend, runtime):
            await backend.release(await backend.try_acquire(claim_of("o0", "warm")))
            connections = redis_proxy.accepted
            redis_proxy.delay(to_client=0.5)
            answers: list[Any] = []

            async def ask(owner: str, until: float) -> None:
                try:
                    answers.append(await backend.try_acquire(claim_of(owner), until))
                except OutcomeUnknown as error:
                    answers.append(error)

            hasty = runtime.spawn(ask("o1", runtime.now() + 0.05), "hasty")
            assert await hasty.join(runtime.now() + 30)
            patient = runtime.spawn(ask("o2", runtime.now() + 30), "patient")
            assert await patient.join(runtime.now() + 30)
            assert isinstance(answers[0], OutcomeUnknown)
            assert isinstance(answers[1], Refusal), "the first one has it, and this is not its answer"
            if driver.name == "asyncio":
                assert redis_proxy.accepted == connections, "the shared connection was given up"

    driver.run(body())


def test_connection_that_came_too_late_for_its_caller_serves_the_next(
    driver: contract.Driver, redis_proxy: FaultProxy
) -> None:
    async def body() -> None:
        async with backend_of(driver, f"redis://:secret@127.0.0.1:{redis_proxy.port}/0") as (backend, runtime):
            redis_proxy.delay(to_client=0.3)
            error = await failure_of(backend.try_acquire(claim_of(), runtime.now() + 0.05))
            assert isinstance(error, BackendUnavailable)
            wire = backend._router.wire
            kept = wire._idle if driver.name == "threads" else wire._shared
            end = runtime.now() + 30
            while not any(kept.values()):
                assert runtime.now() < end, "it is not kept"
                await runtime.sleep(0.01)
            answer = await backend.try_acquire(claim_of(), runtime.now() + 30)
            assert redis_proxy.accepted == 1, "another one was opened"
            assert isinstance(answer, Grant)
            assert await backend.release(answer)

    with RedisServer(password="secret") as server:
        redis_proxy._target = server.address
        driver.run(body())
