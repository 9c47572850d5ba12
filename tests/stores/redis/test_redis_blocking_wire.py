"""Plain sockets for threads: what is sent and read, which connections are used again, and what a close ends."""

from __future__ import annotations

import gc
import math
import socket
import ssl
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.redis.blocking_wire import FRESH, MOST_IDLE, BlockingWire
from leasehold._backends.redis.connection import BlockingConnection, BlockingSubscription
from leasehold._backends.redis.wire import Node
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendUnavailable, ClientClosed, ConfigurationError, OutcomeUnknown
from tests.stores.support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NODE, OTHER = Node("h"), Node("i")


class Dialer:
    """A connection of redis-py over one end of a pair of sockets; `ends` are the servers' ends."""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []
        self.ours: list[socket.socket] = []
        self.disconnected = 0
        self.fails: Exception | None = None

    def connection(self, _: str, __: Node) -> Any:
        if isinstance(self.fails, ConfigurationError):
            raise self.fails
        self._sock, end = socket.socketpair()
        self.ends.append(end)
        self.ours.append(self._sock)
        return Opening(self, self._sock)


class Opening:
    """redis-py's connection."""

    def __init__(self, dialer: Dialer, sock: socket.socket) -> None:
        self._dialer, self._sock = dialer, sock

    def connect(self) -> None:
        if self._dialer.fails is not None:
            raise self._dialer.fails

    def disconnect(self) -> None:
        self._dialer.disconnected += 1
        self._sock.close()


@pytest.fixture
def dialer() -> Iterator[Dialer]:
    made = Dialer()
    yield made
    for end in (*made.ends, *made.ours):
        end.close()


def connected(dialer: Any, timeout: float = 30.0) -> tuple[BlockingConnection, socket.socket]:
    connection = BlockingConnection(dialer, NODE, "redis://x")
    connection.set_timeout(timeout)
    return connection, dialer.ends[-1]


# --- one connection


def test_replies_are_read_as_they_come(dialer: Dialer) -> None:
    connection, end = connected(dialer)
    end.sendall(b":1\r\n")
    assert connection.exchange(b"ask", 1) == [1]
    assert end.recv(10) == b"ask"
    end.sendall(b":1\r\n:2\r\n$3\r\na")

    def rest() -> None:
        assert end.recv(10) == b"more"
        end.sendall(b"bc\r\n")

    thread = threading.Thread(target=rest)
    thread.start()
    first, second, third = connection.exchange(b"more", 3)
    thread.join()
    assert (first, second, third) == (1, 2, b"abc")


@pytest.mark.parametrize(("sent", "words"), [(b"", "closed the connection"), (b":1\r\n:2", "closed the connection")])
def test_connection_that_ends_before_the_last_reply_is_an_unknown_outcome(
    dialer: Dialer, sent: bytes, words: str
) -> None:
    connection, end = connected(dialer)
    end.sendall(sent)
    end.shutdown(socket.SHUT_WR)
    with pytest.raises(OutcomeUnknown, match=words):
        connection.exchange(b"ask", 2)


def test_connection_that_broke_is_an_unknown_outcome_of_what_is_sent_and_of_what_is_awaited(dialer: Dialer) -> None:
    connection, end = connected(dialer)
    end.close()
    with pytest.raises(OutcomeUnknown, match="broke while sending"):
        for _ in range(10):
            connection.send(b"x" * 100_000)
    connection, end = connected(dialer)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.send(b"unread")
    end.close()
    with pytest.raises(OutcomeUnknown, match=r"broke|closed"):
        connection.feed()


def test_more_replies_than_were_asked_for_are_left_to_the_next(dialer: Dialer) -> None:
    connection, end = connected(dialer)
    end.sendall(b":1\r\n:2\r\n:3\r\n:4\r\n")
    assert connection.exchange(b"ask", 2) == [1, 2]
    replies: list[Any] = []
    connection.take_replies(replies, 9)
    assert replies == [3, 4]


