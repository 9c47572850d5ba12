"""One connection for all tasks of a loop: whose reply is whose, who gives up when, and what a close ends. No server."""

from __future__ import annotations

import asyncio
import math
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.redis.asyncio_wire import (
    FLUSH_AT,
    MOST_IDLE,
    AsyncioConnection,
    AsyncioRequest,
    AsyncioSubscription,
    AsyncioWire,
)
from leasehold._backends.redis.wire import Node
from leasehold.errors import BackendUnavailable, ClientClosed, ConfigurationError, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

NODE, OTHER = Node("h"), Node("i")
OK = b"+OK\r\n"


class Clock:
    """A loop whose time passes on command; what it shall call is kept."""

    def __init__(self) -> None:
        self.real = asyncio.get_running_loop()
        self.now = 100.0
        self.later: list[Callable[[], object]] = []
        self.timers: list[Any] = []
        self.is_over = False

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[Any]:
        return self.real.create_future()

    def call_soon(self, call: Callable[[], object]) -> None:
        self.later.append(call)

    def call_at(self, when: float, call: Callable[[], object]) -> Any:
        timer = Timer(when, call)
        self.timers.append(timer)
        return timer

    def is_closed(self) -> bool:
        return self.is_over

    def turn(self) -> None:
        """The end of this turn of the loop."""
        calls, self.later = self.later, []
        for call in calls:
            call()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in list(self.timers):
            if timer.when <= self.now and not timer.is_cancelled:
                self.timers.remove(timer)
                timer.call()


