"""The session worker of ZooKeeper, look by look: probes, silence, deletions, expiry and the end of sessions."""

from __future__ import annotations

import logging
import threading
from queue import Empty
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError, NoNodeError
from kazoo.protocol.states import KazooState

from leasehold._backends.zookeeper import session_worker
from leasehold._backends.zookeeper.claim_node import ClaimState
from leasehold._backends.zookeeper.session import UNCONFIRMED
from leasehold._backends.zookeeper.session_worker import LONGEST_SLEEP, SessionWorker
from leasehold._backends.zookeeper.wire import Reply
from leasehold.errors import BackendUnavailable
from tests.stores.zookeeper.zookeeper_scripted import Bench, made, stat
from tests.waiting import LIMIT, eventually

if TYPE_CHECKING:
    from leasehold._backends.zookeeper.session import Session

TIMEOUT = 30.0  # of the session of a bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def look(bench: Bench) -> float | None:
    """When it looks again, counted from now."""
    wake = bench.worker.visit_all()
    return None if wake is None else wake - bench.runtime.now()


def confirmed(bench: Bench, session: Session) -> None:
    """The leader has just answered."""
    session.validity.answered(bench.runtime.now())


# --- probes and silence


def test_the_worker_begins_to_connect_a_session_that_was_added(bench: Bench) -> None:
    session = bench.session(connected=False)
    assert look(bench) == session.silence_limit
    assert bench.wire.told == ["start"]
    assert bench.wire.sent == []


def test_the_leader_is_asked_every_quarter_of_the_timeout_and_more_often_while_it_does_not_answer(
    bench: Bench,
) -> None:
    bench.session()
    assert look(bench) == 5.0, "the limit of silence comes first"
    bench.advance(TIMEOUT / 4 - 0.1)
    assert look(bench) == pytest.approx(0.1)
    assert bench.wire.kinds == []
    bench.advance(0.1)
    assert look(bench) == pytest.approx(TIMEOUT / 12)
    assert bench.wire.kinds == ["Sync"]
    bench.advance(TIMEOUT / 12 - 0.1)
    assert look(bench) == pytest.approx(0.1)
    assert bench.wire.kinds == ["Sync"]
    bench.advance(0.1)
    look(bench)
    assert bench.wire.kinds == ["Sync"] * 2
    (request, reply), _ = bench.wire.sent
    assert request.path == "/tree"
    reply.set("/tree")
    bench.advance(TIMEOUT / 4 - TIMEOUT / 12 - 0.1)
    look(bench)
    assert bench.wire.kinds == ["Sync"] * 2, "it counts from the probe that was answered"
    bench.advance(0.1)
    look(bench)
    assert bench.wire.kinds == ["Sync"] * 3


def test_the_answer_to_a_probe_confirms_the_session(bench: Bench) -> None:
    session = bench.session()
    bench.advance(10)
    look(bench)
    (_, reply) = bench.wire.sent[0]
    reply.set("/tree")
    assert session.validity.until > bench.runtime.now() + 10


def test_a_server_that_is_silent_is_given_up_for_another_one(bench: Bench) -> None:
    session = bench.session()
    confirmed(bench, session)
    bench.advance(TIMEOUT / 4)
    look(bench)
    bench.advance(session.silence_limit)
    look(bench)
    assert bench.wire.told == ["start"]
    bench.advance(0.1)
    sent = len(bench.wire.sent)
    assert look(bench) == session.silence_limit
    assert bench.wire.told == ["start", "cut"]
    assert len(bench.wire.sent) == sent


def test_a_session_that_is_lost_is_relinquished_and_let_go(bench: Bench) -> None:
    session = bench.session()
    holder = bench.node(session, state=ClaimState.PRESENT)
    holder.fence = 7
    bench.wire.on_state(KazooState.SUSPENDED)
    bench.advance(19.9)
    assert look(bench) is not None
    assert not session.is_over()
    bench.advance(6)
    look(bench)
    assert session.loss == UNCONFIRMED
    assert bench.wire.told[:4] == ["start", "end", "cut", "close elsewhere"]
    assert not holder.wanted or holder.state is ClaimState.GONE


