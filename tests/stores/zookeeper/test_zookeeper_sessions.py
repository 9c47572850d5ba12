"""A session and the calls of a client, without a server: what they conclude from answers and events."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import KazooState

from leasehold._backends.zookeeper.calls import Calls
from leasehold._backends.zookeeper.claim_node import ClaimNode, ClaimState, Registry
from leasehold._backends.zookeeper.keys import Paths
from leasehold._backends.zookeeper.options import Options
from leasehold._backends.zookeeper.session import UNCONFIRMED, Session
from leasehold._backends.zookeeper.session_worker import SessionWorker
from leasehold._backends.zookeeper.wire import KazooWire, Reply
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold.store_url import StoreURL
from leasehold.values import Claim, Holder, Mode

if TYPE_CHECKING:
    from leasehold._backends.zookeeper.wire import Wire

RUNTIME = ThreadRuntime()
LONG = 60.0


def session(ttl: float = 30.0) -> Session:
    """One that was opened just now; nothing is ever sent."""
    options = Options.from_url(StoreURL.parse("zk://127.0.0.1:1"))
    made = Session(ttl, lambda: None, options=options, paths=Paths("/tree"), registry=Registry(), runtime=RUNTIME)
    made._on_ready(made.validity.timeout)
    return made


def test_a_reconnection_counts_from_when_the_connection_was_lost() -> None:
    """The request may have been sent at any moment after that; a later instant would count what the leader has not."""
    one = session()
    one._on_state(KazooState.SUSPENDED)
    lost = RUNTIME.now()
    time.sleep(0.05)
    one._on_ready(one.validity.timeout)
    assert one.validity.touched <= lost


def test_a_lost_connection_takes_the_known_floor_away() -> None:
    """It may be raised while no event can arrive."""
    one = session()
    one.fence_floor = 7
    one._on_state(KazooState.SUSPENDED)
    assert one.fence_floor is None


def test_a_session_is_lost_when_its_validity_is_over_and_no_server_answers() -> None:
    one = session()
    opened = RUNTIME.now()
    assert not one.is_lost(opened + 1)
    one.validity.answered(opened)
    one._on_state(KazooState.SUSPENDED)
    suspended = RUNTIME.now()
    assert not one.is_lost(suspended + one.silence_limit + 0.1), "its grants are still valid"
    assert one.is_lost(one.validity.until + one.silence_limit + 0.1)


def test_a_paused_process_has_the_time_of_one_answer_to_find_its_session() -> None:
    """The connection was lost meanwhile, and that is noticed only now; the session may have lived on."""
    one = session()
    one.validity.until = one._opened = RUNTIME.now() - 1000
    one._on_state(KazooState.SUSPENDED)
    suspended = RUNTIME.now()
    assert not one.is_lost(suspended + one.silence_limit / 2)
    assert one.is_lost(suspended + one.silence_limit + 0.1)


def test_a_session_that_was_just_opened_is_given_the_time_of_a_ttl_to_be_confirmed() -> None:
    """It has no valid grant yet; but a claim may be under way, and is found again over the next connection."""
    one = session()
    one._on_state(KazooState.SUSPENDED)
    assert not one.is_lost(RUNTIME.now() + one.validity.ttl - 1)
    assert one.is_lost(RUNTIME.now() + one.validity.ttl + 1)


def test_grants_of_a_session_that_was_given_up_are_unconfirmed_and_not_ended_by_the_ensemble() -> None:
    one, other = session(), session()
    one.relinquish()
    assert one.is_over()
    assert one.loss == UNCONFIRMED
    other._on_state(KazooState.LOST)
    assert other.loss is not None
    assert other.loss != UNCONFIRMED


def test_a_session_with_a_note_for_a_broken_holder_is_not_idle() -> None:
    one = session()
    assert one.is_idle
    one.break_notes["/path"] = RUNTIME.now() + LONG
    assert not one.is_idle


def node_in(one: Session) -> ClaimNode:
    claim = Claim("ns:x", RUNTIME.owner(), 30.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
    node = ClaimNode(claim, one, "/tree/locks/ns%3Ax", RUNTIME.signal(), RUNTIME.now())
    one.admit(node)
    return node


def test_a_claim_is_given_up_as_soon_as_its_time_is_over_and_not_before() -> None:
    one = session()
    node = node_in(one)
    assert not one.expire(node, node.expires - 0.001)
    assert node not in one.unwanted
    assert one.expire(node, node.expires)
    assert node in one.unwanted
    assert not one.extend(node, node.expires + LONG), "what was given up is not revived"


def test_a_node_that_is_made_after_its_claim_was_given_up_for_good_is_deleted() -> None:
    """Its caller was interrupted, and the session worker had found nothing to delete yet."""
    one = session()
    node = node_in(one)
    node.state = ClaimState.SENT
    one.give_up(node)
    node.mark_gone()
    assert not one.unwanted
    made = Reply(RUNTIME.now(), None, node.on_created, lambda _: None)
    made.set((f"{node.parent}/{node.prefix}0000000001", SimpleNamespace(czxid=7, version=0)))
    assert node.is_at(ClaimState.PRESENT)
    assert node in one.unwanted


def test_a_claim_whose_time_ends_while_its_parent_is_created_is_given_up_and_not_just_forgotten() -> None:
    """The node that is created afterwards would stay in the queue for as long as the session lives."""
    one = session()
    node = node_in(one)
    node.state = ClaimState.SENT
    refused = Reply(RUNTIME.now(), None, node.on_created, lambda _: None)
    refused.set_exception(NoNodeError())  # its caller goes on to create the parent
    node.expires = one.next_expiry = RUNTIME.now()
    worker = SessionWorker(RUNTIME.now, "/tree")
    worker._sessions.append(one)
    one._wire = cast("Wire", SimpleNamespace(start=lambda: None, send=lambda *_: None))
    worker.visit_all()
    made = Reply(RUNTIME.now(), None, node.on_created, lambda _: None)
    made.set((f"{node.parent}/{node.prefix}0000000001", SimpleNamespace(czxid=7, version=0)))
    assert node in one.unwanted


def test_a_session_keeps_its_number_while_its_connection_is_lost() -> None:
    """Else a node of its own, found just before, is taken for that of an older session, and stays for ever."""
    options = Options.from_url(StoreURL.parse("zk://127.0.0.1:1"))
    wire = KazooWire(options, 30.0, lambda _: None, lambda _: None)
    assert wire.session_id is None
    wire._client._session_id = 7
    assert wire.session_id == 7


def test_the_bounds_of_another_server_only_shorten_the_validity() -> None:
    one = session()
    requested = one.validity.timeout
    for timeout, expected in ((requested * 2, requested), (requested / 2, requested / 2), (requested, requested / 2)):
        one._on_state(KazooState.SUSPENDED)
        one._on_ready(timeout)
        assert one.validity.timeout == expected


def test_a_wait_that_begins_while_its_client_is_closed_ends_at_once() -> None:
    calls = Calls(RUNTIME, "label")
    calls.close()
    started = RUNTIME.now()
    run(calls.wait(RUNTIME.signal(), RUNTIME.now() + LONG))
    assert RUNTIME.now() - started < LONG / 2


def test_all_waits_end_when_their_client_is_closed() -> None:
    calls = Calls(RUNTIME, "label")
    threads = [
        threading.Thread(target=lambda: run(calls.wait(RUNTIME.signal(), RUNTIME.now() + LONG))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    while len(calls._waits) < 3:
        time.sleep(0.001)
    calls.close()
    for thread in threads:
        thread.join(LONG / 2)
        assert not thread.is_alive()
    assert not calls._waits


def test_a_call_of_a_closed_client_raises_client_closed_whatever_failed() -> None:
    calls = Calls(RUNTIME, "label")
    for failure in (BackendUnavailable("x"), OutcomeUnknown("x")):
        with pytest.raises(type(failure)), calls:
            raise failure
    with calls:
        calls.is_closed = True
    for failure in (BackendUnavailable("x"), OutcomeUnknown("x")):
        calls.is_closed = False
        with pytest.raises(ClientClosed), calls:
            calls.is_closed = True
            raise failure
    calls.is_closed = False
    with pytest.raises(BackendRejected), calls:
        calls.is_closed = True
        raise BackendRejected("x")
    with pytest.raises(ClientClosed), calls:
        pass
