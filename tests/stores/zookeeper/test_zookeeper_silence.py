"""What happens when answers do not arrive: to the session, and to calls that have little time."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import LossReason
from leasehold._backends.zookeeper.connection import close_session
from leasehold._runtimes.threads import run
from leasehold.spi import Place
from leasehold.values import Grant
from tests.stores.zookeeper.zookeeper_support import (
    LIMIT,
    OWN_LIMIT,
    RUNTIME,
    OneWayProxy,
    claim,
    claims_in,
    looking_at,
    now,
    opened,
    session_of,
    shut,
    woken,
)
from verification.lab.process import free_port, wait_until
from verification.lab.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kazoo.client import KazooClient


LITTLE = 0.3  # what a caller may have left


def soon() -> float:
    return RUNTIME.now() + LITTLE


# --- a session that is lost here


def test_a_holder_that_no_answer_reaches_is_succeeded_within_two_ttls(
    zookeeper_server: ZooKeeperServer, proxy: OneWayProxy
) -> None:
    """Its pings and new connections still reached the ensemble, and kept its session alive for as long as it tried."""
    url = proxy.url("/deaf")
    with leasehold.connect(url, ttl=9) as deaf, leasehold.connect(zookeeper_server.url("/deaf"), ttl=9) as rival:
        lease = deaf.lock("x").acquire()
        lease.renew()
        proxy.answers_vanish = True
        silenced = now()
        assert lease.lost.wait(LIMIT)
        known = now()
        heir = rival.lock("x").acquire(timeout=LIMIT)
        succeeded = now()
        assert known < succeeded, "two believed at the same time"
        assert succeeded - silenced < 18, "the session was kept alive by the one who had lost it"
        assert heir.fence > lease.fence
        proxy.answers_vanish = False
        assert lease.loss is not None
        assert lease.loss.reason is LossReason.UNCONFIRMED
        heir.release()
        again = deaf.lock("x").acquire(timeout=LIMIT)
        assert again.fence > heir.fence
        again.release()


def test_a_session_that_was_given_up_is_never_resumed(proxy: OneWayProxy) -> None:
    """Whatever a kazoo thread was about to do: no connection is made for it any more, and its thread ends."""
    with leasehold.connect(proxy.url("/resumed"), ttl=2) as client:
        lease = client.lock("x").acquire()
        session = session_of(client)
        proxy.answers_vanish = True
        wait_until(session.is_over, "the session is not given up", LIMIT)
        kazoo_thread = session._wire._client._connection._connection_routine
        wait_until(lambda: not kazoo_thread.is_alive(), "its connection goes on", LIMIT)
        assert lease.lost.wait(LIMIT)
        proxy.answers_vanish = False
        client.lock("y").acquire(timeout=LIMIT).release()


def test_a_session_is_closed_although_kazoo_has_forgotten_it(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    """On a busy machine kazoo's thread may find out before the thread that sends the request has begun."""
    backend = opened(zookeeper_server.url("/forgotten"))
    run(backend.join(claim()))
    (session,) = backend._pool._sessions.values()
    wire, kazoo = session._wire, session._wire._client
    wire.end()
    wire.cut()
    wait_until(lambda: kazoo._session_id is None, "kazoo goes on with the session", LIMIT)
    assert list(claims_in(eye, "/forgotten"))
    wire.close_elsewhere()
    wait_until(lambda: not list(claims_in(eye, "/forgotten")), "the session was not closed", LIMIT)
    shut(backend)


def test_a_server_with_a_lower_bound_shortens_the_validity() -> None:
    """A session that goes on to such a server is ended earlier from then on."""
    server = ZooKeeperServer()
    with server:
        backend = opened(server.url())
        held = run(backend.join(claim(ttl=30.0)))
        assert held.ttl >= 30
        server.stop()
        server.settings["maxSessionTimeout"] = 3000
        server.start()
        session = next(iter(backend._pool._sessions.values()))
        wait_until(session.is_connected, "it does not connect again", LIMIT)
        (renewed,) = run(backend.renew([held]))
        assert renewed.ttl <= 2, "a renewal promises more than the ensemble gives"
        assert run(backend.release(held)) is True
        shut(backend)


