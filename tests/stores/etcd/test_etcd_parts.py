"""The parts of the etcd store that need no server: keys, slots, sessions, errors, URLs."""

from __future__ import annotations

import itertools
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as some

from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.backends.etcd.answers import Header, KeyValue
from leasehold.backends.etcd.layout import Layout, after
from leasehold.backends.etcd.options import open_url
from leasehold.backends.etcd.seat import read_seat
from leasehold.backends.etcd.sessions import Kept, Pulse, Session, SessionEnded, Sessions
from leasehold.backends.etcd.slots import Slots
from leasehold.backends.etcd.trouble import CallFailed, LeaseGone, translated
from leasehold.backends.etcd.wire import time_in
from leasehold.errors import BackendRejected, BackendUnavailable, ConfigurationError, OutcomeUnknown
from leasehold.store_url import StoreURL
from leasehold.values import Mode

LAYOUT = Layout("leasehold/")
NAMES = some.text(min_size=1, max_size=20)


@given(NAMES, NAMES)
def test_no_name_stands_in_the_line_of_another(one: str, other: str) -> None:
    start, end = LAYOUT.queue(one)
    seat = LAYOUT.lane(other, Mode.EXCLUSIVE, 1).seat(5)
    assert (start <= seat < end) == (one == other)


@given(NAMES, NAMES)
def test_a_prefix_of_names_is_one_range(prefix: str, rest: str) -> None:
    start, end = LAYOUT.queues(prefix)
    assert start <= LAYOUT.lane(prefix + rest, Mode.SHARED, 1).seat(0) < end


@given(NAMES, some.sampled_from(Mode), some.integers(1, 1000))
def test_a_seat_says_whose_it_is(key: str, mode: Mode, capacity: int) -> None:
    capacity = capacity if mode is Mode.PERMIT else 1
    spot = LAYOUT.spot(LAYOUT.lane(key, mode, capacity).seat(255))
    assert (spot.key, spot.mode, spot.capacity) == (key, mode, capacity)


def test_kinds_of_one_name_are_strangers_to_each_other_and_to_nobody_else() -> None:
    kinds = [
        (Mode.EXCLUSIVE, 1),
        (Mode.SHARED, 1),
        (Mode.PERMIT, 1),
        (Mode.PERMIT, 2),
        (Mode.PERMIT, 11),
        (Mode.PERMIT, 12),
    ]
    for (mode, capacity), (other, size) in itertools.product(kinds, kinds):
        lane, seat = LAYOUT.lane("x", mode, capacity), LAYOUT.lane("x", other, size).seat(3)
        same = (mode is Mode.PERMIT, capacity) == (other is Mode.PERMIT, size)
        assert any(start <= seat < end for start, end in lane.strangers) == (not same), (mode, capacity, other, size)


def test_a_reader_looks_at_writers_only() -> None:
    reader = LAYOUT.lane("x", Mode.SHARED, 1)
    start, end = reader.ahead
    assert not start <= reader.seat(1) < end
    assert start <= LAYOUT.lane("x", Mode.EXCLUSIVE, 1).seat(1) < end


def test_after_is_the_first_key_that_does_not_begin_with_the_prefix() -> None:
    assert after(b"a/") == b"a0"


def test_foreign_keys_and_values_are_refused_and_not_guessed() -> None:
    with pytest.raises(BackendRejected):
        LAYOUT.spot(b"leasehold/1/q/x/nonsense")
    for value in (b"", b"text", b"{}", b"[1]", b'{"host": 1}', b"\xff"):
        with pytest.raises(BackendRejected):
            read_seat(KeyValue(b"k", 1, 1, value, 1))


# --- slots


def test_a_client_uses_the_same_number_again_and_another_for_a_second_claim() -> None:
    slots = Slots(ThreadRuntime())
    first = slots.take(b"lane")
    second = slots.take(b"lane")
    assert first != second
    slots.give(b"lane", first)
    assert slots.take(b"lane") == first
    slots.give(b"lane", first)
    slots.give(b"lane", second)
    assert slots.take(b"lane") == first


def test_a_number_that_is_in_doubt_is_not_used_again_while_the_lane_is() -> None:
    slots = Slots(ThreadRuntime())
    doubtful = slots.take(b"lane")
    others = [slots.take(b"lane") for _ in range(20)]
    for slot in others:
        slots.give(b"lane", slot)
    assert doubtful not in {slots.take(b"lane") for _ in range(30)}


def test_meeting_somebody_leads_to_where_there_is_more_room() -> None:
    slots = Slots(ThreadRuntime())
    numbers = set()
    for _ in range(8):
        numbers.add(slots.take(b"lane"))
        slots.collide(b"lane")
    assert max(numbers) > 1000


# --- sessions

HERE = Header(b"c", b"m1", 10, 3)


def test_a_keep_alive_counts_from_its_sending_once_it_is_proven() -> None:
    session = Session(7, 10, 100.0, nullcontext())
    assert session.prove(Pulse(104.0, HERE), Header(b"c", b"m1", 12, 3)) is True
    assert session.sent == 104.0