def test_server_that_reads_nothing_is_given_up_in_time(dialer: Dialer) -> None:
    connection, _ = connected(dialer, 0.05)
    with pytest.raises(OutcomeUnknown, match="broke while sending"):
        connection.send(b"x" * 50_000_000)


@pytest.mark.timeout(20)
def test_server_that_answers_drop_by_drop_is_given_up_in_time(dialer: Dialer) -> None:
    connection, end = connected(dialer, 60.0)
    connection.used_at = time.monotonic() - 61.0
    end.sendall(b":1\r\n")
    with pytest.raises(OutcomeUnknown, match="did not answer within 60 s"):
        connection.exchange(b"ask", 2)
    connection, end = connected(dialer, 0.05)
    connection.set_timeout(0.2)
    connection.used_at = time.monotonic() - 1.0
    with pytest.raises(OutcomeUnknown, match=r"did not answer within 0\.2 s"):
        connection.exchange(b"ask", 1)


@pytest.mark.parametrize("partly", [False, True])
def test_silence_is_waited_for_as_long_as_allowed(dialer: Dialer, partly: bool) -> None:
    connection, end = connected(dialer, 0.05)
    if partly:
        end.sendall(b":1\r\n")
    connection.used_at = time.monotonic()
    with pytest.raises(OutcomeUnknown, match=r"did not answer within 0\.05 s"):
        connection.exchange(b"ask", 2)


def kernel_timeout(connection: BlockingConnection) -> float:
    option = connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.calcsize("@ll"))
    seconds, microseconds = struct.unpack("@ll", option)
    return float(seconds + microseconds / 1e6)


def test_timeout_of_the_socket_is_changed_only_when_it_has_to_be(dialer: Dialer) -> None:
    connection, _ = connected(dialer, 2.0)
    for seconds, kernel in ((2.0, 2.0), (4.0, 2.0), (8.0, 2.0), (9.0, 9.0), (1.5, 1.5), (0.25, 0.25), (0.0, 0.0)):
        connection.set_timeout(seconds)
        assert connection.timeout == seconds
        assert kernel_timeout(connection) == pytest.approx(kernel, abs=0.01)
    option = connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.calcsize("@ll"))
    assert struct.unpack("@ll", option) == (0, 0)


def test_call_that_may_take_longer_than_its_socket_waits_goes_on_waiting(dialer: Dialer) -> None:
    connection, end = connected(dialer, 0.05)
    connection.set_timeout(0.2)
    assert kernel_timeout(connection) == pytest.approx(0.05, abs=0.02)
    connection.timeout = 60.0  # as if the machine was slow
    connection.used_at = time.monotonic()
    threading.Timer(0.15, lambda: end.sendall(b":1\r\n")).start()
    assert connection.exchange(b"ask", 1) == [1]


def test_idle_connection_is_quiet_unless_something_came_or_it_was_closed(dialer: Dialer) -> None:
    connection, end = connected(dialer)
    assert connection.is_quiet()
    connection.set_timeout(30.0)
    threading.Timer(0.05, lambda: end.sendall(b":1\r\n")).start()
    assert connection.exchange(b"ask", 1) == [1], "it waits again afterwards"
    end.sendall(b"x")
    assert not connection.is_quiet()
    connection, end = connected(dialer)
    end.close()
    assert not connection.is_quiet()
    connection.close()
    assert not connection.is_quiet()


