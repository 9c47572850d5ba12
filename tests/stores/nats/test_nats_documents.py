"""The documents of NATS over a wire that answers as it is told: what is asked, and what each answer means."""

from __future__ import annotations

import base64
import json
import math
import ssl
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.nats.connection import Greeting, Inbox, Servers, tls_context
from leasehold._backends.nats.doctor import Doctor, _replicas, _storage
from leasehold._backends.nats.documents import NatsDocuments, bucket_config
from leasehold._backends.nats.errors import could_not_connect, from_server
from leasehold._backends.nats.notifications import Watches
from leasehold._backends.nats.options import Options, read_url
from leasehold._backends.nats.wire import Frame, Request, as_object, subscribe, unsubscribe
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, ConfigurationError, OutcomeUnknown
from leasehold.findings import Level
from leasehold.kit.options import TLSFiles
from leasehold.store_url import StoreURL
from verification.lab.certificates import Certificates

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LABEL = "nats://h"
CONFIG = {
    "discard": "new", "max_msgs_per_subject": 1, "republish": {"src": "$KV.b.>", "dest": "leasehold.b.>"},
}  # fmt: skip
INFO = {"ts": "1970-01-01T00:00:07Z", "config": CONFIG}
NO_MESSAGE = {"error": {"err_code": 10037, "code": 404, "description": "no message found"}}
NO_STREAM = {"error": {"err_code": 10059, "code": 404, "description": "stream not found"}}
FULL = {"error": {"err_code": 10077, "code": 400, "description": "maximum messages exceeded"}}
UNTIL = 77.0


class Wire:
    """It notes what is asked and answers with what it is given: objects, frames, errors."""

    def __init__(self, *answers: Any) -> None:
        self.info: dict[str, Any] = {"jetstream": True, "version": "2.10.3"}
        self.answers = list(answers)
        self.asked: list[list[Request]] = []
        self.until: list[float] = []
        self.watched: list[str] = []
        self.closed = False

    async def request(self, requests: Sequence[Request], until: float) -> list[Frame]:
        self.asked.append(list(requests))
        self.until.append(until)
        found = []
        for _ in requests:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            found.append(answer if isinstance(answer, Frame) else Frame("MSG", body=json.dumps(answer).encode()))
        return found

    async def watch(self, subject: str, changed: Any) -> Any:
        self.watched.append(subject)
        return changed

    async def close(self) -> None:
        self.closed = True


def documents(*answers: Any, **options: Any) -> tuple[NatsDocuments, Wire]:
    wire = Wire(*answers)
    return NatsDocuments(Options((("h", 4222),), LABEL, "b", **options), wire), wire


def stored(value: bytes, number: int, headers: str = "") -> dict[str, Any]:
    message: dict[str, Any] = {"seq": number, "data": base64.b64encode(value).decode()}
    if headers:
        message["hdrs"] = base64.b64encode(headers.encode()).decode()
    return {"message": message}


# --- load


def test_a_document_comes_with_its_version_and_the_clock_of_the_leader_in_one_round_trip() -> None:
    bucket, wire = documents(stored(b"value", 41), INFO)
    assert run(bucket.load_with_time("lock:ns.x", UNTIL)) == (b"value", 41, 7.0)
    assert wire.asked == [
        [
            Request("$JS.API.STREAM.MSG.GET.KV_b", b'{"last_by_subj": "$KV.b.lock=3Ans=2Ex"}'),
            Request("$JS.API.STREAM.INFO.KV_b"),
        ]
    ]
    assert wire.until == [UNTIL]


@pytest.mark.parametrize(
    ("message", "value", "version"),
    [
        (NO_MESSAGE, None, 0),
        (stored(b"", 41, "NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"), None, 41),
        (stored(b"v", 41, "NATS/1.0\r\nOther: header\r\n\r\n"), b"v", 41),
        ({"message": {"seq": 41}}, b"", 41),
    ],
)
def test_what_is_not_there_and_what_was_deleted_are_no_documents(message: Any, value: Any, version: int) -> None:
    bucket, _ = documents(message, INFO)
    assert run(bucket.load("k", UNTIL)) == (value, version)


