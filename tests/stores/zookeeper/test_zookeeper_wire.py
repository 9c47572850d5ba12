"""The way to servers of ZooKeeper, below a session: answers, waits, sockets, and what of kazoo is used and how."""

from __future__ import annotations

import logging
import math
import select
import socket
import ssl
import struct
import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionLoss, NoAuthError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Close, Sync
from kazoo.protocol.states import KeeperState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_digest_acl

from leasehold._backends.zookeeper import connection, wire
from leasehold._backends.zookeeper.calls import CONNECT_TIMEOUT, Calls
from leasehold._backends.zookeeper.options import Options
from leasehold._backends.zookeeper.wire import CreateContainer, KazooWire, Reply
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold.store_url import StoreURL
from tests.stores.support import files_given_to_ssl
from tests.stores.zookeeper.zookeeper_scripted import Bench
from tests.waiting import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- answers


def test_an_answer_is_recorded_before_its_caller_is_woken() -> None:
    order: list[str] = []
    signal: Any = SimpleNamespace(set=lambda: order.append("woken"))
    reply = Reply(5.0, signal, lambda _: order.append("then"), lambda _: order.append("first"))
    assert (reply.sent, reply.done) == (5.0, False)
    reply.set("value")
    assert order == ["first", "then", "woken"]
    reply.set_exception(ValueError())
    assert order == ["first", "then", "woken"], "a second answer is nobody's"
    assert (reply.done, reply.value) == (True, "value")


def test_an_error_is_an_answer_too() -> None:
    error = ConnectionLoss()
    reply = Reply(0.0, None, None, lambda _: None)
    reply.set_exception(error)
    assert (reply.done, reply.error, reply.value) == (True, error, None)


def test_an_answer_that_cannot_be_processed_still_wakes_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Reply) -> None:
        raise ValueError("a defect")

    signal = threading.Event()
    reply = Reply(0.0, signal, fail, lambda _: None)
    reply.set("value")
    assert signal.is_set()
    assert "please report this" in caplog.text


def test_a_container_is_created_without_data_by_the_request_that_the_ensemble_knows() -> None:
    creation = CreateContainer("/a", OPEN_ACL_UNSAFE)
    assert (creation.type, creation.path, creation.data, creation.flags) == (19, "/a", b"", 4)


# --- waits of one client


def session(**facts: Any) -> Any:
    usual: dict[str, Any] = {
        "is_connected": lambda: False,
        "is_over": lambda: False,
        "failure": None,
        "connect_failure": "",
        "settled": None,
        "validity": SimpleNamespace(timeout=9.0),
    }
    return SimpleNamespace(**{**usual, **facts})


@pytest.mark.parametrize(
    ("timeout", "until", "expected"),
    [(3.0, 1e9, 2.0), (9.0, 1e9, 3.0), (90.0, 1e9, 5.0), (9.0, 0.5, 0.5), (9.0, -1.0, -1.0)],
)
def test_an_answer_may_take_a_third_of_the_session_within_bounds_and_no_longer_than_its_caller_has(
    bench: Bench, timeout: float, until: float, expected: float
) -> None:
    calls, now = Calls(bench.runtime, "the store"), bench.runtime.now()
    found = calls.deadline(session(validity=SimpleNamespace(timeout=timeout)), now + until)
    assert found == pytest.approx(now + expected)


@pytest.mark.parametrize(("until", "waits"), [(1e9, CONNECT_TIMEOUT), (0.5, 0.5)])
def test_a_connection_is_waited_for_and_its_failure_is_named(bench: Bench, until: float, waits: float) -> None:
    calls, now = Calls(bench.runtime, "the store"), bench.runtime.now()
    waiting = session(settled=bench.runtime.signal(), connect_failure="[Errno 111] refused")
    with pytest.raises(BackendUnavailable, match=r"no server of the store could be reached \(\[Errno 111\] refused\)"):
        run(calls.connected(waiting, now + until))
    assert bench.runtime.waits == [now + waits]
    later = session(settled=bench.runtime.signal())
    with pytest.raises(BackendUnavailable, match="refused"):
        run(calls.connect(later, bench.runtime.now()))