def is_waiting(thread: threading.Thread) -> bool:
    """Whether it is inside `feed`."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name == "feed"


@pytest.mark.parametrize("how", ["interrupt", "close"])
def test_closed_connection_wakes_its_thread_and_is_given_back_to_the_driver(dialer: Dialer, how: str) -> None:
    connection, end = connected(dialer)
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            connection.feed()
        except OutcomeUnknown as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: is_waiting(thread))
    getattr(connection, how)()
    thread.join(30)
    assert ended, "it still waits"
    assert dialer.disconnected == (how == "close")
    connection.close()
    assert dialer.disconnected >= 1
    assert end.recv(1) == b""


@pytest.mark.parametrize(
    ("fails", "kind"), [(OSError("refused"), BackendUnavailable), (ConfigurationError("no"), ConfigurationError)]
)
def test_connection_that_does_not_open_says_why(dialer: Dialer, fails: Exception, kind: type[Exception]) -> None:
    dialer.fails = fails
    with pytest.raises(kind):
        connected(dialer)


def test_connection_that_rested_waits_for_its_answer_again(dialer: Dialer) -> None:
    """Looking at it made its socket one that waits for nothing."""
    driver: Any = dialer
    wire = BlockingWire(driver, ThreadRuntime(), "redis://x")
    first = run(wire._open(NODE, math.inf))
    wire.give_back(first)
    (end,) = dialer.ends

    def answer() -> None:
        for number in (1, 2):
            assert end.recv(10) == b"ask"
            eventually(lambda: is_waiting(asking))
            end.sendall(b":%d\r\n" % number)

    answering, asking = threading.Thread(target=answer), threading.current_thread()
    answering.start()
    assert run(wire.exchange(NODE, b"ask", 1, 30.0)) == [1]
    first.used_at -= FRESH + 0.1
    assert run(wire.exchange(NODE, b"ask", 1, 30.0)) == [2]
    answering.join()
    assert len(dialer.ends) == 1
    run(wire.close())


class Secure(ssl.SSLSocket):
    """A socket with TLS as far as its limits and what has arrived matter."""

    def __init__(self, *arrived: bytes | Exception) -> None:
        self.arrived = list(arrived)
        self.limits: list[float | None] = []

    def settimeout(self, value: float | None) -> None:
        self.limits.append(value)

    def setblocking(self, flag: bool) -> None:
        self.limits.append(None if flag else 0.0)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        assert (buflen, flags) == (1, 0), "TLS can look at nothing without taking it"
        arrived = self.arrived.pop(0)
        if isinstance(arrived, Exception):
            raise arrived
        return arrived


@pytest.mark.parametrize(
    ("arrived", "is_quiet"),
    [(ssl.SSLWantReadError(), True), (b"x", False), (b"", False), (ssl.SSLError("bad record"), False)],
)
def test_connection_with_tls_is_looked_at_and_limited_by_python_itself(
    dialer: Dialer, arrived: bytes | Exception, is_quiet: bool
) -> None:
    connection, _ = connected(dialer)
    plain, secure = connection._socket, Secure(arrived)
    connection._socket, connection._tick = secure, -1.0
    for seconds in (2.0, 3.0, 0.0, 4.0):
        connection.set_timeout(seconds)
    assert secure.limits == [2.0, None, 4.0], "3 s are waited for in steps of 2 s; 0 is for ever"
    assert connection.is_quiet() is is_quiet
    assert secure.limits[-1] == 0.0
    assert connection.timeout == -1.0, "it has to be set again"
    connection._socket = plain


def test_every_end_of_a_connection_names_its_store(dialer: Dialer) -> None:
    ended: list[OutcomeUnknown] = []

    def fail(step: Callable[[], object]) -> None:
        with pytest.raises(OutcomeUnknown) as caught:
            step()
        ended.append(caught.value)

    connection, end = connected(dialer, 0.01)
    fail(connection.feed)
    end.sendall(b":1\r\n")
    connection.used_at -= 1.0
    fail(lambda: connection.exchange(b"ask", 2))
    end.shutdown(socket.SHUT_WR)
    fail(connection.feed)
    connection.interrupt()
    fail(lambda: connection.send(b"ask"))
    connection.close()
    fail(connection.feed)
    assert [error.backend for error in ended] == ["redis://x"] * 5
    words = ["did not answer within 0.01 s"] * 2 + ["closed the connection", "broke while sending", "connection broke"]
    for error, said in zip(ended, words, strict=True):
        assert said in str(error)


# --- messages


def test_messages_are_passed_on_until_the_connection_ends(dialer: Dialer) -> None:
    messages: list[Any] = []
    ends: list[int] = []
    connection, end = connected(dialer, 0.05)
    subscription = BlockingSubscription(connection, ThreadRuntime(), messages.append, lambda: ends.append(1))
    subscription.send(b"SUBSCRIBE")
    assert end.recv(20) == b"SUBSCRIBE"
    time.sleep(0.1)  # it has no limit of its own any more
    end.sendall(b"+a\r\n+b\r\n+c")
    eventually(lambda: len(messages) == 2)
    end.sendall(b"\r\n")
    eventually(lambda: len(messages) == 3)
    assert messages == [b"a", b"b", b"c"]
    end.close()
    eventually(lambda: ends)
    assert ends == [1]
    assert dialer.disconnected == 1, "its descriptor stays open"


def test_end_of_a_subscription_that_was_closed_is_not_reported(dialer: Dialer) -> None:
    ends: list[int] = []
    connection, _ = connected(dialer)
    subscription = BlockingSubscription(connection, ThreadRuntime(), print, lambda: ends.append(1))
    eventually(lambda: any(thread.name == "leasehold redis messages" for thread in threading.enumerate()))
    subscription.close()
    eventually(lambda: all(thread.name != "leasehold redis messages" for thread in threading.enumerate()))
    assert ends == []


# --- the wire


class Connection:
    """A connection that answers as planned."""

    def __init__(self, _: object, node: Node, label: str) -> None:
        self.node, self.label = node, label
        self.timeout = -1.0
        self.used_at = time.monotonic()
        self.limits: list[float] = []
        self.sent: list[bytes] = []
        self.answers: list[Any] = []
        self.is_alive = True
        self.is_closed = self.is_interrupted = False

    def set_timeout(self, seconds: float) -> None:
        self.timeout = seconds
        self.limits.append(seconds)

    def exchange(self, payload: bytes, count: int) -> list[Any]:
        self.sent.append(payload)
        answer = self.answers.pop(0) if self.answers else [b"OK"] * count
        if isinstance(answer, BaseException):
            raise answer
        return list(answer)

    def send(self, payload: bytes) -> None:
        self.sent.append(payload)

    def feed(self) -> None:
        if self.answers and isinstance(self.answers[0], BaseException):
            raise self.answers.pop(0)

    def take_replies(self, replies: list[Any], count: int) -> None:
        replies.extend(self.answers.pop(0))

    def is_quiet(self) -> bool:
        return self.is_alive

    def fileno(self) -> int:
        return 7

    def interrupt(self) -> None:
        self.is_interrupted = True

    def close(self) -> None:
        self.is_closed = True


class Wire:
    """A wire over such connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Connection] = []
        self.runtime = ThreadRuntime()
        nobody: Any = None
        self.wire: Any = BlockingWire(nobody, self.runtime, "redis://x")

        def make(*words: Any) -> Connection:
            self.made.append(Connection(*words))
            return self.made[-1]

        monkeypatch.setattr("leasehold._backends.redis.blocking_wire.BlockingConnection", make)

    def ask(self, node: Node = NODE, timeout: float = 2.0, until: float = math.inf) -> Any:
        return run(self.wire.exchange(node, b"x", 1, timeout, until))


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


