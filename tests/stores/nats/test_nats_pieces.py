"""NATS: the parser of its protocol, keys as subjects, instants, errors, URLs, and what the doctor makes of a bucket."""

from __future__ import annotations

import json
import ssl
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from leasehold._backends.nats import errors
from leasehold._backends.nats.connection import Greeting, Inbox, Servers
from leasehold._backends.nats.doctor import Doctor, _clock, _replicas, _storage
from leasehold._backends.nats.documents import NatsDocuments, _key, _token, bucket_config, instant
from leasehold._backends.nats.notifications import Watches
from leasehold._backends.nats.options import Options, read_url
from leasehold._backends.nats.wire import Frame, Parser, Request, publish
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.findings import Level
from leasehold.kit.options import TLSFiles
from leasehold.store_url import StoreURL

STREAM = (
    b'INFO {"version":"2.10"} \r\n'
    b"PING\r\n"
    b"MSG _INBOX.a.1 1 5\r\nhe\r\no\r\n"
    b"HMSG _INBOX.a.2 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
    b"HMSG s 7 reply 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nok\r\n"
    b"-ERR 'Unknown Protocol Operation'\r\n"
)
FRAMES = [
    Frame("INFO", body=b'{"version":"2.10"}'),
    Frame("PING"),
    Frame("MSG", "_INBOX.a.1", "1", b"he\r\no"),
    Frame("MSG", "_INBOX.a.2", "1", b"", 503),
    Frame("MSG", "s", "7", b"ok"),
    Frame("-ERR", body=b"'Unknown Protocol Operation'"),
]


@given(some.lists(some.integers(0, len(STREAM)), max_size=8))
def test_frames_are_the_same_however_the_bytes_arrive(cuts: list[int]) -> None:
    parser, places = Parser(), sorted({0, *cuts, len(STREAM)})
    parts = [STREAM[begin:end] for begin, end in pairwise(places)]
    assert [frame for part in parts for frame in parser.feed(part)] == FRAMES


def test_words_of_the_protocol_may_be_small() -> None:
    frames = list(Parser().feed(b"ping\r\nmsg s 7 2\r\nok\r\nhmsg s 7 16 17\r\nNATS/1.0 503\r\n\r\n!\r\n"))
    assert frames == [Frame("PING"), Frame("MSG", "s", "7", b"ok"), Frame("MSG", "s", "7", b"!", 503)]


def test_what_is_not_nats_is_refused() -> None:
    with pytest.raises(OutcomeUnknown, match="protocol of NATS"):
        list(Parser().feed(b"MSG what\r\n"))


def test_a_message_with_headers_counts_them() -> None:
    sent = publish(Request("s", b"body", "A: b\r\n"), "r")
    assert sent == b"HPUB s r 18 22\r\nNATS/1.0\r\nA: b\r\n\r\nbody\r\n"
    assert publish(Request("s", b"body"), "r") == b"PUB s r 4\r\nbody\r\n"


@given(some.text(max_size=40))
def test_every_key_is_one_token_of_a_subject_and_comes_back(key: str) -> None:
    token = _token(f"lock:{key}")
    assert not set(token) & set(". *>\r\n\t")
    assert _key(token) == f"lock:{key}"


@pytest.mark.parametrize("key", ["lock:\udcff", "lock:\ud800x", "lock:é", "lock:="])
def test_key_that_is_no_proper_text_comes_back_too(key: str) -> None:
    assert _key(_token(key)) == key


@pytest.mark.parametrize("token", ["a.b", "=4", "=zz", "lock=41", "é"])
def test_a_key_of_other_programs_is_not_ours(token: str) -> None:
    assert _key(token) is None


def test_the_longest_name_fits_into_a_line_of_the_protocol() -> None:
    assert len(_token("lock:" + "." * 1024)) < 4096 - 512


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("2026-11-16T10:57:27.5Z", 1_794_826_647.5),
        ("2026-11-16T10:57:27.123456789Z", 1_794_826_647.123456789),
    ],
)
def test_instants_of_the_server(text: str, seconds: float) -> None:
    assert instant(text) == pytest.approx(seconds, abs=1e-6)