def test_a_failure_of_before_is_forgotten_with_a_connection(bench: Bench) -> None:
    for connected in ("connected", "connect"):
        calls = Calls(bench.runtime, "the store")
        with pytest.raises(BackendUnavailable, match="refused"):
            run(calls.connected(session(settled=bench.runtime.signal(), connect_failure="refused"), 0.0))
        run(getattr(calls, connected)(session(is_connected=lambda: True), 0.0))
        with pytest.raises(BackendUnavailable) as unavailable:
            run(calls.connected(session(settled=bench.runtime.signal()), 0.0))
        assert "refused" not in str(unavailable.value)
        assert unavailable.value.backend == "the store"


def test_a_session_that_is_over_is_no_connection_and_a_refused_one_says_why(bench: Bench) -> None:
    calls = Calls(bench.runtime, "the store")
    over = session(settled=bench.runtime.signal(), is_over=lambda: True)
    assert run(calls.connected(over, 0.0)) is False
    with pytest.raises(BackendUnavailable, match="ended the session"):
        run(calls.connect(over, 0.0))
    over.failure = AuthFailedError()
    with pytest.raises(BackendRejected, match="credentials"):
        run(calls.connected(over, 0.0))


def test_an_answer_that_does_not_come_is_unknown(bench: Bench) -> None:
    calls, now = Calls(bench.runtime, "the store"), bench.runtime.now()
    reply = Reply(0.0, bench.runtime.signal(), None, lambda _: None)
    with pytest.raises(OutcomeUnknown, match="the store did not answer in time") as unknown:
        run(calls.finished(session(), reply, math.inf))
    assert unknown.value.backend == "the store"
    assert bench.runtime.now() == now + 3.0
    assert not calls._waits


def test_the_answer_of_a_server_is_returned_and_its_error_translated(bench: Bench) -> None:
    calls = Calls(bench.runtime, "the store")
    reply = Reply(0.0, bench.runtime.signal(), None, lambda _: None)
    bench.runtime.plan = [lambda: reply.set("value")]
    assert run(calls.answer(session(), reply, math.inf)) == "value"
    assert run(calls.answer(session(), reply, math.inf)) == "value"
    refused = Reply(0.0, bench.runtime.signal(), None, lambda _: None)
    refused.set_exception(NoAuthError())
    assert run(calls.finished(session(), refused, math.inf)) is refused
    with pytest.raises(BackendRejected, match="may not do that"):
        run(calls.answer(session(), refused, math.inf))


def test_a_wait_that_failed_is_not_remembered(bench: Bench) -> None:
    calls = Calls(bench.runtime, "the store")

    def interrupt() -> None:
        raise KeyboardInterrupt

    bench.runtime.plan = [interrupt]
    with pytest.raises(KeyboardInterrupt):
        run(calls.wait(bench.runtime.signal(), math.inf))
    assert not calls._waits


def test_a_closed_client_names_its_store(bench: Bench) -> None:
    calls = Calls(bench.runtime, "the store")
    calls.close()
    with pytest.raises(ClientClosed) as closed, calls:
        pass
    assert closed.value.backend == "the store"


# --- kazoo's threads and sockets


@pytest.fixture
def handler() -> Any:
    return wire._Handler(1.5)


