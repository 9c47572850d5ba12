"""Small decisions of the etcd store on which validity and fences rest, without a server."""

from __future__ import annotations

import copy
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.claims import LocalClaim
from leasehold._backends.etcd.errors import CallFailed, may_work_elsewhere
from leasehold._backends.etcd.fences import Fences, Floor
from leasehold._backends.etcd.inspect import count_holders
from leasehold._backends.etcd.keys import ClaimKey, KeySpace
from leasehold._backends.etcd.protobuf import block, number
from leasehold._backends.etcd.rpc import KeyValue
from leasehold._backends.etcd.sessions import Session
from leasehold._backends.etcd.wire import Calls
from leasehold.errors import BackendRejected, ConfigurationError
from leasehold.values import Claim, Holder, Mode
from verification.lab.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

CLAIM = Claim("ns:x", "owner", 10.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
KEY = b"floor"


def fences() -> Fences:
    connection: Any = SimpleNamespace(label="etcd://x")  # it must not be used
    return Fences(connection)


# --- since when a grant is valid


@pytest.mark.parametrize(("sent", "since"), [(100.0, None), (104.0, None), (99.0, 99.0)])
def test_a_grant_is_dated_by_its_session_when_that_is_older_than_the_call(sent: float, since: float | None) -> None:
    session = Session(7, 10, sent, nullcontext())
    local = LocalClaim(CLAIM, KeySpace("l/").of("ns:x", Mode.EXCLUSIVE, 1), session, b"key", 3)
    local.got_key(KeyValue(b"key", 40, 41, b"value"), 1000)
    grant = local.grant(100.0)
    assert grant.since == since
    assert (grant.fence, grant.ttl) == (1040, 10.0)


# --- fences


def test_an_answer_that_comes_late_does_not_lower_what_is_known_of_the_fences() -> None:
    known = fences()
    known.check(KEY, Floor(), 50, 0)
    known.check(KEY, Floor(), 40, 30)  # it was sent before the other
    assert known.highest(KEY) == 50
    with pytest.raises(BackendRejected, match="gone back from revision 50 to 49"):
        known.check(KEY, Floor(), 49, known.highest(KEY))


def test_a_floor_raises_the_highest_fence() -> None:
    known = fences()
    known.check(KEY, Floor(1000, 7), 50, 0)
    assert known.highest(KEY) == 1050
    known.check(KEY, Floor(1000, 7), 50, 1050)


# --- responses


def test_the_time_of_a_lease_that_is_gone_is_negative() -> None:
    gone = block(1, b"") + number(2, 5) + number(3, -1) + number(4, 0)
    assert rpc.read_lease(gone).ttl == -1


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "CANCELLED"])
def test_after_a_member_that_does_not_answer_the_next_one_is_used(code: str) -> None:
    assert may_work_elsewhere(CallFailed(code, ""))


@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED"])
def test_a_member_that_refuses_stays_in_use(code: str) -> None:
    assert not may_work_elsewhere(CallFailed(code, ""))


# --- who holds


@pytest.mark.parametrize(
    ("modes", "holders"),
    [("", 0), ("w", 1), ("ww", 1), ("wr", 1), ("r", 1), ("rr", 2), ("rrw", 2), ("rwr", 1), ("pp", 2), ("ppp", 2)],
)
def test_the_first_claims_of_a_queue_hold_as_far_as_they_go_together(modes: str, holders: int) -> None:
    kinds = {"w": (Mode.EXCLUSIVE, 1), "r": (Mode.SHARED, 1), "p": (Mode.PERMIT, 2)}
    queue: list[Any] = [(ClaimKey("ns:x", *kinds[letter]), None) for letter in modes]
    assert count_holders(queue) == holders


# --- forks


def test_a_child_of_a_quiet_process_may_use_grpc() -> None:
    calls = Calls()
    with calls:
        assert calls.inside
    calls.before()
    calls.after_in_child()
    calls.check()
    with calls:
        assert calls.inside


@pytest.mark.parametrize("what", ["a call is under way", "asyncio is used", "grpc was loaded unprepared"])
def test_a_child_that_was_forked_at_the_wrong_moment_refuses(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold._backends.etcd.wire.PATIENCE", 0.01)
    calls = Calls()
    if what == "asyncio is used":
        calls.uses_asyncio = True
    elif what == "grpc was loaded unprepared":
        calls.is_prepared = False
    else:
        calls.__enter__()
    calls.before()
    calls.after_in_child()
    with pytest.raises(ConfigurationError, match="forked while its parent used etcd"):
        calls.check()


@dataclass(frozen=True)
class Stream:
    """One that is read until it is closed."""

    close: Callable[[], None]


def test_a_fork_ends_the_streams_first_because_they_are_always_under_way() -> None:
    calls = Calls()
    ended = threading.Event()
    stream: Any = Stream(ended.set)

    def read() -> None:
        with calls:
            calls.streams.add(stream)
            ended.wait(60)

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: calls.streams, "a stream that is read")
    calls.before()
    reader.join(60)
    assert calls.is_idle
    calls.after_in_child()
    calls.check()
    assert not calls.streams


def test_a_call_that_comes_while_a_fork_is_prepared_waits_and_does_not_count() -> None:
    calls, through = Calls(), threading.Event()
    calls.before()

    def call() -> None:
        with calls:
            through.set()

    late = threading.Thread(target=call)
    late.start()
    assert not through.wait(0.05)
    calls.inside.add(-1)  # as it is for an instant, when a thread comes
    child = copy.copy(calls)
    child.after_in_child()
    child.check()
    calls.after_in_parent()
    late.join(60)
    assert through.is_set()


def test_the_parent_goes_on_after_a_fork_and_is_not_refused() -> None:
    calls = Calls()
    calls.before()
    calls.after_in_parent()
    with calls:
        calls.check()