@pytest.mark.parametrize("after_it", [Header(b"c", b"m1", 12, 4), Header(b"c", b"m2", 12, 3)])
def test_a_keep_alive_of_another_term_or_member_does_not_count(after_it: Header) -> None:
    session = Session(7, 10, 100.0, nullcontext())
    assert session.prove(Pulse(104.0, HERE), after_it) is False
    assert session.sent == 100.0


def test_a_session_is_over_before_its_lease_can_be() -> None:
    session = Session(7, 10, 100.0, nullcontext())
    assert not session.is_over(109.0)
    assert session.is_over(109.9)
    assert session.deadline < 110.0


def test_a_session_that_is_over_is_never_renewed_again() -> None:
    sessions = Sessions(None, ThreadRuntime())  # type: ignore[arg-type]  # it must not even ask
    session = Session(7, 10, -1e9, nullcontext())
    session.wants(Kept(b"seat", "owner"), 1.0)
    sessions._by_lease[7] = session
    for _ in range(2):
        with pytest.raises(SessionEnded):
            run(sessions.refresh(sessions.borrow(7)))
    assert not session.is_used


def test_a_claim_that_somebody_wants_is_not_deleted_and_one_that_is_deleted_cannot_be_wanted() -> None:
    session, kept = Session(7, 10, 100.0, nullcontext()), Kept(b"seat", "owner")
    assert session.wants(kept, 110.0)
    assert not session.dooms(kept, 109.0)
    assert session.dooms(kept, 110.0)
    assert not session.wants(kept, 120.0)
    assert session.dooms(kept, 110.0), "its deletion is sent again until it is confirmed"


def test_sessions_that_are_long_over_are_forgotten() -> None:
    sessions = Sessions(None, ThreadRuntime())  # type: ignore[arg-type]  # it must not even ask
    for lease, sent in ((1, 0.0), (2, 950.0), (3, 995.0)):
        sessions._by_lease[lease] = Session(lease, 10, sent, nullcontext())
    sessions._note_ended(1000.0)
    assert set(sessions._by_lease) == {2, 3}
    assert [session.ended for session in sessions._by_lease.values()] == [True, False]


# --- errors


def failed(code: str, details: str, *, reads: bool = False) -> type[Exception]:
    return type(translated(CallFailed(code, details), "etcd://x", reads=reads))


def test_only_what_surely_was_not_applied_is_called_unavailable() -> None:
    assert failed("UNAVAILABLE", "failed to connect to all addresses; last error: refused") is BackendUnavailable
    assert failed("UNAVAILABLE", "etcdserver: no leader") is BackendUnavailable
    assert failed("RESOURCE_EXHAUSTED", "etcdserver: too many requests") is BackendUnavailable
    assert failed("UNAVAILABLE", "etcdserver: request timed out") is OutcomeUnknown
    assert failed("UNAVAILABLE", "etcdserver: leader changed") is OutcomeUnknown
    assert failed("UNAVAILABLE", "Stream removed (Socket closed)") is OutcomeUnknown
    assert failed("DEADLINE_EXCEEDED", "Deadline Exceeded") is OutcomeUnknown
    assert failed("DEADLINE_EXCEEDED", "Deadline Exceeded", reads=True) is BackendUnavailable
    assert failed("UNKNOWN", "") is OutcomeUnknown


def test_refusals_are_told_apart() -> None:
    assert failed("NOT_FOUND", "etcdserver: requested lease not found") is LeaseGone
    assert failed("PERMISSION_DENIED", "etcdserver: permission denied") is BackendRejected
    assert failed("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded") is BackendRejected
    assert failed("UNAVAILABLE", "failed to connect: CERTIFICATE_VERIFY_FAILED") is BackendRejected


# --- URLs


@pytest.mark.parametrize(
    "url",
    [
        "etcd://user@host",
        "etcd://host?ca=x",
        "etcds://host?cert=x",
        "etcds://host?key=x",
        "etcd://host?fence_floor=-1",
        "etcd://host?fence_floor=99999999999999999",
        "etcd://host?http_port=x",
        "etcd://host?nonsense=1",
    ],
)
def test_wrong_urls_are_refused_before_any_io(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_url(StoreURL.parse(url))


def test_a_store_shows_neither_password_nor_files() -> None:
    store = open_url(StoreURL.parse("etcds://user:secret@h1,h2:5,[::1]:7/app?ca=/c&cert=/k&key=/k"))
    backend = store.open_backend(ThreadRuntime())
    assert backend.label == "etcds://user@h1,h2:5,[::1]:7/app"
    assert "secret" not in repr(store._options)  # type: ignore[attr-defined]


def test_the_time_is_read_out_of_the_head_of_an_answer() -> None:
    head = "HTTP/1.1 200 OK\r\ncontent-type: x\r\ndate: Sun, 15 Nov 2026 11:30:04 GMT\r\n\r\n"
    assert time_in(head) == 1794742204.0
    assert time_in("HTTP/1.1 200 OK\r\nDate: soon\r\n\r\n") is None
    assert time_in("\x00\x00\x06\x04") is None
