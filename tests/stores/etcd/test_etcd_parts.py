"""The parts of the etcd store that need no server: keys, suffixes, claims, sessions, errors, URLs."""

from __future__ import annotations

import itertools
import json
import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.claims import ClaimState, LocalClaim, encode_claim, read_claim
from leasehold._backends.etcd.connection import Connection, until
from leasehold._backends.etcd.errors import (
    CallFailed,
    LeaseGone,
    is_stale_token,
    may_work_elsewhere,
    to_backend_error,
)
from leasehold._backends.etcd.keys import KeySpace, KeySuffixes, after
from leasehold._backends.etcd.notifications import Notifications
from leasehold._backends.etcd.options import read_url
from leasehold._backends.etcd.protobuf import block, number
from leasehold._backends.etcd.rpc import Header, KeyValue
from leasehold._backends.etcd.sessions import KeepAlive, Session, SessionEnded, Sessions
from leasehold._backends.etcd.store import open_url
from leasehold._backends.etcd.wire import Target, time_in
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendRejected, BackendUnavailable, ConfigurationError, OutcomeUnknown
from leasehold.kit.options import TLSFiles
from leasehold.store_url import StoreURL
from leasehold.values import Claim, Holder, Mode

KEYS = KeySpace("leasehold/")
NAMES = some.text(min_size=1, max_size=20)


def claim_key(key: str, mode: Mode, capacity: int, suffix: int = 5) -> bytes:
    return KEYS.of(key, mode, capacity).claims + b"%x" % suffix


@given(NAMES, NAMES)
def test_no_name_is_in_the_queue_of_another(one: str, other: str) -> None:
    start, end = KEYS.queue(one)
    assert (start <= claim_key(other, Mode.EXCLUSIVE, 1) < end) == (one == other)


@given(NAMES, NAMES)
def test_a_prefix_of_names_is_one_range(prefix: str, rest: str) -> None:
    start, end = KEYS.queues(prefix)
    assert start <= claim_key(prefix + rest, Mode.SHARED, 1, 0) < end


@given(NAMES, some.sampled_from(Mode), some.integers(1, 1000))
def test_a_key_has_the_name_and_the_kind_of_its_lock(key: str, mode: Mode, capacity: int) -> None:
    capacity = capacity if mode is Mode.PERMIT else 1
    assert KEYS.parse(claim_key(key, mode, capacity, 255)) == (key, mode, capacity)


def test_other_kinds_of_a_name_are_all_kinds_but_its_own() -> None:
    kinds = [
        (Mode.EXCLUSIVE, 1),
        (Mode.SHARED, 1),
        (Mode.PERMIT, 1),
        (Mode.PERMIT, 2),
        (Mode.PERMIT, 11),
        (Mode.PERMIT, 12),
    ]
    for (mode, capacity), (other, size) in itertools.product(kinds, kinds):
        keys, key = KEYS.of("x", mode, capacity), claim_key("x", other, size)
        same = (mode is Mode.PERMIT, capacity) == (other is Mode.PERMIT, size)
        assert any(start <= key < end for start, end in keys.other_kinds) == (not same), (mode, capacity, other, size)


def test_only_writers_are_in_the_way_of_a_reader() -> None:
    start, end = KEYS.of("x", Mode.SHARED, 1).ahead
    assert not start <= claim_key("x", Mode.SHARED, 1) < end
    assert start <= claim_key("x", Mode.EXCLUSIVE, 1) < end


def test_after_is_the_first_key_that_does_not_begin_with_the_prefix() -> None:
    assert after(b"a/") == b"a0"


def test_foreign_keys_and_values_are_refused_and_not_guessed() -> None:
    with pytest.raises(BackendRejected):
        KEYS.parse(b"leasehold/1/q/x/nonsense")
    for value in (b"", b"text", b"{}", b"[1]", b'{"host": 1}', b"\xff"):
        with pytest.raises(BackendRejected):
            read_claim(KeyValue(b"k", 1, 1, value, 1))


# --- suffixes


def test_a_client_uses_the_same_suffix_again_and_another_for_a_second_claim() -> None:
    suffixes = KeySuffixes(ThreadRuntime())
    first = suffixes.take(b"lock")
    second = suffixes.take(b"lock")
    assert first != second
    suffixes.give_back(b"lock", first)
    assert suffixes.take(b"lock") == first
    suffixes.give_back(b"lock", first)
    suffixes.give_back(b"lock", second)
    assert suffixes.take(b"lock") == first