def test_a_grant_has_the_ttl_that_the_ensemble_gives() -> None:
    """Whether it is granted at once, after a wait or renewed."""
    server = ZooKeeperServer(settings={"maxSessionTimeout": 3000})
    with server:
        backend = opened(server.url())
        first = run(backend.join(claim(ttl=30.0)))
        place = run(backend.join(claim(ttl=30.0)))
        assert run(backend.release(first)) is True
        run(woken(place))
        second = run(backend.turn(place))
        (renewed,) = run(backend.renew([second]))
        assert [grant.ttl for grant in (first, second)] == [2.0, 2.0]
        assert renewed.ttl <= 2.0
        assert run(backend.release(second)) is True
        shut(backend)


def test_a_fence_raised_while_the_connection_was_lost_is_known_afterwards(
    zookeeper_server: ZooKeeperServer, proxy: OneWayProxy
) -> None:
    url = proxy.url("/raised")
    with leasehold.connect(url, ttl=60) as client, leasehold.connect(zookeeper_server.url("/raised")) as other:
        client.lock("x").acquire().release()
        proxy.refuse()
        raised = other.raise_fence("x", 2**50, reason="a test")
        proxy.accept()
        later = client.lock("x").acquire(timeout=LIMIT)
        later.release()
        assert later.fence > raised >= 2**50


def test_a_renewal_that_one_session_did_not_confirm_promises_no_more_than_before(proxy: OneWayProxy) -> None:
    """Two ttls are two sessions; one of them is answered."""
    backend = opened(proxy.url("/partly"))
    silent, loud = (run(backend.join(claim(f"ns:{name}", ttl))) for name, ttl in (("silent", 30.0), ("loud", 60.0)))
    granted = RUNTIME.now()
    proxy.lose(b"ns%3Asilent", then="silence")
    time.sleep(0.5)
    started = RUNTIME.now()
    unconfirmed, confirmed = run(backend.renew([silent, loud]))
    assert proxy.done == 1
    assert isinstance(unconfirmed, Grant)
    assert isinstance(confirmed, Grant)
    assert confirmed.ttl >= 60
    assert started + unconfirmed.ttl <= granted + 30.01, "it is valid for longer than what was confirmed"
    proxy.heal()
    shut(backend)


def test_a_grant_after_a_wait_is_valid_for_no_longer_than_its_session(zookeeper_server: ZooKeeperServer) -> None:
    """The lock was handed over some time after the leader last answered: the ttl counts from that answer."""
    backend, other = opened(zookeeper_server.url("/handed")), opened(zookeeper_server.url("/handed"))
    held = run(other.join(claim()))
    place = run(backend.join(claim()))
    time.sleep(0.3)
    assert run(other.release(held)) is True
    run(woken(place))
    requested = RUNTIME.now()
    grant = run(backend.turn(place))
    valid_until = (requested if grant.since is None else grant.since) + grant.ttl
    session = next(iter(backend._pool._sessions.values()))
    assert valid_until <= session.validity.until + 0.001
    shut(backend, other)


def test_a_waiter_looks_again_as_soon_as_its_connection_is_back(
    zookeeper_server: ZooKeeperServer, proxy: OneWayProxy
) -> None:
    """Not only when its next look would be due, a third of its ttl later."""
    backend, other = opened(proxy.url("/back")), opened(zookeeper_server.url("/back"))
    run(other.join(claim(ttl=600.0)))
    place = run(backend.join(claim(ttl=600.0)))
    place.signal.clear()
    proxy.cut()
    assert place.recheck > LIMIT
    run(woken(place))
    shut(backend, other)