def test_a_server_that_failed_comes_last() -> None:
    servers = Servers([("a", 1), ("b", 2), ("c", 3)])
    servers.failed(("a", 1))
    servers.failed(("a", 1))  # of another connection: it is not the first any more
    assert list(servers) == [("b", 2), ("c", 3), ("a", 1)]


def test_a_watch_that_ended_is_not_called() -> None:
    watches, called = Watches(), list[str]()
    first, second = watches.add("a", lambda: called.append("a")), watches.add("b", lambda: called.append("b"))
    assert first > 1, "the number of the inbox"
    watches.deliver(str(first))
    assert watches.remove(first)
    assert not watches.remove(first)
    watches.deliver(str(first))
    watches.notify_all()
    assert called == ["a", "b"]
    assert watches.subscriptions() == f"SUB b {second}\r\n".encode()


# --- errors


@pytest.mark.parametrize(
    ("answer", "kind", "word"),
    [
        ({"code": 503, "err_code": 10039}, BackendRejected, "-js"),
        ({"code": 503, "err_code": 10076}, BackendRejected, "-js"),
        (
            {"code": 503, "err_code": 10008, "description": "temporarily"},
            BackendUnavailable,
            "temporarily (error 10008)",
        ),
        ({"code": 400, "err_code": 10077}, BackendRejected, "no reason given (error 10077)"),
        ({"code": 500, "err_code": 10049, "description": "broken disk"}, BackendRejected, "broken disk (error 10049)"),
        ({"code": 504, "err_code": 10050}, BackendRejected, "no reason given (error 10050)"),
    ],
)
def test_what_jetstream_refuses_is_told_from_what_may_pass(
    answer: dict[str, Any], kind: type[Exception], word: str
) -> None:
    error = errors.from_api(answer, "nats://h")
    assert type(error) is kind
    assert error.backend == "nats://h"
    assert word in str(error)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("'Permissions Violation for Publish to \"x\"'", "lacks a right"),
        ("'Authorization Violation'", "refused the login"),
        ("'User Authentication Expired'", "refused the login"),
        ("'User Authentication Revoked'", "refused the login"),
        ("'Account Authentication Expired'", "refused the login"),
        ("'Slow Consumer'", None),
    ],
)
def test_a_missing_right_and_a_refused_login_are_named(text: str, word: str | None) -> None:
    error = errors.from_server(text, "nats://h")
    if word is None:
        assert error is None
        return
    assert isinstance(error, BackendRejected)
    assert word in str(error)
    assert text in str(error), "in the server's own words, which name the subject"
    assert error.backend == "nats://h"


def test_errors_without_an_answer_name_the_store_and_say_whether_anything_was_sent() -> None:
    unsent, sent = errors.no_time("nats://h"), errors.lost("nats://h", "it broke")
    assert (type(unsent), unsent.backend) == (BackendUnavailable, "nats://h")
    assert "no time left" in str(unsent)
    assert (type(sent), sent.backend) == (OutcomeUnknown, "nats://h")
    assert "it broke" in str(sent)
    assert "may have been applied" in str(sent)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BackendRejected("no"), BackendRejected),
        (OutcomeUnknown("broken"), BackendUnavailable),
        (ssl.SSLError("bad certificate"), BackendRejected),
        (ssl.SSLEOFError("gone"), BackendUnavailable),
        (ConnectionRefusedError("refused"), BackendUnavailable),
    ],
)
def test_what_fails_before_a_login_was_surely_not_applied(error: Exception, kind: type[Exception]) -> None:
    shown = errors.could_not_connect(error, "nats://h")
    assert type(shown) is kind
    assert str(error) in str(shown)
    if shown is not error:
        assert shown.backend == "nats://h"