def test_a_suffix_that_was_not_given_back_is_not_used_again_while_others_of_its_lock_are() -> None:
    suffixes = KeySuffixes(ThreadRuntime())
    doubtful = suffixes.take(b"lock")
    others = [suffixes.take(b"lock") for _ in range(20)]
    for suffix in others:
        suffixes.give_back(b"lock", suffix)
    assert doubtful not in {suffixes.take(b"lock") for _ in range(30)}


def test_a_collision_leads_to_a_larger_range() -> None:
    suffixes = KeySuffixes(ThreadRuntime())
    numbers = set()
    for _ in range(8):
        numbers.add(suffixes.take(b"lock"))
        suffixes.collide(b"lock")
    assert max(numbers) > 1000


# --- sessions

HERE = Header(7, 1, 10, 3)
CLAIM = Claim("ns:x", "owner", 10.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


def local_claim(session: Session) -> LocalClaim:
    return LocalClaim(CLAIM, KEYS.of("ns:x", Mode.EXCLUSIVE, 1), session, b"key", 3)


def test_a_keep_alive_counts_from_its_sending_once_it_is_proven() -> None:
    session = Session(7, 10, 100.0, nullcontext())
    assert session.prove(KeepAlive(104.0, HERE), Header(7, 1, 12, 3)) is True
    assert session.sent == 104.0


@pytest.mark.parametrize("after_it", [Header(7, 1, 12, 4), Header(7, 2, 12, 3)])
def test_a_keep_alive_of_another_term_or_member_does_not_count(after_it: Header) -> None:
    session = Session(7, 10, 100.0, nullcontext())
    assert session.prove(KeepAlive(104.0, HERE), after_it) is False
    assert session.sent == 100.0


def test_a_session_is_over_before_its_lease_can_be() -> None:
    session = Session(7, 10, 100.0, nullcontext())
    assert not session.is_over(109.0)
    assert session.is_over(109.9)


def test_a_session_that_is_over_is_never_renewed_again() -> None:
    sessions = Sessions(None, ThreadRuntime())  # type: ignore[arg-type]  # it must not even ask
    session = Session(7, 10, -1e9, nullcontext())
    local_claim(session).keep_for_a_ttl(1.0)
    sessions._by_lease[7] = session
    for _ in range(2):
        with pytest.raises(SessionEnded), until(math.inf):
            run(sessions.keep_alive(sessions.borrow(7)))
    assert not session.is_used


def test_a_claim_that_is_kept_is_not_deleted_and_one_that_is_deleted_cannot_be_kept() -> None:
    session = Session(7, 10, 100.0, nullcontext())
    claim = local_claim(session)
    assert claim.keep_for_a_ttl(100.0)
    assert not claim.start_deleting(109.0)
    assert claim.start_deleting(110.0)
    assert claim.is_being_deleted
    assert not claim.keep_for_a_ttl(110.0)
    assert not claim.hold(110.0, 110.0)
    claim.got_key(KeyValue(b"key", 40, 41), 0)
    assert claim.is_being_deleted, "nothing leads out of this state"
    assert claim.start_deleting(110.0), "its deletion is sent again until it is confirmed"


def test_a_claim_that_its_session_has_forgotten_is_not_deleted() -> None:
    session = Session(7, 10, 100.0, nullcontext())
    claim = local_claim(session)
    claim.keep_for_a_ttl(100.0)
    session.forget(claim)
    assert not claim.start_deleting(200.0)


def test_states_of_a_claim_that_waits_and_holds() -> None:
    claim = local_claim(Session(7, 10, 100.0, nullcontext()))
    states = [claim.state]
    claim.got_no_answer()
    states.append(claim.state)
    claim.got_key(KeyValue(b"key", 40, 41), 0)
    claim.got_no_answer()  # of a repeated request: its key is known
    states.append(claim.state)
    assert claim.hold(101.0, 102.0)
    assert claim.hold(103.0, 104.0)
    states.append(claim.state)
    assert states == [ClaimState.ASKED, ClaimState.UNCONFIRMED, ClaimState.WAITING, ClaimState.HELD]
    assert (claim.granted_at, claim.keep_until) == (102.0, 113.0)


@pytest.mark.parametrize("answered", [True, False])
def test_a_key_that_an_earlier_request_may_have_made_stays_listed_in_its_session(answered: bool) -> None:
    old, new = (Session(lease, 10, 100.0, nullcontext()) for lease in (7, 8))
    first = local_claim(old)
    first.keep_for_a_ttl(100.0)
    if not answered:
        first.got_no_answer()
    second = first.successor(new, b"other", 4)
    assert (first in old.claims) == (not answered)
    assert second.has_no_key == answered


@pytest.mark.parametrize(
    ("state", "is_known"),
    [
        (ClaimState.ASKED, True),
        (ClaimState.UNCONFIRMED, False),
        (ClaimState.WAITING, True),
        (ClaimState.HELD, True),
        (ClaimState.DELETING, False),
    ],
)
def test_a_claim_that_goes_on_under_another_key_keeps_its_waiter_and_what_that_was_told(
    state: ClaimState, is_known: bool
) -> None:
    old, new = (Session(lease, 10, 100.0, nullcontext()) for lease in (7, 8))
    first = local_claim(old)
    first.keep_for_a_ttl(100.0)
    signal: Any = object()
    first.state, first.signal, first.ahead, first.first = state, signal, 5, Holder("first", 9)
    second = first.successor(new, b"other", 4)
    assert (second.signal, second.ahead, second.first) == (signal, 5, Holder("first", 9))
    assert (second.key, second.suffix, second.session) == (b"other", 4, new)
    assert second.has_no_key is is_known
    assert (first in old.claims) is not is_known


def test_the_key_of_a_claim_that_is_given_up_twice_is_overdue_since_the_first_time() -> None:
    """Deletions that fail are counted from there: the session ends a ttl later, and not a ttl after the last try."""
    session = Session(7, 10, 100.0, nullcontext())
    claim = local_claim(session)
    claim.keep_for_a_ttl(100.0)
    claim.give_up(103.0)
    claim.give_up(108.0)
    assert claim.keep_until == 103.0
    session.forget(claim)
    claim.give_up(109.0)  # what is not listed has no time of its own
    assert claim.keep_until == 109.0
    assert claim in session.claims


def test_a_claim_that_got_another_key_has_not_been_granted_yet() -> None:
    """Its `min_hold` counts from the grant under the new key, or it would be too short."""
    claim = local_claim(Session(7, 10, 100.0, nullcontext()))
    claim.got_key(KeyValue(b"key", 40, 41), 5)
    claim.hold(101.0, 102.0)
    claim.got_key(KeyValue(b"key", 50, 52, b"value"), 6)
    assert claim.granted_at is None
    assert (claim.created, claim.written, claim.value, claim.floor, claim.fence) == (50, 52, b"value", 6, 56)


# --- what is stored for a claim


def test_a_stored_claim_has_the_common_fields_of_a_holder() -> None:
    holder = Holder("host", 1, "nightly", "rép")
    claim = Claim("ns:x", "owner", 10.0, Mode.EXCLUSIVE, 1, 0.0, holder)
    value = encode_claim(claim, 5, 1000.25)
    assert json.loads(value) == {
        "v": 1, "host": "host", "pid": 1, "label": "nightly", "reason": "rép", "floor": 5, "since": 1000.25,
        "owner": "owner",
    }  # fmt: skip
    stored = read_claim(KeyValue(b"k", 40, 41, value, 1))
    assert (stored.owner, stored.holder, stored.fence, stored.broken) == ("owner", holder, 45, None)


def test_the_form_without_a_version_and_fields_of_a_newer_one_are_read() -> None:
    old = b'{"host":"h","pid":7,"floor":0,"label":"l\xc3\xa4b","since":1.5,"owner":"o"}'
    assert read_claim(KeyValue(b"k", 1, 1, old, 1)).holder == Holder("h", 7, "läb", None)
    newer = b'~{"v":2,"host":"h","pid":7,"zone":"b","floor":0,"since":1.5,"owner":"o","broken":"stuck"}'
    stored = read_claim(KeyValue(b"k", 1, 1, newer, 1))
    assert (stored.cooling, stored.broken) == (True, "stuck")
    assert json.loads(stored.with_())["zone"] == "b", "what is not known is kept"


# --- sessions that are over


def test_sessions_that_are_long_over_are_forgotten() -> None:
    sessions = Sessions(None, ThreadRuntime())  # type: ignore[arg-type]  # it must not even ask
    for lease, sent in ((1, 0.0), (2, 950.0), (3, 995.0)):
        sessions._by_lease[lease] = Session(lease, 10, sent, nullcontext())
    sessions._note_ended(1000.0)
    assert set(sessions._by_lease) == {2, 3}
    assert [session.ended for session in sessions._by_lease.values()] == [True, False]


# --- errors


def failed(code: str, details: str, *, reads: bool = False) -> type[Exception]:
    return type(to_backend_error(CallFailed(code, details), "etcd://x", reads=reads))


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


def test_a_watch_that_is_not_needed_any_more_is_ended_at_the_server() -> None:
    """Otherwise they pile up there for as long as the client waits for anything."""
    runtime = ThreadRuntime()
    notifications: Any = Notifications(Connection([], runtime, "etcd://x"), runtime)
    sent: list[bytes] = []
    notifications._stream, notifications._worker = SimpleNamespace(send=sent.append), object()
    number = notifications.watch(b"key", b"", 1, runtime.signal())
    assert notifications.is_active(number)
    notifications.cancel(number)
    notifications.cancel(number)
    assert not notifications.is_active(number)
    assert sent[1:] == [rpc.watch_cancel(number)]


def test_a_worker_that_ends_late_does_not_make_a_second_one_of_its_successor() -> None:
    runtime = ThreadRuntime()
    notifications: Any = Notifications(Connection([], runtime, "etcd://x"), runtime)
    earlier, notifications._stop, notifications._worker = notifications._stop, runtime.signal(), "the next one"
    notifications._end(earlier)
    assert notifications._worker == "the next one"
    notifications._end(notifications._stop)
    assert notifications._worker is None


def event(number_: int) -> bytes:
    return block(1, b"") + number(2, number_) + block(11, b"")


def test_a_watch_that_has_had_its_event_is_ended_with_the_next_one_and_not_before_its_waiter_has_read() -> None:
    runtime = ThreadRuntime()
    notifications: Any = Notifications(Connection([], runtime, "etcd://x"), runtime)
    sent: list[bytes] = []
    stream = SimpleNamespace(send=sent.append)
    notifications._stream, notifications._worker = stream, object()
    signal = runtime.signal()
    first = notifications.watch(b"key", b"", 1, signal)
    notifications._receive(stream, event(first))
    assert signal.is_set()
    assert not notifications.is_active(first)
    assert len(sent) == 1
    notifications.watch(b"other", b"", 1, runtime.signal())
    assert sent[1] == rpc.watch_cancel(first)
    assert len(sent) == 3
    notifications.watch(b"third", b"", 1, runtime.signal())
    assert len(sent) == 4, "it is ended once"


def test_a_watch_that_nobody_waits_for_is_ended_when_it_sends_one_more_event() -> None:
    """Otherwise every use of a key would send a message to each client that has once waited for it."""
    runtime = ThreadRuntime()
    notifications: Any = Notifications(Connection([], runtime, "etcd://x"), runtime)
    sent: list[bytes] = []
    stream = SimpleNamespace(send=sent.append)
    notifications._receive(stream, event(7))
    notifications._receive(stream, block(1, b"") + number(2, 7) + number(4, 1))
    assert sent == [rpc.watch_cancel(7)]


class Member:
    """A member whose every call ends with this error."""

    def __init__(self, code: str, details: str) -> None:
        self.failure = CallFailed(code, details)
        self.calls = 0

    async def call(self, *_: object, **__: object) -> bytes:
        self.calls += 1
        raise self.failure


@pytest.mark.parametrize(
    ("details", "reads", "error", "calls"),
    [
        ("Connection reset by peer", False, OutcomeUnknown, [1, 0]),
        ("Connection reset by peer", True, BackendUnavailable, [1, 1]),
        ("failed to connect to all addresses", False, BackendUnavailable, [1, 1]),
    ],
)
def test_only_what_cannot_have_been_applied_is_sent_to_the_next_member(
    details: str, reads: bool, error: type[Exception], calls: list[int]
) -> None:
    """A release that was applied and is sent again would be answered as gone."""
    members: Any = [Member("UNAVAILABLE", details), Member("UNAVAILABLE", details)]
    connection = Connection(members, ThreadRuntime(), "etcd://x")
    with until(math.inf), pytest.raises(error):
        run(connection.txn(b"", reads=reads))
    assert [member.calls for member in members] == calls


def test_each_refusal_has_its_error() -> None:
    assert failed("NOT_FOUND", "etcdserver: requested lease not found") is LeaseGone
    assert failed("PERMISSION_DENIED", "etcdserver: permission denied") is BackendRejected
    assert failed("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded") is BackendRejected
    assert failed("UNAVAILABLE", "failed to connect: CERTIFICATE_VERIFY_FAILED") is BackendRejected
    assert failed("UNAUTHENTICATED", "etcdserver: user name is empty") is BackendRejected
    assert failed("INVALID_ARGUMENT", "etcdserver: user name is empty") is BackendRejected
    assert failed("NOT_FOUND", "etcdserver: key not found") is BackendRejected


def test_a_refusal_says_what_to_do_and_not_all_that_grpc_says() -> None:
    details = "etcdserver: permission denied" + "x" * 300 + "\nattempt 2"
    error = to_backend_error(CallFailed("PERMISSION_DENIED", details), "etcd://h", reads=False)
    assert isinstance(error, BackendRejected)
    assert error.backend == "etcd://h"
    assert str(error).endswith("; grant this user READWRITE rights on the prefix of the root")
    assert details[:200] in str(error)
    assert details[:201] not in str(error)


@pytest.mark.parametrize(
    ("code", "elsewhere"),
    [("UNAVAILABLE", True), ("DEADLINE_EXCEEDED", True), ("CANCELLED", True), ("PERMISSION_DENIED", False)],
)
def test_a_refusal_is_not_carried_to_the_next_member(code: str, elsewhere: bool) -> None:
    assert may_work_elsewhere(CallFailed(code, "")) is elsewhere


@pytest.mark.parametrize(
    ("details", "stale"),
    [
        ("etcdserver: invalid auth token", True),
        ("etcdserver: revision of auth store is old", True),
        ("etcdserver: permission denied", False),
    ],
)
def test_a_token_that_is_too_old_is_told_from_a_missing_right(details: str, stale: bool) -> None:
    assert is_stale_token(CallFailed("UNAUTHENTICATED", details)) is stale


# --- URLs


@pytest.mark.parametrize(
    "url",
    [
        "etcd://user@host",
        "etcd://host?tls_ca=x",
        "etcds://host?tls_cert=x",
        "etcds://host?tls_key=x",
        "etcds://host?tls_verify=no",
        "etcd://host?answer_timeout=0",
        "etcd://host?fence_floor=-1",
        "etcd://host?fence_floor=99999999999999999",
        "etcd://host?http_port=x",
        "etcd://host?nonsense=1",
    ],
)
def test_wrong_urls_are_refused_before_any_io(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_url(StoreURL.parse(url))


@pytest.mark.parametrize(("old", "new"), [("ca", "tls_ca"), ("cert", "tls_cert"), ("key", "tls_key")])
def test_old_names_of_options_are_refused_with_the_new_one(old: str, new: str) -> None:
    with pytest.raises(ConfigurationError, match=f"etcds: has no option '{old}'; it is called {new} here"):
        open_url(StoreURL.parse(f"etcds://host?{old}=x"))


def test_what_a_url_says_arrives_where_it_belongs() -> None:
    url = "etcds://user:word@h1,h2:5/app?answer_timeout=7s&fence_floor=9&http_port=80&tls_ca=/a&tls_cert=/c&tls_key=/k"
    options = read_url(StoreURL.parse(url))
    files = TLSFiles("/a", "/c", "/k")
    assert options.targets == (Target("h1", 2379, 80, files), Target("h2", 5, 80, files))
    assert (options.root, options.user, options.password) == ("app/", "user", "word")
    assert (options.answer_timeout, options.fence_floor) == (7.0, 9)
    plain = read_url(StoreURL.parse("etcd://h:7"))
    assert plain.targets == (Target("h", 7, 7, None),)
    assert (plain.root, plain.user, plain.answer_timeout, plain.fence_floor) == ("leasehold/", None, 3.0, 0)


def test_a_store_shows_neither_password_nor_files() -> None:
    store = open_url(StoreURL.parse("etcds://user:secret@h1,h2:5,[::1]:7/app?tls_ca=/c&tls_cert=/k&tls_key=/k"))
    backend = store.open_backend(ThreadRuntime())
    assert backend.label == "etcds://user@h1,h2:5,[::1]:7/app"
    assert "secret" not in repr(store._options)  # type: ignore[attr-defined]


def test_the_time_is_read_out_of_the_head_of_an_answer() -> None:
    head = "HTTP/1.1 200 OK\r\ncontent-type: x\r\ndate: Sun, 15 Nov 2026 11:30:04 GMT\r\n\r\n"
    assert time_in(head) == 1794742204.0
    assert time_in("HTTP/1.1 200 OK\r\nDate: soon\r\n\r\n") is None
    assert time_in("\x00\x00\x06\x04") is None