def test_connection_is_used_again_for_its_own_server(wire: Wire) -> None:
    for node in (NODE, NODE, OTHER, NODE):
        assert wire.ask(node) == [b"OK"]
    assert [connection.node for connection in wire.made] == [NODE, OTHER]
    assert wire.made[0].sent == [b"x"] * 3
    assert wire.made[0].limits == [2.0], "its timeout is set once"


def test_idle_connection_is_looked_at_before_it_is_used_again_and_a_dead_one_is_closed(wire: Wire) -> None:
    wire.ask()
    wire.made[0].is_alive = False
    wire.ask()
    assert len(wire.made) == 1, "it was used just now"
    wire.made[0].used_at -= FRESH + 0.1
    wire.ask()
    assert len(wire.made) == 2
    assert wire.made[0].is_closed
    wire.made[1].used_at -= FRESH + 0.1
    wire.ask()
    assert len(wire.made) == 2


@pytest.mark.parametrize(
    ("timeout", "left", "limit"), [(2.0, math.inf, 2.0), (2.0, 60.0, 2.0), (2.0, 0.5, 0.5), (30.0, 1.0, 1.0)]
)
def test_answer_is_waited_for_as_long_as_the_call_has_left(
    wire: Wire, timeout: float, left: float, limit: float
) -> None:
    wire.ask(timeout=99.0)
    wire.ask(timeout=timeout, until=wire.runtime.now() + left)
    assert wire.made[0].limits[-1] == pytest.approx(limit, abs=0.1)


