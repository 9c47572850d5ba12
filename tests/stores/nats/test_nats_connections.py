"""The two wires of NATS, threads and asyncio, with a peer that says what a real server says too rarely."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import select
import threading
import weakref
from contextlib import asynccontextmanager
from ssl import SSLError, SSLWantReadError
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.nats import asyncio_wire, blocking_wire
from leasehold._backends.nats.backend import _wire
from leasehold._backends.nats.blocking_wire import MOST_IDLE, BlockingWire
from leasehold._backends.nats.options import Options
from leasehold._backends.nats.wire import Request
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown
from tests.stores.nats.scripted_server import Link, ScriptedServer
from tests.stores.support import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from leasehold.testing import contract

LABEL = "nats://scripted"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def options(*servers: ScriptedServer, answer_timeout: float = 20.0, **others: Any) -> Options:
    return Options(tuple(each.address for each in servers), LABEL, answer_timeout=answer_timeout, **others)


@asynccontextmanager
async def wire_of(driver: contract.Driver, *servers: ScriptedServer, **others: Any) -> AsyncIterator[Any]:
    runtime = driver.runtime()
    wire: Any = _wire(options(*servers, **others), runtime)
    try:
        yield wire
    finally:
        await wire.close()


async def condition(driver: contract.Driver, holds: Any, what: str) -> None:
    """Wait until it holds, while other tasks run."""
    end = driver.runtime().now() + 20
    while not holds():
        assert driver.runtime().now() < end, what
        await driver.breathe()


async def ask(wire: Any, *subjects: str, until: float = math.inf) -> list[Any]:
    frames = await wire.request([Request(subject) for subject in subjects], until)
    return [json.loads(frame.body) for frame in frames]


async def ask_until_answered(wire: Any, subject: str) -> None:
    """For a wire whose answers have little time, on a machine that may be busy."""
    for _ in range(50):
        try:
            assert await ask(wire, subject) == [subject]
        except (OutcomeUnknown, BackendUnavailable):
            continue
        return
    pytest.fail("it was never answered")


# --- requests


def test_answers_come_back_in_the_order_of_their_requests(driver: contract.Driver, server: ScriptedServer) -> None:
    held: list[tuple[str, str]] = []

    def in_reverse(link: Link, subject: str, reply: str, _: bytes) -> None:
        held.append((subject, reply))
        if len(held) == 3:
            for name, to in reversed(held):
                link.answer(to, json.dumps(name))

    server.script = in_reverse

    async def main() -> None:
        async with wire_of(driver, server) as wire:
            assert await ask(wire, "a", "b", "c") == ["a", "b", "c"]
            assert wire.info["max_payload"] == 1_048_576
            assert server.links[0].lines[1].startswith("SUB _INBOX.")

    driver.run(main())


def test_one_connection_serves_one_request_after_the_other(driver: contract.Driver, server: ScriptedServer) -> None:
    async def main() -> None:
        async with wire_of(driver, server) as wire:
            for _ in range(5):
                assert await ask(wire, "a") == ["a"]
            assert len(server.links) == 1

    driver.run(main())


def test_a_late_answer_is_not_taken_for_that_of_the_next_request(
    driver: contract.Driver, server: ScriptedServer
) -> None:
    def twice(link: Link, subject: str, reply: str, _: bytes) -> None:
        stem, number = reply.rsplit(".", 1)
        if number != "1":
            link.answer(f"{stem}.1", '"late"')
        link.answer(reply, json.dumps(subject))

    server.script = twice

    async def main() -> None:
        async with wire_of(driver, server) as wire:
            for subject in "abc":
                assert await ask(wire, subject) == [subject]

    driver.run(main())


def test_the_ping_of_the_server_is_answered_during_a_request_and_between_requests(
    driver: contract.Driver, server: ScriptedServer
) -> None:
    def ping_first(link: Link, subject: str, reply: str, _: bytes) -> None:
        link.send("PING\r\n")
        link.answer(reply, json.dumps(subject))

    server.script = ping_first

    async def main() -> None:
        async with wire_of(driver, server) as wire:
            assert await ask(wire, "a") == ["a"]
            link = server.links[0]
            await condition(driver, lambda: link.lines.count("PONG") == 1, "no PONG during a request")
            link.send("PING\r\n")
            await ask(wire, "b")
            await condition(driver, lambda: link.lines.count("PONG") == 3, "no PONG between requests")
            assert len(server.links) == 1

    driver.run(main())


def test_a_connection_that_ended_while_it_was_idle_costs_no_request(
    driver: contract.Driver, server: ScriptedServer
) -> None:
    async def main() -> None:
        async with wire_of(driver, server) as wire:
            await ask(wire, "a")
            server.links[0].cut()
            assert server.links[0].ended.wait(30)
            known: Any = getattr(wire, "_connection", None)
            if known is not None:  # a task has to be told; a thread looks before it sends
                await condition(driver, lambda: not known.is_open, "its end was not seen")
            assert await ask(wire, "b") == ["b"]
            assert len(server.links) == 2

    driver.run(main())


@pytest.mark.parametrize("what", ["cut", "nonsense"])
def test_a_connection_that_breaks_under_a_request_leaves_it_in_doubt_and_the_next_server_comes_first(
    driver: contract.Driver, server: ScriptedServer, what: str
) -> None:
    def end(link: Link, *_: Any) -> None:
        if what == "cut":
            link.cut()
        else:
            link.send("MSG what\r\n")

    server.script = end

    async def main(other: ScriptedServer) -> None:
        async with wire_of(driver, server, other) as wire:
            with pytest.raises(OutcomeUnknown):
                await ask(wire, "a")
            assert await ask(wire, "b") == ["b"]
            assert (len(server.links), len(other.links)) == (1, 1)

    with ScriptedServer() as other:
        driver.run(main(other))


def test_a_request_without_an_answer_is_in_doubt_and_its_connection_is_not_used_again(
    driver: contract.Driver, server: ScriptedServer
) -> None:
    server.script = lambda *_: None

    async def main() -> None:
        async with wire_of(driver, server, answer_timeout=0.2) as wire:
            with pytest.raises(OutcomeUnknown, match="no answer in time"):
                await ask(wire, "a")
            server.script = server.echo
            await ask_until_answered(wire, "b")
            assert len(server.links) > 1
            await condition(driver, lambda: len(server.open_links()) == 1, "the silent connection is still open")

    driver.run(main())


def test_a_request_whose_caller_has_little_time_waits_no_longer(
    driver: contract.Driver, server: ScriptedServer
) -> None:
    async def main() -> None:
        async with wire_of(driver, server, answer_timeout=1000.0) as wire:
            assert await ask(wire, "a") == ["a"]
            server.script = lambda *_: None
            with pytest.raises(OutcomeUnknown, match="no answer in time") as lost:
                await ask(wire, "b", until=wire._runtime.now() + 0.1)
            assert lost.value.backend == LABEL

    driver.run(main())


def test_a_request_of_which_one_answer_is_missing_is_in_doubt(driver: contract.Driver, server: ScriptedServer) -> None:
    def some(link: Link, subject: str, reply: str, _: bytes) -> None:
        if subject != "b":
            link.answer(reply, json.dumps(subject))

    server.script = some

    async def main() -> None:
        async with wire_of(driver, server, answer_timeout=0.3) as wire:
            with pytest.raises(OutcomeUnknown):
                await ask(wire, "a", "b")

    driver.run(main())


def test_a_request_without_time_is_not_sent(driver: contract.Driver, server: ScriptedServer) -> None:
    async def main() -> None:
        async with wire_of(driver, server) as wire:
            await ask(wire, "a")
            with pytest.raises(BackendUnavailable, match=r"no time left|no connection in time"):
                await ask(wire, "b", until=wire._runtime.now() - 1)
            assert await ask(wire, "c") == ["c"]
            assert len(server.links) == 1
            assert [line.split()[1] for line in server.links[0].lines if line.startswith("PUB")] == ["a", "c"]

    driver.run(main())


def test_a_missing_right_is_raised_and_another_one_of_the_same_connection_does_not_matter(
    driver: contract.Driver, server: ScriptedServer
) -> None:
    def refuse(link: Link, subject: str, reply: str, _: bytes) -> None:
        if subject == "forbidden":
            link.send("-ERR 'Permissions Violation for Publish to \"forbidden\"'\r\n")
        else:
            link.send("-ERR 'Slow Consumer'\r\n+OK\r\n")
            link.answer(reply, json.dumps(subject))

    server.script = refuse

    async def main() -> None:
        async with wire_of(driver, server) as wire:
            assert await ask(wire, "allowed") == ["allowed"]
            with pytest.raises(BackendRejected, match="lacks a right"):
                await ask(wire, "forbidden")
            assert await ask(wire, "allowed") == ["allowed"]

    driver.run(main())


def test_a_message_of_a_subject_that_nothing_receives_has_its_status(
    driver: contract.Driver, server: ScriptedServer
) -> None:
    server.script = lambda link, _, reply, __: link.answer(reply, status="503")

    async def main() -> None:
        async with wire_of(driver, server) as wire:
            (frame,) = await wire.request([Request("a")], math.inf)
            assert (frame.status, frame.body) == (503, b"")

    driver.run(main())


# --- opening


def test_a_server_that_is_mute_is_passed_over_within_the_time_of_an_answer(
    driver: contract.Driver, server: ScriptedServer
) -> None:
    async def main(mute: ScriptedServer) -> None:
        mute.greets = False
        async with wire_of(driver, mute, server, answer_timeout=1.0) as wire:
            assert await ask(wire, "a", until=wire._runtime.now() + 10) == ["a"]
            assert await ask(wire, "b") == ["b"]
            assert len(mute.links) == 1
            assert next(iter(wire._servers)) == server.address, "the mute one is the last from now on"
            await condition(driver, lambda: not mute.open_links(), "the attempt is still open")

    with ScriptedServer() as mute:
        driver.run(main(mute))


def test_a_server_that_does_not_confirm_the_login_is_passed_over(
    driver: contract.Driver, server: ScriptedServer
) -> None:
    async def main(mute: ScriptedServer) -> None:
        mute.on_ping = lambda _: None
        async with wire_of(driver, mute, server, answer_timeout=1.0) as wire:
            assert await ask(wire, "a", until=wire._runtime.now() + 10) == ["a"]
            await condition(driver, lambda: not mute.open_links(), "the attempt is still open")

    with ScriptedServer() as mute:
        driver.run(main(mute))


@pytest.mark.parametrize(
    ("said", "kind", "word"),
    [
        ("-ERR 'Authorization Violation'\r\n", BackendRejected, "refused the login"),
        ("-ERR 'maximum connections exceeded'\r\n", BackendUnavailable, "maximum connections"),
    ],
)
def test_what_a_server_says_against_a_login_is_passed_on(
    driver: contract.Driver, server: ScriptedServer, said: str, kind: type[Exception], word: str
) -> None:
    server.on_ping = lambda link: link.send(said)

    async def main() -> None:
        async with wire_of(driver, server) as wire:
            with pytest.raises(kind, match=word) as refused:
                await ask(wire, "a")
            assert getattr(refused.value, "backend", None) == LABEL

    driver.run(main())
    eventually(lambda: not server.open_links(), "a connection is left over")


def test_where_no_server_can_be_reached_nothing_was_sent(driver: contract.Driver) -> None:
    with ScriptedServer() as gone:
        unreachable = options(gone)

    async def main() -> None:
        wire: Any = _wire(unreachable, driver.runtime())
        with pytest.raises(BackendUnavailable, match="cannot be reached"):
            await ask(wire, "a")
        await wire.close()

    driver.run(main())


def test_a_connection_that_takes_too_long_is_kept_for_the_next_request(
    driver: contract.Driver, server: ScriptedServer
) -> None:
    confirm = threading.Event()

    def later(link: Link) -> None:
        confirm.wait(30)
        link.send("PONG\r\n")

    server.on_ping = later

    async def main() -> None:
        async with wire_of(driver, server) as wire:
            with pytest.raises(BackendUnavailable, match="no connection in time"):
                await ask(wire, "a", until=wire._runtime.now() + 0.05)
            confirm.set()
            await condition(
                driver, lambda: getattr(wire, "_idle", getattr(wire, "_connection", None)), "it was not kept"
            )
            assert await ask(wire, "b") == ["b"]
            assert len(server.links) == 1

    driver.run(main())


# --- the end


def test_a_request_under_way_ends_when_the_client_is_closed(driver: contract.Driver, server: ScriptedServer) -> None:
    arrived = threading.Event()
    server.script = lambda *_: arrived.set()

    async def main() -> None:
        runtime = driver.runtime()
        wire: Any = _wire(options(server), runtime)
        ends: list[Exception] = []

        async def wait() -> None:
            try:
                await ask(wire, "a")
            except Exception as error:
                ends.append(error)

        task = runtime.spawn(wait(), "asks")
        await condition(driver, arrived.is_set, "nothing arrived")
        await wire.close()
        assert await task.join(runtime.now() + 10)
        assert [type(end) for end in ends] == [ClientClosed]
        with pytest.raises(ClientClosed):
            await ask(wire, "b")
        await condition(driver, lambda: not server.open_links(), "a connection is left over")

    driver.run(main())


# --- watches


def test_a_watch_is_one_subscription_until_it_ends(driver: contract.Driver, server: ScriptedServer) -> None:
    async def main() -> None:
        async with wire_of(driver, server) as wire:
            called: list[str] = []
            end = await wire.watch("told.a", lambda: called.append("a"))
            other = await wire.watch("told.b", lambda: called.append("b"))
            (link,) = [link for link in server.links if any("told.a" in line for line in link.lines)]
            numbers = {line.split()[1]: line.split()[2] for line in link.lines if line.startswith("SUB told.")}
            first, second = numbers["told.a"], numbers["told.b"]
            called.clear()  # the beginning of a connection calls all
            link.send(f"MSG told.a {first} 0\r\n\r\n")
            await condition(driver, lambda: called == ["a"], "the watch was not called")
            end()
            await condition(driver, lambda: f"UNSUB {first}" in link.lines, "it was not ended at the server")
            end()
            link.send(f"MSG told.a {first} 0\r\n\r\nMSG told.b {second} 0\r\n\r\n")
            await condition(driver, lambda: called == ["a", "b"], "the other watch was not called")
            assert link.lines.count(f"UNSUB {first}") == 1
            other()

    driver.run(main())


def test_after_a_break_all_watches_begin_again_and_are_called(driver: contract.Driver, server: ScriptedServer) -> None:
    async def main() -> None:
        async with wire_of(driver, server) as wire:
            called: list[str] = []
            ends = [await wire.watch(f"told.{name}", lambda name=name: called.append(name)) for name in "ab"]
            ends.append(await wire.watch("told.over", lambda: called.append("over")))
            ends.pop()()
            called.clear()
            before = len(server.links)
            for link in list(server.links):
                link.cut()
            await condition(driver, lambda: set(called) == {"a", "b"}, "changes in between were missed")

            def subscribed() -> list[str]:
                return [line.split()[1] for link in server.links[before:] for line in link.lines if "told" in line]

            await condition(driver, lambda: sorted(subscribed()) == ["told.a", "told.b"], "not all began again")
            for end in ends:
                end()

    driver.run(main())


def test_a_watch_while_the_server_is_away_begins_when_it_is_back(
    driver: contract.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (asyncio_wire, blocking_wire):
        monkeypatch.setattr(module, "PATIENCE", 0.05)
        monkeypatch.setattr(module, "PAUSE", 0.01)

    async def main(server: ScriptedServer) -> None:
        refusals = ["-ERR 'maximum connections exceeded'\r\n"] * 4
        server.on_ping = lambda link: link.send(refusals.pop() if refusals else "PONG\r\n")
        async with wire_of(driver, server) as wire:
            called: list[str] = []
            end = await wire.watch("told.a", lambda: called.append("a"))
            await condition(driver, lambda: called, "it never began")
            end()

    with ScriptedServer() as server:
        driver.run(main(server))


def test_watches_that_wait_for_a_connection_that_breaks_do_not_wait_for_nothing(
    driver: contract.Driver, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task polls meanwhile; threads are confirmed by the next connection. Neither waits for its whole patience."""
    for module in (asyncio_wire, blocking_wire):
        monkeypatch.setattr(module, "PATIENCE", 1000.0)
        monkeypatch.setattr(module, "PAUSE", 0.01)
    monkeypatch.setattr(blocking_wire, "PROBE_EVERY", 1000.0)
    first: list[Link] = []

    def mute_after_the_login(link: Link) -> None:
        if not first:
            first.append(link)
        if link is not first[0] or link.lines.count("PING") == 1:
            link.send("PONG\r\n")

    server.on_ping = mute_after_the_login

    async def main() -> None:
        runtime = driver.runtime()
        wire: Any = _wire(options(server), runtime)
        ends: list[Any] = []

        async def watch(name: str) -> None:
            ends.append(await wire.watch(name, lambda: None))

        tasks = []
        for name in ("told.a", "told.b", "told.c"):
            tasks.append(runtime.spawn(watch(name), name))
            await condition(
                driver, lambda name=name: any(name in line for link in first for line in link.lines), "it was not sent"
            )
        pings = first[0].lines.count
        await condition(driver, lambda: pings("PING") >= 4, "a confirmation was not asked for")
        assert ends == []
        first[0].cut()
        for task in tasks:
            assert await task.join(runtime.now() + 20), "it waits for an answer that cannot come"
        for end in ends:
            end()
        assert len(ends) == 3
        await wire.close()

    driver.run(main())


