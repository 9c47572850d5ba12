"""What happens to a holder whose connection, servers or node go away."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.protocol.serialization import Create2, GetChildren

import leasehold
from leasehold import LossReason
from leasehold._backends.zookeeper.claim_node import ClaimNode
from leasehold._backends.zookeeper.keys import Paths, node_prefix
from leasehold._backends.zookeeper.session import Session
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import run
from leasehold._urls import find_store
from leasehold.spi import Place
from leasehold.values import Grant
from tests.stores.zookeeper.zookeeper_support import (
    LIMIT,
    RUNTIME,
    Contender,
    OneWayProxy,
    check_history,
    claim,
    claims_in,
    now,
    opened,
    session_of,
    shut,
)
from verification.lab.namespaces import Network
from verification.lab.process import wait_until
from verification.lab.proxy import FaultProxy
from verification.lab.zookeeper import Ensemble, ZooKeeperServer

if TYPE_CHECKING:
    from kazoo.client import KazooClient


def through(proxy: OneWayProxy, root: str, ttl: float) -> leasehold.Client:
    return leasehold.connect(proxy.url(root), ttl=ttl)


def test_a_holder_cut_off_from_all_servers_knows_it_within_its_ttl_and_is_succeeded(
    zookeeper_ensemble: Ensemble,
) -> None:
    """Packets vanish without a word, in both directions."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(FaultProxy((server.host, server.port))) for server in zookeeper_ensemble.servers]
        url = f"zk://{','.join(f'127.0.0.1:{proxy.port}' for proxy in proxies)}/silent"
        cut_off = stack.enter_context(leasehold.connect(url, ttl=2))
        rival = stack.enter_context(leasehold.connect(zookeeper_ensemble.url("/silent"), ttl=2))
        lease = cut_off.lock("x").acquire()
        time.sleep(1)
        for proxy in proxies:
            proxy.black_hole()
        cut = now()
        assert lease.lost.wait(LIMIT)
        known = now()
        heir = rival.lock("x").acquire(timeout=LIMIT)
        assert known < cut + 2, "it must know by its own clock"
        assert known < now(), "before another client holds the lock"
        assert heir.fence > lease.fence
        for proxy in proxies:
            proxy.heal()
        assert lease.loss is not None
        assert lease.loss.reason is LossReason.UNCONFIRMED
        heir.release()
        again = cut_off.lock("x").acquire(timeout=LIMIT)
        assert again.fence > heir.fence
        again.release()


def test_a_host_cut_off_in_its_own_network_never_believes_beside_its_successor() -> None:
    with Network(1) as network:
        server = ZooKeeperServer(host=network.gateway)
        host = network.hosts[0]
        with server:
            inside = Contender(server.url("/host"), "contest", 2.0, 3.0, prefix=host.prefix)
            outside = Contender(server.url("/host"), "contest", 2.0, 0.5)
            inside.wait_for_grants(1)
            outside.wait_for_grants(1)
            host.cut()
            outside.wait_for_grants(4)
            host.heal()
            inside.wait_for_grants(1)
            outside.wait_for_grants(1)
            for contender in (inside, outside):
                contender.finish()
            check_history(sorted(inside.grants + outside.grants, key=lambda grant: grant["first"]))
            assert any("lost" in grant["end"] for grant in inside.grants), "the cut came while it held the lock"


def test_a_rolling_restart_costs_no_lease(zookeeper_ensemble: Ensemble) -> None:
    """Each server is away for less than the validity of the session."""
    with leasehold.connect(zookeeper_ensemble.url("/rolling"), ttl=20) as client:
        lease = client.lock("x").acquire()
        waiting = leasehold.connect(zookeeper_ensemble.url("/rolling"), ttl=20)
        for server in zookeeper_ensemble.servers:
            server.stop()
            server.start()
            wait_until(lambda: zookeeper_ensemble.leader().is_running, "there is no leader")
            lease.check()
            assert waiting.lock("x").try_acquire() is None
        lease.check()
        assert lease.release() is True
        other = waiting.lock("x").acquire(timeout=0)
        assert other.fence > lease.fence
        other.release()
        waiting.close()


def test_a_connection_that_comes_back_in_time_keeps_the_same_grant(proxy: OneWayProxy) -> None:
    """SUSPENDED is doubt and not loss."""
    with through(proxy, "/resumed", 5) as client:
        lease = client.lock("x").acquire()
        fence = lease.fence
        for _ in range(3):
            accepted = proxy.accepted
            proxy.cut()
            wait_until(partial(_accepts_more, proxy, accepted), "it does not connect again")
            wait_until(partial(_renews, lease), "it cannot be renewed again", LIMIT)
        lease.check()
        assert lease.fence == fence
        assert lease.release() is True


