"""One connection to MySQL, byte by byte: what is sent and read, what an interrupted call leaves, how waits end."""

from __future__ import annotations

import math
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.mysql.connection import CHUNK, Connection, Link
from leasehold._backends.mysql.packets import AnswerReader, Result, query_packet
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendUnavailable, OutcomeUnknown
from leasehold.kit.waits import waits_for
from tests.stores.mysql.test_mysql_packets import done, failed, packed, rows_of
from tests.waiting import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANGED = packed(done(b"\x01"))


class Driver:
    """What a connection needs of PyMySQL."""

    def __init__(self, stream: socket.socket) -> None:
        self._sock = stream
        self.closed = 0

    def thread_id(self) -> int:
        return 41

    def _force_close(self) -> None:
        self.closed += 1
        self._sock.close()


class Ends:
    """Our connection and the other end of its stream."""

    def __init__(self) -> None:
        ours, self.server = socket.socketpair()
        self.runtime = ThreadRuntime()
        self.driver = Driver(ours)
        self.connection = Connection(Link(self.driver), waits_for(self.runtime), self.runtime, "mysql://h/db", LIMIT)

    def query(self, text: bytes = b"SELECT 1", until: float = math.inf, **words: Any) -> Any:
        return run(self.connection.query(text, until, **words))

    def received(self, size: int) -> bytes:
        self.server.settimeout(LIMIT)
        data = b""
        while len(data) < size:
            data += self.server.recv(size - len(data))
        return data


@pytest.fixture
def ends() -> Iterator[Ends]:
    pair = Ends()
    yield pair
    pair.server.close()
    pair.connection.close()


def test_a_query_is_sent_and_its_answer_read_however_it_comes(ends: Ends) -> None:
    answer = packed(*rows_of((b"a", b"x" * 300), status=b"\x0a\x00"), done(b"\x07"))

    def serve() -> None:
        assert ends.received(len(query_packet(b"SELECT 1"))) == query_packet(b"SELECT 1")
        for start in range(0, len(answer), 50):
            ends.server.sendall(answer[start : start + 50])

    thread = threading.Thread(target=serve)
    thread.start()
    assert ends.query().results == [Result([(b"a", b"x" * 300)]), Result([], 7)]
    thread.join()
    assert not ends.connection.is_owed()
    assert ends.connection.is_usable()
    assert ends.connection.number == 41


def test_a_query_and_an_answer_that_are_larger_than_what_a_socket_takes_come_whole(ends: Ends) -> None:
    text, got = b"x" * 5_000_000, []
    answer = packed(*rows_of((b"y" * (3 * CHUNK),)))

    def serve() -> None:
        got.append(ends.received(len(text) + 5))
        ends.server.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    assert ends.query(text).results[0].rows == [(b"y" * (3 * CHUNK),)]
    thread.join()
    assert got == [query_packet(text)]


def test_an_error_is_an_answer(ends: Ends) -> None:
    ends.server.sendall(packed(failed(1213, b"#40001", b"deadlock")))
    assert ends.query().error.code == 1213
    assert ends.connection.is_usable()


@pytest.mark.parametrize("words", [{"until": 0.0}, {"patience": 0.0}])
def test_a_query_ends_with_its_time_and_leaves_the_outcome_open(ends: Ends, words: dict[str, Any]) -> None:
    """However long an answer may take otherwise."""
    with pytest.raises(OutcomeUnknown, match="no answer in time"):
        ends.query(**words)
    assert ends.connection.is_owed()
    assert not ends.connection.is_usable()


def test_the_answer_timeout_counts_where_nothing_else_is_said(ends: Ends) -> None:
    ends.connection._timeout = 0.0
    with pytest.raises(OutcomeUnknown, match="no answer in time"):
        ends.query()
    ends.server.sendall(CHANGED)
    assert ends.query(patience=LIMIT).results == [Result([], 1)]


def test_a_request_that_there_is_no_room_for_ends_with_its_time(ends: Ends) -> None:
    with pytest.raises(OutcomeUnknown, match="no answer in time"):
        ends.query(b"x" * 10_000_000, ends.runtime.now() + 0.05)


