"""The wires of etcd step by step, over channels and sockets of the test: times, ends of calls, ends of streams."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold._backends.etcd import asyncio_wire, blocking_wire
from leasehold._backends.etcd.asyncio_wire import LAST_CALLS, UNCANCELLED, AsyncioStream, AsyncioWire
from leasehold._backends.etcd.blocking_wire import BlockingStream, BlockingWire
from leasehold._backends.etcd.errors import CallFailed, LeaseGone, to_backend_error
from leasehold._backends.etcd.wire import CALLS, Target, load_grpc
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendRejected, OutcomeUnknown
from leasehold.kit.options import TLSFiles
from tests.waiting import LIMIT

TARGET = Target("h.example", 2379, 2380)
GRPC: Any = load_grpc()


class FakeCall:
    """A call of gRPC for asyncio, which ends when the test says so."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.listeners: list[Any] = []
        self.cancelled = False

    def add_done_callback(self, listener: Any) -> None:
        self.listeners.append(listener)

    def done(self) -> bool:
        return self.answer.done()

    def end(self, answer: bytes) -> None:
        self.answer.set_result(answer)
        for listener in self.listeners:
            listener(self)

    def __await__(self) -> Any:
        return self.answer.__await__()


class FakeChannel:
    """Channel of gRPC, whose calls are noted with the time that they were given."""

    def __init__(self) -> None:
        self.given: list[float] = []
        self.calls: list[FakeCall] = []
        self.closed: list[float | None] = []

    def unary_unary(self, _: str) -> Any:
        def call(request: bytes, *, timeout: float, metadata: Any) -> FakeCall:
            assert (request, metadata) == (b"ask", ())
            self.given.append(timeout)
            self.calls.append(FakeCall())
            return self.calls[-1]

        return call

    async def close(self, grace: float | None = None) -> None:
        self.closed.append(grace)


def wire_over(channel: FakeChannel) -> AsyncioWire:
    from grpc import aio

    wire = AsyncioWire(TARGET, AsyncioRuntime(), 3.0)
    wire._pool._connect = lambda: channel
    wire._aio = aio
    return wire


@pytest.mark.parametrize(
    ("seconds", "uncancelled", "given"),
    [(5.0, False, 5.0), (5.0, True, UNCANCELLED), (100.0, True, 100.0), (100.0, False, 100.0)],
)
def test_a_call_that_must_not_be_cancelled_has_half_a_minute_or_more(
    seconds: float, uncancelled: bool, given: float
) -> None:
    async def story() -> None:
        channel = FakeChannel()
        wire = wire_over(channel)
        asked = asyncio.create_task(wire.call("/m", b"ask", seconds, (), uncancelled=uncancelled))
        await asyncio.sleep(0)
        channel.calls[0].end(b"answer")
        assert await asked == b"answer"
        assert channel.given == [given]
        assert wire._uncancelled == {}
        loop: Any = asyncio.get_running_loop()
        assert [timer for timer in loop._scheduled if not timer.cancelled()] == [], "nothing waits on for its time"
        await wire.close()
        assert channel.closed == [None], "nobody is waited for"

    asyncio.run(story())


def test_a_client_that_closes_ends_the_waits_at_once_and_lets_the_calls_come_to_their_ends() -> None:
    """Such a call must not be cancelled: a member would panic over it."""

    async def story() -> None:
        channel = FakeChannel()
        wire = wire_over(channel)
        asked = [asyncio.create_task(wire.call("/m", b"ask", 500.0, (), uncancelled=True)) for _ in range(2)]
        await asyncio.sleep(0)
        await wire.close()
        assert channel.closed == [LAST_CALLS]
        for task in asked:
            with pytest.raises(CallFailed) as failed:
                await asyncio.wait_for(task, LIMIT)
            assert failed.value.code == "DEADLINE_EXCEEDED"
        for call in channel.calls:
            call.end(b"late")
        assert wire._uncancelled == {}

    asyncio.run(story())