@pytest.mark.parametrize("answers", [(NO_STREAM, NO_STREAM), (NO_STREAM, INFO), (NO_MESSAGE, NO_STREAM)])
def test_a_bucket_that_is_missing_is_made_and_read_then(answers: Any) -> None:
    bucket, wire = documents(*answers, {}, NO_MESSAGE, INFO, replicas=3)
    assert run(bucket.load("k", UNTIL)) == (None, 0)
    (made,) = wire.asked[1]
    assert made.subject == "$JS.API.STREAM.CREATE.KV_b"
    config = json.loads(made.body)
    assert config.pop("first_seq") > 1e15
    assert config == {
        "name": "KV_b",
        "subjects": ["$KV.b.>"],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "storage": "file",
        "num_replicas": 3,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "republish": {"src": "$KV.b.>", "dest": "leasehold.b.>", "headers_only": True},
    }
    assert wire.until == [UNTIL] * 3


def test_a_bucket_that_another_client_makes_at_the_same_time_is_no_error_and_any_other_refusal_is() -> None:
    taken = {"error": {"err_code": 10058, "code": 400, "description": "stream name already in use"}}
    bucket, _ = documents(NO_STREAM, NO_STREAM, taken, NO_MESSAGE, INFO)
    assert run(bucket.load("k", UNTIL)) == (None, 0)
    bucket, _ = documents(NO_STREAM, NO_STREAM, FULL)
    with pytest.raises(BackendRejected, match="maximum messages exceeded"):
        run(bucket.load("k", UNTIL))


def test_a_bucket_that_is_deleted_in_between_is_no_empty_document() -> None:
    bucket, _ = documents(NO_STREAM, NO_STREAM, {}, NO_STREAM, NO_STREAM)
    with pytest.raises(BackendRejected, match="stream not found"):
        run(bucket.load("k", UNTIL))


def test_an_answer_with_an_error_is_no_document() -> None:
    bucket, _ = documents(FULL, INFO)
    with pytest.raises(BackendRejected) as refused:
        run(bucket.load("k", UNTIL))
    assert refused.value.backend == LABEL


@pytest.mark.parametrize(
    ("info", "kind", "word"),
    [
        ({}, BackendUnavailable, "just deleted"),
        ({"config": CONFIG}, BackendRejected, "too old"),
        ({**INFO, "config": {**CONFIG, "max_age": 5}}, BackendRejected, "not fit for locks: its messages expire"),
        ({**INFO, "config": {}}, BackendRejected, "not fit"),
        (FULL, BackendRejected, "refused"),
    ],
)
def test_a_bucket_that_gives_no_time_or_is_not_fit_is_refused(info: Any, kind: type[Exception], word: str) -> None:
    bucket, _ = documents(NO_MESSAGE, info)
    with pytest.raises(kind, match=word) as refused:
        run(bucket.load("k", UNTIL))
    assert type(refused.value) is kind
    assert getattr(refused.value, "backend", None) == LABEL


@pytest.mark.parametrize(
    ("jetstream", "kind", "word"), [(False, BackendRejected, "-js"), (True, BackendUnavailable, "try again")]
)
def test_a_question_that_nothing_receives_says_whether_there_is_jetstream(
    jetstream: bool, kind: type[Exception], word: str
) -> None:
    bucket, wire = documents(Frame("MSG", status=503), Frame("MSG", status=503))
    wire.info["jetstream"] = jetstream
    with pytest.raises(kind, match=word) as refused:
        run(bucket.load("k", UNTIL))
    assert getattr(refused.value, "backend", None) == LABEL


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OutcomeUnknown("broken"), BackendUnavailable),
        (BackendRejected("no"), BackendRejected),
        (ClientClosed(), ClientClosed),
    ],
)
def test_a_question_without_an_answer_has_changed_nothing(error: Exception, kind: type[Exception]) -> None:
    bucket, _ = documents(error)
    with pytest.raises(kind) as failed:
        run(bucket.load("k", UNTIL))
    assert type(failed.value) is kind
    if kind is BackendUnavailable:
        assert getattr(failed.value, "backend", None) == LABEL
        assert failed.value.__cause__ is error