def test_a_waiter_whose_watches_were_lost_with_its_connection_is_served_all_the_same(
    zookeeper_server: ZooKeeperServer, proxy: OneWayProxy
) -> None:
    """The release happens while no notification reaches the waiter; it looks again when it is back."""
    with through(proxy, "/watch", 20) as waiter, leasehold.connect(zookeeper_server.url("/watch"), ttl=20) as holder:
        first, middle = holder.lock("x").acquire(), holder.lock("x")
        got: list[leasehold.Lease] = []
        between = threading.Thread(target=lambda: middle.acquire(timeout=LIMIT).release())
        between.start()
        wait_until(lambda: len(holder.inspect("x").waiting) == 1, "there is no waiter", LIMIT)  # type: ignore[union-attr]
        taking = threading.Thread(target=lambda: got.append(waiter.lock("x").acquire(timeout=LIMIT)))
        taking.start()
        wait_until(lambda: len(holder.inspect("x").waiting) == 2, "there is no waiter", LIMIT)  # type: ignore[union-attr]
        proxy.refuse()
        first.release()
        between.join()
        proxy.accept()
        taking.join()
        assert got[0].fence > first.fence
        got[0].check()
        assert got[0].release() is True


def _renews(lease: leasehold.Lease) -> bool:
    """Whether it was renewed; the session may still be on its way to a server."""
    try:
        lease.renew()
    except leasehold.BackendUnavailable:
        return False
    return True


def _accepts_more(proxy: OneWayProxy, before: int) -> bool:
    return proxy.accepted > before


CREATION = b"leasehold%3Ax/x-"  # what a request to make a claim for `x` contains


def test_a_creation_whose_answer_was_lost_is_found_again(proxy: OneWayProxy, eye: KazooClient) -> None:
    with through(proxy, "/adopted", 5) as client:
        client.lock("warm").acquire().release()
        proxy.swallow(CREATION, then="silence")
        lease = client.lock("x").acquire(timeout=LIMIT)
        assert proxy.done == 1
        (path,) = claims_in(eye, "/adopted")
        assert eye.get(path)[1].czxid == lease.fence, "it holds another node than the one it was granted"
        lease.check()
        assert lease.release() is True
        assert list(claims_in(eye, "/adopted")) == []


def test_a_creation_that_was_lost_on_the_way_is_made_again(proxy: OneWayProxy, eye: KazooClient) -> None:
    with through(proxy, "/lost", 5) as client:
        client.lock("warm").acquire().release()
        proxy.lose(CREATION)
        lease = client.lock("x").acquire(timeout=LIMIT)
        assert proxy.done == 1
        assert len(list(claims_in(eye, "/lost"))) == 1
        assert lease.release() is True


def test_a_creation_that_arrives_late_on_an_old_connection_is_not_done(proxy: OneWayProxy, eye: KazooClient) -> None:
    """The session has gone on to another connection: the server does not listen to the old one any more."""
    with through(proxy, "/late", 5) as client:
        client.lock("warm").acquire().release()
        proxy.keep_back(CREATION)
        lease = client.lock("x").acquire(timeout=LIMIT)
        assert proxy.done == 1
        assert lease.release() is True
        proxy.deliver()
        client.lock("warm").acquire().release()
        assert list(claims_in(eye, "/late")) == []


def test_giving_up_while_the_answer_is_missing_leaves_nothing(proxy: OneWayProxy, eye: KazooClient) -> None:
    with through(proxy, "/given up", 5) as client:
        client.lock("warm").acquire().release()
        proxy.swallow(CREATION, count=20, then="silence")
        with pytest.raises((leasehold.AcquireTimeout, leasehold.OutcomeUnknown)):
            client.lock("x").acquire(timeout=0.5)
        proxy.heal()
        wait_until(lambda: not list(claims_in(eye, "/given up")), "a claim that was given up is left over", LIMIT)


def test_a_node_of_an_older_session_is_never_adopted(
    zookeeper_server: ZooKeeperServer, proxy: OneWayProxy, eye: KazooClient
) -> None:
    """It has the same owner and is still visible, but it belongs to a session that is over, and is about to vanish."""
    backend = opened(proxy.url("/stale"))
    for lost in (False, True):
        repeated = claim(f"ns:{lost}", 5.0)
        parent = Paths("/stale").lock(repeated.key)
        stale = eye.create(f"{parent}/{node_prefix(repeated)}", b"{}", ephemeral=True, sequence=True, makepath=True)
        if lost:
            proxy.lose(node_prefix(repeated).encode())
            with pytest.raises(leasehold.OutcomeUnknown):
                run(backend.try_acquire(repeated))
        answer = run(backend.join(repeated))
        while isinstance(answer, Place):
            answer = run(backend.turn(answer))
        assert isinstance(answer, Grant)
        (path,) = (path for path in claims_in(eye, "/stale") if path.startswith(parent))
        assert path != stale
        assert eye.get(path)[1].czxid == answer.fence
        assert run(backend.release(answer)) is True
    shut(backend)