def test_a_caller_that_is_cancelled_leaves_a_call_alone_that_must_not_be() -> None:
    async def story() -> None:
        channel = FakeChannel()
        wire = wire_over(channel)
        asked = asyncio.create_task(wire.call("/m", b"ask", 500.0, (), uncancelled=True))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        (call,) = channel.calls
        assert not call.answer.cancelled()
        assert list(wire._uncancelled) == [call], "gRPC cancels a call that nobody refers to"
        call.end(b"late")
        assert wire._uncancelled == {}

    asyncio.run(story())


@pytest.mark.parametrize(
    ("closed", "cancelled", "kind"),
    [
        (True, False, CallFailed),
        (False, False, asyncio.CancelledError),
        (True, True, asyncio.CancelledError),
        (False, True, asyncio.CancelledError),
    ],
)
def test_a_call_that_ended_with_its_channel_is_told_from_a_task_that_was_cancelled(
    closed: bool, cancelled: bool, kind: type[BaseException]
) -> None:
    async def story() -> None:
        channel = FakeChannel()
        wire = wire_over(channel)
        asked = asyncio.create_task(wire.call("/m", b"ask", 5.0, ()))
        await asyncio.sleep(0)
        wire._closed = closed
        if cancelled:
            asked.cancel()
        else:
            channel.calls[0].answer.cancel()
        with pytest.raises(kind) as failed:
            await asked
        if isinstance(failed.value, CallFailed):
            assert failed.value.code == "CANCELLED"

    asyncio.run(story())