# --- swap


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (b"value", "Nats-Expected-Last-Subject-Sequence: 7\r\n"),
        (None, "Nats-Expected-Last-Subject-Sequence: 7\r\nKV-Operation: DEL\r\n"),
    ],
)
def test_a_change_names_the_version_that_it_replaces(value: bytes | None, headers: str) -> None:
    bucket, wire = documents({"stream": "KV_b", "seq": 42}, {"success": True})
    assert run(bucket.swap("lock:x", value, 7, UNTIL)) is True
    assert wire.asked[0] == [Request("$KV.b.lock=3Ax", value or b"", headers)]
    removed = [Request("$JS.API.STREAM.MSG.DELETE.KV_b", b'{"seq": 42, "no_erase": true}')]
    assert wire.asked[1:] == ([removed] if value is None else [])
    assert set(wire.until) == {UNTIL}


@pytest.mark.parametrize("number", [10071, 10164])
def test_a_change_of_another_version_is_not_made(number: int) -> None:
    bucket, wire = documents({"error": {"err_code": number, "code": 400}})
    assert run(bucket.swap("k", None, 7, UNTIL)) is False
    assert len(wire.asked) == 1, "nothing was deleted, so nothing is removed"


@pytest.mark.parametrize(
    ("answer", "kind", "word"),
    [
        (FULL, BackendRejected, "maximum messages"),
        ({"error": {"err_code": 10008, "code": 503}}, BackendUnavailable, "cannot answer now"),
        (Frame("MSG", status=503), BackendUnavailable, "no leader"),
        ({}, OutcomeUnknown, "cannot be read"),
        (Frame("MSG", body=b"nonsense"), OutcomeUnknown, "cannot be read"),
        (OutcomeUnknown("broken"), OutcomeUnknown, "broken"),
        (BackendUnavailable("away"), BackendUnavailable, "away"),
    ],
)
def test_an_answer_to_a_change_says_whether_it_was_made(answer: Any, kind: type[Exception], word: str) -> None:
    bucket, _ = documents(answer)
    with pytest.raises(kind, match=word) as failed:
        run(bucket.swap("k", b"v", 7, UNTIL))
    assert type(failed.value) is kind


@pytest.mark.parametrize("error", [OutcomeUnknown("broken"), BackendRejected("denied"), BackendUnavailable("away")])
def test_a_deletion_was_made_although_its_mark_could_not_be_removed(error: Exception) -> None:
    bucket, _ = documents({"seq": 42}, error)
    assert run(bucket.swap("k", None, 7, UNTIL)) is True


@pytest.mark.parametrize(("size", "sent"), [(1000 - 256, True), (1000 - 255, False)])
def test_a_document_leaves_room_for_its_headers(size: int, sent: bool) -> None:
    bucket, wire = documents({"seq": 42})
    wire.info["max_payload"] = 1000
    try:
        run(bucket.swap("k", b"x" * size, 7, UNTIL))
    except BackendRejected as refused:
        assert "max_payload" in str(refused)
        assert refused.backend == LABEL
    assert bool(wire.asked) is sent


def test_a_document_is_sent_where_the_server_names_no_limit() -> None:
    bucket, wire = documents({"seq": 42})
    del wire.info["version"]
    assert run(bucket.swap("k", b"x" * 10_000_000, 7, UNTIL)) is True


# --- lists, time, watches, the end


def test_all_keys_are_listed_page_by_page() -> None:
    pages = [
        {**INFO, "total": 5, "state": {"subjects": {"$KV.b.lock=3Aa": 1, "$KV.b.lock=3Ab": 1}}},
        {**INFO, "total": 5, "state": {"subjects": {"$KV.b.lock=3Ac": 1, "$KV.b.record=3Aa": 1}}},
        {**INFO, "total": 5, "state": {"subjects": {"$KV.b.not.ours": 1}}},
    ]
    bucket, wire = documents(*pages)
    assert run(bucket.keys("lock:")) == ["lock:a", "lock:b", "lock:c"]
    asked = [json.loads(request.body) for (request,) in wire.asked]
    assert asked == [{"subjects_filter": "$KV.b.>", "offset": offset} for offset in (0, 2, 4)]
    assert set(wire.until) == {math.inf}


