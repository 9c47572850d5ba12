"""The watches of an etcd client over streams that say what they are told: when they begin, end, and begin again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.etcd import notifications as module
from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.connection import limit, until
from leasehold._backends.etcd.errors import CallFailed
from leasehold._backends.etcd.notifications import LINGER, Notifications
from leasehold._backends.etcd.protobuf import block, number
from leasehold.errors import BackendUnavailable, ClientClosed
from tests.stores.etcd.etcd_histories import simulated
from verification.simulation import SimRuntime, World

if TYPE_CHECKING:
    from collections.abc import Coroutine

HEADER = block(1, number(3, 50))


def created(watch: int, revision: int) -> bytes:
    return block(1, number(3, revision)) + number(2, watch) + number(3, 1)


def event(watch: int) -> bytes:
    return HEADER + number(2, watch) + block(11, b"")


def refused(watch: int) -> bytes:
    return HEADER + number(2, watch) + number(4, 1)


class Stream:
    """What it was sent, and what it will say; an exception is raised, None is its end."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.sent: list[bytes] = []
        self.inbox: list[Any] = []
        self.something = bench.runtime.signal()
        self.closed = False
        self.began_under: float = limit()

    def send(self, request: bytes) -> None:
        assert not self.closed
        self.sent.append(request)

    def say(self, *messages: Any) -> None:
        self.inbox += messages
        self.something.set()

    async def receive(self) -> Any:
        while not self.inbox:
            self.something.clear()
            await self.bench.runtime.wait(self.something, None)
        message = self.inbox.pop(0)
        if isinstance(message, Exception):
            raise message
        return message

    def close(self) -> None:
        self.closed = True
        self.say(None)


class Bench:
    """Notifications over a connection that gives a new stream, or the next error, each time."""

    def __init__(self) -> None:
        self.world = World(1)
        self.runtime = SimRuntime(self.world.process("main"))
        self.streams: list[Stream] = []
        self.begun: list[float] = []
        self.errors: list[Exception] = []
        self.moved: list[int] = []
        connection: Any = self
        self.watches = Notifications(connection, self.runtime)

    async def stream(self, method: str) -> tuple[int, Stream]:
        assert method == rpc.Method.WATCH
        self.begun.append(self.runtime.now())
        if self.errors:
            raise self.errors.pop(0)
        self.streams.append(Stream(self))
        return len(self.streams), self.streams[-1]

    def move_on(self, place: int) -> None:
        self.moved.append(place)

    def watch(self, key: bytes = b"k", seen: int = 10, *, puts: bool = False) -> tuple[int, Any]:
        signal = self.runtime.signal()
        return self.watches.watch(key, b"", seen, signal, puts=puts), signal

    async def pass_time(self, seconds: float = 0.01) -> None:
        await self.runtime.sleep(seconds)

    def run(self, history: Coroutine[Any, Any, None]) -> None:
        try:
            self.world.run(history, self.runtime.process)
        finally:
            self.world.end()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@simulated
async def test_the_first_watch_begins_a_stream_and_later_ones_use_it(bench: Bench) -> None:
    first, _ = bench.watch(b"a")
    second, _ = bench.watch(b"b", puts=True)
    await bench.pass_time()
    third, _ = bench.watch(b"c")
    (stream,) = bench.streams
    assert stream.sent == [
        rpc.watch_create(first, b"a", b"", puts=False),
        rpc.watch_create(second, b"b", b"", puts=True),
        rpc.watch_create(third, b"c", b"", puts=False),
    ]


@simulated
async def test_a_watch_has_its_signal_set_by_its_own_event_alone(bench: Bench) -> None:
    first, one = bench.watch(b"a")
    _, two = bench.watch(b"b")
    await bench.pass_time()
    bench.streams[0].say(event(first))
    await bench.pass_time()
    assert (one.is_set(), two.is_set()) == (True, False)
    assert not bench.watches.is_active(first)


@simulated
async def test_a_waiter_is_woken_when_the_store_has_changed_before_its_watch_began(bench: Bench) -> None:
    number_, signal = bench.watch(seen=10)
    await bench.pass_time()
    bench.streams[0].say(created(number_, 10))
    await bench.pass_time()
    assert not signal.is_set(), "nothing has changed since it read"
    bench.streams[0].say(created(number_, 11))
    await bench.pass_time()
    assert signal.is_set()
    assert bench.watches.is_active(number_), "the change may have been elsewhere: the watch goes on"
    signal.clear()
    bench.streams[0].say(event(number_))
    await bench.pass_time()
    assert signal.is_set()


@simulated
async def test_a_watch_that_is_refused_is_over_and_its_waiter_is_not_woken_for_it(bench: Bench) -> None:
    number_, signal = bench.watch()
    other, _ = bench.watch()
    await bench.pass_time()
    bench.streams[0].say(refused(number_))
    await bench.pass_time()
    assert not signal.is_set()
    assert (bench.watches.is_active(number_), bench.watches.is_active(other)) == (False, True)