@pytest.mark.parametrize(("connect_limit", "answer_timeout"), [(1000.0, 0.05), (0.05, 1000.0)])
@pytest.mark.parametrize("greets", [False, True])
def test_a_server_that_is_mute_is_given_up_by_the_shorter_of_both_limits(
    driver: contract.Driver,
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    greets: bool,
    connect_limit: float,
    answer_timeout: float,
) -> None:
    for module in (asyncio_wire, blocking_wire):
        monkeypatch.setattr(module, "CONNECT_LIMIT", connect_limit)
    server.greets = greets
    server.on_ping = lambda _: None

    async def main() -> None:
        async with wire_of(driver, server, answer_timeout=answer_timeout) as wire:
            with pytest.raises(BackendUnavailable, match="cannot be reached: "):
                await ask(wire, "a", until=wire._runtime.now() + 20)
            await condition(driver, lambda: not server.open_links(), "the attempt is still open")

    driver.run(main())


# --- threads alone


def test_threads_at_once_have_a_connection_each_and_few_are_kept(server: ScriptedServer) -> None:
    wire = BlockingWire(options(server), ThreadRuntime())
    number = MOST_IDLE + 3
    together = threading.Barrier(number)

    def script(link: Link, subject: str, reply: str, body: bytes) -> None:
        together.wait(30)
        server.echo(link, subject, reply, body)

    server.script = script
    threads = [threading.Thread(target=lambda: run(ask(wire, "a"))) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    eventually(lambda: len(server.open_links()) == MOST_IDLE, "more or fewer connections than that are kept")
    run(wire.close())
    eventually(lambda: not server.open_links(), "a connection is left over")


def test_closing_ends_the_wait_of_threads_that_are_connecting(server: ScriptedServer) -> None:
    wire, begun, ends = BlockingWire(options(server), ThreadRuntime()), threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def connect() -> Any:
        begun.set()
        assert ends.wait(60)
        raise BackendUnavailable("too late")

    def call() -> None:
        try:
            run(wire.request([Request("x")], math.inf))
        except ClientClosed as error:
            errors.append(error)

    wire.connect = connect  # type: ignore[method-assign] # a server that takes its time
    thread = threading.Thread(target=call)
    thread.start()
    assert begun.wait(60)
    run(wire.close())
    thread.join(60)
    ends.set()
    thread.join()
    assert len(errors) == 1


def test_the_connection_that_was_used_last_is_used_next_and_dead_ones_are_closed(server: ScriptedServer) -> None:
    wire = BlockingWire(options(server), ThreadRuntime())
    first, second = wire.connect(), wire.connect()
    for connection in (first, second):
        wire._give_back(connection)
    assert wire._take() is second
    wire._give_back(second)
    server.links[1].cut()
    assert server.links[1].ended.wait(30)
    eventually(lambda: not second.is_alive())
    assert wire._take() is first
    assert second._socket.fileno() == -1
    first.close()
    run(wire.close())


def test_a_ping_that_came_while_a_connection_was_idle_is_answered_before_it_is_used(server: ScriptedServer) -> None:
    wire = BlockingWire(options(server), ThreadRuntime())
    connection = wire.connect()
    server.links[0].send("PING\r\n")
    assert select.select([connection._socket], [], [], 30)[0]
    assert connection.is_alive()
    eventually(lambda: "PONG" in server.links[0].lines, "the server takes the client for dead")
    connection.close()
    run(wire.close())


def test_when_one_connection_breaks_the_idle_ones_are_not_trusted_either(server: ScriptedServer) -> None:
    wire = BlockingWire(options(server), ThreadRuntime())
    idle = wire.connect()
    wire._give_back(idle)
    broken = wire.connect()
    wire._give_back(broken)
    server.script = lambda link, *_: link.cut()
    with pytest.raises(OutcomeUnknown):
        run(ask(wire, "a"))
    assert idle._socket.fileno() == broken._socket.fileno() == -1
    run(wire.close())


def test_the_end_of_a_client_is_not_taken_for_a_broken_connection(server: ScriptedServer) -> None:
    wire = BlockingWire(options(server), ThreadRuntime())
    connection = wire.connect()
    run(wire.close())
    wire._give_back(connection)
    assert connection._socket.fileno() == -1
    with pytest.raises(ClientClosed):
        wire.connect()


@pytest.mark.parametrize("raised", [BackendRejected, KeyboardInterrupt])
def test_a_request_that_ends_otherwise_costs_its_own_connection_only(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    """The server is well: it refused, or the caller was interrupted."""

    def refuse(link: Link, subject: str, *_: Any) -> None:
        link.send(f"-ERR 'Permissions Violation for Publish to \"{subject}\"'\r\n")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    server.script = refuse
    if raised is KeyboardInterrupt:
        monkeypatch.setattr(blocking_wire.BlockingConnection, "exchange", interrupted)
    with ScriptedServer() as other:
        wire = BlockingWire(options(server, other), ThreadRuntime())
        idle, used = wire.connect(), wire.connect()
        wire._give_back(idle)
        wire._give_back(used)
        with pytest.raises(raised):
            run(ask(wire, "forbidden"))
        assert used._socket.fileno() == -1
        assert list(wire._idle) == [idle]
        assert idle._socket.fileno() != -1
        assert next(iter(wire._servers)) == server.address
        run(wire.close())


@pytest.mark.parametrize(
    ("arrived", "alive"), [(SSLWantReadError(), True), (BlockingIOError(), True), (SSLError("bad record"), False)]
)
def test_an_idle_connection_with_tls_on_which_nothing_came_is_alive(
    server: ScriptedServer, arrived: Exception, alive: bool
) -> None:
    def nothing(_: int) -> bytes:
        raise arrived

    wire = BlockingWire(options(server), ThreadRuntime())
    connection = wire.connect()
    plain: Any = connection._socket
    secure: Any = SimpleNamespace(settimeout=lambda _: None, recv=nothing)
    connection._socket = secure
    assert connection.is_alive() is alive
    connection._socket = plain
    connection.close()
    run(wire.close())


class Pauses(ThreadRuntime):
    """Notes each pause, and makes it short."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await super().sleep(min(seconds, 0.001))


def test_a_server_that_refuses_the_listener_is_asked_again_after_a_pause(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_wire, "PATIENCE", 0.01)
    monkeypatch.setattr(blocking_wire, "PAUSE", 77.0)
    server.on_ping = lambda link: link.send("-ERR 'maximum connections exceeded'\r\n")
    runtime = Pauses()
    wire = BlockingWire(options(server), runtime)
    end = run(wire.watch("told.a", lambda: None))
    eventually(lambda: len(server.links) >= 3, "it is not tried again")
    eventually(lambda: runtime.pauses.count(77.0) >= 2, "it is tried again without a pause")
    end()
    run(wire.close())
    eventually(lambda: not server.open_links(), "a connection is left over")


def test_a_silent_connection_of_the_listener_is_probed_once_and_then_replaced(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_wire, "PROBE_EVERY", 0.4)
    monkeypatch.setattr(blocking_wire, "PAUSE", 0.01)
    wire = BlockingWire(options(server), ThreadRuntime())
    called: list[int] = []
    end = run(wire.watch("told.a", lambda: called.append(1)))
    link = server.links[0]
    before = link.lines.count("PING")
    eventually(lambda: link.lines.count("PING") > before + 1, "a connection that answers is not probed")
    assert len(server.links) == 1, "it was replaced although it answers"
    called.clear()
    answers = server.on_ping

    def mute(asked: Link) -> None:
        if asked is not link:
            answers(asked)

    server.on_ping = mute
    eventually(lambda: len(server.links) == 2, "it was not replaced")
    eventually(lambda: bool(called), "changes in between were missed")
    end()
    run(wire.close())


def test_a_client_that_is_dropped_unclosed_ends_its_listener(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_wire, "PROBE_EVERY", 0.05)
    wire = BlockingWire(options(server), ThreadRuntime())
    run(wire.watch("told.a", lambda: None))
    known = weakref.ref(wire)
    del wire
    gc.collect()
    assert known() is None
    eventually(lambda: not server.open_links(), "its connection is still open")


# --- tasks alone


def test_a_close_does_not_wait_for_a_server_that_is_mute(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio_wire, "CONNECT_LIMIT", 1000.0)
    server.greets = False

    async def main() -> None:
        wire = asyncio_wire.AsyncioWire(options(server, answer_timeout=1000.0), asyncio_runtime())
        asking = asyncio.create_task(ask(wire, "a"))
        while not server.links:
            await asyncio.sleep(0.001)
        await asyncio.wait_for(wire.close(), 20)
        with pytest.raises(ClientClosed):
            await asking
        assert not wire._tasks

    asyncio.run(main())
    eventually(lambda: not server.open_links(), "the attempt is still open")


def refuse_the_login(link: Link) -> None:
    link.send("-ERR 'maximum connections exceeded'\r\n")


def test_a_server_that_refuses_is_not_asked_again_without_a_pause(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio_wire, "PAUSE", 1000.0)
    server.on_ping = refuse_the_login

    async def main() -> None:
        wire = asyncio_wire.AsyncioWire(options(server), asyncio_runtime())
        await wire.watch("told.a", lambda: None)
        while len(server.links) < 2 or server.open_links():
            await asyncio.sleep(0.001)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert len(server.links) == 2, "the watch itself, and the task that connects for it"
        await wire.close()
        assert not wire._tasks

    asyncio.run(main())


def test_no_connection_is_wanted_any_more_when_the_last_watch_has_ended(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio_wire, "PAUSE", 0.001)
    server.on_ping = refuse_the_login

    async def main() -> None:
        wire = asyncio_wire.AsyncioWire(options(server), asyncio_runtime())
        ends = [await wire.watch(f"told.{name}", lambda: None) for name in "ab"]
        ends[0]()
        seen = len(server.links)
        while len(server.links) < seen + 3:
            await asyncio.sleep(0.001)  # one is left, and is worth an attempt
        ends[1]()
        end = asyncio.get_running_loop().time() + 20
        while wire._tasks:
            assert asyncio.get_running_loop().time() < end, "it still connects, for nobody"
            await asyncio.sleep(0.001)
        await wire.close()

    asyncio.run(main())


def test_a_missing_right_is_that_of_its_whole_subject_and_not_of_one_that_it_begins_with(
    server: ScriptedServer,
) -> None:
    held: list[tuple[Link, str]] = []

    def refuse_the_longer_one(link: Link, subject: str, reply: str, _: bytes) -> None:
        held.append((link, reply))
        if subject == "locks.a.b":
            link.send("-ERR 'Permissions Violation for Publish to \"locks.a.b\"'\r\n")
            link.answer(held[0][1], '"locks.a"')

    server.script = refuse_the_longer_one

    async def main() -> None:
        wire = asyncio_wire.AsyncioWire(options(server), asyncio_runtime())
        allowed = asyncio.create_task(ask(wire, "locks.a"))
        while not held:
            await asyncio.sleep(0.001)
        with pytest.raises(BackendRejected, match="lacks a right"):
            await ask(wire, "locks.a.b")
        assert await allowed == ["locks.a"]
        await wire.close()

    asyncio.run(main())


def test_a_task_that_is_cancelled_leaves_the_connection_to_the_others(server: ScriptedServer) -> None:
    held: list[tuple[Link, str, str]] = []
    server.script = lambda link, subject, reply, _: held.append((link, subject, reply))

    async def main() -> None:
        wire = asyncio_wire.AsyncioWire(options(server), asyncio_runtime())
        tasks = [asyncio.create_task(ask(wire, name)) for name in "ab"]
        while len(held) < 2:
            await asyncio.sleep(0.001)
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        for link, subject, reply in held:
            link.answer(reply, json.dumps(subject))
        assert await tasks[1] == ["b"]
        assert wire._connection is not None
        assert wire._connection._pending == {}
        assert len(server.links) == 1
        await wire.close()

    asyncio.run(main())


def test_a_task_that_is_cancelled_while_its_watch_begins_leaves_no_watch(server: ScriptedServer) -> None:
    pings: list[Link] = []

    async def main() -> None:
        wire = asyncio_wire.AsyncioWire(options(server), asyncio_runtime())
        await ask(wire, "a")
        server.on_ping = pings.append
        watching = asyncio.create_task(wire.watch("told.a", lambda: None))
        while not pings:
            await asyncio.sleep(0.001)
        assert len(wire._watches) == 1
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
        assert len(wire._watches) == 0
        while not any(line.startswith("UNSUB") for line in server.links[0].lines):
            await asyncio.sleep(0.001)
        await wire.close()

    asyncio.run(main())


def test_a_task_with_little_time_does_not_take_the_connection_from_the_others(server: ScriptedServer) -> None:
    held: list[tuple[Link, str, str]] = []
    server.script = lambda link, subject, reply, _: held.append((link, subject, reply))

    async def main() -> None:
        runtime = asyncio_runtime()
        wire = asyncio_wire.AsyncioWire(options(server), runtime)
        patient = asyncio.create_task(ask(wire, "patient"))
        while not held:
            await asyncio.sleep(0.001)
        with pytest.raises(OutcomeUnknown):
            await ask(wire, "hurried", until=runtime.now() + 0.05)
        held[0][0].answer(held[0][2], '"patient"')
        assert await patient == ["patient"]
        await wire.close()

    asyncio.run(main())


def test_a_busy_connection_is_kept_although_one_request_got_no_answer(server: ScriptedServer) -> None:
    def some(link: Link, subject: str, reply: str, body: bytes) -> None:
        if subject != "unanswered":
            server.echo(link, subject, reply, body)

    server.script = some

    async def main() -> None:
        wire = asyncio_wire.AsyncioWire(options(server, answer_timeout=1.0), asyncio_runtime())
        unanswered = asyncio.create_task(ask(wire, "unanswered"))
        while not unanswered.done():
            assert await ask(wire, "a") == ["a"]
            await asyncio.sleep(0.01)
        with pytest.raises(OutcomeUnknown):
            await unanswered
        assert await ask(wire, "b") == ["b"]
        assert len(server.links) == 1
        await wire.close()

    asyncio.run(main())


def test_tasks_that_need_a_connection_at_once_share_it(server: ScriptedServer) -> None:
    async def main() -> None:
        wire = asyncio_wire.AsyncioWire(options(server), asyncio_runtime())
        answers = await asyncio.gather(*(ask(wire, str(number)) for number in range(20)))
        assert answers == [[str(number)] for number in range(20)]
        assert len(server.links) == 1
        await wire.close()
        assert wire._tasks == set()

    asyncio.run(main())


def test_without_watches_a_broken_connection_is_not_opened_again(server: ScriptedServer) -> None:
    async def main() -> None:
        wire = asyncio_wire.AsyncioWire(options(server), asyncio_runtime())
        end = await wire.watch("told.a", lambda: None)
        end()
        server.links[0].cut()
        while wire._connection is not None and wire._connection.is_open:
            await asyncio.sleep(0.001)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert len(server.links) == 1
        await wire.close()

    asyncio.run(main())


def asyncio_runtime() -> Any:
    from leasehold._runtimes.asyncio import AsyncioRuntime

    return AsyncioRuntime()