def test_call_without_time_sends_nothing_and_keeps_the_connection(wire: Wire) -> None:
    wire.ask()
    with pytest.raises(BackendUnavailable, match="no time left"):
        wire.ask(until=wire.runtime.now())
    assert wire.made[0].sent == [b"x"]
    wire.ask()
    assert len(wire.made) == 1


def idle(wire: Wire, count: int) -> None:
    """So many idle connections."""
    for _ in range(count):
        wire.wire.give_back(wire.wire._connect(NODE))


def test_connection_whose_answer_did_not_come_is_closed_with_the_idle_ones(wire: Wire) -> None:
    idle(wire, 3)
    wire.made[2].answers = [OutcomeUnknown("silent")]
    with pytest.raises(OutcomeUnknown):
        wire.ask()
    assert [connection.is_closed for connection in wire.made] == [True] * 3


def test_hasty_call_costs_its_own_connection_only(wire: Wire) -> None:
    idle(wire, 3)
    wire.made[2].answers = [OutcomeUnknown("silent")]
    with pytest.raises(OutcomeUnknown):
        wire.ask(until=wire.runtime.now() + 0.1)
    assert [connection.is_closed for connection in wire.made] == [False, False, True]


def test_connection_of_an_interrupted_call_is_not_used_again(wire: Wire) -> None:
    idle(wire, 2)
    wire.made[1].answers = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        wire.ask()
    assert [connection.is_closed for connection in wire.made] == [False, True]
    wire.ask()
    assert wire.made[0].sent == [b"x"]


def test_no_more_connections_are_kept_than_a_few(wire: Wire) -> None:
    taken = [wire.wire._connect(NODE) for _ in range(MOST_IDLE + 2)]
    for connection in taken:
        wire.wire.give_back(connection)
    assert [connection.is_closed for connection in wire.made] == [False] * MOST_IDLE + [True] * 2


def test_time_of_a_connection_counts_from_its_last_use(wire: Wire) -> None:
    """What its call may take is counted from then."""
    idle(wire, 1)
    (connection,) = wire.made
    connection.used_at -= FRESH / 2
    before = time.monotonic()
    assert wire.wire._take(NODE) is connection
    assert connection.used_at >= before
    connection.used_at -= FRESH / 2
    wire.wire.give_back(connection)
    assert connection.used_at >= before


def test_connections_that_are_gone_are_not_remembered(wire: Wire) -> None:
    idle(wire, 3)
    assert len(wire.wire._connections) == 3
    wire.wire.drop_connections(NODE)
    wire.made.clear()
    gc.collect()
    assert wire.wire._connections == {}


def test_dropped_connections_are_closed(wire: Wire) -> None:
    idle(wire, 3)
    wire.ask(OTHER)
    wire.wire.drop_connections(NODE)
    wire.wire.drop_connections(Node("nobody"))
    assert [connection.is_closed for connection in wire.made] == [True] * 3 + [False]