class Timer:
    """A call at a moment."""

    def __init__(self, when: float, call: Callable[[], object]) -> None:
        self.when, self.call = when, call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Transport:
    """Notes what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_aborted = False

    def write(self, payload: bytes) -> None:
        self.written.append(payload)

    def abort(self) -> None:
        self.is_aborted = True


def opened(kind: Any = AsyncioConnection, *more: Any) -> tuple[Any, Clock, Any]:
    connection = kind("redis://x", *more)
    clock, transport = Clock(), Transport()
    connection._loop, connection._transport, connection.is_open = clock, transport, True
    return connection, clock, transport


def on_a_loop(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(body())


# --- sending


def test_first_call_is_sent_at_once_and_later_ones_with_all_of_the_turn() -> None:
    async def body() -> None:
        connection, clock, transport = opened()
        for payload in (b"1", b"2", b"3"):
            connection.call(payload, 1, 2.0)
        assert transport.written == [b"1"]
        clock.turn()
        assert transport.written == [b"1", b"23"]
        clock.turn()
        assert transport.written == [b"1", b"23"]
        connection.call(b"4", 1, 2.0)
        clock.turn()
        assert transport.written == [b"1", b"23", b"4"]

    on_a_loop(body)


def test_many_calls_of_one_turn_are_not_kept_back() -> None:
    async def body() -> None:
        connection, clock, transport = opened()
        for _ in range(FLUSH_AT + 2):
            connection.call(b"x", 1, 2.0)
        assert transport.written == [b"x", b"x" * FLUSH_AT]
        clock.turn()
        assert b"".join(transport.written) == b"x" * (FLUSH_AT + 2), "each once"

    on_a_loop(body)


# --- replies


def test_replies_are_given_in_the_order_of_the_calls_however_they_arrive() -> None:
    async def body() -> None:
        connection, _, _ = opened()
        answers = [connection.call(b"x", count, 2.0) for count in (1, 3, 1)]
        connection.data_received(b":1\r\n:2\r\n:3")
        assert [answer.done() for answer in answers] == [True, False, False]
        connection.data_received(b"\r\n:4\r\n")
        connection.data_received(b"-NO such\r\n")
        assert [answer.result() for answer in answers[:2]] == [[1], [2, 3, 4]]
        (error,) = answers[2].result()
        assert isinstance(error, Exception), "an error reply is an answer"

    on_a_loop(body)


def test_reply_of_a_task_that_was_cancelled_is_not_given_to_another() -> None:
    async def body() -> None:
        connection, _, _ = opened()
        first, second = connection.call(b"1", 2, 2.0), connection.call(b"2", 1, 2.0)
        first.cancel()
        connection.data_received(b":1\r\n:2\r\n:3\r\n")
        assert second.result() == [3]

    on_a_loop(body)


def test_connection_with_a_reply_to_no_call_is_not_trusted_any_more() -> None:
    async def body() -> None:
        connection, _, transport = opened()
        connection.data_received(b":1\r\n")
        assert transport.is_aborted
        assert not connection.is_open

    on_a_loop(body)


# --- time


def test_connection_that_does_not_answer_its_oldest_call_in_time_ends_with_all_its_calls() -> None:
    async def body() -> None:
        connection, clock, transport = opened()
        first = connection.call(b"1", 1, 2.0)
        clock.advance(1.0)
        second = connection.call(b"2", 1, 2.0)
        clock.advance(0.9)
        assert not first.done()
        clock.advance(0.2)
        for answer in (first, second):
            assert isinstance(answer.exception(), OutcomeUnknown)
            assert "did not answer in time" in str(answer.exception())
        assert transport.is_aborted
        assert not connection.is_open

    on_a_loop(body)


def test_call_with_less_time_ends_alone_and_its_reply_is_dropped() -> None:
    async def body() -> None:
        connection, clock, transport = opened()
        first, hasty = connection.call(b"1", 1, 2.0), connection.call(b"2", 1, 2.0, 0.5)
        third = connection.call(b"3", 1, 2.0, 1.0)
        clock.advance(0.6)
        assert isinstance(hasty.exception(), OutcomeUnknown)
        assert not first.done()
        assert not third.done()
        clock.advance(0.5)
        assert isinstance(third.exception(), OutcomeUnknown)
        assert not transport.is_aborted
        connection.data_received(b":1\r\n:2\r\n:3\r\n")
        assert first.result() == [1]
        assert connection.is_open

    on_a_loop(body)


@pytest.mark.parametrize("patience", [*permutations((0.5, 1.0, 1.5))], ids=str)
def test_each_call_ends_at_its_own_time_whatever_was_sent_before_and_after_it(patience: tuple[float, ...]) -> None:
    async def body() -> None:
        connection, clock, transport = opened()
        patient = connection.call(b"x", 1, 2.0)
        answers = {seconds: connection.call(b"x", 1, 2.0, seconds) for seconds in patience}
        for passed in (0.4, 0.6, 0.9, 1.1, 1.4, 1.6):
            clock.advance(100.0 + passed - clock.now)
            assert {seconds for seconds, answer in answers.items() if answer.done()} == {
                seconds for seconds in patience if seconds < passed
            }
        assert not patient.done()
        assert not transport.is_aborted
        assert all(isinstance(answer.exception(), OutcomeUnknown) for answer in answers.values())
        clock.advance(0.5)
        assert isinstance(patient.exception(), OutcomeUnknown)
        assert transport.is_aborted

    on_a_loop(body)


def test_hasty_call_does_not_end_the_connection_although_no_call_was_before_it() -> None:
    async def body() -> None:
        connection, clock, transport = opened()
        hasty, other = connection.call(b"1", 1, 2.0, 0.5), connection.call(b"2", 1, 2.0)
        clock.advance(0.6)
        assert isinstance(hasty.exception(), OutcomeUnknown)
        assert not transport.is_aborted
        assert not other.done()
        clock.advance(1.5)
        assert transport.is_aborted, "it has owed an answer for its whole time now"
        assert isinstance(other.exception(), OutcomeUnknown)

    on_a_loop(body)


def test_patience_beyond_the_time_of_the_connection_brings_nothing() -> None:
    async def body() -> None:
        connection, clock, _ = opened()
        answer = connection.call(b"1", 1, 2.0, 9.0)
        clock.advance(2.1)
        assert isinstance(answer.exception(), OutcomeUnknown)

    on_a_loop(body)


def test_connection_that_answers_is_not_ended_by_the_time_of_earlier_calls() -> None:
    async def body() -> None:
        connection, clock, transport = opened()
        connection.call(b"1", 1, 2.0)
        connection.data_received(OK)
        clock.advance(1.9)
        late = connection.call(b"2", 1, 2.0)
        clock.advance(1.0)
        assert not late.done()
        assert not transport.is_aborted
        clock.advance(1.1)
        assert isinstance(late.exception(), OutcomeUnknown)

    on_a_loop(body)


def test_timer_of_a_connection_without_calls_ends_and_comes_back_with_the_next() -> None:
    async def body() -> None:
        connection, clock, _ = opened()
        connection.call(b"1", 1, 2.0)
        connection.data_received(OK)
        clock.advance(5.0)
        assert clock.timers == []
        answer = connection.call(b"2", 1, 2.0)
        clock.advance(2.1)
        assert answer.done()

    on_a_loop(body)


# --- ends


@pytest.mark.parametrize("error", [None, OSError("reset by peer")])
def test_every_call_that_waits_learns_that_the_connection_ended(error: Exception | None) -> None:
    async def body() -> None:
        connection, _, _ = opened()
        answers = [connection.call(b"x", 1, 2.0) for _ in range(3)]
        answers[1].cancel()
        connection.connection_lost(error)
        for answer in (answers[0], answers[2]):
            assert isinstance(answer.exception(), OutcomeUnknown)
            assert "closed the connection" in str(answer.exception())
            assert ("reset by peer" in str(answer.exception())) is (error is not None)
        assert not connection.is_open

    on_a_loop(body)


def test_call_that_waits_when_its_client_is_closed_raises_that_and_no_timer_stays() -> None:
    async def body() -> None:
        connection, clock, transport = opened()
        answer = connection.call(b"x", 1, 2.0)
        connection.end()
        assert isinstance(answer.exception(), ClientClosed)
        assert transport.is_aborted
        assert all(timer.is_cancelled for timer in clock.timers)

    on_a_loop(body)


def test_connection_of_a_loop_that_is_over_is_closed_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Any] = []
    monkeypatch.setattr("leasehold._backends.redis.asyncio_wire.close_without_loop", closed.append)

    async def body() -> None:
        connection, clock, transport = opened()
        clock.is_over = True
        connection.close()
        assert closed == [transport]
        assert not transport.is_aborted

    on_a_loop(body)


def test_subscription_passes_every_message_on_and_reports_its_end_once() -> None:
    async def body() -> None:
        messages: list[Any] = []
        ends: list[int] = []
        subscription, _, transport = opened(AsyncioSubscription, messages.append, lambda: ends.append(1))
        subscription.send(b"SUBSCRIBE")
        assert transport.written == [b"SUBSCRIBE"]
        subscription.data_received(b"*1\r\n$1\r\na\r\n*1\r\n$1")
        subscription.data_received(b"\r\nb\r\n*1\r\n$1\r\nc\r\n")
        assert messages == [[b"a"], [b"b"], [b"c"]]
        subscription.connection_lost(None)
        subscription.connection_lost(None)
        assert ends == [1]
        closed, _, _ = opened(AsyncioSubscription, messages.append, lambda: ends.append(2))
        closed.close()
        closed.connection_lost(None)
        assert ends == [1], "it was closed by us"

    on_a_loop(body)


# --- the wire


class World:
    """A wire whose connections open as planned; also its runtime."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Any] = []
        self.fails: BaseException | None = None
        self.gate: asyncio.Event | None = None
        self.time = 100.0
        this: Any = self
        self.wire = AsyncioWire(this, this, "redis://x")

        async def open_it(connection: Any, _: object, node: Node) -> None:
            self.made.append(connection)
            connection.node = node
            if self.gate is not None:
                await self.gate.wait()
            if self.fails is not None:
                raise self.fails
            connection._transport = Answering(connection)
            connection.is_open = True

        monkeypatch.setattr(AsyncioConnection, "open", open_it)

    def now(self) -> float:
        return self.time