def test_failure_without_words_is_told_by_its_kind() -> None:
    assert "cannot be reached: TimeoutError;" in str(errors.could_not_connect(TimeoutError(), "nats://h"))


# --- the greeting


def greeting(url: str) -> Greeting:
    return Greeting(read_url(StoreURL.parse(url)), Inbox("a"))


@pytest.mark.parametrize(
    ("url", "line", "kind", "word"),
    [
        ("nats://h", b"-ERR 'maximum connections exceeded'", OutcomeUnknown, "maximum connections"),
        ("nats://h", b"-err 'not \xff you'\r\n", OutcomeUnknown, "not \ufffd you'$"),
        ("nats://h", b"HTTP/1.1 400 Bad Request", OutcomeUnknown, "not NATS"),
        ("nats://h", b"INFO {", OutcomeUnknown, "not NATS"),
        ("nats://h", b'INFO {"headers":true,"tls_required":true}', BackendRejected, "requires TLS"),
        ("nats+tls://h", b'INFO {"headers":true}', BackendRejected, "offers no TLS"),
        ("nats://h", b'INFO {"version":"2.1"}', BackendRejected, "too old"),
    ],
)
def test_a_server_that_does_not_fit_the_url_gets_no_login(
    url: str, line: bytes, kind: type[Exception], word: str
) -> None:
    with pytest.raises(kind, match=word) as refused:
        greeting(url).begin(line)
    if kind is BackendRejected:
        assert isinstance(refused.value, BackendRejected)
        assert refused.value.backend == url
        assert str(refused.value).startswith(url)


def test_a_server_with_tls_at_choice_serves_both_kinds_of_url() -> None:
    for url in ("nats://h", "nats+tls://h"):
        greeting(url).begin(b'INFO {"headers":true,"tls_available":true}')


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("nats://h", {}),
        ("nats://me:word@h", {"user": "me", "pass": "word"}),
        ("nats://secret@h", {"auth_token": "secret"}),
    ],
)
def test_the_login_is_that_of_the_url(url: str, login: dict[str, str]) -> None:
    first, _, rest = greeting(url).hello().partition(b"\r\n")
    sent = json.loads(first.removeprefix(b"CONNECT "))
    assert {name: sent[name] for name in ("user", "pass", "auth_token") if name in sent} == login
    assert sent["headers"]
    assert sent["no_responders"]
    assert rest == b"SUB _INBOX.a.* 1\r\nPING\r\n"


# --- URLs


def test_what_a_url_says_arrives_where_it_belongs() -> None:
    query = "bucket=b&replicas=3&fence_floor=7&answer_timeout=2s&tls_ca=/a&tls_cert=/c&tls_key=/k&tls_key_password=w"
    assert read_url(StoreURL.parse(f"nats+tls://me:word@h1,[::1]:5?{query}&tls_verify=no")) == Options(
        hosts=(("h1", 4222), ("::1", 5)),
        label="nats+tls://me@h1,[::1]:5",
        bucket="b",
        replicas=3,
        user="me",
        password="word",
        tls=TLSFiles("/a", "/c", "/k", "w", verify=False),
        fence_floor=7,
        answer_timeout=2.0,
    )
    assert read_url(StoreURL.parse("nats://token@h1,[::1]:5")) == Options(
        (("h1", 4222), ("::1", 5)), "nats://h1,[::1]", "leasehold", 1, token="token", answer_timeout=5.0
    )


def test_a_bucket_keeps_what_a_lock_needs_on_as_many_servers_as_the_url_says() -> None:
    config = bucket_config("KV_b", "$KV.b.", "leasehold.b.", 3)
    assert config["num_replicas"] == 3
    assert config["storage"] == "file"
    assert abs(config["first_seq"] / 1e6 - time.time()) < 60


