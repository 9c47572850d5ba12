"""Redlock while nodes die, hang, restart empty or are flushed; on threads and on asyncio."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.redlock.calls import Calls
from leasehold._core.names import DEFAULT_NAMESPACE, key_for
from leasehold._face.client import AsyncClient
from leasehold._face.lease import AsyncLease
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.values import Claim, Grant, Holder, LossReason, Mode
from tests.stores.redlock.redlock_support import (
    SHORT,
    drop_lock,
    has_lock,
    held_on,
    highest_number,
    opened_store,
    proxied,
    tell,
)
from tests.stores.support import eventually, opened
from tests.waiting import LIMIT, until
from verification.lab.redlock import RedlockNodes, settle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.testing import contract


@pytest.fixture
def nodes() -> Iterator[RedlockNodes]:
    with RedlockNodes(5, max_ttl=60, answer_timeout=0.5) as started:
        yield started


@pytest.fixture
def forgetful() -> Iterator[RedlockNodes]:
    """Nodes that sit out for only 5 s."""
    with RedlockNodes(5, max_ttl=SHORT, answer_timeout=0.5) as started:
        yield started


async def on_all(driver: contract.Driver, nodes: RedlockNodes, lease: AsyncLease) -> None:
    """Wait until every node has it: one that was not connected yet gets it with a renewal."""
    end = time.monotonic() + 30
    while held_on(nodes) < len(nodes.servers):
        assert time.monotonic() < end, "some node never got it"
        await lease.renew()
        await driver.breathe()


async def pair(client: AsyncClient, name: str = "other") -> int:
    lease = await client.lock(name).acquire(timeout=60)
    await lease.release()  # on a busy machine its time may be over
    return lease.fence


def test_two_dead_nodes_of_five_cost_neither_the_lock_nor_time(driver: contract.Driver, nodes: RedlockNodes) -> None:
    async def body() -> None:
        async with opened(driver, nodes.url(answer_timeout=5)) as client:
            lease = await client.lock("name").acquire()
            await on_all(driver, nodes, lease)
            nodes.servers[1].kill()
            nodes.servers[3].kill()
            assert await pair(client) > 0  # one call has to find out
            started = time.monotonic()
            for _ in range(20):
                await pair(client)
            assert time.monotonic() - started < 5, "a dead node was waited for"
            await lease.renew()
            await until(driver, lambda: held_on(nodes) == 3)
            assert await lease.release()
            await until(driver, lambda: held_on(nodes) == 0)

    driver.run(body())


def test_three_dead_nodes_of_five_stop_it_and_say_so_until_they_are_back(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    async def body() -> None:
        async with opened(driver, nodes.url(), ttl=3) as client:
            lease = await client.lock("name").acquire()
            for server in nodes.servers[:3]:
                server.kill()
            with pytest.raises(leasehold.BackendError, match=r"3 (votes )?are needed") as caught:
                await client.lock("other").acquire(timeout=1)
            assert f"127.0.0.1:{nodes.servers[0].port}" in str(caught.value)
            await until(driver, lease.lost.is_set)
            assert lease.loss is not None
            assert lease.loss.reason is LossReason.UNCONFIRMED
        for server in nodes.servers[:3]:
            server.start()
            settle(server, nodes.max_ttl)
        async with opened(driver, nodes.url(), ttl=1) as client:
            again = await client.lock("name").acquire(timeout=60)
            assert again.fence > lease.fence
            assert await again.release()

    driver.run(body())


def test_first_try_after_a_long_rest_finds_out_that_nodes_are_back(
    driver: contract.Driver, nodes: RedlockNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes are not probed for a client that is not used, so what it knows of them is old."""
    monkeypatch.setattr("leasehold._backends.redlock.nodes.IDLE", 0.1)

    runtime = driver.runtime()
    backend: Any = find_store(nodes.url()).open_backend(runtime)  # no client: it would go on withdrawing what failed
    known = backend._nodes

    def claim(name: str) -> Claim:
        return Claim(key_for(DEFAULT_NAMESPACE, name), runtime.owner(), 30.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))

    async def body() -> None:
        assert isinstance(await backend.try_acquire(claim("first")), Grant)
        for server in nodes.servers[:3]:
            server.kill()
        while known._count_up() > 2:
            with suppress(leasehold.BackendError):
                await backend.try_acquire(claim("other"))
        await until(driver, lambda: not known._probing)
        for server in nodes.servers[:3]:
            server.start()
            settle(server, nodes.max_ttl)
        assert isinstance(await backend.try_acquire(claim("name")), Grant)
        await backend.close()

    driver.run(body())