def test_without_a_connection_nothing_is_sent_and_claims_still_expire(bench: Bench) -> None:
    session = bench.session(connected=False)
    node = bench.node(session, bench.claim(ttl=2.0), ClaimState.SENT)
    assert look(bench) == 2.0
    bench.advance(2)
    assert look(bench) == session.silence_limit
    assert list(session.unwanted) == [node]
    assert bench.wire.sent == []


# --- deletions


def deletions(bench: Bench) -> list[str]:
    return [request.path for request, _ in bench.wire.sent if type(request).__name__ == "Delete"]


def test_a_node_that_is_not_wanted_is_deleted_once_and_again_if_that_failed(bench: Bench) -> None:
    session = bench.session()
    confirmed(bench, session)
    node = bench.node(session, state=ClaimState.PRESENT)
    session.give_up(node)
    look(bench)
    look(bench)
    assert deletions(bench) == [node.path]
    woken = bench.worker.woken
    bench.wire.sent[-1][1].set_exception(ConnectionLoss())
    assert bench.worker.woken == woken + 1
    assert node in session.unwanted
    look(bench)
    assert deletions(bench) == [node.path] * 2
    assert bench.wire.sent[-1][0].version == -1
    bench.wire.sent[-1][1].set(True)
    assert not session.unwanted
    assert not session.nodes
    assert node.state is ClaimState.GONE


def test_a_deletion_confirms_the_session(bench: Bench) -> None:
    session = bench.session()
    session.give_up(bench.node(session, state=ClaimState.PRESENT))
    bench.advance(1)
    look(bench)
    bench.wire.sent[-1][1].set(True)
    assert session.validity.until == bench.runtime.now() + 20


def test_nodes_of_older_sessions_for_the_same_claim_are_deleted_with_it(bench: Bench) -> None:
    session = bench.session()
    node = bench.node(session, state=ClaimState.PRESENT)
    node.stale_nodes = ["one", "two"]
    session.give_up(node)
    look(bench)
    assert deletions(bench) == [f"{node.parent}/one", f"{node.parent}/two", node.path]


@pytest.mark.parametrize("state", [ClaimState.NEW, ClaimState.GONE])
def test_a_claim_that_has_no_node_is_just_forgotten(bench: Bench, state: ClaimState) -> None:
    session = bench.session()
    node = bench.node(session, state=state)
    session.give_up(node)
    look(bench)
    assert (bench.wire.sent, session.nodes, session.unwanted) == ([], {}, {})


@pytest.mark.parametrize("answer", ["never sent", "made meanwhile", "an error"])
def test_a_creation_whose_caller_was_interrupted_is_waited_for(bench: Bench, answer: str) -> None:
    session = bench.session()
    confirmed(bench, session)
    node = bench.node(session, state=ClaimState.SENT)
    session.give_up(node)
    look(bench)
    look(bench)
    ((request, reply),) = bench.wire.sent
    assert (type(request).__name__, request.path) == ("Sync", node.parent)
    woken = bench.worker.woken
    if answer == "an error":
        reply.set_exception(ConnectionLoss())
    else:
        if answer == "made meanwhile":
            made(node, 1)
        reply.set(node.parent)
    assert node.deleting is False
    assert (node not in session.unwanted) is (answer == "never sent")
    assert bench.worker.woken == woken + (answer != "never sent")
    look(bench)
    assert deletions(bench) == ([node.path] if answer == "made meanwhile" else [])