def test_a_process_that_has_connected_on_a_loop_is_known_to_use_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its children cannot use gRPC, and are told so."""
    monkeypatch.setattr(CALLS, "uses_asyncio", False)

    async def story() -> None:
        wire = AsyncioWire(Target("127.0.0.1", 1, 1), AsyncioRuntime(), 3.0)
        seen = [CALLS.uses_asyncio]
        wire._pool.open()
        assert [*seen, CALLS.uses_asyncio] == [False, True]
        await wire.close()

    asyncio.run(story())


# --- streams


class FakeStream:
    def __init__(self, outgoing: Any) -> None:
        self.outgoing = outgoing
        self.cancels = 0

    def cancel(self) -> None:
        self.cancels += 1

    async def read(self) -> bytes:
        raise asyncio.CancelledError

    def __next__(self) -> bytes:
        raise GRPC.RpcError


def test_a_stream_on_a_loop_that_was_closed_ends_for_both_sides_and_another_cancellation_is_the_readers() -> None:
    async def story() -> None:
        stream = AsyncioStream(lambda outgoing, metadata: FakeStream(outgoing), (), GRPC)
        stream.send(b"one")
        with pytest.raises(asyncio.CancelledError):
            await stream.receive()
        stream.close()
        assert await stream.receive() is None
        async with asyncio.timeout(LIMIT):
            assert [request async for request in stream._call.outgoing] == [b"one"]
        assert stream._call.cancels == 1

    asyncio.run(story())


def test_a_stream_on_a_thread_that_was_closed_ends_for_both_sides_and_no_fork_waits_for_it() -> None:
    stream = BlockingStream(lambda outgoing, metadata: FakeStream(outgoing), (), GRPC)
    assert stream in CALLS.streams, "a fork ends it"
    stream.send(b"one")
    stream.close()
    assert stream not in CALLS.streams
    assert run(stream.receive()) is None
    assert [stream._requests.get_nowait() for _ in range(2)] == [b"one", None]
    assert stream._call.cancels == 1


# --- the time of day


class FakeSocket:
    """A socket of a member, plain or with TLS."""

    def __init__(self, of: FakeSocket | None = None) -> None:
        self.of = of
        self.did: list[object] = []
        self.parts = [b"HTTP/1.1 200 OK\r\n", b"\r\n", b"more"]

    def settimeout(self, seconds: float) -> None:
        self.did.append(seconds)

    def sendall(self, request: bytes) -> None:
        self.did.append(request[:4])

    def recv(self, _: int) -> bytes:
        return self.parts.pop(0)

    def close(self) -> None:
        self.did.append("closed")


@pytest.mark.parametrize("has_tls", [False, True])
def test_the_time_is_asked_for_with_a_limit_on_each_step_and_every_socket_is_closed(
    monkeypatch: pytest.MonkeyPatch, has_tls: bool
) -> None:
    plain = FakeSocket()
    wrapped = FakeSocket(plain)
    connected: list[object] = []

    def connect(address: object, seconds: float) -> FakeSocket:
        connected.append((address, seconds))
        return plain

    def wrap(sock: FakeSocket, *, server_hostname: str) -> FakeSocket:
        assert (sock, server_hostname) == (plain, "h.example")
        return wrapped

    files = TLSFiles(ca="/ca")
    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(blocking_wire, "ssl_context", lambda tls: SimpleNamespace(wrap_socket=wrap) if tls else None)
    wire = BlockingWire(Target("h.example", 2379, 2380, files if has_tls else None), ThreadRuntime(), 3.0)
    assert run(wire.date(1.25)) == "HTTP/1.1 200 OK\r\n\r\n"
    assert connected == [(("h.example", 2380), 1.25)]
    assert (wrapped if has_tls else plain).did == [1.25, b"GET ", "closed"]
    if has_tls:
        assert plain.did == ["closed"]


def test_the_time_is_asked_for_over_tls_on_a_loop_too(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    did: list[object] = []

    async def open_connection(host: str, port: int, *, ssl: object) -> tuple[Any, Any]:
        opened.append((host, port, ssl))
        reader = asyncio.StreamReader()
        reader.feed_data(b"HTTP/1.1 200 OK\r\n")
        reader.feed_eof()
        return reader, SimpleNamespace(write=lambda data: did.append(data[:4]), close=lambda: did.append("closed"))

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    monkeypatch.setattr(asyncio_wire, "ssl_context", lambda tls: ("context of", tls))
    files = TLSFiles(ca="/ca")

    async def story() -> None:
        for tls in (None, files):
            wire = AsyncioWire(Target("h.example", 2379, 2380, tls), AsyncioRuntime(), 3.0)
            assert await wire.date(5.0) == "HTTP/1.1 200 OK\r\n"

    asyncio.run(story())
    assert opened == [("h.example", 2380, None), ("h.example", 2380, ("context of", files))]
    assert did == [b"GET ", "closed"] * 2


# --- failures in our words


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        ("NOT_FOUND", "etcdserver: requested lease not found", LeaseGone),
        ("UNKNOWN", "etcdserver: requested lease not found", OutcomeUnknown),
        ("NOT_FOUND", "etcdserver: member not found", BackendRejected),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded; last error: handshake failed", OutcomeUnknown),
        ("INTERNAL", "handshake failed", OutcomeUnknown),
        ("PERMISSION_DENIED", "role CERTIFICATE_VERIFY_FAILED", BackendRejected),
    ],
)
def test_the_code_of_a_failure_counts_before_its_words(code: str, details: str, kind: type[Exception]) -> None:
    """A word in an answer may be anything; only together with its code it says that nothing was applied."""
    error = to_backend_error(CallFailed(code, details), "etcd://h", reads=False)
    assert type(error) is kind
    assert "TLS handshake failed" not in str(error)


def test_of_a_long_failure_the_beginning_of_the_first_line_is_shown() -> None:
    shown = {
        details: str(to_backend_error(CallFailed("PERMISSION_DENIED", details), "etcd://h", reads=False))
        for details in ("first\nsecond", "x" * 500, "")
    }
    assert "first; grant" in shown["first\nsecond"]
    assert "second" not in shown["first\nsecond"]
    assert f" {'x' * 200}; grant" in shown["x" * 500]
    assert "no details; grant" in shown[""]
