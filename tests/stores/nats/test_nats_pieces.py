"""NATS: the parser of its protocol, keys as subjects, and instants."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from leasehold.backends.nats.connection import Servers
from leasehold.backends.nats.documents import _key, _token, instant
from leasehold.backends.nats.notifications import Watches
from leasehold.backends.nats.wire import Frame, Parser, Request, publish
from leasehold.errors import OutcomeUnknown

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