@pytest.mark.parametrize(
    "pages",
    [
        [NO_STREAM],
        [{**INFO, "total": 0, "state": {}}],
        [{**INFO, "total": 0, "state": {"subjects": None}}],
        [{**INFO, "total": 9, "state": {"subjects": {}}}],
    ],
)
def test_a_list_of_nothing_ends(pages: list[Any]) -> None:
    bucket, _ = documents(*pages)
    assert run(bucket.keys("")) == []


def test_the_time_is_that_of_the_leader_and_a_missing_bucket_has_none() -> None:
    bucket, _ = documents(INFO)
    assert run(bucket.now()) == 7.0
    bucket, _ = documents(NO_STREAM)
    with pytest.raises(BackendUnavailable, match="just deleted"):
        run(bucket.now())


def test_a_document_is_watched_where_its_changes_are_announced() -> None:
    bucket, wire = documents()
    run(bucket.watch("lock:x", lambda: None))
    assert wire.watched == ["leasehold.b.lock=3Ax"]
    run(bucket.close())
    assert wire.closed


def test_a_bucket_that_becomes_unfit_is_refused_from_then_on_and_served_when_it_is_fit_again() -> None:
    """Whoever administers the servers may give it a limit of age at any time."""
    unfit = {**INFO, "config": {**CONFIG, "max_age": 5}}
    bucket, _ = documents(NO_MESSAGE, INFO, NO_MESSAGE, unfit, NO_MESSAGE, unfit, NO_MESSAGE, INFO)
    assert run(bucket.load("k", UNTIL)) == (None, 0)
    for _ in range(2):
        with pytest.raises(BackendRejected, match="not fit for locks"):
            run(bucket.load("k", UNTIL))
    assert run(bucket.load("k", UNTIL)) == (None, 0)


def test_answers_count_whatever_the_server_says_of_itself() -> None:
    """JetStream may be on another server of the cluster than the one that we are connected to."""
    bucket, wire = documents(stored(b"value", 41), INFO)
    wire.info["jetstream"] = False
    assert run(bucket.load("k", UNTIL)) == (b"value", 41)


def test_a_bucket_in_which_nothing_has_changed_is_looked_at_once() -> None:
    bucket, _ = documents()
    looks: list[Any] = []

    def look(config: dict[str, Any]) -> None:
        looks.append(config)

    bucket.unfit = look  # type: ignore[method-assign]
    for _ in range(3):
        bucket._checked(INFO)
    assert len(looks) == 1


@pytest.mark.parametrize(("body", "found"), [(b'{"a": 1}', {"a": 1}), (b"[1]", {}), (b"", {}), (b"\xff", {})])
def test_an_answer_is_an_object_or_nothing(body: bytes, found: dict[str, int]) -> None:
    assert as_object(body) == found


def test_the_numbers_of_a_new_bucket_begin_at_the_present_microsecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold._backends.nats.documents.time.time", lambda: 1_800_000_000.25)
    assert bucket_config("KV_b", "$KV.b.", "leasehold.b.", 1)["first_seq"] == 1_800_000_000_250_000


# --- connections


def test_each_request_has_an_inbox_of_its_own() -> None:
    inbox = Inbox("unique")
    first, payload = inbox.address([Request("s", b"body"), Request("t")])
    assert first == ["_INBOX.unique.1", "_INBOX.unique.2"]
    assert payload == b"PUB s _INBOX.unique.1 4\r\nbody\r\nPUB t _INBOX.unique.2 0\r\n\r\n"
    assert inbox.address([Request("s")])[0] == ["_INBOX.unique.3"]


def test_after_the_last_server_comes_the_first_one_again() -> None:
    servers = Servers([("a", 1), ("b", 2)])
    for host in (("a", 1), ("b", 2)):
        servers.failed(host)
    assert list(servers) == [("a", 1), ("b", 2)]


def greeting(url: str = "nats://h") -> Greeting:
    return Greeting(read_url(StoreURL.parse(url)), Inbox("a"))