@pytest.mark.parametrize("found", ["nothing", "one", "two", "another's", "no parent", "no answer"])
def test_after_a_doubt_the_node_is_looked_for(bench: Bench, found: str) -> None:
    session = bench.session()
    confirmed(bench, session)
    node = bench.node(session, state=ClaimState.DOUBT)
    session.give_up(node)
    look(bench)
    look(bench)
    assert bench.wire.kinds == ["Sync", "GetChildren"]
    assert {request.path for request, _ in bench.wire.sent} == {node.parent}
    listing, woken = bench.wire.sent[1][1], bench.worker.woken
    own = [f"{node.prefix}{number:010d}" for number in (3, 4)]
    names: dict[str, Any] = {"nothing": [], "one": ["x-other-0000000001", own[0]], "two": own, "another's": ["x-o-1"]}
    if found in names:
        listing.set(names[found])
    else:
        listing.set_exception(NoNodeError() if found == "no parent" else ConnectionLoss())
    assert node.deleting is False
    if found in ("one", "two"):
        assert (node.state, node.name) == (ClaimState.PRESENT, own[0])
        assert node.stale_nodes == own[1:] * (found == "two")
        assert bench.worker.woken == woken + 1
        look(bench)
        assert deletions(bench)[-1] == node.path
    elif found == "no answer":
        assert node.state is ClaimState.DOUBT
        assert node in session.unwanted
    else:
        assert node.state is ClaimState.GONE
        assert not session.unwanted


