"""The connections to one node: late answers, calls that get lost, and who is left out. Without a server."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from redis import ResponseError

from leasehold._backends.redis.blocking_wire import FRESH
from leasehold._backends.redis.wire import Dialer
from leasehold._backends.redis.wire import Node as Address
from leasehold._backends.redlock.asyncio_wire import AsyncioWire
from leasehold._backends.redlock.blocking_wire import (
    LOOK_EVERY,
    MOST_IDLE,
    BlockingWire,
    NodeConnection,
    Pending,
    _Hurried,
)
from leasehold._backends.redlock.calls import Calls
from leasehold._backends.redlock.node import MISSES, Node
from leasehold._backends.redlock.undelivered import Undelivered
from leasehold._backends.redlock.wire import SILENCE_LIMIT, lacks_script
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold.values import Claim, Holder, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

CALLS = Calls(30, 3)
CLAIM = Claim("leasehold:x", "f" * 32, 10.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
LOOK = CALLS.look(["leasehold:x"])
NOSCRIPT = b"-NOSCRIPT No matching script\r\n"


def release(number: int) -> Any:
    return CALLS.release(CLAIM, number, time.monotonic())


class Lines:
    """A dialer over pairs of sockets; `ends` are those of the node."""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []
        self.ours: list[socket.socket] = []

    def connection(self, *_: object) -> Any:
        ours, end = socket.socketpair()
        self.ours.append(ours)
        self.ends.append(end)
        return SimpleNamespace(connect=lambda: None, disconnect=ours.close, _sock=ours)


class OneNode:
    """A node, its wire for threads, and what the node gets and says."""

    def __init__(self) -> None:
        lines: Any = Lines()
        self.lines: Lines = lines
        self.undelivered = Undelivered()
        self.wire = BlockingWire(lines, Address("h"), 5.0, self.undelivered)
        self.node = Node(Address("h"), self.wire, run_id="abc", undelivered=self.undelivered)

    def taken(self) -> NodeConnection:
        return self.wire.take(self.node)

    def got(self, place: int = 0) -> bytes:
        end = self.lines.ends[place]
        end.setblocking(False)
        try:
            return bytes(end.recv(1_000_000))
        except BlockingIOError:
            return b""

    def says(self, answer: bytes, place: int = 0) -> None:
        self.lines.ends[place].sendall(answer)


@pytest.fixture
def one() -> Iterator[OneNode]:
    made = OneNode()
    yield made
    for end in (*made.lines.ends, *made.lines.ours):
        end.close()


# --- threads


def test_answer_that_is_late_is_read_before_the_next_one(one: OneNode) -> None:
    first: Any = one.wire.request(one.node, LOOK, math.inf)
    first.send()
    first.finish()
    second: Any = one.wire.request(one.node, LOOK, math.inf)
    second.send()
    assert len(one.lines.ends) == 1
    assert one.wire.has_pending, "also on a connection that is used"
    one.says(b":1\r\n:2\r\n")
    assert second.receive() == (2,)
    second.finish()
    assert one.wire.is_ready
    assert not one.wire.has_pending


def test_node_without_the_script_gets_its_text_once(one: OneNode) -> None:
    request: Any = one.wire.request(one.node, LOOK, math.inf)
    request.send()
    assert one.got() == LOOK.short
    one.says(NOSCRIPT)
    assert request.receive() is None
    assert one.got() == LOOK.whole
    one.says(NOSCRIPT)
    with pytest.raises(BackendRejected):
        request.receive()
    assert one.got() == b""


def test_clean_up_that_nobody_waits_for_gets_its_text_too(one: OneNode) -> None:
    request: Any = one.wire.request(one.node, LOOK, math.inf)
    request.send()
    late = release(1)
    request.send_after(late)
    assert one.got() == LOOK.short + late.short, "on the same connection, behind it"
    one.says(b":1\r\n" + NOSCRIPT)
    assert request.receive() == (1,)
    assert one.got() == late.whole
    request.finish()
    assert one.wire.has_pending


def test_answer_of_a_node_forgives_what_it_missed(one: OneNode) -> None:
    request: Any = one.wire.request(one.node, LOOK, math.inf)
    request.send()
    one.node.missed()
    one.says(b":1\r\n")
    request.receive()
    assert one.node.misses == 0


@pytest.mark.parametrize("when", ["sending", "receiving", "after"])
def test_connection_that_breaks_leaves_the_node_out_and_keeps_what_it_may_have_missed(one: OneNode, when: str) -> None:
    late = release(1)
    request: Any = one.wire.request(one.node, late, math.inf)
    if when == "sending":
        one.wire.give_back(one.taken())
    else:
        request.send()
    one.lines.ends[0].close()
    if when == "after":
        request.send_after(release(2))
        request.send_after(release(3))
    else:
        with pytest.raises(OutcomeUnknown):
            request.send() if when == "sending" else request.receive()
    assert isinstance(one.node.failure, OutcomeUnknown)
    assert len(one.undelivered) == {"sending": 1, "receiving": 1, "after": 3}[when]
    assert not one.wire._taken
    assert not one.wire.is_ready
    request.finish()
    request.abort()


def test_node_that_is_left_out_is_not_sent_anything(one: OneNode) -> None:
    one.node.failure = BackendUnavailable("left out")
    request: Any = one.wire.request(one.node, LOOK, math.inf)
    with pytest.raises(BackendUnavailable, match="left out"):
        request.send()
    assert one.lines.ends == []
    assert request.fileno() == -1
    request.send_after(release(1))
    assert len(one.undelivered) == 1


def test_connection_of_an_interrupted_call_is_closed_with_what_it_may_not_have_sent(one: OneNode) -> None:
    request: Any = one.wire.request(one.node, release(1), math.inf)
    request.send()
    request.abort()
    assert one.lines.ends[0].recv(1_000_000)
    assert one.lines.ends[0].recv(1) == b""
    assert len(one.undelivered) == 1
    assert not one.wire.is_ready


def test_node_whose_answers_are_late_is_left_out_after_a_few_calls(one: OneNode) -> None:
    one.wire._timeout = 0.001
    request: Any = one.wire.request(one.node, release(1), math.inf)
    request.send()
    request.finish()
    for _ in range(MISSES):
        time.sleep(0.002)
        assert one.node.failure is None
        late: Any = one.wire.request(one.node, LOOK, math.inf)
        try:
            late.send()
        except BackendUnavailable:
            break
        late.finish()
    assert one.node.failure is not None
    assert not one.wire._taken, "the connection is given back"
    assert len(one.lines.ends) == 1


def test_late_answers_that_came_meanwhile_forgive(one: OneNode) -> None:
    one.wire._timeout = 0.001
    request: Any = one.wire.request(one.node, LOOK, math.inf)
    request.send()
    request.finish()
    one.node.missed()
    one.says(b":1\r\n")
    time.sleep(0.002)
    assert one.taken().has_pending is False
    assert one.node.misses == 0


def test_connection_that_owes_an_answer_for_too_long_is_replaced(one: OneNode) -> None:
    connection = one.taken()
    late = release(1)
    connection.start(Pending(late, 1), late.short)
    connection._pending[0].sent -= SILENCE_LIMIT + 0.1
    connection.used_at -= FRESH + 0.1
    one.wire.give_back(connection)
    assert one.wire.take(None) is not connection
    assert len(one.undelivered) == 1
    assert one.lines.ends[0].recv(1_000_000) == late.short
    assert one.lines.ends[0].recv(1) == b"", "it was closed"


def test_idle_connection_that_the_node_closed_is_replaced(one: OneNode) -> None:
    connection = one.taken()
    one.wire.give_back(connection)
    assert one.taken() is connection
    connection.used_at -= FRESH + 0.1
    one.wire.give_back(connection)
    assert one.taken() is connection
    connection.used_at -= FRESH + 0.1
    one.wire.give_back(connection)
    one.lines.ends[0].close()
    assert one.taken() is not connection


def test_silent_connection_behind_others_is_closed_so_that_its_calls_are_sent_again(one: OneNode) -> None:
    silent, used = one.taken(), one.taken()
    late = release(1)
    silent.start(Pending(late, 1), late.short)
    silent._pending[0].sent -= SILENCE_LIMIT + 0.1
    one.wire.give_back(silent)
    used.used_at = time.monotonic()
    one.wire._look_at = 0.0
    one.wire.give_back(used)
    assert len(one.undelivered) == 1
    assert list(one.wire._idle) == [used]


def test_silent_connection_whose_answer_came_at_last_is_kept(one: OneNode) -> None:
    late, used = one.taken(), one.taken()
    late.start(Pending(LOOK, 1), LOOK.short)
    late._pending[0].sent -= SILENCE_LIMIT + 0.1
    one.wire._timeout = 0.5
    one.wire.give_back(late)
    one.says(b":1\r\n")
    one.wire._look_at = 0.0
    one.wire.give_back(used)
    assert list(one.wire._idle) == [late, used]
    assert not one.wire.has_pending


def test_idle_connection_with_an_answer_that_has_come_is_used_again(one: OneNode) -> None:
    connection = one.taken()
    connection.start(Pending(LOOK, 1), LOOK.short)
    connection.used_at -= FRESH + 0.1
    one.wire.give_back(connection)
    one.says(b":1\r\n")
    assert one.taken() is connection


def test_new_connection_has_the_time_of_an_answer_and_its_opening_half_of_what_the_caller_has(one: OneNode) -> None:
    made: list[Any] = []
    plain = one.lines.connection

    def with_limits(*words: object) -> Any:
        made.append(plain(*words))
        made[-1].socket_timeout = made[-1].socket_connect_timeout = 9.0
        return made[-1]

    one.lines.connection = with_limits  # type: ignore[method-assign]
    assert one.wire.take(one.node).timeout == 5.0
    assert (made[0].socket_connect_timeout, made[0].socket_timeout) == (9.0, 9.0), "nobody is in a hurry"
    assert one.wire.take(one.node, time.monotonic() + 4.0).timeout == 5.0
    for limit in (made[1].socket_connect_timeout, made[1].socket_timeout):
        assert limit == pytest.approx(2.0, abs=0.5)
    request: Any = one.wire.request(one.node, LOOK, time.monotonic() + 8.0)
    request.send()
    assert made[2].socket_timeout == pytest.approx(4.0, abs=0.5)
    assert request.fileno() == made[2]._sock.fileno()


def test_call_of_several_parts_is_answered_by_the_last_one_and_the_next_call_by_its_own(one: OneNode) -> None:
    both = CALLS.vote(CLAIM, 8).after(CALLS.raise_fence(CLAIM.key, 7))
    request: Any = one.wire.request(one.node, both, math.inf)
    request.send()
    request.send_after(release(8).after(CALLS.raise_fence(CLAIM.key, 9)))
    following: Any = one.wire.request(one.node, LOOK, math.inf)
    one.says(b":7\r\n")
    assert request.receive() is None, "that is the fence"
    one.says(b":1\r\n")
    assert request.receive() == (1,)
    request.finish()
    following.send()
    assert len(one.lines.ends) == 1
    one.says(b":2\r\n:3\r\n")
    assert following.receive() is None, "these are the answers to the clean-up"
    one.says(b":4\r\n")
    assert following.receive() == (4,)


def test_text_that_was_asked_for_again_is_answered_anew_part_by_part(one: OneNode) -> None:
    both = CALLS.vote(CLAIM, 8).after(CALLS.raise_fence(CLAIM.key, 7))
    request: Any = one.wire.request(one.node, both, math.inf)
    request.send()
    one.says(b":7\r\n" + NOSCRIPT)
    assert request.receive() is None
    one.says(b":70\r\n:10\r\n")
    assert request.receive() == (10,)
    assert not one.taken().has_pending


def silent_and_used(one: OneNode) -> tuple[NodeConnection, NodeConnection]:
    """An idle connection that has fallen silent, and one that was used just now."""
    silent, used = one.taken(), one.taken()
    late = release(1)
    silent.start(Pending(late, 1), late.short)
    silent._pending[0].sent -= SILENCE_LIMIT + 0.1
    one.wire._idle.append(silent)
    one.wire._taken.discard(silent)
    return silent, used


def test_idle_connections_are_looked_at_now_and_then_and_not_after_every_call(one: OneNode) -> None:
    silent, used = silent_and_used(one)
    one.wire._look_at = used.used_at
    one.wire.give_back(used)
    assert list(one.wire._idle) == [silent, used], "it is not yet time to look"
    assert one.taken() is used
    used.used_at += 0.001
    one.wire.give_back(used)
    assert list(one.wire._idle) == [used], "nobody would have taken the silent one"
    assert one.wire._look_at == used.used_at + LOOK_EVERY
    assert len(one.undelivered) == 1


def test_only_connection_that_is_idle_is_left_to_the_next_call(one: OneNode) -> None:
    connection = one.taken()
    connection.start(Pending(LOOK, 1), LOOK.short)
    connection._pending[0].sent -= SILENCE_LIMIT + 0.1
    one.wire.give_back(connection)
    assert list(one.wire._idle) == [connection]
    assert one.wire._look_at == 0.0


class Secure:
    """A socket with TLS that has read ahead: what is pending there makes no descriptor readable."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def recv(self, _: int) -> bytes:
        return self.pieces.pop(0)

    def pending(self) -> int:
        return sum(map(len, self.pieces))


