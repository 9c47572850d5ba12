"""Redlock behind a network that loses and delays, among rivals, and with clocks that are wrong."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.redis.blocking_wire import FRESH
from leasehold._backends.redlock.blocking_wire import MOST_IDLE, Pending
from leasehold._backends.redlock.calls import Calls
from leasehold._backends.redlock.scripts import script
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.values import Claim, Grant, Holder, Mode, Refusal
from tests.stores.redlock.redlock_support import connected, drop_lock, has_lock, held_on, lock_key, proxied, tell
from tests.stores.support import eventually, opened
from verification.lab.redlock import RedlockNodes, settle
from verification.lab.shifted_clock import ShiftedClock, ShiftedRedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leasehold._face.client import AsyncClient
    from leasehold.testing import contract

WORD = b"leasehold:name"  # only the requests about this lock


@pytest.fixture
def nodes() -> Iterator[RedlockNodes]:
    with RedlockNodes(5, max_ttl=60, answer_timeout=0.5) as started:
        yield started


async def pair(client: AsyncClient, name: str = "other") -> int:
    lease = await client.lock(name).acquire(timeout=60)
    await lease.release()
    return lease.fence


# --- lost and late answers


@pytest.mark.parametrize("then", ["cut", "silence"])
@pytest.mark.parametrize("lossy", [1, 3])
def test_acquire_whose_answers_were_lost_ends_as_one_grant(
    driver: contract.Driver, nodes: RedlockNodes, lossy: int, then: str
) -> None:
    async def body() -> None:
        with proxied(nodes, lossy) as (proxies, url):
            async with opened(driver, url) as client, opened(driver, nodes.url(answer_timeout=10)) as witness:
                await connected(driver, client)
                for proxy in proxies:
                    proxy.swallow(WORD, then=then)
                lease = await client.lock("name").acquire(timeout=30)
                state = await witness.inspect("name")
                assert state is not None
                assert [holding.fence for holding in state.holdings] == [lease.fence]
                lease.check()
                assert await lease.release()
                assert await witness.inspect("name") is None

    driver.run(body())


@pytest.mark.parametrize("then", ["cut", "silence"])
def test_release_whose_answers_were_lost_has_freed_the_lock(
    driver: contract.Driver, nodes: RedlockNodes, then: str
) -> None:
    async def body() -> None:
        with proxied(nodes, 3) as (proxies, url):
            async with opened(driver, url) as client, opened(driver, nodes.url(answer_timeout=10)) as witness:
                lease = await client.lock("name").acquire()
                for proxy in proxies:
                    proxy.swallow(WORD, then=then)
                assert await lease.release() is True
                assert await witness.inspect("name") is None

    driver.run(body())


def test_answers_that_come_after_the_ttl_grant_nothing_and_leave_nothing(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    async def body() -> None:
        with proxied(nodes, 5) as (proxies, url):
            patient = url.replace("answer_timeout=0.5", "answer_timeout=5")
            async with opened(driver, patient) as client, opened(driver, nodes.url(answer_timeout=10)) as witness:
                await connected(driver, client)
                for proxy in proxies:
                    proxy.delay(to_client=0.6)
                assert await client.lock("name", ttl=0.5, renew=False).try_acquire() is None
                store = client._opened.backend  # type: ignore[union-attr]  # it is open
                claim = Claim("leasehold:name", "f" * 32, 0.5, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
                assert isinstance(await store.try_acquire(claim), Refusal), "the store itself looks at the time too"
                for proxy in proxies:
                    proxy.delay()
                assert await witness.inspect("name") is None
                lease = await witness.lock("name").acquire(timeout=0)
                assert await lease.release()

    driver.run(body())


def test_votes_of_a_failed_attempt_are_taken_back_also_the_late_ones(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    """A rival has three nodes. The attempt gets the other two, one of them only after it has failed."""

    async def body() -> None:
        with proxied(nodes, 1) as ((slow,), url):
            async with opened(driver, url) as client, opened(driver, nodes.url(answer_timeout=10)) as rival:
                await connected(driver, client)
                held = await rival.lock("name").acquire()
                while held_on(nodes) < 5:
                    await driver.breathe()
                for server in nodes.servers[:2]:
                    drop_lock(server)
                slow.delay(to_server=0.2)
                assert await client.lock("name").try_acquire() is None
                await driver.runtime().sleep(0.6)  # long enough for the late vote and what was sent behind it
                assert has_lock(nodes.servers[0]) is None
                assert has_lock(nodes.servers[1]) is None
                held.check()
                assert await held.release()

    driver.run(body())


def test_votes_that_come_after_a_success_are_kept(driver: contract.Driver, nodes: RedlockNodes) -> None:
    async def body() -> None:
        with proxied(nodes, 2) as (slow, url):
            async with opened(driver, url) as client:
                await connected(driver, client)
                for proxy in slow:
                    proxy.delay(to_server=0.2)
                lease = await client.lock("name").acquire()
                end = time.monotonic() + 30
                while held_on(nodes) < 5:
                    assert time.monotonic() < end, "a bare majority dies with one node"
                    await driver.breathe()
                assert await lease.release()

    driver.run(body())


def test_node_that_was_away_at_the_release_gets_it_when_it_is_back(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    """Otherwise it would keep the lock, and refuse its vote, until the ttl is over."""

    async def body() -> None:
        with proxied(nodes, 1) as ((proxy,), url):
            async with opened(driver, url, ttl=60) as client:
                lease = await client.lock("name").acquire()
                end = time.monotonic() + 60
                while has_lock(nodes.servers[0]) is None:  # one that is connected late gets it with a renewal
                    assert time.monotonic() < end, "it never had the lock"
                    await lease.renew()
                    await driver.breathe()
                proxy.refuse()
                proxy.cut()
                assert await lease.release()
                assert has_lock(nodes.servers[0]) is not None
                proxy.accept()
                end = time.monotonic() + 60
                while has_lock(nodes.servers[0]) is not None:
                    assert time.monotonic() < end, "it never got it"
                    await pair(client)

    driver.run(body())


@pytest.mark.parametrize("is_raised", [False, True])
def test_late_clean_up_does_not_free_what_the_same_claim_was_granted_later(
    driver: contract.Driver, nodes: RedlockNodes, is_raised: bool
) -> None:
    """Three votes were given and their answers lost, so they are revoked; the same claim is sent again meanwhile."""
    claim = Claim("leasehold:name", "f" * 32, 30.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))

    async def body() -> None:
        with proxied(nodes, 3) as (proxies, url):
            async with opened(driver, url) as client:
                await connected(driver, client)
                store: Any = client._opened.backend  # type: ignore[union-attr]  # it is open
                if is_raised:
                    await store.raise_fence(claim.key, int(time.time() * 1e6) + 10**12)
                for proxy in proxies:
                    proxy.swallow(script("vote").digest, then="silence")
                with pytest.raises(leasehold.OutcomeUnknown):
                    await store.try_acquire(claim)
                (missing,) = {has_lock(server) for server in nodes.servers[:3]}
                assert missing is not None, "the votes were not given"
                for server in nodes.servers[3:]:
                    server.kill()  # so that those three must agree
                for node in store._nodes.all[:3]:
                    await node.wire.open()  # as another thread does; so all nodes can be asked again at once
                grant = await granted(driver, store, claim)
                late = Calls(nodes.max_ttl, 5).release(claim, missing, 0.0)
                for server in nodes.servers[:3]:
                    tell(server, late.whole)
                    assert has_lock(server) == grant.fence
                assert await store.release(grant)

    driver.run(body())


async def granted(driver: contract.Driver, store: Any, claim: Claim) -> Grant:
    """Ask the same claim until nodes whose connections are silent were left out, or are back."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with suppress(leasehold.BackendError):
            answer = await store.try_acquire(claim)
            assert isinstance(answer, Grant), "it was refused because of its own votes"
            return answer
        await driver.breathe()
    raise AssertionError("the votes that were lost are in its way")


