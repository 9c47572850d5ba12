"""Small pieces that stores share: openings, waits for sockets, turns, records and documents."""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import threading
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import BackendRejected, BackendUnavailable, ClientClosed
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.kit.asyncio_waits import AsyncioWaits, close_without_loop
from leasehold.kit.document_format import read_record, write_record
from leasehold.kit.openings import Openings, _Opening
from leasehold.kit.records import KeptRecord, LocalRecords
from leasehold.kit.rules import FENCE_KEPT
from leasehold.kit.turns import PATIENCE, Turns
from leasehold.kit.waits import BlockingWaits, shut_down, waits_for
from leasehold.values import Record
from tests.unit.test_kit_pool import Runtime
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

NOW = 1_000.0

# Openings


class Connection:
    """One that can be closed."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def everywhere(program: Any) -> None:
    """Run it on a thread and on an event loop."""
    run(program(ThreadRuntime()))
    asyncio.run(asyncio.wait_for(program(AsyncioRuntime()), 30))


def test_a_connection_that_comes_in_time_is_the_callers() -> None:
    async def program(runtime: Any) -> None:
        kept: list[Connection] = []
        openings: Openings[Connection] = Openings(runtime, "the store")
        made = Connection()
        for until in (runtime.now() + 20, math.inf):
            assert await openings.open(lambda: made, kept.append, until) is made
        assert kept == []
        assert not openings._under_way

    everywhere(program)


def test_an_error_of_the_store_is_the_callers_as_it_is() -> None:
    async def program(runtime: Any) -> None:
        def fail() -> Connection:
            raise error

        error = BackendRejected("no rights")
        openings: Openings[Connection] = Openings(runtime, "the store")
        with pytest.raises(BackendRejected) as raised:
            await openings.open(fail, lambda _: None, runtime.now() + 20)
        assert raised.value is error

    everywhere(program)


def test_a_connection_that_comes_too_late_is_kept_for_the_next() -> None:
    async def program(runtime: Any) -> None:
        kept: list[Connection] = []
        may_connect, made = threading.Event(), Connection()

        def connect() -> Connection:
            may_connect.wait(20)
            return made

        openings: Openings[Connection] = Openings(runtime, "the store")
        with pytest.raises(BackendUnavailable) as raised:
            await openings.open(connect, kept.append, runtime.now() + 0.02)
        assert raised.value.backend == "the store"
        may_connect.set()
        eventually(lambda: kept == [made])
        assert not made.closed

    everywhere(program)


def test_closing_ends_every_wait_and_closes_what_comes() -> None:
    async def program(runtime: Any) -> None:
        may_connect, made = threading.Event(), Connection()
        openings: Openings[Connection] = Openings(runtime, "the store")

        def connect() -> Connection:
            threading.Timer(0.01, openings.close).start()
            may_connect.wait(20)
            return made

        with pytest.raises(ClientClosed) as raised:
            await openings.open(connect, lambda late: late.close(), math.inf)
        assert raised.value.backend == "the store"
        may_connect.set()
        eventually(lambda: made.closed)
        with pytest.raises(ClientClosed):
            await openings.open(Connection, lambda late: late.close(), math.inf)
        several: list[_Opening[Connection]] = [_Opening(runtime.signal()) for _ in range(3)]
        openings._under_way.update(several)
        openings.close()
        assert all(each.over.is_set() for each in several)

    everywhere(program)


def test_a_connection_that_comes_together_with_the_end_is_closed() -> None:
    async def program(runtime: Any) -> None:
        made = Connection()
        openings: Openings[Connection] = Openings(runtime, "the store")

        def connect() -> Connection:
            openings._closed = True  # `close` is about to set the signals
            return made

        with pytest.raises(ClientClosed):
            await openings.open(connect, lambda _: None, math.inf)
        assert made.closed

    everywhere(program)


def test_an_opening_after_the_end_waits_for_nobody() -> None:
    runtime = Kept()
    openings: Openings[Connection] = Openings(runtime, "the store")
    openings.close()
    with pytest.raises(ClientClosed):
        run(openings.open(Connection, lambda _: None, math.inf))
    assert runtime.waits == []


class Kept(Runtime):
    """Connections are never made: the task that would make them does not run."""

    def spawn(self, work: Any, name: str) -> Any:
        work.close()
        return self


def test_where_no_thread_can_be_started_the_caller_connects_itself() -> None:
    class NoThreads(ThreadRuntime):
        def spawn(self, *_: Any) -> Any:
            raise RuntimeError("can't start new thread")

    made = Connection()
    openings: Openings[Connection] = Openings(NoThreads(), "the store")
    assert run(openings.open(lambda: made, lambda _: None, math.inf)) is made


# Waits for a socket


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    one.setblocking(False)
    with one, other:
        yield one, other


async def looks(waits: Any, one: socket.socket, other: socket.socket) -> None:
    number = one.fileno()
    for seconds in (0.01, 0.0, -5.0):
        assert await waits.readable(number, seconds) is False
        assert await waits.watch(number, seconds) is False
    assert await waits.writable(number, 20) is True
    other.send(b"x")
    assert await waits.readable(number, 20) is True
    assert await waits.watch(number, 20) is True
    one.recv(1)
    other.close()
    assert await waits.readable(number, 20) is True, "the end of the stream can be read"


def test_a_thread_waits_for_a_socket(pair: tuple[socket.socket, socket.socket]) -> None:
    assert type(waits_for(ThreadRuntime())) is BlockingWaits
    run(looks(BlockingWaits(), *pair))
    assert run(BlockingWaits().watch(-1, 20)) is True, "it is closed"


def test_a_thread_waits_for_a_socket_where_the_system_has_no_poll(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("select.poll")
    run(looks(BlockingWaits(), *pair))


def test_a_task_waits_for_a_socket_and_leaves_nothing_on_its_loop(pair: tuple[socket.socket, socket.socket]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        assert type(waits_for(runtime)) is AsyncioWaits
        before = len(os.listdir("/proc/self/fd"))
        await looks(AsyncioWaits(), *pair)
        assert len(os.listdir("/proc/self/fd")) == before - 1, "the test itself closed one"
        assert await AsyncioWaits().watch(10**6, 20) is True, "it is closed"
        assert not asyncio.get_running_loop().remove_reader(pair[0])
        assert not asyncio.get_running_loop().remove_writer(pair[0])

    asyncio.run(asyncio.wait_for(program(), 30))


def test_a_task_that_is_cancelled_while_it_waits_watches_no_longer(pair: tuple[socket.socket, socket.socket]) -> None:
    async def program() -> None:
        waiting = asyncio.create_task(_as_coroutine(AsyncioWaits().readable(pair[0].fileno(), 20)))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not asyncio.get_running_loop().remove_reader(pair[0])

    asyncio.run(asyncio.wait_for(program(), 30))


async def _as_coroutine(awaited: Coroutine[Any, Any, bool]) -> bool:
    return await awaited


def test_a_stream_that_is_shut_down_ends_every_wait_and_stays_its_users_to_close(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    one, other = pair
    shut_down(one.fileno())
    assert other.recv(1) == b""
    assert one.fileno() >= 0
    shut_down(10**6)  # one that is closed already does no harm


class Closed(asyncio.Protocol):
    """Notes that its connection was lost."""

    lost = 0

    def connection_lost(self, _: object) -> None:
        self.lost += 1


def test_a_connection_whose_loop_is_closed_can_still_be_closed(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    loop = asyncio.new_event_loop()
    transport, protocol = loop.run_until_complete(loop.create_connection(Closed, sock=one))
    loop.close()
    close_without_loop(transport)
    assert other.recv(1) == b""
    assert transport.is_closing()
    assert protocol.lost == 1
    close_without_loop(SimpleNamespace(abort=lambda: None))  # of another kind of loop


# Turns


def test_calls_change_a_document_one_after_the_other() -> None:
    runtime = Runtime()
    turns = Turns(runtime)
    first, second, elsewhere = runtime.signal(), runtime.signal(), runtime.signal()
    run(turns.wait("a", first, NOW + 60))
    run(turns.wait("b", elsewhere, NOW + 60))
    assert runtime.waits == []
    runtime.plan = [lambda: turns.leave("a", first)]
    run(turns.wait("a", second, NOW + 60))
    assert second.is_set()
    assert runtime.waits == [NOW + PATIENCE]
    turns.leave("a", second)
    turns.leave("b", elsewhere)
    assert turns._queues == {}


def test_a_call_that_leaves_before_its_turn_wakes_nobody() -> None:
    runtime = Runtime()
    turns = Turns(runtime)
    first, second, third = (runtime.signal() for _ in range(3))
    for turn in (first, second, third):
        turns._queues.setdefault("a", deque()).append(turn)
    turns.leave("a", second)
    assert not third.is_set()
    turns.leave("a", first)
    assert third.is_set()
    turns.leave("a", first)
    assert list(turns._queues["a"]) == [third]


def test_a_turn_that_does_not_end_is_ended_by_who_waits_for_it() -> None:
    runtime = Runtime()
    turns = Turns(runtime)
    lost, mine = runtime.signal(), runtime.signal()
    run(turns.wait("a", lost, NOW + 60))
    run(turns.wait("a", mine, NOW + 60))
    assert runtime.waits == [NOW + PATIENCE, NOW + 2 * PATIENCE]
    assert mine.is_set()
    assert list(turns._queues["a"]) == [mine]


def test_a_call_waits_for_its_turn_no_longer_than_it_has_time() -> None:
    runtime = Runtime()
    turns = Turns(runtime)
    held, mine = runtime.signal(), runtime.signal()
    run(turns.wait("a", held, NOW + 60))
    run(turns.wait("a", mine, NOW + 0.5))
    assert runtime.waits == [NOW + 0.5]
    assert list(turns._queues["a"]) == [held, mine]


# Records


def test_a_record_is_kept_for_its_ttl_and_its_fence_for_longer() -> None:
    records = LocalRecords()
    assert records.write(Record("k", b"value", 5, 10.0), NOW)
    for after, is_there in ((0.0, True), (9.9, True), (10.0, False)):
        assert (records.read("k", 0, NOW + after, 0.0).record is not None) is is_there
    assert not records.write(Record("k", b"late", 4, 10.0), NOW + 20)
    assert records.write(Record("k", b"again", 5, 10.0), NOW + 20)
    over = NOW + 20 + FENCE_KEPT
    assert not records.write(Record("k", b"late", 4, 10.0), over - 0.1)
    assert records.write(Record("k", b"anew", 4, 10.0), over), "nobody with that fence is left"


def test_a_read_under_a_fence_keeps_lower_ones_from_writing_and_one_without_keeps_nothing() -> None:
    records = LocalRecords()
    assert records.read("k", 0, NOW, 7.0).time == 7.0
    assert len(records) == 0
    assert records.read("k", 5, NOW, 0.0).fence == 5
    assert len(records) == 1
    assert not records.write(Record("k", b"late", 4, 10.0), NOW)
    assert records.read("k", 3, NOW, 0.0).fence == 5, "a lower one lowers nothing"
    records.sweep(NOW + FENCE_KEPT - 0.1)
    assert len(records) == 1
    records.sweep(NOW + FENCE_KEPT)
    assert len(records) == 0


def test_a_record_that_is_refused_leaves_no_trace() -> None:
    records = LocalRecords()
    records.write(Record("k", b"value", 5, 10.0), NOW)
    assert not records.write(Record("k", b"late", 4, 99.0), NOW)
    reading = records.read("k", 0, NOW, 0.0)
    assert reading.record is not None
    assert (reading.record.value, reading.record.ttl, reading.record.fence) == (b"value", 10.0, 5)


@pytest.mark.parametrize(
    "kept", [KeptRecord(5, 9.0, b"value", 7.0), KeptRecord(5, 9.0, b"", 7.0), KeptRecord(5, 9.0)], ids=str
)
def test_a_record_is_read_as_it_was_written(kept: KeptRecord) -> None:
    assert read_record(write_record(kept), "the store") == kept
    assert read_record(None, "the store") == KeptRecord()


BAD: list[dict[str, Any]] = [{"fence": "x"}, {"fence": None}, {"fence_until": "x"}, {"value": "%"}, {"expires": []}]
GOOD: dict[str, Any] = {"v": 1, "fence": 5, "fence_until": 9.0, "value": "dmFsdWU=", "expires": 7.0}


@pytest.mark.parametrize(
    "document",
    [
        b"no json",
        b"[]",
        b"{}",
        *(json.dumps({**GOOD, **change}).encode() for change in BAD),
        json.dumps({key: value for key, value in GOOD.items() if key != "fence"}).encode(),
        json.dumps({**GOOD, "v": 99}).encode(),
        json.dumps({**GOOD, "v": "1"}).encode(),
    ],
)
def test_what_leasehold_did_not_write_is_refused_with_the_name_of_the_store(document: bytes) -> None:
    with pytest.raises(BackendRejected) as raised:
        read_record(document, "the store")
    assert raised.value.backend == "the store"