def test_all_that_tls_has_read_ahead_is_taken_at_once(one: OneNode) -> None:
    connection = one.taken()
    answers = [Pending(None, 1) for _ in range(3)]
    for pending in answers:
        connection.start(pending, b"ask")
    plain: Any = connection._socket
    secure: Any = Secure(b":1\r\n:", b"2\r", b"\n:3\r\n")
    connection._socket = secure
    connection._secure = True
    connection.read()
    connection._socket = plain
    assert [pending.replies for pending in answers] == [[1], [2], [3]]
    assert not connection.has_pending


def test_late_answers_are_read_to_the_last_one_however_long_they_are(one: OneNode) -> None:
    connection = one.taken()
    for count in (4000, 4000):
        connection.used_at = 0.0
        connection.start(Pending(None, count), b"ask")
        assert connection.used_at > 0.0, "it was used just now"
    one.says(b":1\r\n" * 8000)
    assert connection.catch_up()
    assert not connection.has_pending


def owes(one: OneNode, call: Any) -> NodeConnection:
    """An idle connection whose answer is later than a call waits."""
    connection = one.taken()
    connection.start(Pending(call, 1), call.short)
    connection._pending[0].sent -= 5.1
    connection.used_at -= FRESH + 0.1
    one.wire.give_back(connection)
    return connection