def test_a_session_with_a_node_that_cannot_be_deleted_ends_after_its_timeout(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    session = bench.session()
    node = bench.node(session, state=ClaimState.PRESENT)
    session.give_up(node)
    bench.wire.answer = lambda request: NoAuthError() if type(request).__name__ == "Delete" else "value"
    for _ in range(30):
        look(bench)
        bench.advance(1)
    assert look(bench) is not None
    assert not session.is_over()
    bench.advance(0.1)
    assert look(bench) is None
    assert session.is_over()
    assert bench.wire.told[-1] == "close, notify=True"
    assert "right to delete" in caplog.text


def test_a_break_note_is_deleted_when_its_time_is_over(bench: Bench) -> None:
    session = bench.session()
    confirmed(bench, session)
    now = bench.runtime.now()
    session.break_notes.update({"/early": now + 1, "/late": now + 3})
    look(bench)
    assert deletions(bench) == []
    bench.advance(1)
    look(bench)
    look(bench)
    assert deletions(bench) == ["/early"]
    assert session.break_notes == {"/late": now + 3}


# --- expiry


def test_a_claim_that_is_not_repeated_in_time_is_given_up_and_the_next_look_is_known(bench: Bench) -> None:
    session = bench.session()
    confirmed(bench, session)
    early = bench.node(session, bench.claim(ttl=1.0), ClaimState.PRESENT)
    late = bench.node(session, bench.claim(ttl=3.0), ClaimState.PRESENT)
    assert look(bench) == 1.0
    bench.advance(1)
    assert look(bench) == 2.0
    assert list(session.unwanted) == [early]
    assert late.wanted
    assert session.next_expiry == late.expires
    assert deletions(bench) == [early.path]


def test_a_grant_that_is_gone_is_known_until_its_ttl_is_over(bench: Bench) -> None:
    """Its holder has to find out with its next renewal."""
    session = bench.session()
    confirmed(bench, session)
    node = bench.node(session, bench.claim(ttl=2.0), ClaimState.PRESENT)
    node.fence = 7
    node.mark_gone()
    bench.node(session, bench.claim(ttl=1.0), ClaimState.GONE)  # for whose sake it looks earlier
    bench.advance(1.9)
    look(bench)
    assert list(session.nodes.values()) == [node]
    bench.advance(0.1)
    look(bench)
    assert not session.nodes
    assert not session.unwanted


def test_a_claim_whose_creation_was_refused_is_given_up_and_not_only_forgotten_when_its_time_is_over(
    bench: Bench,
) -> None:
    """Its caller may be about to create the missing parent and then the node: nothing would ever delete that."""
    session = bench.session()
    refused = bench.node(session, bench.claim(ttl=2.0), ClaimState.GONE)
    lost = bench.node(session, bench.claim(ttl=2.0), ClaimState.GONE)
    lost.fence = 7
    bench.advance(2.0)
    look(bench)
    assert not refused.wanted
    assert lost.wanted, "a grant is only forgotten"
    assert session.nodes == {}
    refused.state = ClaimState.SENT
    Reply(0.0, None, refused.on_created, lambda _: None).set((f"{refused.parent}/{refused.prefix}0000000042", stat()))
    assert list(session.unwanted) == [refused]
    look(bench)
    assert bench.wire.sent[-1][0].path == refused.path


def test_a_claim_that_was_kept_for_longer_does_not_expire_at_its_first_end(bench: Bench) -> None:
    session = bench.session()
    confirmed(bench, session)
    node = bench.node(session, bench.claim(ttl=2.0), ClaimState.PRESENT)
    session.extend(node, node.expires + 1)
    bench.advance(2)
    look(bench)
    assert node.wanted
    assert session.next_expiry == node.expires


# --- the end


def test_the_worker_ends_with_its_last_session(bench: Bench) -> None:
    session = bench.session()
    assert bench.worker.is_busy
    session.mark_over()
    assert look(bench) is None
    assert not bench.worker.is_busy


def test_a_session_that_is_over_stays_for_as_long_as_a_holder_has_not_found_out(bench: Bench) -> None:
    session = bench.session()
    node = bench.node(session, state=ClaimState.PRESENT)
    node.fence = 7
    session.mark_over()
    assert look(bench) is not None
    session.forget(node)
    assert look(bench) is None


@pytest.mark.parametrize("closing", [True, False])
@pytest.mark.parametrize("what", ["nothing", "a waiter", "a grant", "a grant that was given up", "a note"])
def test_at_close_only_sessions_with_grants_are_left(bench: Bench, closing: bool, what: str) -> None:
    session = bench.session()
    confirmed(bench, session)
    if what == "a note":
        session.break_notes["/note"] = bench.runtime.now() + 5
    elif what != "nothing":
        node = bench.node(session, state=ClaimState.PRESENT)
        node.fence = None if what == "a waiter" else 7
        if what == "a grant that was given up":
            session.give_up(node)
    if closing:
        assert bench.worker.close() is (what not in ("a grant", "a note"))
    is_left = not closing or what in ("a grant", "a note")
    assert (look(bench) is not None) is is_left
    assert session.is_over() is not is_left


def test_one_session_with_a_grant_is_enough_to_take_a_while_at_close(bench: Bench) -> None:
    bench.session()
    node = bench.node(bench.session(), state=ClaimState.PRESENT)
    node.fence = 7
    assert bench.worker.close() is False


def test_a_session_that_was_retired_ends_when_it_has_no_grants(bench: Bench) -> None:
    retired, other = bench.session(), bench.session()
    node = bench.node(retired, state=ClaimState.PRESENT)
    node.fence = 7
    retired.is_retired = True
    look(bench)
    assert not retired.is_over()
    retired.forget(node)
    look(bench)
    assert (retired.is_over(), other.is_over()) == (True, False)


def test_a_client_that_was_dropped_lets_its_worker_end(bench: Bench) -> None:
    bench.session()
    woken = bench.worker.woken
    bench.worker.retire()
    assert bench.worker.woken == woken + 1
    assert look(bench) is None


def test_a_session_that_fails_does_not_keep_the_worker_from_the_others(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for error, wake in ((BackendUnavailable("lost just now"), 5.0), (ValueError("a defect"), LONGEST_SLEEP)):
        bench = Bench()
        broken = bench.session()
        broken.start = _raising(error)  # type: ignore[method-assign]
        bench.session(connected=False)
        assert look(bench) == pytest.approx(wake)
        assert bench.wire.told == ["start"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def _raising(error: Exception) -> Any:
    def fail() -> None:
        raise error

    return fail


def test_the_next_look_is_the_earliest_of_all_sessions(bench: Bench) -> None:
    first, second = bench.session(), bench.session()
    for session in (first, second):
        confirmed(bench, session)
    bench.node(second, bench.claim(ttl=1.5), ClaimState.PRESENT)
    assert look(bench) == 1.5


# --- the thread


def test_the_thread_sleeps_until_its_next_look_or_until_it_is_woken(bench: Bench) -> None:
    worker = SessionWorker(bench.runtime.now, "/tree")
    now = bench.runtime.now()
    for wake, rings in ((now - 1, 0), (now + 0.01, 0), (now + 1000, 3)):
        for _ in range(rings):
            worker.wake()
        sleeping = threading.Thread(target=worker._sleep, args=(wake,), daemon=True)
        sleeping.start()
        sleeping.join(LIMIT)
        assert not sleeping.is_alive()
        assert worker._wakeups.empty(), "it was woken for all of that"


class Bell:
    """Notes how long it is waited for, and is silent."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []
        self.rings = 0

    def get(self, timeout: float) -> None:
        self.timeouts.append(timeout)
        raise Empty

    def put(self, _: None) -> None:
        self.rings += 1


@pytest.mark.parametrize(("wake", "sleeps"), [(-1.0, 0.0), (0.4, 0.4), (1000.0, LONGEST_SLEEP)])
def test_the_thread_sleeps_no_longer_than_timers_can_be_trusted(bench: Bench, wake: float, sleeps: float) -> None:
    worker = SessionWorker(bench.runtime.now, "/tree")
    bell: Any = Bell()
    worker._wakeups = bell
    worker._sleep(bench.runtime.now() + wake)
    assert bell.timeouts == [pytest.approx(sleeps)]
    worker.wake()
    assert bell.rings == 1


def test_the_thread_looks_sleeps_and_looks_again_until_there_is_nothing_to_keep(bench: Bench) -> None:
    worker: Any = SessionWorker(bench.runtime.now, "/tree")
    wakes, done = iter([7.0, 8.0, None]), list[object]()
    worker.visit_all = lambda: next(wakes)
    worker._sleep = done.append
    worker._work()
    assert done == [7.0, 8.0]
    assert worker._thread == threading.get_ident()
    worker._work()  # a second one finds the first, and ends
    assert done == [7.0, 8.0]


def test_a_thread_is_started_for_the_first_session_and_no_second_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(session_worker, "start_new_thread", lambda start, _: started.append(start.__self__))
    worker = SessionWorker(bench.runtime.now, "/tree")
    bell: Any = Bell()
    worker._wakeups = bell
    assert worker.close() is True
    assert started == []
    worker.add(bench.session())
    (thread,) = started
    assert thread.daemon, "a program ends although it has locks"
    worker._thread = 1
    worker.add(bench.session())
    assert len(started) == 1
    assert bell.rings == 3
    worker._thread = None
    worker.close()
    assert len(started) == 2, "the end of sessions is its work as well"


def test_the_thread_looks_when_it_is_woken_and_ends_with_the_last_session() -> None:
    bench = Bench()
    worker = SessionWorker(bench.runtime.now, "/tree")
    bench.worker = worker  # type: ignore[assignment]
    before = threading.active_count()
    session = bench.session(connected=False)
    eventually(lambda: bench.wires, "the session is not started")
    node = bench.node(session)
    session.give_up(node)
    bench.wire.on_ready(TIMEOUT)  # which wakes it
    eventually(lambda: not session.nodes, "the worker is not woken")
    assert worker.close() is True
    eventually(lambda: not worker.is_busy)
    eventually(lambda: threading.active_count() <= before, "the thread is left over")
    again = bench.session(connected=False)
    eventually(again.is_over, "a closed worker lets go of what is added")
    eventually(lambda: threading.active_count() <= before)
