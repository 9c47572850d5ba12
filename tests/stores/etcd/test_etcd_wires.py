"""The two wires of etcd over gRPC, threads and asyncio, with a peer that answers as it is told; and forks."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.etcd import wire as module
from leasehold._backends.etcd.errors import CallFailed
from leasehold._backends.etcd.wire import CHANNEL_OPTIONS, Calls, Target, http_request, load_grpc, open_wires, time_in
from leasehold.errors import BackendRejected, ConfigurationError
from leasehold.kit.options import TLSFiles
from tests.stores.etcd.etcd_histories import driven
from tests.stores.support import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from leasehold.testing import contract

grpc = load_grpc()
LEADER = (("hasleader", "true"),)


class Peer(grpc.GenericRpcHandler):  # type: ignore[name-defined,misc]  # gRPC has no types
    """It answers `/echo` with the request, `/refuse` with an error, `/mute` never; `/stream` always, `/deaf` once."""

    target: Target

    def __init__(self) -> None:
        self.metadata: list[dict[str, str]] = []
        self.began = threading.Event()
        self.ended = threading.Event()
        self.over = threading.Event()

    def service(self, details: Any) -> Any:
        self.metadata.append(dict(details.invocation_metadata))
        if details.method == "/stream":
            return grpc.stream_stream_rpc_method_handler(self._stream)
        if details.method == "/deaf":
            return grpc.stream_stream_rpc_method_handler(self._deaf)
        unary = {"/echo": self._echo, "/refuse": self._refuse, "/mute": self._mute}[details.method]
        return grpc.unary_unary_rpc_method_handler(unary)

    def _echo(self, request: bytes, _: Any) -> bytes:
        return request

    def _refuse(self, request: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.PERMISSION_DENIED, request.decode())
        raise AssertionError

    def _note_end(self, context: Any) -> None:
        if not context.add_callback(self.ended.set):  # it has ended before it began
            self.ended.set()
        self.began.set()

    def _mute(self, request: bytes, context: Any) -> bytes:
        self._note_end(context)
        self.over.wait(30)
        return request

    def _stream(self, requests: Any, context: Any) -> Iterator[bytes]:
        self._note_end(context)
        for request in requests:
            if request == b"fail":
                context.abort(grpc.StatusCode.UNAVAILABLE, "etcdserver: server stopped")
            if request == b"end":
                return
            yield request

    def _deaf(self, requests: Any, context: Any) -> Iterator[bytes]:
        self._note_end(context)
        yield next(requests)
        self.over.wait(30)


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    server = grpc.server(ThreadPoolExecutor(4), handlers=[made])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    made.target = Target("127.0.0.1", port, port)
    yield made
    made.over.set()
    server.stop(0).wait()


@asynccontextmanager
async def wire_to(driver: contract.Driver, target: Target, longest_call: float = 3.0) -> AsyncIterator[Any]:
    (wire,) = open_wires((target,), driver.runtime(), longest_call)
    try:
        yield wire
    finally:
        await wire.close()


class DeadChannel:
    """What the pool gives back to be closed; what closing it returns may be awaited."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> DeadChannel:
        self.closed += 1
        return self

    def __await__(self) -> Iterator[None]:
        return iter(())


# --- calls


@driven
async def test_a_call_carries_its_metadata_and_one_channel_serves_them_all(driver: contract.Driver, peer: Peer) -> None:
    async with wire_to(driver, peer.target) as wire:
        for word in (b"one", b"two"):
            assert await wire.call("/echo", word, 20.0, (*LEADER, ("token", "secret"))) == word
        assert [(each["hasleader"], each["token"]) for each in peer.metadata] == [("true", "secret")] * 2
        channel = wire._pool.current
        assert channel.answered_at > channel.opened_at
        assert await wire.call("/echo", b"", 20.0, LEADER, uncancelled=True) == b""
        assert wire._pool.current is channel


@driven
async def test_an_error_has_the_code_and_the_words_of_the_member(driver: contract.Driver, peer: Peer) -> None:
    async with wire_to(driver, peer.target) as wire:
        for uncancelled in (False, True):
            with pytest.raises(CallFailed) as failed:
                await wire.call("/refuse", b"etcdserver: no", 20.0, LEADER, uncancelled=uncancelled)
            assert (failed.value.code, failed.value.details) == ("PERMISSION_DENIED", "etcdserver: no")


@pytest.mark.parametrize("uncancelled", [False, True])
@driven
async def test_a_call_without_an_answer_ends_in_time_and_closes_what_the_pool_has_given_up(
    driver: contract.Driver, peer: Peer, uncancelled: bool
) -> None:
    async with wire_to(driver, peer.target) as wire:
        await wire.call("/echo", b"", 20.0, LEADER)
        dead, asked = DeadChannel(), list[float]()

        def timed_out(channel: Any, timeout: float) -> Any:
            asked.append(timeout)
            assert channel is wire._pool.current
            return dead

        wire._pool.timed_out = timed_out
        with pytest.raises(CallFailed) as failed:
            await wire.call("/mute", b"", 0.1, LEADER, uncancelled=uncancelled)
        assert failed.value.code == "DEADLINE_EXCEEDED"
        assert (asked, dead.closed) == ([0.1], 1)