def test_connection_that_broke_while_its_answer_was_late_is_replaced_and_costs_no_call(one: OneNode) -> None:
    broken = owes(one, release(1))
    one.lines.ends[0].close()
    connection = one.taken()
    assert connection is not broken
    assert broken._socket.fileno() == -1
    assert len(one.undelivered) == 1
    assert one.wire._taken == {connection}
    assert one.node.failure is None
    assert one.node.misses == 0


def test_connection_whose_late_answers_were_being_read_at_an_interruption_is_closed(
    one: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    torn = owes(one, release(1))

    def interrupted(_: NodeConnection) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(NodeConnection, "catch_up", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.taken()
    assert torn._socket.fileno() == -1
    assert len(one.undelivered) == 1
    assert not one.wire._taken
    assert not one.wire.is_ready


def test_connection_of_a_node_that_is_left_out_for_late_answers_is_kept_for_them(one: OneNode) -> None:
    connection = owes(one, release(1))
    one.node.misses = MISSES - 1
    with pytest.raises(BackendUnavailable, match="does not answer"):
        one.taken()
    assert list(one.wire._idle) == [connection]
    assert not one.wire._taken
    assert connection._socket.fileno() != -1
    assert len(one.undelivered) == 0, "it may still answer"


def test_connection_that_rested_is_given_the_time_of_an_answer_again(one: OneNode) -> None:
    connection = one.taken()
    connection.used_at -= FRESH + 0.1
    one.wire.give_back(connection)
    assert one.taken() is connection
    assert connection.timeout == 5.0, "looking at it made it wait for nothing"


def test_exchange_waits_longer_than_a_call_and_for_each_of_its_replies(
    one: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [b":1\r\n:", b"2\r\n", b":3\r\n"]
    read, limits = NodeConnection.read, list[float]()

    def piece_by_piece(connection: NodeConnection) -> None:
        limits.append(connection.timeout)
        one.says(pieces.pop(0))
        read(connection)

    monkeypatch.setattr(NodeConnection, "read", piece_by_piece)
    assert run(one.wire.exchange(b"ask", 3)) == [1, 2, 3]
    assert limits == [SILENCE_LIMIT] * 3
    connection = one.taken()
    assert (connection.timeout, connection.has_pending) == (5.0, False)


def test_connection_that_was_interrupted_while_sending_is_torn(one: OneNode) -> None:
    def interrupted(_: bytes) -> None:
        raise KeyboardInterrupt

    connection = one.taken()
    whole: Any = connection._socket
    connection._socket = SimpleNamespace(sendall=interrupted)  # type: ignore[assignment]  # for one call
    with pytest.raises(KeyboardInterrupt):
        connection.start(Pending(LOOK, 1), LOOK.short)
    connection._socket = whole
    one.wire.give_back(connection)
    assert not one.wire.is_ready, "the node may have got half of a command"


def test_node_is_introduced_on_a_connection_of_its_own(one: OneNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold._backends.redlock.blocking_wire.SILENCE_LIMIT", 0.05)
    one.wire.give_back(one.taken())
    with pytest.raises(OutcomeUnknown):
        run(one.wire.exchange(b"INFO", 1, fresh=True))
    assert len(one.lines.ends) == 2
    assert one.got(1) == b"INFO"


def test_no_more_idle_connections_are_kept_than_a_few_and_none_that_is_torn(one: OneNode) -> None:
    taken = [one.taken() for _ in range(MOST_IDLE + 2)]
    taken[0].is_torn = True
    for connection in taken:
        one.wire.give_back(connection)
    assert list(one.wire._idle) == taken[1 : MOST_IDLE + 1]
    assert not one.wire._taken


def test_exchange_reads_all_replies_and_gives_the_connection_back(one: OneNode) -> None:
    one.wire.give_back(one.taken())
    one.says(b":1\r\n:2\r\n")
    assert run(one.wire.exchange(b"ask", 2)) == [1, 2]
    assert len(one.lines.ends) == 1
    (connection,) = one.wire._idle
    assert connection.timeout == 5.0, "of a call again"
    one.lines.ends[0].close()
    with pytest.raises(OutcomeUnknown):
        run(one.wire.exchange(b"ask", 1))
    assert not one.wire.is_ready
    assert not one.wire._taken


def test_connection_without_time_is_not_opened(one: OneNode) -> None:
    with pytest.raises(BackendUnavailable, match="no time left"):
        one.wire.take(one.node, time.monotonic() - 1.0)
    assert one.lines.ends == []


def test_closed_wire_closes_what_is_idle_and_wakes_what_is_used(one: OneNode) -> None:
    idle, used, _ = one.taken(), one.taken(), one.taken()
    one.wire.give_back(idle)
    one.wire.give_back(used)
    assert one.taken() is used
    one.wire.close()
    for end in one.lines.ends:
        end.settimeout(30.0)
        assert end.recv(1) == b""
    with pytest.raises(ClientClosed):
        one.taken()
    one.wire.give_back(used)
    assert not one.wire.is_ready


@pytest.mark.parametrize(
    ("usual", "left", "made"), [(None, 1.0, 0.5), (5.0, 1.0, 0.5), (0.1, 1.0, 0.1), (None, 30.0, 15.0)]
)
def test_caller_with_little_time_spends_half_of_it_on_connecting(usual: float | None, left: float, made: float) -> None:
    dialer: Any = SimpleNamespace(
        connection=lambda *_: SimpleNamespace(socket_connect_timeout=usual, socket_timeout=usual)
    )
    hurried: Dialer = _Hurried(dialer, left)
    connection = hurried.connection("redis.connection", Address("h"))
    assert (connection.socket_connect_timeout, connection.socket_timeout) == (made, made)


def test_one_reply_without_its_script_is_enough() -> None:
    lacks = ResponseError("NOSCRIPT No matching script")
    assert lacks_script([1, lacks])
    assert not lacks_script([1, ResponseError("OOM")])
    assert not lacks_script([])


# --- asyncio


class Line:
    """A connection whose answers are given by the test."""

    is_open = True

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.limits: list[float] = []
        self.counts: list[int] = []
        self.answers: list[asyncio.Future[list[Any]]] = []

    def call(self, payload: bytes, count: int, timeout: float) -> asyncio.Future[list[Any]]:
        self.sent.append(payload)
        self.counts.append(count)
        self.limits.append(timeout)
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def close(self) -> None:
        self.is_open = False


class OneAsyncNode:
    """A node with a wire for tasks."""

    def __init__(self) -> None:
        nobody: Any = None
        self.wire = AsyncioWire(nobody, Address("h"), 5.0)
        line: Any = Line()
        self.line, self.wire._shared = line, line
        self.node = Node(Address("h"), self.wire, run_id="abc", undelivered=Undelivered())

    def ask(self, call: Any = LOOK) -> tuple[Any, asyncio.Task[Any]]:
        request = self.wire.request(self.node, call, math.inf)
        return request, asyncio.ensure_future(request.perform())

    async def answer(self, place: int, *replies: Any) -> None:
        self.line.answers[place].set_result(list(replies))
        await turns()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def on_a_loop(body: Callable[[OneAsyncNode], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await body(OneAsyncNode())

    asyncio.run(whole())


def test_task_gets_its_answer_and_the_node_is_forgiven() -> None:
    async def body(one: OneAsyncNode) -> None:
        _, task = one.ask()
        await turns()
        one.node.missed()
        assert one.wire.has_pending
        assert one.line.limits == [SILENCE_LIMIT]
        await one.answer(0, 7)
        assert await task == 7
        assert one.node.misses == 0
        assert not one.wire.has_pending

    on_a_loop(body)


def test_text_of_the_script_is_sent_once_on_the_same_connection() -> None:
    async def body(one: OneAsyncNode) -> None:
        _, task = one.ask()
        await turns()
        await one.answer(0, ResponseError("NOSCRIPT"))
        assert one.line.sent == [LOOK.short, LOOK.whole]
        await one.answer(1, ResponseError("NOSCRIPT"))
        with pytest.raises(BackendRejected):
            await task
        assert len(one.line.sent) == 2
        assert not one.wire.has_pending

    on_a_loop(body)


def test_call_of_several_parts_waits_for_so_many_replies_also_with_its_texts() -> None:
    both = CALLS.vote(CLAIM, 8).after(CALLS.raise_fence(CLAIM.key, 7))
    clean_up = release(8).after(CALLS.raise_fence(CLAIM.key, 9)).after(CALLS.raise_fence(CLAIM.key, 10))

    async def body(one: OneAsyncNode) -> None:
        request, task = one.ask(both)
        await turns()
        request.send_after(clean_up)
        await one.answer(0, 7, ResponseError("NOSCRIPT"))
        await one.answer(1, 0, ResponseError("NOSCRIPT"), 0)
        assert one.line.sent == [both.short, clean_up.short, both.whole, clean_up.whole]
        assert one.line.counts == [2, 3, 2, 3]
        await one.answer(2, 7, 1)
        assert await task == 1, "the answer to the last part"
        await one.answer(3, ResponseError("NOSCRIPT"), ResponseError("NOSCRIPT"), ResponseError("NOSCRIPT"))
        assert len(one.line.sent) == 4, "a node that forgets at once would be asked for ever"
        assert not one.wire.has_pending

    on_a_loop(body)


def test_text_of_the_script_is_not_sent_on_a_connection_that_is_over() -> None:
    async def body(one: OneAsyncNode) -> None:
        _, task = one.ask()
        await turns()
        one.line.close()
        await one.answer(0, ResponseError("NOSCRIPT"))
        with pytest.raises(BackendRejected):
            await task
        assert one.line.sent == [LOOK.short]

    on_a_loop(body)


def test_error_that_a_node_answers_names_the_node_on_threads_and_on_asyncio(one: OneNode) -> None:
    request: Any = one.wire.request(one.node, LOOK, math.inf)
    request.send()
    one.says(b"-NOPERM this user has no permissions\r\n")
    with pytest.raises(BackendRejected) as on_threads:
        request.receive()
    assert on_threads.value.backend == "h:6379"
    assert one.node.failure is None, "it answers"

    async def body(other: OneAsyncNode) -> None:
        _, task = other.ask()
        await turns()
        await other.answer(0, ResponseError("NOPERM this user has no permissions"))
        with pytest.raises(BackendRejected) as on_asyncio:
            await task
        assert on_asyncio.value.backend == "h:6379"
        assert other.node.failure is None

    on_a_loop(body)


def test_clean_up_whose_answer_was_cancelled_may_not_have_arrived() -> None:
    async def body(one: OneAsyncNode) -> None:
        request, task = one.ask(release(1))
        await turns()
        request.send_after(release(2))
        for answer in one.line.answers:
            answer.cancel()
        await turns()
        with pytest.raises(BackendUnavailable):
            await task
        assert len(one.node.undelivered) == 2
        assert not one.wire.has_pending
        assert one.node.failure is not None

    on_a_loop(body)


def test_lost_answer_leaves_the_node_out_and_the_call_is_sent_again_later() -> None:
    async def body(one: OneAsyncNode) -> None:
        _, task = one.ask(release(1))
        await turns()
        one.line.answers[0].set_exception(OutcomeUnknown("silent"))
        with pytest.raises(OutcomeUnknown):
            await task
        assert isinstance(one.node.failure, OutcomeUnknown)
        assert len(one.node.undelivered) == 1
        assert not one.wire.has_pending
        with pytest.raises(OutcomeUnknown):
            await one.ask()[1]
        assert len(one.line.sent) == 1

    on_a_loop(body)


def test_clean_up_behind_a_request_must_not_get_lost() -> None:
    async def body(one: OneAsyncNode) -> None:
        request, task = one.ask()
        early = release(0)
        one.wire.request(one.node, LOOK, math.inf).send_after(early)
        assert len(one.node.undelivered) == 1, "nothing was sent before it"
        await turns()
        for number in (1, 2, 3):
            request.send_after(release(number))
        await one.answer(0, 7)
        await one.answer(1, ResponseError("NOSCRIPT"))
        assert one.line.sent[4] == release(1).whole, "with its text"
        one.line.answers[2].set_exception(OutcomeUnknown("silent"))
        await one.answer(3, 1)
        await one.answer(4, 1)
        assert len(one.node.undelivered) == 2
        one.line.close()
        request.send_after(release(4))
        assert len(one.node.undelivered) == 3
        assert not one.wire.has_pending
        assert await task == 7

    on_a_loop(body)


def test_node_whose_answers_are_late_is_left_out_by_tasks_too() -> None:
    async def body(one: OneAsyncNode) -> None:
        _, first = one.ask()
        await turns()
        one.wire._pending[0] -= 5.1
        for missed in range(MISSES):
            assert one.node.misses == missed
            _, task = one.ask()
            await turns()
        with pytest.raises(BackendUnavailable, match="does not answer"):
            await task
        assert len(one.line.sent) == MISSES
        for future in one.line.answers:
            future.set_result([1])
        await first

    on_a_loop(body)


def test_node_that_is_not_connected_gets_nothing() -> None:
    async def body(one: OneAsyncNode) -> None:
        one.line.is_open = False
        assert not one.wire.is_ready
        with pytest.raises(BackendUnavailable, match="h:6379 is not connected"):
            await one.ask()[1]
        one.wire._shared = None
        assert not one.wire.is_ready
        one.wire.close()

    on_a_loop(body)


@pytest.mark.parametrize("is_closed", [False, True])
def test_new_connection_replaces_the_one_before_unless_the_client_is_closed(
    monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    made: list[Line] = []

    class Opening(Line):
        def __init__(self, _: str) -> None:
            super().__init__()
            made.append(self)

        async def open(self, *_: object) -> None:
            pass

    monkeypatch.setattr("leasehold._backends.redlock.asyncio_wire.AsyncioConnection", Opening)

    async def body(one: OneAsyncNode) -> None:
        await one.wire.open()
        assert made == [], "it is open"
        exchange = asyncio.ensure_future(one.wire.exchange(b"INFO", 1, fresh=True))
        if is_closed:
            one.wire.close()
            with pytest.raises(ClientClosed):
                await exchange
            assert not made[0].is_open
        else:
            await turns()
            shared: Any = one.wire._shared
            assert shared is made[0]
            made[0].answers[0].set_result([1])
            assert await exchange == [1]
        assert not one.line.is_open
        assert not one.wire.has_pending

    on_a_loop(body)