@simulated
async def test_after_the_end_of_a_stream_all_that_are_left_begin_anew_at_the_next_member(bench: Bench) -> None:
    first, _ = bench.watch(b"a")
    over, _ = bench.watch(b"b")
    await bench.pass_time()
    bench.streams[0].say(event(over))
    await bench.pass_time()
    bench.streams[0].say(CallFailed("UNAVAILABLE", "Connection reset by peer"))
    await bench.pass_time(1.0)
    assert bench.moved == [1]
    assert bench.streams[0].closed
    assert bench.streams[1].sent == [rpc.watch_create(first, b"a", b"", puts=False)]
    second, signal = bench.watch(b"c")
    assert bench.streams[1].sent[1:] == [rpc.watch_create(second, b"c", b"", puts=False)]
    bench.streams[1].say(event(second))
    await bench.pass_time()
    assert signal.is_set()


@pytest.mark.parametrize(("said", "moved"), [(None, []), (b"\x0b", [1])], ids=["its end", "nonsense"])
@simulated
async def test_a_stream_that_ends_without_an_error_or_says_nonsense_is_replaced(
    bench: Bench, said: Any, moved: list[int]
) -> None:
    bench.watch()
    await bench.pass_time()
    bench.streams[0].say(said)
    await bench.pass_time(1.0)
    assert len(bench.streams) == 2
    assert bench.moved == moved


@simulated
async def test_streams_that_cannot_be_begun_are_tried_again_less_and_less_often_but_for_ever(bench: Bench) -> None:
    bench.errors = [BackendUnavailable("away")] * 10
    number_, _ = bench.watch()
    await bench.pass_time(20.0)
    pauses = [later - earlier for earlier, later in zip(bench.begun, bench.begun[1:], strict=False)]
    assert [round(pause, 2) for pause in pauses] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert len(bench.streams) == 1
    bench.streams[0].say(created(number_, 10), CallFailed("UNAVAILABLE", ""))
    before = bench.runtime.now()
    await bench.pass_time(5.0)
    assert bench.begun[11] - before < 0.1, "after a stream that worked the pauses begin anew"


@simulated
async def test_a_stream_is_ended_when_nobody_has_used_it_for_a_while_and_not_before(bench: Bench) -> None:
    number_, _ = bench.watch()
    await bench.pass_time(10 * LINGER)
    stream: Any = bench.streams[0]
    assert not stream.closed, "somebody waits"
    bench.watches.cancel(number_)
    again, _ = bench.watch()
    bench.watches.cancel(again)
    await bench.pass_time(LINGER * 0.9)
    assert not stream.closed, "it was just used"
    await bench.pass_time(LINGER * 2.2)
    assert stream.closed
    assert bench.watches._worker is None
    number_, signal = bench.watch()
    await bench.pass_time()
    assert len(bench.streams) == 2
    bench.streams[1].say(event(number_))
    await bench.pass_time()
    assert signal.is_set()


@simulated
async def test_etcd_learns_after_a_while_that_a_watch_is_over_although_no_other_one_begins(bench: Bench) -> None:
    first, _ = bench.watch(b"a")
    bench.watch(b"b")
    await bench.pass_time()
    bench.streams[0].say(event(first))
    await bench.pass_time(2 * LINGER)
    assert bench.streams[0].sent[2:] == [rpc.watch_cancel(first)]


@simulated
async def test_watches_of_an_earlier_stream_are_not_ended_on_the_next_one(bench: Bench) -> None:
    first, _ = bench.watch(b"a")
    second, _ = bench.watch(b"b")
    await bench.pass_time()
    bench.streams[0].say(event(first), CallFailed("UNAVAILABLE", ""))
    await bench.pass_time(2 * LINGER)
    assert bench.streams[1].sent == [rpc.watch_create(second, b"b", b"", puts=False)]


@simulated
async def test_the_stream_has_no_deadline_of_the_verb_that_began_it(bench: Bench) -> None:
    with until(bench.runtime.now() + 0.001):
        bench.watch()
    await bench.pass_time()
    assert bench.streams[0].began_under == float("inf")


@simulated
async def test_the_end_of_a_client_ends_the_stream_and_wakes_all_who_wait(bench: Bench) -> None:
    _, one = bench.watch()
    await bench.pass_time()
    _, two = bench.watch()
    started = bench.runtime.now()
    await bench.watches.close()
    assert bench.runtime.now() - started < 0.1
    assert bench.streams[0].closed
    assert (one.is_set(), two.is_set()) == (True, True)
    assert bench.watches._worker is None
    bench.watch()
    await bench.pass_time(1.0)
    assert len(bench.streams) == 1, "no stream is begun after that"


@simulated
async def test_the_end_of_a_client_ends_a_pause_between_streams(bench: Bench) -> None:
    bench.errors = [ClientClosed()] * 20
    bench.watch()
    await bench.pass_time(10.0)
    started = bench.runtime.now()
    await bench.watches.close()
    assert bench.runtime.now() - started < 0.1, "it waited for the pause"


@simulated
async def test_a_stream_that_does_not_end_keeps_nobody_from_closing(bench: Bench) -> None:
    bench.watch()
    await bench.pass_time()
    bench.streams[0].say = lambda *_: None  # type: ignore[method-assign]
    started = bench.runtime.now()
    await bench.watches.close()
    assert bench.runtime.now() - started < module.CLOSE_PATIENCE + 0.1
