"""What happens when answers do not arrive: to the session, to calls that have little time, and to a closed client."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import LossReason
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import ClientClosed
from leasehold.spi import Place
from leasehold.urls import find_store
from leasehold.values import Claim, Grant, Holder, Loss, Mode, Refusal
from tests.faults.zookeeper_support import LIMIT, OneWayProxy, claims_in, looking_at, now
from verification.lab.process import free_port, wait_until
from verification.lab.proxy import FaultProxy
from verification.lab.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kazoo.client import KazooClient

RUNTIME = ThreadRuntime()
OWN_LIMIT = 2.0  # the shortest time that the store itself gives one answer
LITTLE = 0.3  # what a caller may have left


@pytest.fixture
def eye(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """Sees what is really there."""
    client = looking_at(zookeeper_server)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def proxy(zookeeper_server: ZooKeeperServer) -> Iterator[OneWayProxy]:
    between = OneWayProxy((zookeeper_server.host, zookeeper_server.port))
    with between:
        yield between


def opened(url: str) -> Any:
    return find_store(url).open_backend(RUNTIME)


def claim(key: str = "ns:x", ttl: float = 60.0, mode: Mode = Mode.EXCLUSIVE) -> Claim:
    return Claim(key, RUNTIME.owner(), ttl, mode, 1, 0.0, Holder("host", 1))


def soon() -> float:
    return RUNTIME.now() + LITTLE


# --- a session that is lost here


def test_a_holder_that_hears_no_answers_is_succeeded_within_two_ttls(
    zookeeper_server: ZooKeeperServer, proxy: OneWayProxy
) -> None:
    """Its pings and new connections still reached the ensemble, and kept its session alive for as long as it tried."""
    url = f"zk://127.0.0.1:{proxy.port}/deaf"
    with leasehold.connect(url, ttl=6) as deaf, leasehold.connect(zookeeper_server.url("/deaf"), ttl=6) as rival:
        lease = deaf.lock("x").acquire()
        lease.renew()
        proxy.answers_vanish = True
        silenced = now()
        assert lease.lost.wait(LIMIT)
        known = now()
        heir = rival.lock("x").acquire(timeout=LIMIT)
        succeeded = now()
        assert known < succeeded, "two believed at the same time"
        assert succeeded - silenced < 12, "the session was kept alive by the one who had lost it"
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
    with leasehold.connect(f"zk://127.0.0.1:{proxy.port}/resumed", ttl=2) as client:
        lease = client.lock("x").acquire()
        session: Any = client._twin._session and client._twin._session.backend
        (session,) = session._pool._sessions.values()
        proxy.answers_vanish = True
        wait_until(session.is_over, "the session is not given up", LIMIT)
        kazoo_thread = session._wire._client._connection._connection_routine
        wait_until(lambda: not kazoo_thread.is_alive(), "its connection goes on", LIMIT)
        assert lease.lost.wait(LIMIT)
        proxy.answers_vanish = False
        client.lock("y").acquire(timeout=LIMIT).release()


def test_a_server_with_a_lower_bound_shortens_what_is_believed() -> None:
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
        run(backend.close())


def test_a_grant_says_which_ttl_the_ensemble_gives() -> None:
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
        run(backend.close())


def test_a_fence_raised_while_the_connection_was_lost_is_known_afterwards(
    zookeeper_server: ZooKeeperServer, proxy: FaultProxy
) -> None:
    url = f"zk://127.0.0.1:{proxy.port}/raised"
    with leasehold.connect(url, ttl=60) as client, leasehold.connect(zookeeper_server.url("/raised")) as other:
        client.lock("x").acquire().release()
        proxy.refuse()
        raised = other.raise_fence("x", 2**50, reason="a test")
        proxy.accept()
        later = client.lock("x").acquire(timeout=LIMIT)
        later.release()
        assert later.fence > raised >= 2**50


def test_a_renewal_that_one_session_did_not_confirm_promises_no_more_than_before(proxy: FaultProxy) -> None:
    """Two ttls are two sessions; one of them is answered."""
    backend = opened(f"zk://127.0.0.1:{proxy.port}/partly")
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
    assert started + unconfirmed.ttl <= granted + 30.01, "it is believed for longer than what was confirmed"
    proxy.heal()
    run(backend.close())


# --- calls that have little time


def mute_after_connecting(proxy: FaultProxy, root: str) -> tuple[Any, Grant, Place]:
    """A store that was connected, held one lock and waited for another; then the ensemble falls silent."""
    backend = opened(f"zk://127.0.0.1:{proxy.port}{root}")
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


def test_every_call_on_a_mute_ensemble_ends_when_its_caller_has_no_time_left(proxy: FaultProxy) -> None:
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
    run(backend.close())


def test_a_call_that_sent_nothing_says_so_when_its_time_is_over(proxy: FaultProxy) -> None:
    """The connection is not there; or only questions were sent, about what fences are counted from."""
    backend = opened(f"zk://127.0.0.1:{free_port()}/nowhere")
    assert took(lambda: backend.join(claim(), soon()), leasehold.BackendUnavailable) < OWN_LIMIT
    run(backend.close())
    backend = opened(f"zk://127.0.0.1:{proxy.port}/questions")
    proxy.lose(b"/questions/fence", then="silence")
    assert took(lambda: backend.join(claim(), soon()), leasehold.BackendUnavailable) < OWN_LIMIT
    assert proxy.done == 1
    run(backend.close())


def test_a_renewal_of_many_sessions_takes_no_longer_than_one(proxy: FaultProxy) -> None:
    backend = opened(f"zk://127.0.0.1:{proxy.port}/many")
    grants = [run(backend.join(claim(f"ns:{ttl}", float(ttl)))) for ttl in (60, 70, 80, 90)]
    proxy.black_hole()
    assert took(lambda: backend.renew(grants), leasehold.OutcomeUnknown, leasehold.BackendUnavailable) < 10
    proxy.heal()
    run(backend.close())


def test_a_caller_without_time_does_not_cost_the_others_their_connection(proxy: FaultProxy) -> None:
    backend = opened(f"zk://127.0.0.1:{proxy.port}/shared")
    held = run(backend.join(claim("ns:held")))
    proxy.delay(to_client=0.2)
    with pytest.raises(leasehold.OutcomeUnknown):
        run(backend.renew([held], RUNTIME.now() + 0.01))
    (answer,) = run(backend.renew([held]))
    assert isinstance(answer, Grant)
    assert proxy.accepted == 1
    proxy.delay()
    assert run(backend.release(held)) is True
    run(backend.close())


# --- withdrawing, releasing, closing


def test_a_withdrawal_without_doubt_leaves_no_node_and_no_mark(zookeeper_server: ZooKeeperServer, eye: Any) -> None:
    backend = opened(zookeeper_server.url("/withdrawn"))
    holder = run(backend.join(claim()))
    waiter = claim()
    assert isinstance(run(backend.join(waiter)), Place)
    run(backend.withdraw(waiter, doubt=False))
    assert len(list(claims_in(eye, "/withdrawn"))) == 1
    assert waiter.owner not in backend._registry.withdrawn
    assert waiter.owner not in backend._registry.standings
    run(backend.withdraw(holder.claim, doubt=False))
    assert list(claims_in(eye, "/withdrawn")) == []
    assert isinstance(run(backend.join(waiter)), Grant), "no request of it can be late, so it is not refused"
    run(backend.withdraw(waiter))
    assert isinstance(run(backend.join(waiter)), Refusal)
    run(backend.close())


@pytest.mark.parametrize("at_once", [False, True], ids=["kept for its ttl", "at once"])
@pytest.mark.parametrize("renewed", [False, True], ids=["before a renewal", "after a renewal"])
def test_the_release_of_a_broken_grant_answers_the_break_and_frees_the_lock(
    zookeeper_server: ZooKeeperServer, *, at_once: bool, renewed: bool
) -> None:
    url = zookeeper_server.url(f"/broken-{at_once}-{renewed}")
    backend, operator = opened(url), opened(url)
    held, other = run(backend.join(claim())), claim()
    assert run(operator.break_("ns:x", held.fence, "stuck", now=at_once)) is True
    expected = Loss(LossReason.BROKEN, "stuck")
    if renewed:
        assert run(backend.renew([held])) == [expected]
        assert run(backend.renew([held])) == [expected], "a repeated renewal gives another answer"
    place = run(operator.join(other))
    assert isinstance(place, Grant if at_once else Place)
    assert run(backend.release(held)) == expected
    if isinstance(place, Place):
        run(woken(place))
        place = run(operator.turn(place))
    assert isinstance(place, Grant), "the lock is kept although its holder has gone"
    assert place.fence > held.fence
    assert run(operator.release(place)) is True
    assert run(backend.release(held)) is False
    for each in (backend, operator):
        run(each.close())


async def woken(place: Place) -> None:
    assert await RUNTIME.wait(place.signal, RUNTIME.now() + LIMIT)


def test_a_grant_whose_node_was_deleted_without_a_note_is_not_ours_any_more(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    backend = opened(zookeeper_server.url("/taken"))
    held = run(backend.join(claim()))
    for path in claims_in(eye, "/taken"):
        eye.delete(path)
    assert run(backend.release(held)) is False
    run(backend.close())


@pytest.mark.parametrize("holds", [False, True], ids=["holding nothing", "holding another lock"])
def test_calls_that_wait_when_the_client_is_closed_end_at_once(
    zookeeper_server: ZooKeeperServer, proxy: FaultProxy, eye: KazooClient, *, holds: bool
) -> None:
    """One waits for an answer that does not come; one waits in line, and looks again when it is woken."""
    root = f"/closing-{holds}"
    backend, other = opened(f"zk://127.0.0.1:{proxy.port}{root}"), opened(zookeeper_server.url(root))
    busy = run(other.join(claim("ns:busy")))
    place = run(backend.join(claim("ns:busy")))
    if holds:
        assert isinstance(run(backend.join(claim("ns:mine"))), Grant)
    proxy.black_hole()
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            run(backend.try_acquire(claim("ns:free")))
        except BaseException as error:
            ended.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: len(backend._calls._waits) == 1, "the call does not wait", LIMIT)
    closing = threading.Thread(target=lambda: run(backend.close()))
    closing.start()
    asking.join(OWN_LIMIT)
    assert [type(error) for error in ended] == [ClientClosed]
    run(woken(place))
    with pytest.raises(ClientClosed):
        run(backend.turn(place))
    closing.join(LIMIT)
    for call in (backend.join(claim()), backend.inspect("ns:x"), backend.renew([]), backend.release(busy)):
        with pytest.raises(ClientClosed, match="this client is closed; make a new one"):
            run(call)
    proxy.heal()
    run(other.close())


def test_a_claim_that_waits_when_its_client_is_closed_leaves_no_node(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    """Also while another grant of the client keeps the session open until its ttl is over."""
    backend, other = opened(zookeeper_server.url("/waits")), opened(zookeeper_server.url("/waits"))
    busy = run(other.join(claim("ns:busy")))
    assert isinstance(run(backend.join(claim("ns:mine"))), Grant)
    assert isinstance(run(backend.join(claim("ns:busy"))), Place)
    run(backend.close())
    wait_until(lambda: len(list(claims_in(eye, "/waits"))) == 2, "a waiter of a closed client stands in line", LIMIT)
    assert run(other.release(busy)) is True
    for session in list(backend._pool._sessions.values()):
        session.close()
    run(other.close())