def test_black_holed_node_is_not_waited_for_and_comes_back_by_itself(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    async def body() -> None:
        with proxied(nodes, 1) as ((proxy,), url):
            async with opened(driver, url) as client:
                await pair(client)
                proxy.black_hole()
                started = time.monotonic()
                for _ in range(50):
                    await pair(client)
                assert time.monotonic() - started < 50 * 0.5, "every round waited for it"
                proxy.heal()
                proxy.accept()
                lease = await client.lock("name").acquire()
                limit = time.monotonic() + LIMIT  # not so many renewals: a busy proxy may sleep through all of them
                while has_lock(nodes.servers[0]) != lease.fence and time.monotonic() < limit:
                    await lease.renew()
                    await driver.breathe()
                assert has_lock(nodes.servers[0]) == lease.fence, "it was never asked again"
                assert await lease.release()

    driver.run(body())


def test_slow_node_is_not_waited_for(driver: contract.Driver, nodes: RedlockNodes) -> None:
    """It answers each time, a fifth of a second later than the others."""

    async def body() -> None:
        with proxied(nodes, 1) as ((proxy,), url):
            async with opened(driver, url.replace("answer_timeout=0.5", "answer_timeout=5")) as client:
                await pair(client)
                proxy.delay(to_client=0.2)
                started = time.monotonic()
                for _ in range(50):
                    await pair(client)
                assert time.monotonic() - started < 50 * 0.2

    driver.run(body())


def test_node_restarted_empty_sits_out_and_the_others_go_on(driver: contract.Driver, forgetful: RedlockNodes) -> None:
    async def body() -> None:
        async with opened(driver, forgetful.url(), ttl=SHORT) as client:
            fence = await pair(client, "name")
            restarted = forgetful.servers[2]
            restarted.kill()
            restarted.start()
            began = time.monotonic()
            voted_after = None
            while voted_after is None:
                lease = await client.lock("name").acquire(timeout=60)
                assert lease.fence > fence
                fence = lease.fence
                if has_lock(restarted) == lease.fence:
                    voted_after = time.monotonic() - began
                await lease.release()
                await driver.breathe()
                assert time.monotonic() - began < 60
            assert voted_after > 4.0, "it voted before it was safe"

    driver.run(body())


def test_rival_cannot_use_a_node_that_forgot_the_holders_vote(forgetful: RedlockNodes) -> None:
    """The holder has a bare majority. One of its nodes forgets, and is free; the rival must not get it."""
    with (
        leasehold.connect(forgetful.url(), ttl=SHORT) as holder,
        leasehold.connect(forgetful.url(), ttl=SHORT) as rival,
    ):
        rival.lock("other").acquire().release()
        lease = holder.lock("name", renew=False).acquire()
        eventually(lambda: held_on(forgetful) == 5 or lease.lost.is_set())
        for server in forgetful.servers[3:]:
            drop_lock(server)
        forgetful.servers[0].kill()
        forgetful.servers[0].start()
        while not lease.lost.is_set():
            assert rival.lock("name", renew=False).try_acquire() is None or lease.lost.is_set()
        later = rival.lock("name").acquire(timeout=60)
        assert later.fence > lease.fence
        assert later.release()


def test_cold_start_of_all_nodes_grants_nothing_names_the_seconds_left_and_can_be_waited_for(
    driver: contract.Driver,
) -> None:
    async def body() -> None:
        nodes = RedlockNodes(3, max_ttl=SHORT, answer_timeout=3)  # to connect, on a busy machine
        for server in nodes.servers:
            server.start()
        try:
            async with opened(driver, nodes.url(), ttl=SHORT) as client:
                why = r"sits out for [0-5]\.\d s more.*; a majority can vote in [0-5]\.\d s$"
                with pytest.raises(leasehold.BackendUnavailable, match=why):
                    await client.lock("name").try_acquire()
                began = time.monotonic()
                lease = await client.lock("name").acquire(timeout=60)
                assert 3.0 < time.monotonic() - began < 20, "it waits as long as it must, and hardly longer"
                await lease.release()
        finally:
            nodes.remove()

    driver.run(body())


def test_flush_of_one_node_does_not_cost_the_lease_and_the_node_gets_it_back(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    async def body() -> None:
        async with opened(driver, nodes.url(), ttl=3) as client:
            lease = await client.lock("name").acquire()
            nodes.servers[4].flush()
            assert has_lock(nodes.servers[4]) is None
            await lease.renew()
            await until(driver, lambda: has_lock(nodes.servers[4]) == lease.fence)
            lease.check()
            assert await lease.release()
            await until(driver, lambda: held_on(nodes) == 0)

    driver.run(body())


def test_flush_of_a_majority_ends_the_lease_and_it_is_not_granted_before_it_is_safe(
    driver: contract.Driver, forgetful: RedlockNodes
) -> None:
    async def body() -> None:
        async with opened(driver, forgetful.url(), ttl=SHORT, connect_timeout=60) as client:
            lease = await client.lock("name").acquire()
            for server in forgetful.servers[:3]:
                server.flush()
            began = time.monotonic()
            await until(driver, lease.lost.is_set)
            later = await client.lock("name").acquire(timeout=120)
            assert time.monotonic() - began > 3.5
            assert later.fence > lease.fence
            assert await later.release()

    driver.run(body())


def test_node_restarted_from_an_old_snapshot_sits_out_too(forgetful: RedlockNodes) -> None:
    """Its marker is there, and older than anything; but it names another process."""
    server = forgetful.servers[0]
    with leasehold.connect(forgetful.url(), ttl=SHORT) as client:
        with client.lock("name").hold():
            server.ask("SAVE")
        for _ in range(10):
            with client.lock("name").hold() as lease:
                fence = lease.fence
    server.kill()
    server.start()
    assert int(server.ask("DBSIZE")) > 0, "the snapshot was not read"
    backend = find_store(forgetful.url()).open_backend(ThreadRuntime())
    claim = Claim(key_for(DEFAULT_NAMESPACE, "name"), "f" * 32, SHORT, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
    grant = run(backend.try_acquire(claim))
    run(backend.close())
    assert isinstance(grant, Grant)
    assert grant.fence > fence
    answer = tell(server, Calls(forgetful.max_ttl, 5).vote(replace(claim, owner="e" * 32), grant.fence + 1).whole)
    assert answer.startswith(b"*3\r\n:4\r\n"), "it voted with old knowledge"


def test_lost_locks_are_put_back_only_while_a_majority_confirms(driver: contract.Driver, nodes: RedlockNodes) -> None:
    async def body() -> None:
        async with opened(driver, nodes.url(), ttl=10) as client:
            lease = await client.lock("name").acquire()
            await on_all(driver, nodes, lease)
            for server in nodes.servers[:2]:
                drop_lock(server)
            await lease.renew()
            await until(driver, lambda: held_on(nodes) == 5)
            for server in nodes.servers[:3]:
                drop_lock(server)
            with pytest.raises(leasehold.LeaseLost):
                await lease.renew()
            assert lease.loss is not None
            assert lease.loss.reason is LossReason.TAKEN
            assert held_on(nodes) <= 2, "a minority repaired itself"

    driver.run(body())


def test_repaired_node_that_still_sits_out_does_not_confirm(driver: contract.Driver, nodes: RedlockNodes) -> None:
    """It may have voted for a rival before it forgot; so two that remember and two that sit out are no majority."""

    async def body() -> None:
        async with opened(driver, nodes.url(), ttl=10) as client:
            lease = await client.lock("name").acquire()
            await on_all(driver, nodes, lease)
            for server in nodes.servers[:2]:
                server.flush()
            await on_all(driver, nodes, lease)
            nodes.servers[2].kill()
            with pytest.raises(leasehold.BackendError, match="of 5 nodes extended it, 3 are needed; 2 sit out"):
                await lease.renew()
            assert await lease.release()

    driver.run(body())


def test_late_repair_or_vote_does_not_bring_back_a_lock_that_was_released(nodes: RedlockNodes) -> None:
    calls = Calls(nodes.max_ttl, 5)
    backend = run(opened_store(ThreadRuntime(), nodes.url()))
    claim = Claim(key_for(DEFAULT_NAMESPACE, "name"), "f" * 32, 5.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
    grant = run(backend.try_acquire(claim))
    assert isinstance(grant, Grant)
    assert run(backend.release(grant))
    # That a node does not have the lock is not enough: a slow one may not have seen the vote either.
    eventually(lambda: all(highest_number(server) > grant.fence for server in nodes.servers))
    for server in nodes.servers:
        assert tell(server, calls.repair(grant).whole) == b":0\r\n"
        assert tell(server, calls.vote(claim, grant.fence).whole).startswith(b"*3\r\n:2\r\n")
    assert held_on(nodes) == 0
    run(backend.close())


def test_connections_that_are_hung_up_and_scripts_that_are_forgotten_cost_nothing(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    async def body() -> None:
        async with opened(driver, nodes.url(), ttl=10) as client:
            lease = await client.lock("name").acquire()
            for server in nodes.servers:
                server.forget_scripts()
            await pair(client)
            for server in nodes.servers:
                server.hang_up()
            await pair(client)
            await lease.renew()
            assert await lease.release()

    driver.run(body())
