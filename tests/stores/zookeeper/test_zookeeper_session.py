"""One session of ZooKeeper, step by step: what is sent, what answers and events mean, what is forgotten at its end."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError, NoNodeError
from kazoo.protocol.serialization import Sync
from kazoo.protocol.states import EventType, KazooState

from leasehold._backends.zookeeper.claim_node import ClaimState, Notification
from leasehold._backends.zookeeper.session import SHORTEST_SILENCE, UNCONFIRMED, State
from leasehold.errors import BackendUnavailable
from leasehold.values import LossReason, Mode
from tests.stores.zookeeper.zookeeper_scripted import Bench, made

TIMEOUT = 30.0  # of the session of a bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def event(kind: str, path: str) -> Any:
    return SimpleNamespace(type=kind, path=path)


# --- the connection


def test_a_connection_is_begun_once(bench: Bench) -> None:
    session = bench.session(connected=False)
    assert (session.state, session.id, session.last_zxid, session.connect_failure) == (State.OPENING, None, 0, "")
    session.cut()
    for _ in range(2):
        session.start()
    assert [wire.told for wire in bench.wires] == [["start"]]
    assert bench.wire.timeout == TIMEOUT
    bench.wire.connect_failure = "refused"
    assert (session.id, session.last_zxid, session.connect_failure) == (7, 100, "refused")


def test_a_session_that_is_ready_wakes_all_who_wait_for_it(bench: Bench) -> None:
    session = bench.session(connected=False)
    session.start()
    node = bench.node(session)
    before = bench.worker.woken
    assert not session.settled.is_set()
    assert not session.is_connected()
    bench.wire.on_ready(TIMEOUT)
    assert session.is_connected()
    assert session.settled.is_set()
    assert node.signal.is_set()
    assert bench.worker.woken == before + 1


def test_the_first_server_says_how_long_a_session_lasts_also_where_that_is_longer(bench: Bench) -> None:
    session = bench.session(connected=False)
    session.start()
    bench.wire.on_ready(2 * TIMEOUT)
    assert session.validity.timeout == 2 * TIMEOUT
    assert session.validity.ttl == 40.0


def test_a_server_that_keeps_sessions_for_less_shortens_one_that_moves_to_it_and_none_lengthens_it(
    bench: Bench,
) -> None:
    """Each server has bounds of its own, and the ensemble goes by the least that was agreed on."""
    session = bench.session()
    seen = []
    for timeout in (0.4 * TIMEOUT, TIMEOUT, 0.4 * TIMEOUT, 0.2 * TIMEOUT):
        bench.wire.on_state(KazooState.SUSPENDED)
        bench.wire.on_ready(timeout)
        seen.append((session.validity.timeout / TIMEOUT, session.validity.ttl / TIMEOUT))
    assert seen == [pytest.approx((share, share * 2 / 3)) for share in (0.4, 0.4, 0.4, 0.2)]


@pytest.mark.parametrize(("ttl", "limit"), [(20.0, 5.0), (1.0, SHORTEST_SILENCE)])
def test_a_server_may_be_silent_for_a_sixth_of_the_timeout(bench: Bench, ttl: float, limit: float) -> None:
    assert bench.session(ttl).silence_limit == limit


def test_nothing_is_sent_without_a_connection(bench: Bench) -> None:
    session = bench.session(connected=False)
    with pytest.raises(BackendUnavailable, match="there is no connection to zk://h1:1,h2:2/tree"):
        session.send(Sync("/"))
    session.start()
    bench.wire.on_ready(TIMEOUT)
    session.send(Sync("/"))
    bench.wire.on_state(KazooState.SUSPENDED)
    with pytest.raises(BackendUnavailable):
        session.send(Sync("/"))
    assert bench.wire.kinds == ["Sync"]


def test_only_an_answer_of_the_leader_confirms_a_session(bench: Bench) -> None:
    session = bench.session()
    start = bench.runtime.now()
    bench.advance(1)
    for confirms, answer in ((False, "value"), (True, NoNodeError())):
        bench.wire.answer = lambda _, answer=answer: answer  # type: ignore[misc]
        session.send(Sync("/"), confirms=confirms)
        assert session.validity.until == start
    bench.wire.answer = lambda _: "value"
    session.send(Sync("/"), confirms=True)
    assert session.validity.until == start + 1 + 20.0


def test_an_answer_counts_from_when_its_request_was_sent(bench: Bench) -> None:
    session = bench.session()
    sent = bench.runtime.now()
    reply = session.send(Sync("/"), confirms=True, signal=(signal := bench.runtime.signal()))
    bench.advance(2)
    reply.set("value")
    assert signal.is_set()
    assert (reply.done, reply.value, reply.error) == (True, "value", None)
    assert session.validity.until == sent + 20.0


def test_a_server_is_stalled_when_its_oldest_answer_is_late(bench: Bench) -> None:
    session = bench.session()
    now = bench.runtime.now
    bench.advance(100)
    assert not session.is_stalled(now()), "nothing is asked"
    first = session.send(Sync("/"))
    bench.advance(3)
    session.send(Sync("/"))
    bench.advance(2)
    assert not session.is_stalled(now())
    bench.advance(0.01)
    assert session.is_stalled(now())
    first.set()
    assert not session.is_stalled(now())
    bench.advance(3)
    assert session.is_stalled(now())
    bench.wire.on_state(KazooState.SUSPENDED)
    assert not session.is_stalled(now())
    bench.wire.on_ready(TIMEOUT)
    assert not session.is_stalled(now()), "the answers of the old connection do not come any more"


def test_a_stalled_session_is_lost_as_soon_as_its_validity_is_over(bench: Bench) -> None:
    session = bench.session()
    session.send(Sync("/"), confirms=True)
    bench.advance(19.9)
    assert not session.is_lost(bench.runtime.now())
    bench.advance(0.1)
    assert session.is_lost(bench.runtime.now())


def test_a_connection_that_is_lost_takes_its_watches_along(bench: Bench) -> None:
    session = bench.session()
    node = bench.node(session, state=ClaimState.PRESENT)
    node.is_watched = True
    session.send(Sync("/"), then=session.watcher(f"{node.parent}/ahead", node)).set("data")
    before = bench.worker.woken
    bench.wire.on_state(KazooState.SUSPENDED)
    assert session.state is State.SUSPENDED
    assert not session.settled.is_set()
    assert not node.is_watched
    assert bench.worker.woken == before + 1
    session.on_event(event(EventType.DELETED, f"{node.parent}/ahead"))
    assert list(node.notifications) == [(Notification.WATCHES_LOST, "")]


@pytest.mark.parametrize(("connected", "notify"), [(True, True), (False, False)])
def test_the_ensemble_is_notified_of_the_end_over_a_connection(bench: Bench, connected: bool, notify: bool) -> None:
    session = bench.session()
    if not connected:
        bench.wire.on_state(KazooState.SUSPENDED)
    session.close()
    assert bench.wire.told == ["start", "end", f"close, notify={notify}"]
    assert session.is_over()


def test_a_session_that_never_connected_can_be_closed_and_given_up(bench: Bench) -> None:
    for end in ("close", "relinquish"):
        session = bench.session(connected=False)
        getattr(session, end)()
        assert session.is_over()


def test_a_session_that_is_given_up_is_cut_off_and_closed_over_another_connection(bench: Bench) -> None:
    session = bench.session()
    session.relinquish()
    assert bench.wire.told == ["start", "end", "cut", "close elsewhere"]
    assert session.loss == UNCONFIRMED
    bench.wire.on_state(KazooState.LOST)
    assert session.loss == UNCONFIRMED, "what was known first"


@pytest.mark.parametrize("refused", [True, False])
def test_the_end_of_a_session_ends_all_that_is_in_it(bench: Bench, refused: bool) -> None:
    session = bench.session()
    waiter = bench.node(session, state=ClaimState.PRESENT)
    holder = bench.node(session, state=ClaimState.PRESENT)
    gone = bench.node(session, state=ClaimState.PRESENT)
    holder.fence = 42
    gone.gone = bench.runtime.signal()
    session.give_up(gone)
    session.break_notes["/note"] = math.inf
    session.settled.clear()
    bench.wire.is_refused = refused
    bench.wire.on_state(KazooState.LOST)
    assert session.is_over()
    assert isinstance(session.failure, AuthFailedError) is refused
    assert session.loss is not None
    assert session.loss.reason is LossReason.SESSION_ENDED
    assert session.settled.is_set()
    assert not session.break_notes
    assert not session.unwanted
    assert [node.state for node in (waiter, holder, gone)] == [ClaimState.GONE] * 3
    assert all(node.signal.is_set() for node in (waiter, holder))
    assert gone.gone.is_set()
    assert list(session.nodes.values()) == [holder], "its renewal has to find out"
    assert bench.wire.told == ["start", "end"]
    assert bench.registry.lost_until == bench.runtime.now() + 2 * TIMEOUT


def test_a_node_that_was_made_for_a_forgotten_claim_ends_with_the_session(bench: Bench) -> None:
    session = bench.session()
    node = bench.node(session, state=ClaimState.PRESENT)
    session.forget(node)
    session.give_up(node)
    session.mark_over()
    assert node.state is ClaimState.GONE
    assert not session.unwanted


def test_a_session_without_claims_leaves_no_nodes_that_would_have_to_be_listed(bench: Bench) -> None:
    bench.session().close()
    assert bench.registry.lost_until == 0.0


# --- claims


def test_a_claim_is_known_to_its_session_and_to_the_process(bench: Bench) -> None:
    session = bench.session()
    node = bench.node(session)
    assert session.nodes == bench.registry.nodes == {node.claim.owner: node}
    assert node.expires == bench.runtime.now() + 20.0
    assert session.next_expiry == node.expires


def test_the_worker_is_woken_for_an_end_that_comes_earlier_and_for_no_other(bench: Bench) -> None:
    session = bench.session()
    for instant, wakes, next_expiry in ((50.0, 1, 50.0), (60.0, 0, 50.0), (50.0, 0, 50.0), (40.0, 1, 40.0)):
        before = bench.worker.woken
        session.expires_at(instant)
        assert (bench.worker.woken - before, session.next_expiry) == (wakes, next_expiry)


def test_a_claim_is_kept_for_longer_and_never_for_less(bench: Bench) -> None:
    session = bench.session()
    node = bench.node(session)
    end = node.expires
    assert session.extend(node, end + 5)
    assert session.extend(node, end)
    assert node.expires == end + 5


def test_a_claim_that_is_given_up_again_is_not_given_more_time(bench: Bench) -> None:
    session = bench.session()
    node = bench.node(session)
    started = bench.runtime.now()
    session.give_up(node)
    bench.advance(5)
    session.give_up(node)
    assert session.unwanted == {node: started}
    assert not node.wanted


def test_at_close_waiters_are_given_up_and_woken_and_grants_are_left(bench: Bench) -> None:
    session = bench.session()
    waiter, holder = bench.node(session, state=ClaimState.PRESENT), bench.node(session, state=ClaimState.PRESENT)
    holder.fence = 7
    session.give_up_waiters()
    assert (waiter.wanted, holder.wanted) == (False, True)
    assert (waiter.signal.is_set(), holder.signal.is_set()) == (True, False)
    assert list(session.unwanted) == [waiter]


def test_nothing_is_left_of_a_claim_that_is_forgotten(bench: Bench) -> None:
    session = bench.session()
    node = bench.node(session, state=ClaimState.PRESENT)
    session.last_before(node)
    session.mixed.add(node.parent)
    node.queue.watched.add("ahead")
    for path in (node.path, f"{node.parent}/ahead"):
        watching = session.send(Sync("/"), then=session.watcher(path, node))
        watching.set("data")
    session.give_up(node)
    session.forget(node)
    assert not session.nodes
    assert not session.unwanted
    assert not bench.registry.nodes
    assert session.claim_at(node.path) is None
    assert not session.mixed
    assert not session._newest
    assert not any(session._watchers.values())
    session.forget(node)  # a second time does no harm


def test_another_node_of_the_same_claim_is_not_forgotten_with_it(bench: Bench) -> None:
    session = bench.session()
    claim = bench.claim()
    old = bench.node(session, claim, ClaimState.PRESENT)
    new = bench.node(session, claim, ClaimState.PRESENT)
    session.last_before(old)
    session.last_before(new)
    session.mixed.add(new.parent)
    session.forget(old)
    assert session.nodes == bench.registry.nodes == {claim.owner: new}
    assert session.mixed == {new.parent}
    assert session._newest == {new.parent: new}


@pytest.mark.parametrize(
    ("change", "follows"),
    [
        ("", True),
        ("mixed", False),
        ("lost", False),
        ("not there yet", False),
        ("given up", False),
        ("a reader before", False),
        ("a reader behind", False),
        ("another name", False),
    ],
)
def test_a_claim_comes_right_behind_the_last_one_of_its_session_only_where_that_can_be_known(
    bench: Bench, change: str, follows: bool
) -> None:
    session = bench.session()
    mode = Mode.SHARED if change == "a reader before" else Mode.EXCLUSIVE
    last = bench.node(session, bench.claim(mode=mode), ClaimState.PRESENT)
    assert session.last_before(last) is None
    assert session.last_before(last) is None, "it is not behind itself"
    mode = Mode.SHARED if change == "a reader behind" else Mode.EXCLUSIVE
    node = bench.node(session, bench.claim("ns:y" if change == "another name" else "ns:x", mode=mode))
    if change == "mixed":
        session.mixed.add(node.parent)
    elif change == "lost":
        bench.registry.lost_until = bench.runtime.now() + 0.1
    elif change == "not there yet":
        last.state = ClaimState.SENT
    elif change == "given up":
        session.give_up(last)
    assert (session.last_before(node) is last) is follows


@pytest.mark.parametrize("what", ["nodes", "unwanted", "notes", "reserved"])
def test_a_session_is_idle_when_nothing_is_in_it_or_about_to_be(bench: Bench, what: str) -> None:
    session = bench.session()
    node = bench.node(session)
    session.forget(node)
    assert [session.is_idle] == [True]
    if what == "nodes":
        session.admit(node)
    elif what == "unwanted":
        session.give_up(node)
    elif what == "notes":
        session.break_notes["/note"] = 0.0
    else:
        session.reserved["owner"] = bench.runtime.now() + 1
    assert [session.is_idle] == [False]
    if what == "reserved":
        bench.advance(1)
        assert [session.is_idle] == [True]


# --- events


def test_an_event_reaches_all_who_watch_its_node_once(bench: Bench) -> None:
    session = bench.session()
    first, second, third = (bench.node(session, state=ClaimState.PRESENT) for _ in range(3))
    path = f"{first.parent}/x-ahead-0000000001"
    for node in (first, second):
        session.send(Sync("/"), then=session.watcher(path, node)).set("data")
    for _ in range(2):
        session.on_event(event(EventType.DELETED, path))
    for node in (first, second):
        assert list(node.notifications) == [(Notification.GONE, "x-ahead-0000000001")]
        assert node.signal.is_set()
    assert not third.notifications
    assert not third.signal.is_set()


@pytest.mark.parametrize(
    ("kind", "notification"),
    [(EventType.DELETED, Notification.GONE), (EventType.CHANGED, Notification.CHANGED)],
)
def test_an_event_says_what_became_of_a_node(bench: Bench, kind: str, notification: Notification) -> None:
    session = bench.session()
    node = bench.node(session, state=ClaimState.PRESENT)
    session.send(Sync("/"), then=session.watcher(f"{node.parent}/ahead", node)).set("data")
    session.on_event(event(kind, f"{node.parent}/ahead"))
    assert list(node.notifications) == [(notification, "ahead")]


@pytest.mark.parametrize("path", [None, "", "/tree/fence", "/tree/locks/ns%3Ax/ahead"])
def test_an_event_of_the_connection_is_nobodys(bench: Bench, path: str | None) -> None:
    session = bench.session()
    node = bench.node(session, state=ClaimState.PRESENT)
    session.send(Sync("/"), then=session.watcher(f"{node.parent}/ahead", node)).set("data")
    session.fence_floor = 3
    session.on_event(SimpleNamespace(type=EventType.NONE, path=path))
    assert not node.notifications
    assert session.fence_floor == 3


@pytest.mark.parametrize("answer", [None, NoNodeError()])
def test_a_node_that_is_not_there_is_not_watched(bench: Bench, answer: object) -> None:
    session = bench.session()
    node = bench.node(session, state=ClaimState.PRESENT)
    bench.wire.answer = lambda _: answer
    session.send(Sync("/"), then=session.watcher(node.path, node))
    session.on_event(event(EventType.CHANGED, node.path))
    assert not node.is_watched
    assert not node.signal.is_set()


def test_a_claims_own_node_is_watched_until_its_event_comes(bench: Bench) -> None:
    session = bench.session()
    node = bench.node(session, state=ClaimState.PRESENT)
    bench.wire.answer = lambda _: "stat"
    session.send(Sync("/"), then=session.watcher(f"{node.parent}/ahead", node))
    assert [node.is_watched] == [False]
    session.send(Sync("/"), then=session.watcher(node.path, node))
    assert [node.is_watched] == [True]
    session.on_event(event(EventType.CHANGED, node.path))
    assert [node.is_watched] == [False]
    assert node.is_at(ClaimState.PRESENT)
    session.send(Sync("/"), then=session.watcher(node.path, node))
    session.on_event(event(EventType.DELETED, node.path))
    assert node.is_at(ClaimState.GONE)
    assert not node.notifications, "it is not one ahead"
    assert node.signal.is_set()


def test_the_floor_of_the_fences_is_known_until_it_changes(bench: Bench) -> None:
    session = bench.session()
    assert session.fence_floor is None
    for answer, then, floor in (
        (None, session.on_no_fence_floor, 0),
        ((b"70", None), session.on_fence_floor, 70),
        ("a node", session.on_no_fence_floor, 70),
        (NoNodeError(), session.on_fence_floor, 70),
        (AuthFailedError(), session.on_no_fence_floor, 70),
    ):
        bench.wire.answer = lambda _, answer=answer: answer  # type: ignore[misc]
        session.send(Sync("/"), then=then)
        assert session.fence_floor == floor
    session.on_event(event(EventType.CHANGED, "/tree/fence"))
    assert session.fence_floor is None


def test_a_claim_is_found_by_its_path(bench: Bench) -> None:
    session = bench.session()
    node = bench.node(session)
    name = made(node, 3)
    assert session.claim_at(f"{node.parent}/{name}") is node
    assert session.claim_at(node.parent) is None