@driven
async def test_a_channel_that_was_closed_under_a_call_is_surely_not_used(driver: contract.Driver, peer: Peer) -> None:
    async with wire_to(driver, peer.target) as wire:
        await wire.call("/echo", b"", 20.0, LEADER)
        closing = wire._pool.current.grpc.close()
        if closing is not None:
            await closing
        with pytest.raises(CallFailed) as failed:
            await wire.call("/echo", b"", 20.0, LEADER)
        assert failed.value.code == "UNAVAILABLE"
        assert "Cannot invoke RPC" in failed.value.details


@driven
async def test_a_member_that_is_not_there_was_not_reached(driver: contract.Driver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    async with wire_to(driver, Target("127.0.0.1", port, port)) as wire:
        with pytest.raises(CallFailed) as failed:
            await wire.call("/echo", b"", 20.0, LEADER)
        assert failed.value.code == "UNAVAILABLE"
        assert "failed to connect" in failed.value.details


@pytest.mark.parametrize(("longest", "grace"), [(1.0, 10.0), (60.0, 120.0)])
@driven
async def test_a_replaced_channel_is_kept_for_as_long_as_calls_may_take(
    driver: contract.Driver, longest: float, grace: float
) -> None:
    async with wire_to(driver, Target("127.0.0.1", 1, 1), longest) as wire:
        assert wire._pool._grace == grace


@driven
async def test_every_channel_is_closed_with_its_wire(driver: contract.Driver, peer: Peer) -> None:
    async with wire_to(driver, peer.target) as wire:
        await wire.call("/echo", b"", 20.0, LEADER)
        wire._pool._old.append((0.0, wire._pool.current))
        wire._pool.current = None
        await wire.call("/echo", b"", 20.0, LEADER)
        channels = [wire._pool.current, *[old for _, old in wire._pool._old]]
    assert len(channels) == 2
    for channel in channels:
        with pytest.raises((ValueError, grpc.aio.UsageError)):
            await_or_not = channel.grpc.unary_unary("/echo")(b"", timeout=5)
            await await_or_not


def test_a_client_that_is_used_in_another_loop_than_its_own_is_told_so(peer: Peer) -> None:
    from leasehold._runtimes.asyncio import AsyncioRuntime

    wires = open_wires((peer.target,), AsyncioRuntime(), 3.0)

    async def call() -> bytes:
        return await wires[0].call("/echo", b"x", 20.0, LEADER)

    assert asyncio.run(call()) == b"x"
    with pytest.raises(CallFailed, match="event loop is closed"):
        asyncio.run(call())


def test_a_cancelled_task_cancels_its_call(peer: Peer) -> None:
    from leasehold._runtimes.asyncio import AsyncioRuntime

    async def main() -> None:
        (wire,) = open_wires((peer.target,), AsyncioRuntime(), 3.0)
        task = asyncio.create_task(wire.call("/mute", b"", 30.0, LEADER))
        while not peer.began.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not peer.ended.is_set():
            await asyncio.sleep(0.001)
        await wire.close()

    asyncio.run(asyncio.wait_for(main(), 25))


# --- streams


@driven
async def test_a_stream_says_what_comes_until_its_end(driver: contract.Driver, peer: Peer) -> None:
    async with wire_to(driver, peer.target) as wire:
        stream = wire.stream("/stream", LEADER)
        for word in (b"one", b"two"):
            stream.send(word)
            assert await stream.receive() == word
        stream.send(b"end")
        assert await stream.receive() is None
        assert peer.metadata[0]["hasleader"] == "true"


@driven
async def test_a_stream_that_fails_says_why(driver: contract.Driver, peer: Peer) -> None:
    async with wire_to(driver, peer.target) as wire:
        stream = wire.stream("/stream", LEADER)
        stream.send(b"fail")
        with pytest.raises(CallFailed) as failed:
            await stream.receive()
        assert (failed.value.code, failed.value.details) == ("UNAVAILABLE", "etcdserver: server stopped")


@pytest.mark.parametrize("method", ["/stream", "/deaf"])
@driven
async def test_a_stream_that_is_closed_ends_for_its_reader_and_for_the_member(
    driver: contract.Driver, peer: Peer, method: str
) -> None:
    runtime = driver.runtime()
    async with wire_to(driver, peer.target) as wire:
        stream = wire.stream(method, LEADER)
        stream.send(b"one")
        assert await stream.receive() == b"one"
        ends: list[object] = []

        async def read() -> None:
            ends.append(await stream.receive())

        task = runtime.spawn(read(), "reads")
        await driver.breathe()
        stream.close()
        assert await task.join(runtime.now() + 20)
        assert ends == [None]
        end = runtime.now() + 20
        while not peer.ended.is_set():
            assert runtime.now() < end, "the member still has the stream"
            await driver.breathe()


# --- the time of day


@contextmanager
def web(answer: bytes | None) -> Iterator[tuple[Target, list[bytes]]]:
    """It answers one request with these bytes and ends, or never."""
    asked: list[bytes] = []
    over = threading.Event()

    def serve() -> None:
        link, _ = server.accept()
        with link:
            asked.append(link.recv(4096))
            if answer is None:
                over.wait(30)
            else:
                for place in range(0, len(answer), 7):
                    link.sendall(answer[place : place + 7])

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        yield Target("127.0.0.1", 1, port), asked
        over.set()


@pytest.mark.parametrize("rest", [b"\r\n{}", b""])
@driven
async def test_the_head_of_an_answer_is_read_to_its_end_or_to_the_end_of_the_connection(
    driver: contract.Driver, rest: bytes
) -> None:
    head = b"HTTP/1.1 200 OK\r\nDate: Sun, 15 Nov 2026 11:30:04 GMT\r\n"
    with web(head + rest) as (target, asked):
        async with wire_to(driver, target) as wire:
            assert time_in(await wire.date(20.0)) == 1794742204.0
    assert asked == [b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"]
    assert asked == [http_request(target)]


@driven
async def test_a_member_that_does_not_tell_the_time_is_not_waited_for(driver: contract.Driver) -> None:
    with web(None) as (target, _):
        async with wire_to(driver, target) as wire:
            with pytest.raises(OSError, match=r"timed out|^$"):
                await wire.date(0.1)


# --- addresses, files, options


@pytest.mark.parametrize(("host", "text"), [("h", "h:5"), ("127.0.0.1", "127.0.0.1:5"), ("::1", "[::1]:5")])
def test_an_address_is_written_as_grpc_wants_it(host: str, text: str) -> None:
    assert str(Target(host, 5, 6)) == text


def test_the_files_of_tls_are_read_as_what_they_are(tmp_path: Any) -> None:
    given: list[Any] = []

    class FakeGrpc:
        ssl_channel_credentials = staticmethod(lambda *files: given.append(files))

    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    files = TLSFiles(str(tmp_path / "ca"), str(tmp_path / "cert"), str(tmp_path / "key"))
    module.channel_credentials(files, FakeGrpc)
    module.channel_credentials(TLSFiles(None), FakeGrpc)
    assert given == [(b"ca", b"key", b"cert"), (None, None, None)]
    with pytest.raises(BackendRejected, match=r"cannot read .*missing for TLS: No such file"):
        module.channel_credentials(TLSFiles(str(tmp_path / "missing")), FakeGrpc)


def test_grpc_does_nothing_behind_our_back() -> None:
    options = dict(CHANNEL_OPTIONS)
    assert options["grpc.enable_retries"] == 0, "it would send a request twice"
    assert options["grpc.enable_http_proxy"] == options["grpc.dns_enable_srv_queries"] == 0
    assert options["grpc.use_local_subchannel_pool"] == options["grpc.service_config_disable_resolution"] == 1
    assert 5_000 < options["grpc.keepalive_time_ms"] <= 10_000, "etcd ends connections that ping more often"
    assert options["grpc.keepalive_timeout_ms"] <= 5_000
    assert options["grpc.initial_reconnect_backoff_ms"] <= 100
    assert options["grpc.max_reconnect_backoff_ms"] <= 2_000, "a member that comes back is used soon"
    assert options["grpc.max_receive_message_length"] >= 64 * 1024**2


def test_without_grpc_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)  # so it cannot be imported
    with pytest.raises(ConfigurationError, match=r"pip install 'leasehold\[etcd\]'"):
        load_grpc()


# --- forks


def in_thread(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def test_a_call_that_begins_during_a_fork_waits_for_its_end() -> None:
    calls, began = Calls(), threading.Event()

    def call() -> None:
        with calls:
            began.set()

    calls.before()
    thread = in_thread(call)
    for _ in range(20):
        time.sleep(0.001)
    assert not began.is_set()
    calls.after_in_parent()
    thread.join(30)
    assert began.is_set()
    assert calls.inside == set()


def test_a_fork_waits_for_the_calls_that_are_under_way() -> None:
    calls, inside, leave, forked = Calls(), threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        with calls:
            inside.set()
            leave.wait(30)

    def fork() -> None:
        calls.before()
        forked.set()

    calling = in_thread(call)
    assert inside.wait(30)
    monkey = in_thread(fork)
    eventually(lambda: calls.is_forking)
    leave.set()
    calling.join(30)
    monkey.join(30)
    assert forked.is_set()
    calls.after_in_child()
    calls.check()
    assert not calls.is_forking


def test_a_child_of_a_child_that_cannot_use_grpc_cannot_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    calls = Calls()
    calls.__enter__()
    calls.before()
    calls.after_in_child()
    calls.before()
    calls.after_in_child()
    with pytest.raises(ConfigurationError, match="spawn"):
        calls.check()


def test_no_wire_is_opened_where_grpc_would_hang(driver: contract.Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Calls()
    broken.is_broken = True
    monkeypatch.setattr(module, "CALLS", broken)
    with pytest.raises(ConfigurationError, match="forked while its parent used etcd"):
        open_wires((Target("h", 1, 1),), driver.runtime(), 3.0)