class Answering(Transport):
    """Answers `OK` to each call in the next turn of the loop, unless it is silent."""

    is_silent = False

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self.connection = connection

    def write(self, payload: bytes) -> None:
        super().write(payload)
        if not self.is_silent:
            asyncio.get_running_loop().call_soon(self.connection.data_received, OK * max(1, payload.count(b"x")))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_tasks_share_the_connection_to_a_server_and_open_it_once(world: World) -> None:
    async def body() -> None:
        world.gate = asyncio.Event()
        calls = [asyncio.ensure_future(coroutine(world.wire.exchange(NODE, b"x", 1, 2.0))) for _ in range(3)]
        await asyncio.sleep(0)
        world.gate.set()
        await world.wire.exchange(OTHER, b"x", 1, 2.0)
        assert await asyncio.gather(*calls) == [[b"OK"]] * 3
        assert await world.wire.exchange(NODE, b"x", 1, 2.0) == [b"OK"]
        assert sorted(connection.node for connection in world.made) == [NODE, OTHER]
        world.made[0].close()
        await world.wire.exchange(world.made[0].node, b"x", 1, 2.0)
        assert len(world.made) == 3, "one that ended is opened anew"
        await world.wire.close()

    on_a_loop(body)


async def coroutine(awaitable: Any) -> Any:
    return await awaitable