def test_a_fence_that_equals_a_waiters_own_is_raised_above_it(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    backend = opened(zookeeper_server.url("/equal"))
    held = run(backend.join(claim()))
    place = run(backend.join(claim()))
    own = max(eye.get(path)[1].czxid for path in claims_in(eye, "/equal"))
    raised = run(backend.raise_fence("ns:x", own))
    assert run(backend.release(held)) is True
    run(woken(place))
    grant = run(backend.turn(place))
    assert grant.fence > raised >= own
    shut(backend)


def test_a_session_is_closed_through_the_first_server_that_answers(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    """Nothing listens at the first address, and the second one accepts and sends nothing."""
    with looking_at(zookeeper_server) as other:
        other.create("/closed-elsewhere", ephemeral=True)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            hosts = [("127.0.0.1", free_port()), silent.getsockname(), (zookeeper_server.host, zookeeper_server.port)]
            close_session(hosts, other.client_id, 0.5)
        wait_until(lambda: eye.exists("/closed-elsewhere") is None, "the session was not closed", OWN_LIMIT)


# --- calls that have little time


def mute_after_connecting(proxy: OneWayProxy, root: str) -> tuple[Any, Grant, Place]:
    """A store that was connected, held one lock and waited for another; then the ensemble falls silent."""
    backend = opened(proxy.url(root))
    held, busy = run(backend.join(claim("ns:held"))), run(backend.join(claim("ns:busy")))
    place = run(backend.join(claim("ns:busy")))
    assert isinstance(held, Grant)
    assert isinstance(busy, Grant)
    assert isinstance(place, Place)
    proxy.black_hole()
    return backend, held, place


def took(call: Callable[[], Any], *errors: type[Exception]) -> float:
    started = RUNTIME.now()
    with pytest.raises(errors):
        run(call())
    return RUNTIME.now() - started


def test_every_call_on_a_mute_ensemble_ends_when_its_caller_has_no_time_left(proxy: OneWayProxy) -> None:
    """The store itself would wait for seconds: a twentieth of a session of 90 s, or three seconds for a connection."""
    backend, held, place = mute_after_connecting(proxy, "/mute")
    unknown, either = (leasehold.OutcomeUnknown,), (leasehold.OutcomeUnknown, leasehold.BackendUnavailable)
    assert took(lambda: backend.try_acquire(claim("ns:other"), soon()), *unknown) < OWN_LIMIT
    assert took(lambda: backend.join(claim("ns:other"), soon()), *unknown) < OWN_LIMIT
    assert took(lambda: backend.turn(place, soon()), *either) < OWN_LIMIT
    assert took(lambda: backend.renew([held], soon()), *either) < OWN_LIMIT
    assert took(lambda: backend.release(held, soon()), *unknown) < OWN_LIMIT
    assert took(lambda: backend.withdraw(place.claim, soon()), *unknown) < OWN_LIMIT
    proxy.heal()
    shut(backend)


def test_a_call_that_sent_nothing_is_unavailable_when_its_time_is_over(proxy: OneWayProxy) -> None:
    """There is no connection; or only reads were sent, of the floor of the fences."""
    backend = opened(f"zk://127.0.0.1:{free_port()}/nowhere")
    assert took(lambda: backend.join(claim(), soon()), leasehold.BackendUnavailable) < OWN_LIMIT
    shut(backend)
    backend = opened(proxy.url("/reads"))
    proxy.lose(b"/reads/fence", then="silence")

    def sent_a_read() -> bool:
        """Connecting may take longer than the call; then the next one sends the read."""
        assert took(lambda: backend.join(claim(), soon()), leasehold.BackendUnavailable) < OWN_LIMIT
        return proxy.done == 1

    wait_until(sent_a_read, "no call sends the read", LIMIT)
    shut(backend)


def test_a_renewal_of_many_sessions_takes_no_longer_than_one(proxy: OneWayProxy) -> None:
    backend = opened(proxy.url("/many"))
    grants = [run(backend.join(claim(f"ns:{ttl}", float(ttl)))) for ttl in (60, 70, 80, 90)]
    proxy.black_hole()
    assert took(lambda: backend.renew(grants), leasehold.OutcomeUnknown, leasehold.BackendUnavailable) < 10
    proxy.heal()
    shut(backend)


def test_a_caller_without_time_does_not_cost_the_others_their_connection(proxy: OneWayProxy) -> None:
    backend = opened(proxy.url("/shared"))
    held = run(backend.join(claim("ns:held")))
    proxy.delay(to_client=0.2)
    with pytest.raises(leasehold.OutcomeUnknown):
        run(backend.renew([held], RUNTIME.now() + 0.01))
    (answer,) = run(backend.renew([held]))
    assert isinstance(answer, Grant)
    assert proxy.accepted == 1
    proxy.delay()
    assert run(backend.release(held)) is True
    shut(backend)