def test_clean_up_that_got_lost_is_sent_again_although_the_node_stays_up(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    async def body() -> None:
        with proxied(nodes, 1) as ((proxy,), url):
            patient = url.replace("answer_timeout=0.5", "answer_timeout=10")
            async with (
                opened(driver, patient, ttl=60) as client,
                opened(driver, nodes.url(answer_timeout=10), ttl=60) as rival,
            ):
                await connected(driver, client)
                held = await rival.lock("name").acquire()
                while held_on(nodes) < 5:
                    await driver.breathe()
                drop_lock(nodes.servers[0])
                proxy.lose(script("release").digest)
                await refused_after_the_vote(driver, nodes, client, held.fence)
                proxy.wait_done()
                assert has_lock(nodes.servers[0]) is not None, "its vote was taken back at once"
                await driver.runtime().sleep(2 * FRESH)  # so the connection is found dead before it is used
                end = time.monotonic() + 30
                while has_lock(nodes.servers[0]) is not None:
                    assert time.monotonic() < end, "it never got it"
                    await pair(client)
                assert await held.release()

    driver.run(body())


async def refused_after_the_vote(driver: contract.Driver, nodes: RedlockNodes, client: AsyncClient, fence: int) -> None:
    """An attempt that the first node votes for, and that the others refuse only then.

    They are stopped meanwhile: were they quicker than the first, the vote and its clean-up could reach the proxy as one
    piece, and get lost as one.
    """
    answers: list[Any] = []

    async def attempt() -> None:
        answers.append(await client.lock("name", renew=False).try_acquire())

    # A number is an instant by its client's estimate: one below the rival's gets no vote.
    while client._opened.backend._nodes.number() <= fence:  # type: ignore[union-attr]  # it is open
        await driver.breathe()
    for server in nodes.servers[1:]:
        server.pause()
    try:
        driver.runtime().spawn(attempt(), "attempt")
        end = time.monotonic() + 30
        while has_lock(nodes.servers[0]) is None:
            assert time.monotonic() < end, "it did not vote"
            await driver.breathe()
    finally:
        for server in nodes.servers[1:]:
            server.resume()
    while not answers:
        assert time.monotonic() < end, "the attempt does not end"
        await driver.breathe()
    assert answers == [None]


def test_a_call_after_a_lost_request_is_kept(driver: contract.Driver, nodes: RedlockNodes) -> None:
    claim = Claim("leasehold:name", "f" * 32, 30.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))

    async def body() -> None:
        async with opened(driver, nodes.url()) as client:
            await connected(driver, client)
            node = client._opened.backend._nodes.all[0]  # type: ignore[union-attr]  # it is open
            node.failure = leasehold.BackendUnavailable("left out")
            calls = Calls(nodes.max_ttl, 5)
            request = node.wire.request(node, calls.vote(claim, 1), math.inf)
            with pytest.raises(leasehold.BackendUnavailable):
                await request.perform()
            late = calls.release(claim, 1, driver.runtime().now())
            request.send_after(late)
            request.send_after(late)
            assert len(node.undelivered) == 1

    driver.run(body())