@pytest.mark.parametrize(
    ("said", "words"),
    [(b"", "closed the connection"), (b"\x00\x00\x00\x00", "index"), (packed(b"\xfd\x01"), "not answered")],
    ids=["end", "empty packet", "another protocol"],
)
def test_a_stream_that_ends_or_makes_no_sense_leaves_the_outcome_open(ends: Ends, said: bytes, words: str) -> None:
    ends.server.sendall(said)
    ends.server.shutdown(socket.SHUT_WR)
    with pytest.raises(OutcomeUnknown, match=words):
        ends.query()


def test_a_connection_is_usable_while_the_server_is_silent(ends: Ends) -> None:
    assert ends.connection.is_usable()
    ends.server.sendall(b"x")  # the message with which the server ends an idle connection
    assert not ends.connection.is_usable()


def test_a_connection_that_the_server_has_ended_is_not_usable(ends: Ends) -> None:
    ends.server.close()
    assert not ends.connection.is_usable()
    assert not ends.connection.is_broken(), "that is for what we have closed"


def answer_to_the_mark(ends: Ends, *before: bytes) -> threading.Thread:
    """Sends what is still owed, then reads the query with the mark and answers it."""
    ends.server.sendall(b"".join(before))

    def serve() -> None:
        sent = ends.received(len(query_packet(b"SELECT '%b'" % (b"x" * 16))))
        mark = sent.partition(b"'")[2][:16]
        ends.server.sendall(packed(*rows_of((mark,))))

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "owed",
    [
        [],
        [CHANGED],
        [CHANGED, packed(*rows_of((b"a",), (b"b",)))],
        [packed(failed(1317, b"#70100", b"interrupted"))],
    ],
    ids=["it was not sent", "one", "several", "error"],
)
def test_what_an_interrupted_call_left_is_read_up_to_the_answer_of_our_own(ends: Ends, owed: list[bytes]) -> None:
    ends.connection._link.reader = AnswerReader()
    thread = answer_to_the_mark(ends, *owed)
    assert run(ends.connection.recovers()) is True
    thread.join()
    assert not ends.connection.is_owed()
    ends.server.sendall(CHANGED)
    assert ends.query().results == [Result([], 1)], "the next call gets its own answer"


def test_an_answer_that_was_read_in_part_is_read_to_its_end(ends: Ends) -> None:
    ends.connection._link.reader = AnswerReader()
    ends.connection._link.reader.feed(CHANGED[:3])
    thread = answer_to_the_mark(ends, CHANGED[3:])
    assert run(ends.connection.recovers()) is True
    thread.join()


def test_a_connection_whose_owed_answer_does_not_come_is_unavailable_and_kept(ends: Ends) -> None:
    ends.connection._link.reader = AnswerReader()
    with pytest.raises(BackendUnavailable, match="no answer in time"):
        run(ends.connection.recovers(0.0))
    assert ends.connection.is_owed()
    assert not ends.connection.is_broken(), "its session holds grants"


def test_a_connection_that_failed_does_not_recover(ends: Ends) -> None:
    ends.connection._link.reader = AnswerReader()
    ends.server.close()
    assert run(ends.connection.recovers()) is False


def test_a_second_object_for_a_connection_is_the_same_session(ends: Ends) -> None:
    ends.connection.is_direct = True
    view = ends.connection.view()
    assert (view.is_direct, view.number) == (True, 41)
    ends.server.sendall(CHANGED)
    assert run(view.query(b"SELECT 1")).results == [Result([], 1)]
    with pytest.raises(OutcomeUnknown):
        run(view.query(b"SELECT 1", 0.0))
    assert ends.connection.is_owed()
    view.close()
    assert ends.connection.is_broken()


def test_closing_twice_closes_once(ends: Ends) -> None:
    for _ in range(2):
        ends.connection.close()
    assert ends.driver.closed == 1
    assert ends.connection.is_broken()
    assert not ends.connection.is_usable()
    ends.connection.interrupt()  # there is nothing to interrupt any more


def test_a_wait_is_interrupted_from_another_thread(ends: Ends) -> None:
    errors: list[Exception] = []

    def wait() -> None:
        try:
            ends.query()
        except OutcomeUnknown as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    ends.received(4)
    ends.connection.interrupt()
    thread.join(LIMIT)
    assert len(errors) == 1
    assert ends.driver.closed == 0, "its user closes it"


def test_a_watcher_sees_what_comes_and_the_end(ends: Ends) -> None:
    assert run(ends.connection.watch(0.0)) is False
    ends.server.sendall(b"x")
    assert run(ends.connection.watch(LIMIT)) is True
    ends.connection.close()
    assert run(ends.connection.watch(0.0)) is True