def test_a_greeting_is_over_with_the_pong_and_what_the_server_adds_is_kept() -> None:
    begun: Any = greeting()
    begun.begin(b'INFO {"headers":true,"max_payload":5,"jetstream":false}\r\n')
    begun.take(Frame("INFO", body=b'{"jetstream":true}'))
    assert not begun.done
    begun.take(Frame("PING"))
    assert not begun.done
    begun.take(Frame("PONG"))
    begun.take(Frame("INFO", body=b"{}"))
    assert begun.done
    assert begun.info == {"headers": True, "max_payload": 5, "jetstream": True}


@pytest.mark.parametrize(
    ("said", "kind"), [(b"'Authorization Violation'", BackendRejected), (b"'Stale Connection'", OutcomeUnknown)]
)
def test_an_error_during_the_login_ends_it(said: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind) as failed:
        greeting().take(Frame("-ERR", body=said))
    assert type(failed.value) is kind
    assert said.decode() in str(failed.value)


def test_the_login_says_what_we_want() -> None:
    line = greeting("nats+tls://h").hello().partition(b"\r\n")[0]
    sent = json.loads(line.removeprefix(b"CONNECT "))
    assert sent == {
        "verbose": False, "pedantic": False, "protocol": 1, "headers": True, "no_responders": True, "lang": "python",
        "version": "leasehold", "name": "leasehold", "tls_required": True,
    }  # fmt: skip


def test_subscriptions_are_begun_and_ended_by_number() -> None:
    assert (subscribe("told.a", 3), unsubscribe(3)) == (b"SUB told.a 3\r\n", b"UNSUB 3\r\n")
    watches = Watches()
    watches.deliver("99")
    assert [watches.add("a", lambda: None) for _ in range(2)] == [2, 3]
    assert len(watches) == 2


