"""How calls to a Redlock store end: refused, in time, closed, withdrawn, broken; on threads and on asyncio."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.redlock.calls import GONE, Calls
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.errors import ClientClosed
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode, Refusal
from tests.stores.redlock.redlock_support import (
    connected,
    drop_lock,
    has_lock,
    held_on,
    lock_key,
    opened_store,
    proxied,
    tell,
)
from tests.stores.support import opened
from tests.waiting import until
from verification.lab.redlock import RedlockNodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leasehold._face.client import AsyncClient
    from leasehold.testing import contract

PATIENT = 20.0  # a limit of the store's own that no call may need


@pytest.fixture
def nodes() -> Iterator[RedlockNodes]:
    with RedlockNodes(5, max_ttl=60, answer_timeout=0.5) as started:
        yield started


def claim_of(letter: str, ttl: float = 30.0) -> Claim:
    return Claim("leasehold:name", letter * 32, ttl, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


def store_of(client: AsyncClient) -> Any:
    return client._opened.backend  # type: ignore[union-attr]  # it is open


async def store_of_connected(driver: contract.Driver, client: AsyncClient) -> Any:
    await connected(driver, client)
    return store_of(client)


async def pair(client: AsyncClient) -> None:
    lease = await client.lock("other").acquire(timeout=60)
    await lease.release()


def marks(nodes: RedlockNodes) -> list[int]:
    """How many withdrawn claims each node remembers."""
    return [len(server.ask("KEYS", f"{GONE}*")) for server in nodes.servers]


async def granted(driver: contract.Driver, nodes: RedlockNodes, store: Any, claim: Claim) -> Grant:
    """A grant that every node has."""
    grant = await store.try_acquire(claim)
    assert isinstance(grant, Grant)
    end = time.monotonic() + 30
    while held_on(nodes) < len(nodes.servers):  # one that was connected late gets it with a renewal
        assert time.monotonic() < end, "some node never got it"
        await store.renew([grant])
        await driver.breathe()
    return grant


# --- refused


@pytest.mark.parametrize("down", [1, 2])
def test_lock_of_another_is_refused_and_never_in_doubt_while_nodes_are_down(
    driver: contract.Driver, nodes: RedlockNodes, down: int
) -> None:
    async def body() -> None:
        patient = nodes.url(answer_timeout=10)  # so that a busy machine is no silent node
        async with opened(driver, patient) as holder, opened(driver, patient) as client:
            held = await granted(driver, nodes, await store_of_connected(driver, holder), claim_of("a", 60))
            await connected(driver, client)
            for server in nodes.servers[:down]:
                server.kill()
            for _ in range(100):
                assert await client.lock("name").try_acquire() is None
            with pytest.raises(leasehold.AcquireTimeout, match="held by host"):
                await client.lock("name").acquire(timeout=0.2)
            assert await store_of(holder).release(held) is True

    driver.run(body())


def test_number_that_is_too_low_is_raised_although_only_a_bare_majority_is_there(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    """The first of three nodes that objects must not end the round: the others know higher numbers."""

    async def body() -> None:
        async with opened(driver, nodes.url()) as client:
            await connected(driver, client)
            for server in nodes.servers[:2]:
                server.kill()
            await until(driver, lambda: store_of(client)._nodes._count_up() >= 3)
            for place in range(20):
                for server in nodes.servers[2:]:
                    raised = int(time.time() * 1e6) + 1_500_000
                    server.ask("HSET", lock_key(f"name-{place}"), "c", str(raised))
                lease = await client.lock(f"name-{place}").try_acquire()
                assert lease is not None, "refused, although it is free"
                await lease.release()

    driver.run(body())


# --- in time


@pytest.mark.parametrize("verb", ["try_acquire", "renew", "release", "withdraw"])
def test_call_ends_when_its_answer_is_of_no_use_any_more(
    driver: contract.Driver, nodes: RedlockNodes, verb: str
) -> None:
    """The nodes are silent, and would be waited for much longer."""

    async def body() -> None:
        with proxied(nodes, 5) as (proxies, url):
            patient = url.replace("answer_timeout=0.5", "answer_timeout=10")
            async with opened(driver, patient) as client:
                await connected(driver, client)
                store, claim = store_of(client), claim_of("b")
                grant = Grant(claim, 1, claim.ttl)
                for proxy in proxies:
                    proxy.black_hole()
                started, now = time.monotonic(), driver.runtime().now()
                subject = {"renew": [grant], "release": grant}.get(verb, claim)
                with pytest.raises(leasehold.OutcomeUnknown):
                    for answer in await getattr(store, verb)(subject, now + 0.2):
                        raise answer
                assert time.monotonic() - started < 10 / 3

    driver.run(body())


def test_connecting_ends_when_the_answer_is_of_no_use_any_more(
    driver: contract.Driver, nodes: RedlockNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold._backends.redlock.nodes.HARD", PATIENT)

    async def body() -> None:
        with proxied(nodes, 5) as (proxies, url):
            store = connecting(driver, proxies, url)
            started, now = time.monotonic(), driver.runtime().now()
            with pytest.raises(leasehold.BackendUnavailable):
                await store.try_acquire(claim_of("b"), now + 0.2)
            assert time.monotonic() - started < PATIENT / 3
            for proxy in proxies:
                proxy.refuse()
            await store.close()

    driver.run(body())


def test_connection_for_one_more_thread_is_not_waited_for_too_long(nodes: RedlockNodes) -> None:
    """Other threads use all that there are, so this call has to connect, to a node that is silent."""
    with proxied(nodes, 1) as ((proxy,), url):
        patient = f"{url}&socket_timeout={PATIENT}&socket_connect_timeout={PATIENT}"
        store = run(opened_store(ThreadRuntime(), patient))
        node = store._nodes.all[0]
        taken = [node.wire.take(node)]
        while node.wire.is_ready:  # it may have connected twice
            taken.append(node.wire.take(node))
        proxy.black_hole()
        started = time.monotonic()
        grant = run(store.try_acquire(claim_of("b"), ThreadRuntime().now() + 1.0))
        assert time.monotonic() - started < PATIENT / 3
        assert isinstance(grant, Grant), "the others are a majority"
        for connection in taken:
            node.wire.give_back(connection)
        run(store.close())


def test_nothing_is_sent_when_there_is_no_time_left(driver: contract.Driver, nodes: RedlockNodes) -> None:
    async def body() -> None:
        async with opened(driver, nodes.url()) as client:
            await connected(driver, client)
            with pytest.raises(leasehold.BackendUnavailable, match="no time left"):
                await store_of(client).try_acquire(claim_of("b"), driver.runtime().now())
            assert held_on(nodes) == 0

    driver.run(body())


# --- closed


@pytest.mark.parametrize("verb", ["try_acquire", "renew", "release", "withdraw", "inspect"])
def test_call_that_is_under_way_ends_with_the_client(driver: contract.Driver, nodes: RedlockNodes, verb: str) -> None:
    async def body() -> None:
        with proxied(nodes, 5) as (proxies, url):
            store = await opened_store(driver.runtime(), url.replace("answer_timeout=0.5", "answer_timeout=10"))
            for proxy in proxies:
                proxy.black_hole()
            claim = claim_of("b")
            subject = {"renew": [Grant(claim, 1, 30.0)], "release": Grant(claim, 1, 30.0), "inspect": claim.key}
            await ends_with_close(driver, store, lambda: getattr(store, verb)(subject.get(verb, claim)), 10)

    driver.run(body())


def test_call_that_waits_for_connections_ends_with_the_client(
    driver: contract.Driver, nodes: RedlockNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold._backends.redlock.nodes.HARD", PATIENT)

    async def body() -> None:
        with proxied(nodes, 5) as (proxies, url):
            store = connecting(driver, proxies, url)
            await ends_with_close(driver, store, lambda: store.try_acquire(claim_of("b")), PATIENT, proxies)

    driver.run(body())


def connecting(driver: contract.Driver, proxies: Any, url: str) -> Any:
    """A store whose nodes are silent from the first byte on, with much patience for a connection."""
    for proxy in proxies:
        proxy.black_hole()
    return find_store(f"{url}&socket_timeout={PATIENT}").open_backend(driver.runtime())


async def ends_with_close(
    driver: contract.Driver, store: Any, ask: Callable[[], Any], limit: float, proxies: Any = ()
) -> None:
    """Ask beside us, close, and see how that ends; one that comes later is refused as well."""
    ended: list[BaseException | None] = []

    async def asking() -> None:
        try:
            await ask()
        except BaseException as error:
            ended.append(error)
        else:
            ended.append(None)

    runtime = driver.runtime()
    runtime.spawn(asking(), "asks")
    for _ in range(20):
        await driver.breathe()
    assert not ended, "it did not wait"
    started = time.monotonic()
    closing = store.close()
    if proxies:  # so that connections that are being made end too; the call must not need that

        async def close() -> None:
            await closing

        runtime.spawn(close(), "closes")
    else:
        await closing
    await until(driver, lambda: ended)
    assert time.monotonic() - started < limit / 3
    for proxy in proxies:
        proxy.refuse()
    assert isinstance(ended[0], ClientClosed), ended
    with pytest.raises(ClientClosed):
        await ask()


def test_votes_of_an_attempt_that_failed_are_taken_back_although_the_client_is_closed_at_once(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    """Two nodes vote for it after three have refused, so that it is taken back before it is known."""

    async def body() -> None:
        async with opened(driver, nodes.url(answer_timeout=10)) as rival:
            held = await granted(driver, nodes, await store_of_connected(driver, rival), claim_of("a"))
            for server in nodes.servers[:2]:
                drop_lock(server)
            store = await opened_store(driver.runtime(), nodes.url(answer_timeout=10))
            for server in nodes.servers[:2]:
                server.pause()
            try:
                assert isinstance(await store.try_acquire(claim_of("b")), Refusal)
                await store.close()
            finally:
                for server in nodes.servers[:2]:
                    server.resume()
            await until(driver, lambda: held_on(nodes) == 3, "a vote was left behind")
            assert await store_of(rival).release(held) is True

    driver.run(body())


# --- withdrawn


def test_withdrawal_without_doubt_leaves_nothing_on_nodes_that_answer(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    async def body() -> None:
        async with opened(driver, nodes.url(), ttl=30) as client:
            store = await store_of_connected(driver, client)
            grant = await granted(driver, nodes, store, claim_of("b"))
            await until(driver, lambda: not any(node.wire.has_pending for node in settled(store)))
            await store.withdraw(grant.claim, doubt=False)
            assert marks(nodes) == [0] * 5
            assert held_on(nodes) == 0
            grant = await granted(driver, nodes, store, claim_of("c"))
            await store.withdraw(grant.claim)
            await until(driver, lambda: marks(nodes) == [1] * 5, "with doubt every node has to know")
            assert held_on(nodes) == 0

    driver.run(body())


def settled(store: Any) -> list[Any]:
    """The nodes, after late answers that have come were read."""
    for node in store._nodes.all:
        for line in getattr(node.wire, "_idle", ()):
            with suppress(leasehold.OutcomeUnknown):
                line.catch_up()
    return list(store._nodes.all)


def test_withdrawal_without_doubt_leaves_a_mark_where_a_vote_may_still_arrive(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    """Four nodes granted it; the request to the fifth is still under way, and arrives after the withdrawal."""

    async def body() -> None:
        with proxied(nodes, 1) as ((slow,), url):
            async with opened(driver, url, ttl=30) as client:
                store = await store_of_connected(driver, client)
                slow.keep_back(b"leasehold:name", then="silence")
                grant = await store.try_acquire(claim_of("b"))
                assert isinstance(grant, Grant)
                await store.withdraw(grant.claim, doubt=False)
                await until_told(driver, client, nodes)
                slow.deliver()
                for _ in range(20):
                    await driver.breathe()
                assert has_lock(nodes.servers[0]) is None, "it took the lock, without a holder"

    driver.run(body())


async def until_told(driver: contract.Driver, client: AsyncClient, nodes: RedlockNodes) -> None:
    """The silent connection is closed, and what was sent on it is sent again."""
    end = time.monotonic() + 30
    while marks(nodes)[0] == 0:
        assert time.monotonic() < end, "the node in doubt did not get it"
        with suppress(leasehold.BackendError):
            await pair(client)
        await driver.breathe()


def test_node_that_was_away_gets_a_withdrawal_without_doubt_later(driver: contract.Driver, nodes: RedlockNodes) -> None:
    async def body() -> None:
        with proxied(nodes, 1) as ((proxy,), url):
            async with opened(driver, url, ttl=30) as client:
                store = await store_of_connected(driver, client)
                grant = await granted(driver, nodes, store, claim_of("b"))
                proxy.refuse()
                await store.withdraw(grant.claim, doubt=False)
                proxy.accept()
                await until_told(driver, client, nodes)
                assert held_on(nodes) == 0
                assert marks(nodes)[1:] == [0] * 4

    driver.run(body())


@pytest.mark.parametrize("had_it", [True, False])
def test_repair_that_is_under_way_does_not_take_a_lock_back_that_was_withdrawn(
    nodes: RedlockNodes, had_it: bool
) -> None:
    """Whether the node had the lock when it was withdrawn, or the repair shall bring it."""
    calls, claim = Calls(nodes.max_ttl, 5), claim_of("b")
    store = run(opened_store(ThreadRuntime(), nodes.url(answer_timeout=10)))
    grant = run(store.try_acquire(claim))
    assert isinstance(grant, Grant)
    server = nodes.servers[0]
    run(store.renew([grant]))
    if not had_it:
        server.ask("DEL", lock_key("name"))
    assert tell(server, calls.withdraw(claim, 0.0).whole) == b":1\r\n"
    assert tell(server, calls.repair(grant).whole) == b":0\r\n"
    assert has_lock(server) is None
    run(store.close())


# --- broken


@pytest.mark.parametrize("now", [False, True])
def test_release_of_a_broken_grant_answers_with_the_break_and_frees_what_was_kept(
    driver: contract.Driver, nodes: RedlockNodes, now: bool
) -> None:
    async def body() -> None:
        async with opened(driver, nodes.url(), ttl=30) as client:
            store = await store_of_connected(driver, client)
            grant = await granted(driver, nodes, store, claim_of("b"))
            assert await store.break_("leasehold:name", grant.fence, "the job hangs", now=now)
            assert held_on(nodes) == (0 if now else 5)
            for _ in range(2):  # the answer to the first may have got lost
                loss = await store.release(grant)
                assert loss == Loss(LossReason.BROKEN, "the job hangs")
            (renewed,) = await store.renew([grant])
            assert renewed == loss, "a renewal answers the same"
            await until(driver, lambda: held_on(nodes) == 0, "it is kept although its holder has left")
            later = await store.try_acquire(claim_of("c"))
            assert isinstance(later, Grant)
            assert later.fence > grant.fence
            assert await store.release(later) is True

    driver.run(body())


def test_connections_of_an_interrupted_call_are_not_used_again(nodes: RedlockNodes) -> None:
    store = run(opened_store(ThreadRuntime(), nodes.url(answer_timeout=10)))

    def interrupted(_: Any) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(store._nodes.poll(Calls(nodes.max_ttl, 5).look(["leasehold:name"]), interrupted, 1.0, math.inf))
    for node in store._nodes.all:
        assert not node.wire._taken
        assert not node.wire.has_pending, "an answer may be half read"
    assert run(store.inspect("leasehold:name")) is None
    run(store.close())