def test_connections_that_are_too_many_or_of_no_use_leave_pending_calls_to_others(nodes: RedlockNodes) -> None:
    claim = Claim("leasehold:name", "f" * 32, 30.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
    calls = Calls(nodes.max_ttl, 5)
    store: Any = find_store(nodes.url()).open_backend(ThreadRuntime())
    run(store._nodes.ready())
    node = store._nodes.all[0]
    connections = [node.wire.take(node) for _ in range(MOST_IDLE + 1)]
    nodes.servers[0].pause()
    try:
        for number, connection in enumerate(connections):
            late = calls.release(claim, number, time.monotonic())
            connection.start(Pending(late, late.count), late.short)
            node.wire.give_back(connection)
        assert len(node.undelivered) == 1, "one is too many"
        with pytest.raises(leasehold.BackendError):
            run(node.wire.exchange(b"PING\r\n", 1))
        assert len(node.undelivered) == 2, "one is of no use"
    finally:
        nodes.servers[0].resume()
        run(store.close())


def test_node_that_forgot_only_some_scripts_gets_all_of_a_ballot(driver: contract.Driver, nodes: RedlockNodes) -> None:
    """A number that was raised ahead of the clock goes with every ballot, for nodes that do not know of it."""

    async def body() -> None:
        async with opened(driver, nodes.url()) as client:
            await connected(driver, client)
            raised = int(time.time() * 1e6) + 10**12
            await client.raise_fence("name", raised, reason="test")
            for server in nodes.servers:
                server.ask("DEL", lock_key("name"))
                server.forget_scripts()
                server.ask("SCRIPT", "LOAD", script("vote").text)
            lease = await client.lock("name").try_acquire()
            assert lease is not None
            assert lease.fence > raised
            assert await lease.release()

    driver.run(body())


# --- rivals


def test_five_equal_contenders_all_get_their_turns(nodes: RedlockNodes) -> None:
    """No split vote lasts: a claim that fails comes back after a pause of its own."""
    turns, fences, errors = 15, [], []
    guard = threading.Lock()

    def contend() -> None:
        try:
            with leasehold.connect(nodes.url(), ttl=20) as client:
                for _ in range(turns):
                    with client.lock("name").hold(timeout=100) as lease:
                        with guard:
                            fences.append(lease.fence)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=contend) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(fences) == 5 * turns
    assert fences == sorted(set(fences)), "numbers must rise in the order of the holders"