@pytest.mark.parametrize("lost", ["the creation", "the listing behind it"])
def test_connection_that_breaks_between_two_requests_leaves_a_doubt_only_if_one_was_sent(
    zookeeper_server: ZooKeeperServer, eye: KazooClient, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """It left none once: the error was "nothing was done", and the node was in the way of others."""
    backend = opened(zookeeper_server.url("/between"))
    first, second = (claim(f"ns:{lost}", 5.0) for _ in range(2))
    assert run(backend.release(run(backend.join(first)))) is True  # the parent of the node exists now
    send, broken = Session.send, Create2 if lost == "the creation" else GetChildren

    def break_before(session: Session, request: Any, **more: Any) -> Any:
        if isinstance(request, broken):
            raise leasehold.BackendUnavailable("there is no connection")
        return send(session, request, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Session, "send", break_before)
        expected = leasehold.BackendUnavailable if lost == "the creation" else leasehold.OutcomeUnknown
        with pytest.raises(expected):
            run(backend.join(second))
    answer = run(backend.join(second))
    assert isinstance(answer, Grant)
    parent = Paths("/between").lock(second.key)
    assert len([path for path in claims_in(eye, "/between") if path.startswith(parent)]) == 1
    assert run(backend.release(answer)) is True
    shut(backend)


def test_giving_up_in_doubt_removes_the_nodes_of_older_sessions_and_ones_own(
    proxy: OneWayProxy, eye: KazooClient
) -> None:
    """Its own is among them: if only another were deleted, it would be in the way until its session ends."""
    backend = opened(proxy.url("/stale-nodes"))
    doubtful = claim(ttl=5.0)
    parent = Paths("/stale-nodes").lock(doubtful.key)
    for _ in range(3):
        eye.create(f"{parent}/{node_prefix(doubtful)}", b"{}", ephemeral=True, sequence=True, makepath=True)
    proxy.swallow(node_prefix(doubtful).encode(), then="silence")
    with pytest.raises(leasehold.OutcomeUnknown):
        run(backend.try_acquire(doubtful))
    assert len(list(claims_in(eye, "/stale-nodes"))) == 4, "its own was not created"
    run(backend.withdraw(doubtful))
    assert list(claims_in(eye, "/stale-nodes")) == []
    shut(backend)


def test_a_session_that_ends_before_the_claim_is_sent_does_not_hold_it_up(zookeeper_server: ZooKeeperServer) -> None:
    """The claim is known to a session that is over; when it is repeated, it enters a new one."""
    backend = opened(zookeeper_server.url("/over"))
    first, second = (claim(f"ns:{name}", 5.0) for name in "ab")
    assert isinstance(run(backend.join(first)), Grant)
    (session,) = backend._pool._sessions.values()
    session.mark_over()
    session.admit(ClaimNode(second, session, Paths("/over").lock(second.key), RUNTIME.signal(), RUNTIME.now()))
    answer = run(backend.join(second))
    assert isinstance(answer, Grant)
    assert run(backend.release(answer)) is True
    shut(backend)


def test_a_session_is_not_closed_while_a_claim_is_about_to_use_it(zookeeper_server: ZooKeeperServer) -> None:
    """An idle session is closed for a ninth one; but one that was just reserved is not idle."""

    async def history() -> None:
        runtime = AsyncioRuntime()
        backend: Any = find_store(zookeeper_server.url("/eight")).open_backend(runtime)

        def join(ttl: float) -> asyncio.Task[Any]:
            return asyncio.create_task(backend.join(claim(f"ns:{ttl}", ttl)))

        grants = [await join(float(ttl)) for ttl in range(10, 17)]
        eighth, ninth = join(17.0), join(18.0)  # the ninth comes while the eighth waits for its connection
        with pytest.raises(leasehold.BackendRejected, match="8 different ttls"):
            await ninth
        grants.append(await eighth)
        assert await backend.release(grants.pop())
        grants.append(await join(18.0))  # now there is an idle one
        assert [type(grant) for grant in grants] == [Grant] * 8
        for grant in grants:
            assert await backend.release(grant)
        await backend.close()

    asyncio.run(asyncio.wait_for(history(), LIMIT))


def test_a_node_deleted_behind_the_holders_back_is_a_loss(zookeeper_server: ZooKeeperServer, eye: KazooClient) -> None:
    """The session lives on: only the node shows it."""
    with leasehold.connect(zookeeper_server.url("/deleted"), ttl=3) as client:
        early, late = client.lock("early").acquire(), client.lock("late").acquire()
        for path in claims_in(eye, "/deleted"):
            if "early" in path:
                eye.delete(path)
        assert early.lost.wait(LIMIT)
        assert early.loss is not None
        assert early.loss.reason is LossReason.TAKEN
        late.renew()
        time.sleep(2)  # by now its node is watched
        for path in claims_in(eye, "/deleted"):
            eye.delete(path)
        assert late.lost.wait(LIMIT)
        assert late.loss is not None
        assert late.loss.reason is LossReason.TAKEN
        assert late.release() is False
        client.lock("late").acquire(timeout=5).release()


def test_a_session_that_the_ensemble_ended_is_reported_as_such(proxy: OneWayProxy) -> None:
    with through(proxy, "/expired", 3) as client:
        lease = client.lock("x").acquire()
        session_of(client)._wire._client._session_passwd = b"\1" * 16  # the ensemble will answer: expired
        proxy.cut()
        assert lease.lost.wait(LIMIT)
        assert lease.loss is not None
        assert lease.loss.reason is LossReason.SESSION_ENDED
        again = client.lock("x").acquire(timeout=LIMIT)
        assert again.fence > lease.fence
        again.release()