def test_close_ends_what_is_idle_and_what_is_used(wire: Wire) -> None:
    idle(wire, 2)
    late = wire.wire._connect(NODE)
    used = wire.wire._take(NODE)
    assert used is wire.made[1]
    run(wire.wire.close())
    wire.wire.give_back(late)
    assert wire.made[2].is_closed
    assert wire.made[0].is_closed
    assert wire.made[1].is_interrupted
    assert not wire.made[1].is_closed, "its own thread closes it"
    wire.made[1].answers = [OutcomeUnknown("interrupted")]
    with pytest.raises(ClientClosed):
        wire.wire.exchange_on(used, b"x", 1, 2.0, math.inf)
    assert wire.made[1].is_closed
    with pytest.raises(ClientClosed):
        wire.ask()
    with pytest.raises(ClientClosed):
        run(wire.wire.subscribe(NODE, print, print))


# --- several servers at once


def test_request_on_an_open_connection_can_be_sent_now_and_collected_later(wire: Wire) -> None:
    idle(wire, 1)
    request: Any = wire.wire.request(NODE, [b"a", b"b", b"c"], 2.0)
    request.send()
    (connection,) = wire.made
    assert connection.sent == [b"abc"]
    assert connection.limits == [2.0]
    connection.answers = [[1, 2], [3]]
    assert request.fileno() == 7
    assert request.receive() is None
    assert wire.wire._take(NODE) is None, "it is still in use"
    assert request.receive() == ([1, 2, 3],)
    assert wire.wire._take(NODE) is connection


@pytest.mark.parametrize(("left", "limit"), [(math.inf, 2.0), (0.5, 0.5), (60.0, 2.0)])
def test_request_that_is_collected_later_has_as_long_as_its_caller(wire: Wire, left: float, limit: float) -> None:
    idle(wire, 1)
    request: Any = wire.wire.request(NODE, [b"a"], 2.0, wire.runtime.now() + left)
    request.send()
    assert wire.made[0].limits == [pytest.approx(limit, abs=0.1)]


def test_new_connection_is_waited_for_as_long_as_its_caller_has(wire: Wire) -> None:
    asked: list[tuple[Node, float]] = []

    class Openings:
        async def open(self, connect: Any, give_back: object, until: float) -> Connection:
            assert give_back == wire.wire.give_back
            made: Connection = connect()
            asked.append((made.node, until))
            made.answers = [OutcomeUnknown("silent")]
            return made

    wire.wire._openings = Openings()
    until = wire.runtime.now() + 60.0
    with pytest.raises(OutcomeUnknown):
        wire.ask(OTHER, until=until)
    run(wire.wire.subscribe(NODE, print, print, until))
    with pytest.raises(OutcomeUnknown):
        run(wire.wire.request(NODE, [b"a"], 2.0, until).perform())
    assert asked == [(OTHER, until), (NODE, until), (NODE, until)]


def test_request_whose_connection_broke_drops_the_idle_ones(wire: Wire) -> None:
    idle(wire, 2)
    request: Any = wire.wire.request(NODE, [b"a"], 2.0)
    request.send()
    wire.made[1].answers = [OutcomeUnknown("broke")]
    with pytest.raises(OutcomeUnknown):
        request.receive()
    assert wire.made[0].is_closed


def test_request_without_time_gives_its_connection_back(wire: Wire) -> None:
    idle(wire, 1)
    request: Any = wire.wire.request(NODE, [b"a"], 2.0, wire.runtime.now())
    with pytest.raises(BackendUnavailable, match="no time left"):
        request.send()
    assert wire.made[0].sent == []
    assert wire.wire._take(NODE) is wire.made[0]


def test_request_that_has_to_connect_cannot_share_a_thread(wire: Wire) -> None:
    request: Any = wire.wire.request(NODE, [b"a", b"b"], 2.0)
    assert not hasattr(request, "receive")
    assert run(request.perform()) == [b"OK"] * 2
    assert wire.made[0].sent == [b"ab"]
    ready: Any = wire.wire.request(NODE, [b"a", b"b"], 2.0)
    assert run(ready.perform()) == [b"OK"] * 2
    assert len(wire.made) == 1