@pytest.mark.parametrize(
    ("asked", "connecting", "close_in", "expected"),
    [
        (None, False, None, None),
        (9.0, False, None, 9.0),
        (None, True, None, 1.5),
        (9.0, True, None, 1.5),
        (0.5, True, None, 0.5),
        (9.0, False, 3.0, 3.0),
        (None, True, 3.0, 3.0),
        (1.0, False, 3.0, 1.0),
    ],
)
def test_a_wait_for_a_server_is_bounded_while_connecting_or_closing(
    handler: Any,
    monkeypatch: pytest.MonkeyPatch,
    asked: float | None,
    connecting: bool,
    close_in: float | None,
    expected: float | None,
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    handler.is_connecting = connecting
    handler.close_by = None if close_in is None else 100.0 + close_in
    assert handler._bounded(asked) == expected


def test_a_request_to_close_that_takes_too_long_is_given_up(handler: Any) -> None:
    handler.close_by = time.monotonic() - 1
    with pytest.raises(handler.timeout_exception, match="took too long"):
        handler._bounded(9.0)
    with pytest.raises(handler.timeout_exception, match="took too long"):
        handler.select([], [], [], 9.0)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@pytest.mark.parametrize("has_poll", [True, False])
def test_sockets_that_can_be_read_or_written_are_found(
    handler: Any, pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, has_poll: bool
) -> None:
    if not has_poll:
        monkeypatch.delattr(select, "poll")
    handler.is_connecting = False
    one, other = pair
    assert handler.select([one], [], [], 0.0) == ([], [], [])
    assert handler.select([one], [other], [], 5.0) == ([], [other], [])
    other.send(b"x")
    assert handler.select([one], [], [], 5.0) == ([one], [], [])


def test_what_tls_has_decrypted_already_is_not_waited_for(handler: Any) -> None:
    """The socket below has nothing more to read."""
    waiting: Any = SimpleNamespace(pending=lambda: 7)
    empty: Any = SimpleNamespace(pending=lambda: 0)
    assert handler.select([empty, waiting], [], [], None) == ([waiting], [], [])


def test_a_callback_runs_at_once_on_the_thread_of_the_connection(handler: Any) -> None:
    found: list[object] = []
    handler.start()
    handler.dispatch_callback(SimpleNamespace(func=lambda *given: found.append(given), args=(1, 2)))
    assert found == [(1, 2)]
    thread = handler.spawn(lambda *given, **more: found.append((threading.current_thread().name, given, more)), 3, a=4)
    thread.join(LIMIT)
    assert found[1] == ("leasehold zookeeper", (3,), {"a": 4})
    assert thread.daemon
    handler.stop()


@pytest.mark.parametrize(("asked", "expected"), [(1.0, 1.0), (9.0, 1.5)])
def test_a_host_is_given_a_part_of_the_session_timeout(
    handler: Any, monkeypatch: pytest.MonkeyPatch, asked: float, expected: float
) -> None:
    opened: list[Any] = []

    def open_socket(*given: Any, **options: Any) -> Any:
        opened.append((given, options))
        return "socket"

    monkeypatch.setattr(wire, "open_socket", open_socket)
    handler.is_connecting = False
    assert handler.create_connection(("h", 1), timeout=asked, use_ssl=False) == "socket"
    assert opened == [((("h", 1),), {"timeout": expected, "use_ssl": False})]
    assert handler.socket_in_use == "socket"
    assert handler.is_connecting


def test_why_a_host_could_not_be_reached_is_remembered(handler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "open_socket", _raises(ConnectionRefusedError("refused")))
    with pytest.raises(ConnectionRefusedError):
        handler.create_connection(("h", 1), timeout=1.0)
    assert handler.connect_failure == "refused"


def _raises(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_session_that_is_over_is_not_connected_again(
    handler: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    closed: list[str] = []

    def open_socket(*_: Any, **__: Any) -> Any:
        assert when == "meanwhile"
        handler.is_over = True
        return SimpleNamespace(close=lambda: closed.append("closed"))

    monkeypatch.setattr(wire, "open_socket", open_socket)
    handler.is_over = when == "before"
    with pytest.raises(AuthFailedError):
        handler.create_connection(("h", 1), timeout=1.0)
    assert closed == ["closed"] * (when == "meanwhile")


# --- one kazoo client


def kazoo_wire(url: str = "zk://alice:pw@h1,h2:7/x?randomize_hosts=no", timeout: float = 30.0) -> Any:
    return KazooWire(Options.from_url(StoreURL.parse(url)), timeout, lambda _: None, lambda _: None)


@pytest.mark.parametrize(("timeout", "expected"), [(30.0, 5.0), (1.0, 0.5)])
def test_each_host_has_a_third_of_its_share_of_the_session(timeout: float, expected: float) -> None:
    assert kazoo_wire(timeout=timeout)._handler.host_timeout == expected


def test_a_kazoo_client_is_made_from_the_options() -> None:
    client = kazoo_wire()._client
    assert client.hosts == [("h1", 2181), ("h2", 7)]
    assert client.auth_data == {("digest", "alice:pw")}
    assert client.randomize_hosts is False
    assert client.use_ssl is False
    assert client._session_timeout == 30_000
    assert client.chroot == ""
    assert client._conn_retry.max_tries == -1, "it tries for as long as the session is wanted"
    assert client._conn_retry.max_delay == 1.0
    assert kazoo_wire(timeout=2.0)._client._conn_retry.max_delay == 0.1
    secure = kazoo_wire("zks://h?tls_ca=/ca&tls_cert=/c&tls_key=/k&tls_key_password=w")._client
    assert (secure.use_ssl, secure.ca, secure.certfile, secure.keyfile) == (True, "/ca", "/c", "/k")
    assert (secure.keyfile_password, secure.verify_certs, secure.check_hostname) == ("w", True, True)


def test_the_state_of_the_connection_reaches_the_session() -> None:
    told: list[str] = []
    options = Options.from_url(StoreURL.parse("zk://h"))
    made = KazooWire(options, 30.0, lambda _: None, told.append)
    made._client._make_state_change("SUSPENDED")
    assert told == ["SUSPENDED"]


@pytest.mark.parametrize("over", [True, False])
def test_refused_credentials_are_told_from_an_end_of_our_own(over: bool) -> None:
    made = kazoo_wire()
    assert not made.is_refused
    made._client._state = KeeperState.AUTH_FAILED
    if over:
        made.end()
    assert made.is_refused is not over


def test_what_a_wire_tells_is_what_kazoo_knows() -> None:
    made = kazoo_wire()
    made._client.last_zxid = 99
    made._handler.connect_failure = "refused"
    assert (made.last_zxid, made.connect_failure) == (99, "refused")
    made.cut()  # there is nothing to cut yet


@pytest.mark.parametrize("notify", [True, False])
def test_a_wire_that_is_closed_ends_its_session_only_if_it_is_to(notify: bool) -> None:
    made, order = kazoo_wire(), list[str]()
    sock = SimpleNamespace(shutdown=lambda how: order.append(f"shutdown {how}"))
    made._handler.socket_in_use = sock
    made._client.stop = lambda: order.append("stop")
    made._client.close = lambda: order.append("close")
    before = time.monotonic()
    made.close(notify=notify)
    assert order == [f"shutdown {socket.SHUT_RDWR}"] * (not notify) + ["stop", "close"]
    assert made._handler.is_over is not notify
    assert before + wire.CLOSE_TIMEOUT <= made._handler.close_by <= time.monotonic() + wire.CLOSE_TIMEOUT


def test_cutting_a_socket_that_is_gone_does_no_harm(pair: tuple[socket.socket, socket.socket]) -> None:
    made = kazoo_wire()
    one, other = pair
    made._handler.socket_in_use = one
    made.cut()
    assert other.recv(1) == b""
    one.close()
    made.cut()


@pytest.mark.parametrize("has_number", [True, False])
def test_a_session_is_closed_over_another_connection_if_it_had_begun(
    monkeypatch: pytest.MonkeyPatch, has_number: bool
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(wire, "close_session", lambda *given, **more: calls.append((given, more)))
    made = kazoo_wire()
    made._client._session_id, made._client._session_passwd = (7 if has_number else None), b"secret"
    made.end()
    made._client._reset_session()  # as kazoo does when it finds out
    made.end()
    made.close_elsewhere()
    eventually(lambda: not any(thread.name == "leasehold zookeeper end" for thread in threading.enumerate()))
    expected = ((("h1", 2181), ("h2", 7)), (7, b"secret"), 5.0), {"use_ssl": False}
    assert calls == [expected] * has_number


def test_the_negotiated_timeout_is_told_when_requests_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """kazoo waits two thirds of it for an answer, and tells only that."""
    told: list[float] = []
    made = KazooWire(Options.from_url(StoreURL.parse("zk://h")), 30.0, told.append, lambda _: None)
    ours = made._client._connection
    monkeypatch.setattr(ConnectionHandler, "_connect", lambda *_: (8_000.0, 5_000.0))
    assert made._handler.is_connecting
    assert ours._connect("h", "h", 1) == (8_000.0, 5_000.0)
    assert told == [12.0]
    assert not made._handler.is_connecting


def test_of_kazoos_log_lines_none_that_shows_a_request_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    log = wire._Log()
    with caplog.at_level(logging.DEBUG, "leasehold.zookeeper"):
        log.debug("Sending %s", "password")
        log.log(5, "Received %s", "node")
        log.info("connected")
        log.warning("lost")
        log.warn("lost again")
        log.error("failed")
        try:
            raise ValueError
        except ValueError:
            log.exception("a defect")
    levels = [(record.levelname, record.message) for record in caplog.records]
    assert levels == [
        ("DEBUG", "connected"), ("INFO", "lost"), ("INFO", "lost again"), ("WARNING", "failed"), ("ERROR", "a defect"),
    ]  # fmt: skip


# --- sockets


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LIMIT)
        yield server


def test_a_plain_socket_sends_small_requests_at_once(listening: socket.socket) -> None:
    with connection.open_socket(listening.getsockname(), timeout=7.0) as opened:
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert opened.gettimeout() == 7.0
        assert not isinstance(opened, ssl.SSLSocket)


@pytest.mark.parametrize("given", [None, "other"])
def test_a_socket_that_does_not_agree_on_tls_is_closed(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    asked: list[object] = []

    def wrap_socket(_: object, plain: socket.socket, *, server_hostname: str) -> object:
        asked.append(server_hostname)
        raise ssl.SSLError("no common version")

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrap_socket)
    with pytest.raises(ssl.SSLError):
        connection.open_socket(listening.getsockname(), timeout=LIMIT, use_ssl=True, hostname=given)
    accepted, _ = listening.accept()
    with accepted:
        accepted.settimeout(LIMIT)
        assert accepted.recv(1) == b"", "the socket is left open"
    assert asked == [given or "127.0.0.1"]


@pytest.mark.parametrize(
    ("verify", "check", "mode", "checks"),
    [
        (True, True, ssl.CERT_REQUIRED, True),
        (True, False, ssl.CERT_REQUIRED, False),
        (False, True, ssl.CERT_NONE, False),
        (False, False, ssl.CERT_NONE, False),
    ],
)
def test_certificates_and_names_are_checked_as_the_options_say(
    verify: bool, check: bool, mode: ssl.VerifyMode, checks: bool
) -> None:
    context = connection._context(None, (None, None, None), verify, check)
    assert (context.verify_mode, context.check_hostname) == (mode, checks)
    assert connection._context(None, (None, None, None), verify, check) is context


def test_the_files_of_tls_are_loaded_with_the_password_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = files_given_to_ssl(monkeypatch)
    connection._context("/our/ca", ("/our/cert", "/our/key", "secret"), True, True)
    assert loaded == ["/our/ca", ("/our/cert", "/our/key", "secret")]
    loaded.clear()
    connection._context("/other/ca", (None, None, None), True, True)
    assert loaded == ["/other/ca"]


@pytest.mark.parametrize("name", ["zk.example", None])
def test_the_name_that_a_certificate_is_for_is_the_one_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket, name: str | None
) -> None:
    wrapped: list[tuple[socket.socket, str]] = []

    def wrap(plain: socket.socket, *, server_hostname: str) -> socket.socket:
        wrapped.append((plain, server_hostname))
        return plain

    monkeypatch.setattr(connection, "_context", lambda *_: SimpleNamespace(wrap_socket=wrap))
    with connection.open_socket(listening.getsockname(), hostname=name, timeout=LIMIT, use_ssl=True) as opened:
        assert wrapped == [(opened, name or "127.0.0.1")]
        assert opened.gettimeout() == LIMIT


def test_a_session_is_closed_at_the_next_server_where_one_is_down_or_does_not_answer(listening: socket.socket) -> None:
    received: list[bytes] = []

    def serve(server: socket.socket, answer: bytes) -> threading.Thread:
        def work() -> None:
            with suppress(OSError):  # nobody came
                accepted, _ = server.accept()
                with accepted:
                    received.append(accepted.recv(4096))
                    accepted.sendall(answer)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    with socket.socket() as down, socket.create_server(("127.0.0.1", 0)) as last:
        down.bind(("127.0.0.1", 0))
        serving = [serve(listening, b""), serve(last, b"x")]
        hosts = [down.getsockname(), listening.getsockname(), last.getsockname()]
        connection.close_session(hosts, (1, b"p"), LIMIT)
        for server in (listening, last):
            server.shutdown(socket.SHUT_RDWR)  # ends a wait for a client that does not come
        for thread in serving:
            thread.join(LIMIT)
    assert len(received) == 2
    assert received[0] == received[1]


def test_a_session_is_closed_in_one_message_and_the_answer_is_read_to_its_end(listening: socket.socket) -> None:
    """The server reads the second half after it has answered the first."""
    received: list[bytes] = []
    answered = threading.Event()

    def serve() -> None:
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(LIMIT)
            received.append(accepted.recv(4096))
            accepted.sendall(b"x" * 5000)
        answered.set()

    serving = threading.Thread(target=serve)
    serving.start()
    closing = threading.Thread(
        target=connection.close_session, args=([listening.getsockname()], (0x1234, b"p" * 16), LIMIT)
    )
    closing.start()
    serving.join(LIMIT)
    closing.join(LIMIT)
    assert answered.is_set()
    (message,) = received
    (length,) = struct.unpack("!i", message[:4])
    takeover, rest = message[4 : 4 + length], message[4 + length :]
    version, zxid, timeout, number, size = struct.unpack("!iqiqi", takeover[:28])
    assert (version, zxid, timeout, number, size) == (0, 0, 1, 0x1234, 16)
    assert takeover[28:44] == b"p" * 16
    assert rest == struct.pack("!iii", 8, 1, Close.type)


def test_a_session_is_closed_at_the_first_server_that_answers_and_no_other(listening: socket.socket) -> None:
    def serve() -> None:
        accepted, _ = listening.accept()
        with accepted:
            accepted.recv(4096)
            accepted.sendall(b"x")

    serving = threading.Thread(target=serve)
    serving.start()
    with socket.create_server(("127.0.0.1", 0)) as second:
        connection.close_session([listening.getsockname(), second.getsockname()], (1, b"p"), LIMIT)
        second.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            second.accept()
    serving.join(LIMIT)


# --- a kazoo client of the user's own


def test_a_kazoo_client_lends_its_servers_its_account_and_its_rights() -> None:
    rule = make_digest_acl("a", "b", all=True)
    theirs = KazooClient(
        "h1:7,h2:8/app", auth_data=[("digest", "a:b")], default_acl=[rule], use_ssl=True, ca="/ca", verify_certs=False
    )
    options = Options.from_client(theirs, {})
    assert options.hosts == (("h1", 7), ("h2", 8))
    assert (options.root, options.label) == ("/app/leasehold", "zk://h1:7,h2:8/app/leasehold")
    assert options.auth == (("digest", "a:b"),)
    assert list(options.acl) == [rule]
    assert options.fence_floor == 0
    assert options.uses_tls
    taken = {name: options.kazoo_options[name] for name in ("use_ssl", "ca", "verify_certs", "randomize_hosts")}
    assert taken == {"use_ssl": True, "ca": "/ca", "verify_certs": False, "randomize_hosts": True}
    assert "randomize_hosts" not in options.socket_options
    assert options.socket_options["ca"] == "/ca"
    assert "certfile" not in options.kazoo_options
    other = Options.from_client(theirs, {"root": "/mine", "fence_floor": "9"})
    assert (other.root, other.fence_floor) == ("/app/mine", 9)
    assert options.identity != other.identity


@pytest.mark.parametrize(
    ("auth", "expected"), [([("digest", "a:b")], CREATOR_ALL_ACL), ([], OPEN_ACL_UNSAFE)], ids=["known", "anyone"]
)
def test_a_kazoo_client_without_rights_of_its_own_keeps_others_out_if_it_has_an_account(
    auth: list[tuple[str, str]], expected: list[Any]
) -> None:
    assert list(Options.from_client(KazooClient("h", auth_data=auth), {}).acl) == expected


def test_a_request_that_a_wire_is_given_is_put_into_kazoos_queue() -> None:
    made = kazoo_wire()
    made._client._state = KeeperState.CONNECTED
    request, reply = Sync("/"), Reply(0.0, None, None, lambda _: None)
    try:
        made.send(request, reply)
    finally:
        made._client._state = KeeperState.CLOSED
    assert made._client._queue[-1] == (request, reply)
