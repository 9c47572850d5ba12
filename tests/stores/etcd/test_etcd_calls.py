"""Calls of an etcd client over members that answer as they are told: where, with which token, how long, how often."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.connection import CLOCK_KEPT, Connection, limit, until
from leasehold._backends.etcd.errors import CallFailed, LeaseGone, is_surely_not_applied, to_backend_error
from leasehold._backends.etcd.options import read_url
from leasehold._backends.etcd.protobuf import block, fields, number
from leasehold._backends.etcd.rpc import Method
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold.store_url import StoreURL
from tests.stores.etcd.etcd_bench import DENIED, GONE, LABEL, LOST, REFUSED, RESET
from tests.unit.kit_support import HandClock

STALE = CallFailed("UNAUTHENTICATED", "etcdserver: invalid auth token")
LEADER = ("hasleader", "true")


class Member:
    """It answers with what it is given, then with nothing; each answer takes `takes` seconds of the clock."""

    def __init__(self, clock: HandClock, *answers: bytes | CallFailed) -> None:
        self.clock = clock
        self.answers = list(answers)
        self.takes = 0.0
        self.calls: list[tuple[str, float, dict[str, str]]] = []
        self.uncancelled: list[bool] = []
        self.tokens = 0
        self.date_or_error: str | OSError = ""
        self.streams: list[tuple[str, dict[str, str]]] = []
        self.closed = 0

    async def call(
        self, method: str, request: bytes, timeout: float, metadata: Any, *, uncancelled: bool = False
    ) -> bytes:
        self.clock.instant += self.takes
        if method == Method.AUTHENTICATE and not self.answers:
            self.tokens += 1
            return block(2, b"token %d" % self.tokens)
        self.calls.append((method, timeout, dict(metadata)))
        self.uncancelled.append(uncancelled)
        answer = self.answers.pop(0) if self.answers else b""
        if isinstance(answer, CallFailed):
            raise CallFailed(answer.code, answer.details)
        return answer

    def stream(self, method: str, metadata: Any) -> Any:
        self.streams.append((method, dict(metadata)))
        return "a stream"

    async def date(self, timeout: float) -> str:
        assert timeout == 3.0
        self.clock.instant += self.takes
        if isinstance(self.date_or_error, OSError):
            raise self.date_or_error
        return self.date_or_error

    async def close(self) -> None:
        self.closed += 1


class Cluster:
    """Members, and a connection to them on a clock that is turned by hand."""

    def __init__(self, members: int = 3, user: str | None = None) -> None:
        self.clock = HandClock(1000.0)
        self.members = [Member(self.clock) for _ in range(members)]
        wires: Any = self.members
        password = None if user is None else "secret"
        self.connection = Connection(wires, ThreadRuntime(self.clock), LABEL, user, password)

    def call(self, method: str = Method.TXN, timeout: float | None = None, **options: Any) -> bytes:
        with until(math.inf):
            return run(self.connection.call(method, b"", timeout, **options))

    def counts(self) -> list[int]:
        return [len(member.calls) for member in self.members]


# --- which member


def test_the_first_member_is_used_until_it_fails() -> None:
    cluster = Cluster()
    for _ in range(3):
        cluster.call()
    assert cluster.counts() == [3, 0, 0]


@pytest.mark.parametrize("failure", [RESET, LOST, CallFailed("UNKNOWN", ""), CallFailed("CANCELLED", "")])
def test_the_next_call_goes_to_the_next_member_after_one_that_may_have_been_applied(failure: CallFailed) -> None:
    cluster = Cluster()
    cluster.members[0].answers = [failure]
    with pytest.raises(OutcomeUnknown) as unknown:
        cluster.call()
    assert unknown.value.backend == LABEL
    assert cluster.counts() == [1, 0, 0]
    cluster.call()
    assert cluster.counts() == [1, 1, 0]


def test_after_the_last_member_comes_the_first_one_again() -> None:
    cluster = Cluster()
    for member in cluster.members:
        member.answers = [REFUSED]
    with pytest.raises(BackendUnavailable):
        cluster.call()
    assert cluster.counts() == [1, 1, 1], "each is asked once"
    cluster.call()
    assert cluster.counts() == [2, 1, 1]


def test_a_refusal_does_not_change_the_member() -> None:
    cluster = Cluster()
    cluster.members[0].answers = [DENIED]
    with pytest.raises(BackendRejected):
        cluster.call()
    cluster.call()
    assert cluster.counts() == [2, 0, 0]


def test_two_calls_that_fail_at_one_member_do_not_skip_the_next_one() -> None:
    cluster = Cluster()
    cluster.connection.move_on(0)
    cluster.connection.move_on(0)
    cluster.call()
    assert cluster.counts() == [0, 1, 0]
    cluster.connection.move_on(1)
    cluster.connection.move_on(0)  # of a call that was sent before
    cluster.call()
    assert cluster.counts() == [0, 1, 1]


@pytest.mark.parametrize(
    ("failure", "reads", "asked"),
    [
        (REFUSED, False, 2),
        (REFUSED, True, 2),
        (RESET, False, 1),
        (RESET, True, 2),
        (LOST, True, 1),
        (DENIED, True, 1),
        (CallFailed("RESOURCE_EXHAUSTED", "etcdserver: too many requests"), False, 2),
        (CallFailed("INTERNAL", ""), True, 1),
    ],
)
def test_a_call_is_repeated_only_where_that_does_no_harm(failure: CallFailed, reads: bool, asked: int) -> None:
    cluster = Cluster(2)
    cluster.members[0].answers = [failure]
    try:
        cluster.call(reads=reads)
    except BackendError:
        assert asked == 1
    assert sum(cluster.counts()) == asked


def test_a_call_is_not_repeated_when_its_time_is_over() -> None:
    cluster = Cluster()
    cluster.members[0].answers, cluster.members[0].takes = [REFUSED], 3.0
    with pytest.raises(BackendUnavailable, match="no etcd member can be reached"):
        cluster.call()
    assert cluster.counts() == [1, 0, 0]


def test_only_reading_transactions_go_on_when_their_caller_is_gone() -> None:
    cluster = Cluster(1)
    for method, reads in ((Method.TXN, True), (Method.TXN, False), (Method.RANGE, True)):
        cluster.call(method, reads=reads)
    assert cluster.members[0].uncancelled == [True, False, False]


# --- how long


def test_a_call_has_the_time_of_an_answer_or_less_when_its_caller_has_less() -> None:
    cluster = Cluster(1)
    cluster.call()
    cluster.call(timeout=0.7)
    with until(1000.0 + 2.0):
        run(cluster.connection.call(Method.TXN, b"", 0.7))
        run(cluster.connection.call(Method.TXN, b""))
        assert limit() == 1002.0
    assert [timeout for _, timeout, _ in cluster.members[0].calls] == pytest.approx([3.0, 0.7, 0.7, 2.0])
    with until(math.inf):
        assert limit() == math.inf


def test_what_the_first_member_took_is_missing_at_the_next_one() -> None:
    cluster = Cluster()
    cluster.members[0].answers, cluster.members[0].takes = [REFUSED], 1.0
    cluster.call()
    assert cluster.members[1].calls[0][1] == pytest.approx(2.0)


def test_a_call_without_time_is_not_sent() -> None:
    cluster = Cluster()
    with until(999.0), pytest.raises(BackendUnavailable, match=f"^{LABEL}: there was no time left") as refused:
        run(cluster.connection.call(Method.TXN, b""))
    assert refused.value.backend == LABEL
    assert cluster.counts() == [0, 0, 0]


def test_a_deadline_ends_with_the_verb_that_it_belongs_to() -> None:
    with until(5.0):
        with until(3.0):
            assert limit() == 3.0
        assert limit() == 5.0


# --- users


def test_a_token_is_asked_for_once_and_sent_with_every_call() -> None:
    cluster = Cluster(1, "app")
    for _ in range(3):
        cluster.call()
    assert [metadata for _, _, metadata in cluster.members[0].calls] == [{"hasleader": "true", "token": "token 1"}] * 3


def test_without_a_user_a_member_without_a_leader_is_asked_to_refuse() -> None:
    cluster = Cluster(1)
    cluster.call()
    assert cluster.members[0].calls[0][2] == {"hasleader": "true"}


def test_user_and_password_are_sent_for_a_token() -> None:
    cluster = Cluster(1, "app")
    sent: list[bytes] = []

    async def call(method: str, request: bytes, timeout: float, metadata: Any, **_: Any) -> bytes:
        sent.append(request)
        return block(2, b"token")

    cluster.members[0].call = call  # type: ignore[method-assign]
    cluster.call()
    assert fields(sent[0]) == [(1, b"app"), (2, b"secret")]


@pytest.mark.parametrize("details", ["etcdserver: invalid auth token", "etcdserver: revision of auth store is old"])
def test_a_token_that_ran_out_is_replaced_and_the_call_repeated_once(details: str) -> None:
    cluster = Cluster(1, "app")
    member = cluster.members[0]
    cluster.call()
    plain, left = member.call, [CallFailed("UNAUTHENTICATED", details)]

    async def call(method: str, *given: Any, **options: Any) -> bytes:
        if method == Method.TXN and left:
            raise left.pop()
        return await plain(method, *given, **options)

    member.call = call  # type: ignore[method-assign]
    cluster.call()
    assert member.tokens == 2
    assert member.calls[-1][2]["token"] == "token 2"


def test_a_token_that_is_refused_again_is_an_error_and_no_endless_loop() -> None:
    cluster = Cluster(1, "app")
    member = cluster.members[0]
    plain, asked = member.call, list[str]()

    async def call(method: str, *given: Any, **options: Any) -> bytes:
        asked.append(method)
        assert len(asked) < 20
        if method == Method.TXN:
            raise CallFailed(STALE.code, STALE.details)
        return await plain(method, *given, **options)

    member.call = call  # type: ignore[method-assign]
    with pytest.raises(BackendRejected, match="check user and password"):
        cluster.call()
    assert asked.count(Method.TXN) == 2
    assert member.tokens == 2


def test_without_a_user_a_refused_token_is_an_error_at_once() -> None:
    cluster = Cluster(1)
    cluster.members[0].answers = [STALE]
    with pytest.raises(BackendRejected):
        cluster.call()
    assert cluster.counts() == [1]


@pytest.mark.parametrize(
    ("failure", "error", "word"),
    [
        (
            CallFailed("FAILED_PRECONDITION", "etcdserver: authentication is not enabled"),
            BackendRejected,
            f"^{LABEL} has no users",
        ),
        (CallFailed("INVALID_ARGUMENT", "etcdserver: authentication failed"), BackendRejected, "authentication failed"),
        (LOST, BackendUnavailable, "try again"),
        (REFUSED, BackendUnavailable, "no etcd member"),
    ],
)
def test_a_login_that_fails_was_surely_not_applied_and_the_next_member_is_asked_then(
    failure: CallFailed, error: type[Exception], word: str
) -> None:
    cluster = Cluster(2, "app")
    cluster.members[0].answers = [failure]
    with pytest.raises(error, match=word) as refused:
        cluster.call()
    assert getattr(refused.value, "backend", None) == LABEL
    cluster.call()
    assert cluster.members[1].tokens == 1
    assert cluster.counts() == [1, 1]


def test_a_login_has_no_more_time_than_its_call() -> None:
    cluster = Cluster(1, "app")
    member = cluster.members[0]
    member.answers = [LOST]
    with until(1000.5), pytest.raises(BackendUnavailable):
        run(cluster.connection.call(Method.TXN, b""))
    ((method, timeout, _),) = member.calls
    assert method == Method.AUTHENTICATE
    assert timeout == pytest.approx(0.5)


# --- one member, streams


def test_a_call_to_one_member_goes_nowhere_else() -> None:
    cluster = Cluster(3, "app")
    cluster.members[2].answers = []
    run(cluster.connection.call_member(2, Method.STATUS, b""))
    assert cluster.counts() == [0, 0, 1]
    assert cluster.members[2].calls[0][1] == 3.0
    assert "token" in cluster.members[2].calls[0][2]
    cluster.members[1].answers = [LOST]
    with pytest.raises(BackendUnavailable, match="try again"):
        run(cluster.connection.call_member(1, Method.STATUS, b""))
    assert cluster.counts() == [0, 1, 1]
    assert cluster.connection.members == 3


def test_a_stream_begins_at_the_member_in_use_with_the_token() -> None:
    cluster = Cluster(3, "app")
    cluster.connection.move_on(0)
    begun: Any = run(cluster.connection.stream(Method.WATCH))
    assert begun == (1, "a stream")
    assert cluster.members[1].streams == [(Method.WATCH, {"hasleader": "true", "token": "token 1"})]


# --- the end


def test_a_closed_client_asks_nobody() -> None:
    cluster = Cluster()
    cluster.connection.refuse()
    for question in (
        cluster.connection.call(Method.TXN, b""),
        cluster.connection.call_member(0, Method.STATUS, b""),
        cluster.connection.stream(Method.WATCH),
        cluster.connection.time(),
    ):
        with pytest.raises(ClientClosed) as closed:
            run(question)
        assert closed.value.backend == LABEL
    assert cluster.counts() == [0, 0, 0]
    run(cluster.connection.revoke(7))
    assert cluster.counts() == [1, 0, 0]


@pytest.mark.parametrize("user", [None, "app"])
def test_a_call_that_the_end_of_the_client_has_broken_says_so(user: str | None) -> None:
    cluster = Cluster(1, user)

    async def call(*_: Any, **__: Any) -> bytes:
        cluster.connection.refuse()
        raise CallFailed("CANCELLED", "Channel closed!")

    cluster.members[0].call = call  # type: ignore[method-assign]
    with pytest.raises(ClientClosed):
        cluster.call()


def test_every_member_is_closed() -> None:
    cluster = Cluster()
    run(cluster.connection.close())
    assert [member.closed for member in cluster.members] == [1, 1, 1]
    with pytest.raises(ClientClosed):
        cluster.call()


# --- leases


def test_a_lease_that_was_made_without_an_answer_was_not_made() -> None:
    cluster = Cluster(1)
    cluster.members[0].answers = [LOST]
    with until(math.inf), pytest.raises(BackendUnavailable) as unavailable:
        run(cluster.connection.grant(7, 60))
    assert type(unavailable.value) is BackendUnavailable
    assert unavailable.value.backend == LABEL


def test_a_lease_has_the_seconds_that_etcd_gave_it() -> None:
    cluster = Cluster(1)
    cluster.members[0].answers = [block(1, b"") + number(2, 7) + number(3, 61)]
    with until(math.inf):
        assert run(cluster.connection.grant(7, 60)) == 61


@pytest.mark.parametrize(("verb", "repeated"), [("keep_alive", True), ("time_to_live", True), ("revoke", False)])
def test_what_may_be_repeated_goes_to_the_next_member(verb: str, repeated: bool) -> None:
    cluster = Cluster(2)
    cluster.members[0].answers = [RESET]
    cluster.members[1].answers = [block(1, b"") + number(2, 7) + number(3, 61)]
    with until(math.inf):
        try:
            run(getattr(cluster.connection, verb)(7))
        except OutcomeUnknown:
            assert not repeated
    assert cluster.counts() == [1, int(repeated)]


def test_a_range_may_be_repeated_and_a_transaction_only_if_it_reads() -> None:
    for verb, options, asked in (("range", {}, 2), ("txn", {"reads": True}, 2), ("txn", {}, 1)):
        cluster = Cluster(2)
        cluster.members[0].answers = [RESET]
        with until(math.inf):
            try:
                run(getattr(cluster.connection, verb)(rpc.read(b"k"), **options))
            except OutcomeUnknown:
                assert asked == 1
        assert sum(cluster.counts()) == asked


def test_a_lease_that_is_gone_is_told_from_all_other_refusals() -> None:
    cluster = Cluster(1)
    cluster.members[0].answers = [GONE]
    with pytest.raises(LeaseGone):
        cluster.call()


# --- the time of day


def head(seconds: float) -> str:
    return f"HTTP/1.1 200 OK\r\nDate: {time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime(seconds))}\r\n\r\n"


def test_the_time_is_read_once_in_a_while_and_goes_on_with_our_clock() -> None:
    cluster = Cluster(1)
    member, connection = cluster.members[0], cluster.connection
    member.date_or_error = head(1_800_000_000)
    assert run(connection.time()) == 1_800_000_000
    member.date_or_error = head(1_900_000_000)
    cluster.clock.instant += CLOCK_KEPT - 1
    assert run(connection.time()) == pytest.approx(1_800_000_000 + CLOCK_KEPT - 1, abs=0.1)
    cluster.clock.instant += 2
    assert run(connection.time()) == 1_900_000_000


def test_the_time_after_a_slow_answer_is_not_ahead_of_the_member() -> None:
    cluster = Cluster(1)
    cluster.members[0].date_or_error, cluster.members[0].takes = head(1_800_000_000), 0.9
    assert run(cluster.connection.time()) == 1_800_000_000
    assert run(cluster.connection.time()) == pytest.approx(1_800_000_000, abs=0.1)


def test_a_clock_that_was_read_through_a_standstill_is_asked_again() -> None:
    """How old the answer was is not known: a clock that is late by so much would find an earlier slot."""
    cluster = Cluster(1)
    cluster.members[0].date_or_error, cluster.members[0].takes = head(1_800_000_000), 1.1
    assert run(cluster.connection.time()) == 1_800_000_000
    cluster.members[0].date_or_error, cluster.members[0].takes = head(1_800_000_030), 0.0
    assert run(cluster.connection.time()) == 1_800_000_030


def test_a_member_that_does_not_tell_the_time_is_left_for_the_next_one() -> None:
    cluster = Cluster(2)
    cluster.members[0].date_or_error = OSError("no route to host")
    cluster.members[1].date_or_error = head(1_800_000_000)
    with pytest.raises(BackendUnavailable, match=f"^{LABEL}: .*no route to host") as refused:
        run(cluster.connection.time())
    assert refused.value.backend == LABEL
    assert run(cluster.connection.time()) == 1_800_000_000


def test_a_cluster_that_gives_no_time_is_told_where_it_may_be_found() -> None:
    cluster = Cluster(1)
    cluster.members[0].date_or_error = "HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(BackendRejected, match=rf"^{LABEL} .*\?http_port=N"):
        run(cluster.connection.time())


def test_the_doctor_learns_how_far_each_member_is_ahead() -> None:
    cluster = Cluster(3)
    cluster.members[0].date_or_error = head(time.time() + 3600)
    cluster.members[1].date_or_error = OSError("no route to host")
    ahead = [run(cluster.connection.clock_of(place)) for place in range(3)]
    assert ahead[0] == pytest.approx(3600, abs=60)
    assert ahead[1:] == [None, None]


# --- failures in our words


@pytest.mark.parametrize(
    ("code", "details", "surely"),
    [
        ("UNAVAILABLE", "etcdserver: no leader", True),
        ("UNAVAILABLE", "etcdserver: too many requests", True),
        ("UNAVAILABLE", "etcdserver: server stopped", True),
        ("UNAVAILABLE", "failed to connect to all addresses; last error: x", True),
        ("UNAVAILABLE", "errors resolving nowhere:2379", True),
        ("UNAVAILABLE", "DNS resolution failed for nowhere", True),
        ("UNAVAILABLE", "Cannot invoke RPC on closed channel!", True),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", True),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", False),
        ("UNKNOWN", "etcdserver: no leader", False),
        ("UNAVAILABLE", "etcdserver: leader changed", False),
        ("UNAVAILABLE", "Socket closed", False),
    ],
)
def test_what_surely_was_not_applied_is_told_by_its_text(code: str, details: str, surely: bool) -> None:
    assert is_surely_not_applied(CallFailed(code, details)) is surely
    error = to_backend_error(CallFailed(code, details), LABEL, reads=False)
    if surely:
        assert type(error) is BackendUnavailable
        assert "check the hosts in the URL" in str(error)


@pytest.mark.parametrize(
    "details",
    [
        "CERTIFICATE_VERIFY_FAILED",
        "tls: handshake failed",
        "Hostname Verification Check failed.",
        "TSI_DATA_CORRUPTED",
        "WRONG_VERSION_NUMBER",
    ],
)
def test_a_fault_of_tls_is_named_also_where_nothing_was_connected(details: str) -> None:
    details = f"failed to connect to all addresses; last error: {details}"
    error = to_backend_error(CallFailed("UNAVAILABLE", details), LABEL, reads=True)
    assert type(error) is BackendRejected
    assert error.backend == LABEL
    assert "tls_ca, tls_cert and tls_key" in str(error)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("PERMISSION_DENIED", "READWRITE rights"),
        ("UNAUTHENTICATED", "user and password in the URL"),
        ("UNIMPLEMENTED", "etcd 3.4 or newer"),
        ("RESOURCE_EXHAUSTED", "compact and defragment"),
        ("INVALID_ARGUMENT", "etcd's log"),
        ("FAILED_PRECONDITION", "etcd's log"),
        ("OUT_OF_RANGE", "etcd's log"),
        ("ALREADY_EXISTS", "etcd's log"),
        ("NOT_FOUND", "etcd's log"),
    ],
)
def test_each_refusal_comes_with_its_advice(code: str, advice: str) -> None:
    error = to_backend_error(CallFailed(code, "etcdserver: no"), LABEL, reads=False)
    assert type(error) is BackendRejected
    assert error.backend == LABEL
    assert advice in str(error)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses"),
        ("UNAVAILABLE", "tls: handshake failed"),
        ("PERMISSION_DENIED", "etcdserver: permission denied"),
        ("DEADLINE_EXCEEDED", ""),
    ],
)
@pytest.mark.parametrize("reads", [True, False])
def test_an_error_says_which_etcd_it_speaks_of_and_has_no_password(code: str, details: str, reads: bool) -> None:
    label = read_url(StoreURL.parse("etcd://ana:secret@h1,h2:2479/locks")).label
    text = str(to_backend_error(CallFailed(code, details), label, reads=reads))
    assert text.startswith("etcd://ana@h1,h2:2479/locks: ")
    assert "secret" not in text


@pytest.mark.parametrize(("reads", "end"), [(True, "try again"), (False, "the request may have been applied")])
def test_a_missing_answer_says_what_may_have_happened(reads: bool, end: str) -> None:
    error = to_backend_error(CallFailed("DEADLINE_EXCEEDED", ""), LABEL, reads=reads)
    assert type(error) is (BackendUnavailable if reads else OutcomeUnknown)
    assert str(error) == f"{LABEL}: etcd did not answer in time: no details; {end}"
    assert isinstance(error, BackendError)
    assert error.backend == LABEL