# --- the doctor


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("2.9.25", Level.PROBLEM),
        ("2.10.0", Level.OK),
        ("2.11.0-preview.1", Level.OK),
        ("3.0.0", Level.OK),
        ("unknown", Level.PROBLEM),
    ],
)
def test_the_doctor_knows_the_oldest_version(version: str, level: Level) -> None:
    wire: Any = SimpleNamespace(info={"version": version})
    documents: Any = None
    finding = Doctor(read_url(StoreURL.parse("nats://h")), wire, documents)._version()
    assert (finding.level, finding.found) == (level, version)


@pytest.mark.parametrize(
    ("url", "level", "found"),
    [
        ("nats://localhost", Level.OK, "no TLS, without a login"),
        ("nats://localhost,h", Level.WARNING, "no TLS, without a login"),
        ("nats://me:word@h", Level.WARNING, "no TLS, with a login"),
        ("nats+tls://h", Level.WARNING, "TLS, without a login"),
        ("nats+tls://token@h", Level.OK, "TLS, with a login"),
    ],
)
def test_the_doctor_warns_of_a_server_that_is_open_to_everyone(url: str, level: Level, found: str) -> None:
    wire: Any = None
    documents: Any = None
    finding = Doctor(read_url(StoreURL.parse(url)), wire, documents)._access()
    assert (finding.level, finding.found) == (level, found)


def stamp(ahead: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + ahead))


def test_the_doctor_judges_replicas_storage_and_clock() -> None:
    levels = [_replicas({"config": {"num_replicas": number}}).level for number in (1, 2, 3, 5)]
    assert levels == [Level.WARNING, Level.WARNING, Level.OK, Level.OK]
    assert _storage({"config": {"storage": "memory"}}).level is Level.PROBLEM
    assert _clock({"ts": stamp(0)}).level is Level.OK
    assert {_clock({"ts": stamp(off)}).level for off in (-60, 60)} == {Level.WARNING}
    assert _clock({}).level is Level.PROBLEM


@pytest.mark.parametrize(
    ("ahead", "found", "level"),
    [
        (0.0, "0.0 s", Level.OK),
        (1.9, "1.9 s", Level.OK),
        (-2.0, "2.0 s", Level.OK),
        (2.5, "2.5 s", Level.WARNING),
        (-2.5, "2.5 s", Level.WARNING),
        (-7200.0, "7200.0 s", Level.WARNING),
    ],
)
def test_the_doctor_shows_how_far_the_clock_is_off_either_way(
    monkeypatch: pytest.MonkeyPatch, ahead: float, found: str, level: Level
) -> None:
    monkeypatch.setattr("leasehold._backends.nats.doctor.time.time", lambda: 1_794_826_647.0 - ahead)
    finding = _clock({"ts": "2026-11-16T10:57:27Z"})
    assert (finding.found, finding.level) == (f"differs from this host by {found}", level)


_FIT = {"discard": "new", "max_msgs_per_subject": 1, "republish": {"src": "$KV.locks.>", "dest": "told.>"}}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, None),
        ({"max_age": 0}, None),
        ({"max_age": 1}, "expire"),
        ({"discard": "old"}, "discards"),
        ({"discard": None}, "discards"),
        ({"max_msgs_per_subject": 2}, "history"),
        ({"max_msgs_per_subject": -1}, "history"),
        ({"max_msgs_per_subject": None}, "history"),
        ({"republish": None}, "announce"),
        ({"republish": {"src": "$KV.locks.>", "dest": "elsewhere.>"}}, "announce"),
        ({"republish": {"src": "$KV.others.>", "dest": "told.>"}}, "announce"),
    ],
)
def test_a_bucket_in_which_locks_would_vanish_or_waiters_sleep_is_refused(changes: Any, word: str | None) -> None:
    ours: Any = SimpleNamespace(_subjects="$KV.locks.", _announced="told.")
    why = NatsDocuments.unfit(ours, {**_FIT, **changes})
    assert why is None if word is None else word in (why or "")