def test_task_that_leaves_while_the_connection_opens_does_not_harm_the_others(world: World) -> None:
    async def body() -> None:
        world.gate = asyncio.Event()
        first, second = (asyncio.ensure_future(coroutine(world.wire.exchange(NODE, b"x", 1, 2.0))) for _ in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.sleep(0)
        world.gate.set()
        assert await second == [b"OK"]
        assert len(world.made) == 1
        await world.wire.close()

    on_a_loop(body)


def test_connection_that_could_not_be_opened_is_tried_anew_by_the_next_call(world: World) -> None:
    async def body() -> None:
        world.fails = BackendUnavailable("away")
        for _ in range(2):
            with pytest.raises(BackendUnavailable, match="away"):
                await world.wire.exchange(NODE, b"x", 1, 2.0)
        assert len(world.made) == 2
        world.fails = None
        assert await world.wire.exchange(NODE, b"x", 1, 2.0) == [b"OK"]
        await world.wire.close()

    on_a_loop(body)


def test_call_without_time_sends_nothing(world: World) -> None:
    async def body() -> None:
        await world.wire.exchange(NODE, b"x", 1, 2.0)
        with pytest.raises(BackendUnavailable, match="no time left"):
            await world.wire.exchange(NODE, b"y", 1, 2.0, world.time)
        assert world.made[0]._transport.written == [b"x"]
        with pytest.raises(BackendUnavailable, match="no time left"):
            await world.wire.exchange(NODE, b"y", 1, 2.0, world.time, alone=True)
        world.gate = asyncio.Event()
        with pytest.raises(BackendUnavailable):
            await world.wire.exchange(OTHER, b"y", 1, 2.0, world.time)
        world.gate.set()
        await world.wire.close()

    on_a_loop(body)


def test_call_has_as_long_as_is_left_and_the_connection_its_whole_time(world: World) -> None:
    async def body() -> None:
        await world.wire.exchange(NODE, b"x", 1, 2.0)
        asked: list[tuple[Any, ...]] = []
        call = world.made[0].call

        def noted(*words: Any) -> Any:
            asked.append(words)
            return call(*words)

        world.made[0].call = noted
        await world.wire.exchange(NODE, b"x", 1, 2.0)
        await world.wire.exchange(NODE, b"x", 1, 2.0, world.time + 0.5)
        assert asked == [(b"x", 1, 2.0), (b"x", 1, 2.0, 0.5)]
        await world.wire.close()

    on_a_loop(body)


def test_call_that_shares_its_connection_with_no_other_gets_one_of_its_own(world: World) -> None:
    async def body() -> None:
        wire = world.wire
        await wire.exchange(NODE, b"x", 1, 2.0)
        await asyncio.gather(*[wire.exchange(NODE, b"WAIT", 1, 2.0, alone=True) for _ in range(2)])
        assert len(world.made) == 3
        await wire.exchange(NODE, b"WAIT", 1, 2.0, alone=True)
        assert len(world.made) == 3, "an idle one is used again"
        assert world.made[0]._transport.written == [b"x"]
        for connection in world.made[1:]:
            connection.close()
        await wire.exchange(NODE, b"WAIT", 1, 2.0, alone=True)
        assert len(world.made) == 4, "one that ended is not"
        await wire.exchange(OTHER, b"WAIT", 1, 2.0, alone=True)
        assert world.made[4].node == OTHER
        many = MOST_IDLE + 3
        await asyncio.gather(*[wire.exchange(NODE, b"WAIT", 1, 2.0, alone=True) for _ in range(many)])
        assert sum(connection.is_open for connection in world.made if connection.node == NODE) == 1 + MOST_IDLE
        await wire.close()
        assert not any(connection.is_open for connection in world.made)

    on_a_loop(body)


def test_renewal_beside_one_without_an_answer_goes_over_a_connection_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood behind the other one, on a connection that was perhaps dead."""

    async def body() -> None:
        wire, loop = world.wire, asyncio.get_running_loop()
        now = float(int(loop.time()))  # so that what is added to it is exact
        monkeypatch.setattr(loop, "time", lambda: now)
        await wire.exchange(NODE, b"x", 1, 2.5)
        await wire.exchange(NODE, b"WAIT", 1, 2.5, alone=True)
        shared, idle = (connection._transport for connection in world.made)
        shared.is_silent = idle.is_silent = True
        first = asyncio.ensure_future(coroutine(wire.exchange(NODE, b"x1", 1, 2.5)))
        await asyncio.sleep(0)
        now += 0.4375
        young = asyncio.ensure_future(wire.request(NODE, [b"x2"], 2.5).perform())
        await asyncio.sleep(0)
        assert len(world.made) == 2, "the server may only be slow"
        now += 0.0625
        late = asyncio.ensure_future(wire.request(NODE, [b"x3", b"x4"], 2.5).perform())
        for _ in range(20):
            await asyncio.sleep(0)
        assert late.done(), "it waits behind the others"
        assert late.result() == [b"OK"] * 2
        assert [connection.is_open for connection in world.made] == [True, True, False]
        other = asyncio.ensure_future(coroutine(wire.exchange(NODE, b"x5", 1, 2.5)))
        await asyncio.sleep(0)
        world.made[0].data_received(OK * 3)
        assert await asyncio.gather(first, young, other) == [[b"OK"]] * 3, "an answer that comes late is one, too"
        shared.is_silent = False
        assert await wire.request(NODE, [b"x6"], 2.5).perform() == [b"OK"]
        assert len(world.made) == 3, "the shared connection answers again"
        assert not wire._busy
        await wire.close()

    on_a_loop(body)


def test_connection_whose_call_failed_or_was_cancelled_is_not_used_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        monkeypatch.setattr(Answering, "is_silent", True)
        task = asyncio.ensure_future(world.wire.exchange(NODE, b"WAIT", 1, 60.0, alone=True))
        while not (world.made and world.made[0].is_open and world.made[0]._transport.written):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert world.made[0]._transport.is_aborted
        assert not world.wire._busy, "it would be kept for ever"
        assert world.wire._alone[NODE] == []
        await world.wire.close()

    on_a_loop(body)


def test_connections_that_are_most_likely_over_are_dropped(world: World) -> None:
    async def body() -> None:
        await world.wire.exchange(NODE, b"x", 1, 2.0)
        await world.wire.exchange(OTHER, b"x", 1, 2.0)
        world.wire.drop_connections(NODE)
        world.wire.drop_connections(Node("nobody"))
        assert [connection.is_open for connection in world.made] == [False, True]
        await world.wire.close()

    on_a_loop(body)


@pytest.mark.parametrize("alone", [False, True])
def test_close_ends_every_call_and_every_connection(world: World, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    async def body() -> None:
        monkeypatch.setattr(Answering, "is_silent", True)
        wire = world.wire
        waiting = asyncio.ensure_future(coroutine(wire.exchange(NODE, b"x", 1, 60.0, alone=alone)))
        while not (world.made and world.made[0].is_open and world.made[0]._transport.written):
            await asyncio.sleep(0)
        subscription: Any = await wire.subscribe(NODE, print, print)
        world.gate = asyncio.Event()
        opening = asyncio.ensure_future(coroutine(wire.exchange(OTHER, b"x", 1, 60.0, alone=alone)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await wire.close()
        for call in (waiting, opening):
            with pytest.raises(ClientClosed):
                await call
        assert not subscription.is_open
        assert not any(connection.is_open for connection in world.made)
        world.gate = None
        with pytest.raises(ClientClosed):
            await wire.exchange(OTHER, b"x", 1, 2.0, alone=alone)
        with pytest.raises(ClientClosed):
            await wire.subscribe(OTHER, print, print)
        assert not any(connection.is_open for connection in world.made)
        assert not wire._tasks

    on_a_loop(body)


@pytest.mark.parametrize("turns", range(6))
def test_connection_that_is_ready_in_any_turn_around_a_close_is_closed(world: World, turns: int) -> None:
    async def body() -> None:
        world.gate = asyncio.Event()
        call = asyncio.ensure_future(coroutine(world.wire.exchange(NODE, b"x", 1, 60.0)))
        while not world.made:
            await asyncio.sleep(0)
        world.gate.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        await world.wire.close()
        await asyncio.wait([call])
        assert not any(connection.is_open for connection in world.made)

    on_a_loop(body)


@pytest.mark.parametrize("turns", range(9))
@pytest.mark.parametrize("ends", ["cancel", "close"])
@pytest.mark.parametrize("what", ["alone", "subscribe"])
def test_connection_whose_caller_leaves_in_any_turn_around_its_opening_is_closed_or_kept_for_others(
    world: World, what: str, ends: str, turns: int
) -> None:
    async def body() -> None:
        wire = world.wire
        world.gate = asyncio.Event()
        if what == "alone":
            call = asyncio.ensure_future(coroutine(wire.exchange(NODE, b"x", 1, 60.0, alone=True)))
        else:
            call = asyncio.ensure_future(coroutine(wire.subscribe(NODE, print, print)))
        while not world.made:
            await asyncio.sleep(0)
        world.gate.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        if ends == "cancel":
            call.cancel()
        else:
            await wire.close()
        await asyncio.wait([call])
        for _ in range(3):
            await asyncio.sleep(0)
        kept = {*wire._busy, *wire._alone.get(NODE, [])}
        assert {connection for connection in world.made if connection.is_open} == (kept if ends == "cancel" else set())
        assert not wire._tasks
        if what == "alone":
            assert not wire._busy
        await wire.close()
        assert not any(connection.is_open for connection in world.made)

    on_a_loop(body)


@pytest.mark.parametrize("what", ["alone", "subscribe"])
def test_opening_for_a_caller_that_left_is_not_gone_on_with(world: World, what: str) -> None:
    async def body() -> None:
        world.gate = asyncio.Event()
        if what == "alone":
            call = asyncio.ensure_future(coroutine(world.wire.exchange(NODE, b"x", 1, 60.0, alone=True)))
        else:
            call = asyncio.ensure_future(coroutine(world.wire.subscribe(NODE, print, print)))
        while not world.made:
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        for _ in range(3):
            await asyncio.sleep(0)
        assert not world.wire._tasks, "it still connects, for nobody"
        await world.wire.close()

    on_a_loop(body)


def test_subscriptions_that_ended_are_forgotten_when_another_is_opened(world: World) -> None:
    """A client that lives long loses many."""

    async def body() -> None:
        wire = world.wire
        closed, lost, kept = [await wire.subscribe(NODE, print, print) for _ in range(3)]
        closed.close()
        lost.connection_lost(None)  # type: ignore[attr-defined]  # it is one of asyncio
        latest = await wire.subscribe(OTHER, print, print)
        assert wire._busy == {kept, latest}
        await wire.close()
        assert not any(connection.is_open for connection in world.made)

    on_a_loop(body)


class Parts:
    """A wire that notes each part of a request; `fails` are the numbers of those that get no answer."""

    def __init__(self, *fails: int) -> None:
        self.fails = fails
        self.asked: list[tuple[Any, ...]] = []
        self.error = OutcomeUnknown("silent")

    async def ask_part(self, *words: Any) -> list[str]:
        self.asked.append(words)
        if len(self.asked) in self.fails:
            raise self.error
        return [f"answer {letter}" for letter in words[1].decode()]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
def test_many_commands_go_part_by_part_and_each_is_answered_once(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("leasehold._backends.redis.asyncio_wire.PART", size)
    letters = "abcde"
    parts: Any = Parts()
    request = AsyncioRequest(parts, OTHER, [letter.encode() for letter in letters], 7.0, 107.0)
    assert asyncio.run(request.perform()) == [f"answer {letter}" for letter in letters]
    pieces = [letters[start : start + size].encode() for start in range(0, len(letters), size)]
    assert parts.asked == [(OTHER, piece, len(piece), 7.0, 107.0) for piece in pieces]


def test_part_without_an_answer_is_one_to_every_later_command_and_the_earlier_ones_keep_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leasehold._backends.redis.asyncio_wire.PART", 2)
    commands = [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    parts: Any = Parts(2)
    answers = asyncio.run(AsyncioRequest(parts, NODE, commands, 7.0, 107.0).perform())
    assert answers == ["answer a", "answer b", *[parts.error] * 5]
    assert len(parts.asked) == 2, "the rest would be sent into the same silence"
    first: Any = Parts(1)
    with pytest.raises(OutcomeUnknown, match="silent"):
        asyncio.run(AsyncioRequest(first, NODE, commands, 7.0, 107.0).perform())


def test_subscription_that_came_too_late_for_its_caller_is_closed(world: World) -> None:
    async def body() -> None:
        world.gate = asyncio.Event()
        with pytest.raises(BackendUnavailable):
            await world.wire.subscribe(NODE, print, print, world.time)
        world.gate.set()
        await asyncio.sleep(0.01)
        assert not any(connection.is_open for connection in world.made)
        assert not world.wire._tasks
        await world.wire.close()

    on_a_loop(body)


# --- opening


class Driver:
    """redis-py's connection."""

    def __init__(self, fails: BaseException | None) -> None:
        self.fails = fails
        self._writer: Any = None
        self._reader: Any = "reader"
        self.is_closed = False

    async def connect(self) -> None:
        self._writer = self
        self.transport = Opened()
        if self.fails is not None:
            raise self.fails

    def close(self) -> None:
        self.is_closed = True


class Opened(Transport):
    """A transport as asyncio makes it."""

    protocol: Any = None
    is_over = False

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self.is_over


class Dialer:
    """Gives that driver, or fails."""

    def __init__(self, driver: Driver, fails: Exception | None = None) -> None:
        self.driver, self.fails = driver, fails

    def connection(self, _: str, __: Node) -> Driver:
        if self.fails is not None:
            raise self.fails
        return self.driver


def test_transport_of_the_driver_is_taken_over() -> None:
    async def body() -> None:
        driver, connection = Driver(None), AsyncioConnection("redis://x")
        dialer: Any = Dialer(driver)
        await connection.open(dialer, NODE)
        assert driver.transport.protocol is connection
        assert connection.is_open
        assert (driver._writer, driver._reader) == (None, None), "its finalizer would close the transport"
        over = Driver(None)
        Opened.is_over = True
        try:
            dialer.driver = over
            closing = AsyncioConnection("redis://x")
            await closing.open(dialer, NODE)
            assert not closing.is_open
        finally:
            Opened.is_over = False

    on_a_loop(body)


@pytest.mark.parametrize(
    ("fails", "dials", "kind"),
    [
        (OSError("refused"), None, BackendUnavailable),
        (None, ConfigurationError("no such option"), ConfigurationError),
        (None, TypeError("no such parameter"), BackendUnavailable),
        (asyncio.CancelledError(), None, asyncio.CancelledError),
    ],
)
def test_connection_that_does_not_open_says_why_and_leaves_nothing_open(
    fails: BaseException | None, dials: Exception | None, kind: type[BaseException]
) -> None:
    async def body() -> None:
        driver = Driver(fails)
        dialer: Any = Dialer(driver, dials)
        with pytest.raises(kind):
            await AsyncioConnection("redis://x").open(dialer, NODE)
        if kind is asyncio.CancelledError:
            assert driver.is_closed

    on_a_loop(body)


def test_wire_knows_how_much_time_is_left(world: World) -> None:
    assert world.wire.left(107.0) == 7.0
    assert world.wire.left(math.inf) == math.inf