def test_tls_trusts_the_authority_of_the_url_and_shows_its_certificate(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    assert tls_context(Options((), LABEL)) is None
    files = TLSFiles(str(made.authority), str(made.certificate), str(made.key))
    context = tls_context(Options((), LABEL, tls=files))
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1
    trusting = tls_context(Options((), LABEL, tls=TLSFiles(str(made.authority), verify=False)))
    assert trusting is not None
    assert (trusting.verify_mode, trusting.check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize("part", ["ca", "cert"])
def test_a_file_for_tls_that_is_missing_is_named_as_what_it_is(tmp_path: Path, part: str) -> None:
    missing = str(tmp_path / "missing.pem")
    files = TLSFiles(missing) if part == "ca" else TLSFiles(None, missing, missing)
    with pytest.raises(BackendRejected, match="check tls_ca, tls_cert and tls_key") as refused:
        tls_context(Options((), LABEL, tls=files))
    assert refused.value.backend == LABEL


def test_the_password_of_a_key_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []
    context = SimpleNamespace(load_cert_chain=lambda *given: loaded.append(given))
    monkeypatch.setattr("leasehold._backends.nats.connection.ssl.create_default_context", lambda cafile: context)
    tls_context(Options((), LABEL, tls=TLSFiles("/a", "/c", "/k", "word")))
    assert loaded == [("/c", "/k", "word")]


def test_what_cannot_be_reached_says_why_and_where() -> None:
    silent = could_not_connect(TimeoutError(), LABEL)
    assert str(silent).startswith("nats://h cannot be reached: TimeoutError; check the hosts")
    assert silent.backend == LABEL
    assert "check the certificate" in str(could_not_connect(ssl.SSLError("bad"), LABEL))
    refused = from_server("'Account Authentication Expired'", LABEL)
    assert isinstance(refused, BackendRejected)


# --- URLs


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("nats://h?bucket=", "bucket"),
        (f"nats://h?bucket={'b' * 201}", "letters"),
        ("nats://h?replicas=0", "replicas"),
        ("nats://h?replicas=6", "replicas"),
        ("nats://h?answer_timeout=50ms", "answer_timeout"),
        ("nats://h?answer_timeout=61s", "answer_timeout"),
        ("nats://h?num_replicas=3", "it is called replicas here"),
        ("nats+tls://h?ca=x", "it is called tls_ca here"),
        ("nats+tls://h?cert=x", "it is called tls_cert here"),
        ("nats+tls://h?key=x", "it is called tls_key here"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_by_the_name_of_its_option(url: str, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        read_url(StoreURL.parse(url))


def test_a_url_without_options_has_the_usual_ones() -> None:
    plain = read_url(StoreURL.parse("nats://"))
    assert plain == Options((("localhost", 4222),), str(StoreURL.parse("nats://")))
    assert (plain.bucket, plain.replicas, plain.answer_timeout, plain.fence_floor) == ("leasehold", 1, 5.0, 0)
    assert read_url(StoreURL.parse(f"nats://h?bucket={'b' * 200}&replicas=5&answer_timeout=100ms")).replicas == 5
    assert "secret" not in repr(read_url(StoreURL.parse("nats://me:secret@h")))
    assert "token-7" not in repr(read_url(StoreURL.parse("nats://token-7@h")))


# --- the doctor


def examined(*answers: Any, url: str = "nats://localhost?bucket=b", **info: Any) -> dict[str, Any]:
    wire, options = Wire(*answers), read_url(StoreURL.parse(url))
    wire.info.update(info)
    if info.get("version") == "":
        wire.info = {}
    found = run(Doctor(options, wire, NatsDocuments(options, wire)).examine())
    return {finding.check: finding for finding in found}


def test_the_doctor_looks_at_everything_there_is() -> None:
    config = {**CONFIG, "num_replicas": 3, "storage": "file"}
    found = examined({**INFO, "config": config, "cluster": {"replicas": [{"name": "b", "current": True}]}})
    assert list(found) == [
        "jetstream", "server version", "bucket", "replicas", "storage", "server clock", "disk", "access",
    ]  # fmt: skip
    levels = {check: finding.level for check, finding in found.items()}
    assert levels.pop("server clock") is Level.WARNING  # of 1970
    assert levels.pop("disk") is Level.WARNING
    assert set(levels.values()) == {Level.OK}
    assert found["bucket"].found == "'b' is fit for locks"


def test_the_doctor_finds_a_bucket_that_is_not_fit_and_one_that_is_not_there() -> None:
    unfit = examined({**INFO, "config": {**CONFIG, "discard": "old", "storage": "memory"}})
    assert unfit["bucket"].level is Level.PROBLEM
    assert "discards" in unfit["bucket"].found
    assert unfit["storage"].level is Level.PROBLEM
    missing = examined(NO_STREAM)
    assert list(missing) == ["jetstream", "server version", "bucket", "disk", "access"]
    assert missing["bucket"].level is Level.OK


@pytest.mark.parametrize(("version", "checks"), [("2.9.1", ["jetstream", "server version"]), ("", ["jetstream"])])
def test_the_doctor_says_what_it_could_learn_where_jetstream_does_not_answer(version: str, checks: list[str]) -> None:
    found = examined(OutcomeUnknown("broken"), version=version)
    assert list(found) == checks
    assert {finding.level for finding in found.values()} == {Level.PROBLEM}
    assert found["jetstream"].advice.startswith("remove the cause")


@pytest.mark.parametrize(
    ("peers", "behind"),
    [
        ([{"name": "b", "current": True}], ""),
        ([{"name": "b", "current": False}], "b"),
        ([{"name": "b", "current": True, "offline": True}, {"name": "c"}], "b, c"),
        ([{"current": False}], "?"),
        (None, ""),
    ],
)
def test_the_doctor_names_replicas_that_are_not_in_step(peers: Any, behind: str) -> None:
    finding = _replicas({"config": {"num_replicas": 3}, "cluster": {"replicas": peers}})
    assert finding.level is (Level.PROBLEM if behind else Level.OK)
    assert finding.found == "3 replicas" + (f"; not in step: {behind}" if behind else "")


def test_the_doctor_counts_one_replica_where_nothing_is_said() -> None:
    assert _replicas({}).found == "1 replica"
    assert _storage({}).level is Level.PROBLEM
    assert _storage({"config": {"storage": "file"}}).level is Level.OK


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_the_doctor_takes_each_name_of_this_host_for_local(host: str) -> None:
    assert examined(NO_STREAM, url=f"nats://{host}?bucket=b")["access"].level is Level.OK