# --- clocks


@pytest.mark.parametrize("shift", [3600.0, -3600.0])
def test_node_whose_clock_is_an_hour_off_has_no_vote_and_does_no_harm(driver: contract.Driver, shift: float) -> None:
    nodes = RedlockNodes(5, max_ttl=60, answer_timeout=0.5)
    nodes.servers[2] = ShiftedRedisServer()
    nodes.start()
    shifted = nodes.servers[2]
    assert isinstance(shifted, ShiftedRedisServer)

    async def body() -> None:
        async with opened(driver, nodes.url()) as client:
            before = await pair(client, "name")
            shifted.clock.set(shift)
            settle(shifted, nodes.max_ttl)
            fences = [await pair(client, "name") for _ in range(20)]
            assert [before, *fences] == sorted({before, *fences})
            assert abs(fences[-1] / 1e6 - time.time()) < 60, "the wild clock came through"
            lease = await client.lock("name").acquire()
            assert has_lock(shifted) is None
            assert await lease.release()
            shifted.clock.set(0)
            settle(shifted, nodes.max_ttl)
            assert await pair(client, "name") > fences[-1]

    try:
        driver.run(body())
    finally:
        nodes.remove()


def test_clock_that_jumps_ahead_frees_a_key_early_and_the_rival_has_a_higher_number() -> None:
    """Redlock cannot prevent this. The number is what is left."""
    nodes = RedlockNodes(3, max_ttl=60, answer_timeout=0.5)
    nodes.servers[0] = ShiftedRedisServer()
    nodes.start()
    jumping = nodes.servers[0]
    assert isinstance(jumping, ShiftedRedisServer)
    try:
        with leasehold.connect(nodes.url()) as holder, leasehold.connect(nodes.url()) as rival:
            lease = holder.lock("name", renew=False).acquire()
            eventually(lambda: held_on(nodes) == 3)
            drop_lock(nodes.servers[2])
            jumping.clock.set(3600)
            eventually(lambda: has_lock(jumping) is None)
            jumping.clock.set(0)
            jumping.ask("HDEL", "leasehold:redlock:lock:leasehold:name", "o")  # as if the jump had lasted
            other = rival.lock("name").acquire(timeout=30)
            assert other.fence > lease.fence
            lease.check()  # two believe at once
            assert other.release()
            lease.release()
    finally:
        nodes.remove()


def test_wall_clock_of_the_client_does_not_matter(nodes: RedlockNodes, tmp_path: Path) -> None:
    script = (
        "import sys, time, leasehold\n"
        "with leasehold.connect(sys.argv[1]) as client, client.lock('name').hold() as lease:\n"
        "    print(lease.fence, time.time())\n"
    )
    clock = ShiftedClock(tmp_path)
    before = time.time()
    for shift in (3600, -3600):
        clock.set(shift)
        command = [sys.executable, "-c", script, nodes.url()]
        done = subprocess.run(command, env=clock.environment(), capture_output=True, text=True, check=True)
        fence, wall = done.stdout.split()
        assert abs(float(wall) - before - shift) < 600, "its clock was not shifted"
        assert abs(int(fence) / 1e6 - time.time()) < 60
