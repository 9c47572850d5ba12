"""`exporter`, `ui` and `demo`: what they serve, to whom, and how they end, in this process."""

from __future__ import annotations

import http.client
import io
import os
import signal
import socket
import sqlite3
import threading
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.cli import demo as demo_module
from leasehold.cli import demo_fleet, demo_ui, demo_worker
from leasehold.cli import exporter as exporter_module
from leasehold.cli import ui as ui_module
from leasehold.cli.break_lock import operator
from leasehold.cli.exporter import metrics_page
from leasehold.cli.main import main
from leasehold.cli.parser import read
from leasehold.errors import ConfigurationError
from leasehold.fleet import FleetState, Groups
from leasehold.values import Holder, Holding, LockState, Mode, Pause
from leasehold.web import BasicAuth, ProxyHeader, Role, hash_password
from tests.unit.cli_support import noted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANA = Holder("db-3", 7)
STATES = (
    LockState("a:1", Mode.EXCLUSIVE, 1, (Holding(ANA, 41, 61.5, 12.0),), (ANA, ANA)),
    LockState("a:2", Mode.EXCLUSIVE, 1, (Holding(ANA, 42, 3.0, 12.0),), (), Pause("moving", "ana")),
)

# --- the exporter


def test_the_page_has_each_gauge_with_help_and_type() -> None:
    page = metrics_page(FleetState(STATES, None, 95.0, 0.25, {"a:1": 7.5}), Groups(), 100.0)
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert values == {
        "leasehold_up": "1.0",
        'leasehold_fleet_locks_held{group="a"}': "2",
        'leasehold_fleet_waiters{group="a"}': "2",
        'leasehold_fleet_longest_hold_seconds{group="a"}': "61.5",
        'leasehold_fleet_queue_stalled_seconds{group="a"}': "7.5",
        'leasehold_fleet_paused{group="a"}': "1",
        "leasehold_exporter_read_seconds": "0.25",
        "leasehold_exporter_age_seconds": "5.0",
    }
    for name, text in exporter_module.FLEET_METRICS.items():
        assert f"# HELP {name} {text}\n# TYPE {name} gauge\n{name}" in page
    assert "leasehold_exporter_age_seconds 0.0\n" in metrics_page(FleetState(read_at=101.0), Groups(), 100.0)
    away = metrics_page(FleetState(STATES, "no route"), Groups(), 100.0)
    assert [line for line in away.splitlines() if not line.startswith("#")] == ["leasehold_up 0.0"]


@contextmanager
def exporting(error: str | None = None) -> Iterator[int]:
    reader: Any = SimpleNamespace(read=lambda: FleetState(STATES, error))
    server = exporter_module._server("127.0.0.1", 0, exporter_module._Page(reader, Groups()))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("method", "path", "status", "kind", "begins"),
    [
        ("GET", "/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", "# HELP leasehold_up"),
        ("GET", "/metrics?name=x", 200, "text/plain; version=0.0.4; charset=utf-8", "# HELP leasehold_up"),
        ("HEAD", "/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", ""),
        ("GET", "/healthz", 200, "text/plain; charset=utf-8", "ok\n"),
        ("GET", "/", 200, "text/plain; charset=utf-8", "leasehold exporter"),
        ("GET", "/secrets", 404, "text/plain; charset=utf-8", "see /metrics and /healthz"),
        ("POST", "/metrics", 501, "text/html;charset=utf-8", "<"),
    ],
)
def test_the_exporter_answers_each_path(
    method: str, path: str, status: int, kind: str, begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with exporting() as port, closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as caller:
        caller.request(method, path)
        answer = caller.getresponse()
        body = answer.read().decode()
        assert (answer.status, answer.getheader("Content-Type")) == (status, kind)
        assert answer.getheader("Server") == "leasehold "
        assert body.startswith(begins)
        assert bool(body) is bool(begins)
        assert int(answer.getheader("Content-Length") or 0) > 0
    assert capsys.readouterr().err == "", "no line for each scrape"


def test_an_answer_to_head_has_no_body() -> None:
    with exporting() as port, socket.create_connection(("127.0.0.1", port), timeout=30) as caller:
        caller.sendall(b"HEAD /metrics HTTP/1.0\r\n\r\n")
        answer = b""
        while part := caller.recv(65_536):
            answer += part
    assert answer.endswith(b"\r\n\r\n")


def test_the_exporter_is_healthy_while_the_store_is_away() -> None:
    reader: Any = SimpleNamespace(read=lambda: FleetState(STATES, "no route"))
    page = exporter_module._Page(reader, Groups())
    assert page.answer("/healthz")[0] == page.answer("/metrics")[0] == 200


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"cannot listen at 127.0.0.1:{port}: Address already in use"):
            exporter_module._server("127.0.0.1", port, SimpleNamespace())  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match=rf"cannot listen at 127.0.0.1:{port}: Address already in use"):
            ui_module._listener("127.0.0.1", port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_exporter_and_its_handlers(number: int) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    page: Any = SimpleNamespace()
    server = exporter_module._server("127.0.0.1", 0, page)
    assert server.daemon_threads, "an answer under way does not keep the program"
    original = server.serve_forever

    def serve_forever(poll_interval: float) -> None:
        os.kill(os.getpid(), number)
        original(poll_interval)

    server.serve_forever = serve_forever  # type: ignore[method-assign,assignment]
    exporter_module._serve(server)
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before
    assert server.socket.fileno() == -1


def test_the_exporter_reads_and_groups_as_its_options_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []
    served: list[Any] = []
    server = SimpleNamespace(server_name="h", server_port=7)

    def make(host: str, port: int, page: Any) -> Any:
        served.append((host, port, page._groups.of("order:1"), page._groups.of("x")))
        return server

    monkeypatch.setattr(exporter_module, "FleetReader", lambda _, **options: asked.append(options))
    monkeypatch.setattr(exporter_module, "_server", make)
    monkeypatch.setattr(exporter_module, "_serve", served.append)
    url = f"sqlite:///{tmp_path}/locks.db"
    words = ["--listen", "[::1]:7", "--prefix", "p", "--max-age", "3s", "--group", "order:", "--url", url]
    assert main(["exporter", *words, "--patience", "0s"]) == 0
    assert main(["exporter", *words, "--patience", "2s"]) == 0
    assert [each["patience"] for each in asked] == [0.1, 2.0]
    assert {**asked[0], "patience": 2.0} == asked[1] == {"prefix": "p", "max_age": 3.0, "patience": 2.0}
    assert served[0] == ("::1", 7, "order:", "other")
    assert served[1] is server
    assert "serving http://h:7/metrics" in capsys.readouterr().err
    assert main(["exporter", "--url", "memory://x"]) == 78


# --- the dashboard


def auth_of(host: str, *words: str) -> Any:
    return ui_module._auth(read(["ui", *words]), host)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),
        ("::", False), ("10.0.0.1", False), ("example.org", False),
    ],
)  # fmt: skip
def test_only_the_loopback_is_served_without_users(host: str, is_loopback: bool) -> None:
    if not is_loopback:
        with pytest.raises(ConfigurationError, match="there is no --auth: they could see all locks"):
            auth_of(host)
        return
    viewer = auth_of(host)(None)
    assert (viewer.name, viewer.role) == (operator(), Role.READ)
    assert auth_of(host, "--write")(None).role is Role.WRITE


def test_users_come_from_a_file_or_from_a_proxy_and_not_from_both(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"ana:write:{hash_password('right')}\n")
    assert isinstance(auth_of("0.0.0.0", "--auth", str(users)), BasicAuth)
    (tmp_path / "latin").write_bytes(b"j\xf6rg:read:x\n")
    for words, text in (
        (["--auth", str(tmp_path / "latin")], "the file of users .* cannot be read"),
        (["--auth", "f", "--proxy-user", "X"], "choose one"),
        (["--auth", "f", "--write"], "for a dashboard without users"),
        (["--proxy-user", "X", "--write"], "for a dashboard without users"),
        (["--auth", str(tmp_path)], "cannot be read"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            auth_of("127.0.0.1", *words)


def test_a_proxy_is_believed_at_its_addresses_about_its_writers() -> None:
    def viewer(auth: ProxyHeader, address: str, user: str) -> Any:
        request: Any = SimpleNamespace(
            headers=SimpleNamespace(getlist=lambda name: [user] if name == "X-User" else []),
            client=SimpleNamespace(host=address),
        )
        return auth(request)

    plain = auth_of("0.0.0.0", "--proxy-user", "X-User")
    assert viewer(plain, "127.0.0.1", "ana").role is Role.READ
    assert viewer(plain, "::1", "ana").role is Role.READ
    assert viewer(plain, "10.0.0.1", "ana") is None
    words = ["--proxy-user", "X-User", "--proxy-address", "10.0.0.0/8", "--writer", "ana"]
    named = auth_of("0.0.0.0", *words)
    assert viewer(named, "10.0.0.1", "ana").role is Role.WRITE
    assert viewer(named, "10.0.0.1", "ben").role is Role.READ
    assert viewer(named, "127.0.0.1", "ana") is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {"database": None, "elections": ("election:*", "leader:*"), "jobs": (), "audit": None}),
        (
            ["--database", "d", "--election", "e", "--job", "j", "--audit", "f", "--allow-host", "locks.example"],
            {"database": "d", "elections": ["e"], "jobs": ["j"], "audit": "f"},
        ),
    ],
)
def test_the_dashboard_is_what_its_options_say(
    words: list[str], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    made: list[dict[str, Any]] = []
    done: list[Any] = []

    @contextmanager
    def serving(app: Any, host: str, port: int) -> Iterator[str]:
        done.append((app, host, port))
        yield "http://here/"
        done.append("ended")

    def dashboard(_: object, **options: Any) -> str:
        made.append(options)
        return "app"

    monkeypatch.setattr("leasehold.web.dashboard", dashboard)
    monkeypatch.setattr(ui_module, "serving", serving)
    monkeypatch.setattr(ui_module, "wait_for_a_signal", lambda: done.append("waited"))
    url = f"sqlite:///{tmp_path}/locks.db"
    assert main(["ui", "--url", url, "--listen", "127.0.0.1:7", *words]) == 0
    options = made[0]
    assert {name: options[name] for name in expected} == expected
    hosts = {"localhost", "127.0.0.1", "[::1]", socket.gethostname(), *(["locks.example"] if words else [])}
    assert set(options["hosts"]) == hosts
    assert done == [("app", "127.0.0.1", 7), "waited", "ended"]
    assert "dashboard: http://here/" in capsys.readouterr().err
    assert main(["ui", "--url", "memory://x"]) == 78


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_waits_for_a_signal_and_puts_handlers_back(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    seen: list[Any] = []

    class Event:
        def set(self) -> None:
            seen.append("set")

        def wait(self) -> None:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(ui_module, "threading", SimpleNamespace(Event=Event))
    ui_module.wait_for_a_signal()
    assert seen == ["set"]
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    """The smallest application."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def test_an_application_is_served_until_the_block_ends() -> None:
    threads = threading.active_count()
    before = signal.getsignal(signal.SIGINT)
    with ui_module.serving(_hello, "127.0.0.1", 0) as address:
        host, port = address.removeprefix("http://").removesuffix("/").split(":")
        with closing(http.client.HTTPConnection(host, int(port), timeout=30)) as caller:
            caller.request("GET", "/")
            answer = caller.getresponse()
            assert answer.read() == b"hello"
            assert answer.getheader("Server") is None
        assert signal.getsignal(signal.SIGINT) is before, "signals belong to the command"
    assert threading.active_count() == threads


def test_what_a_caller_says_of_itself_is_not_taken_for_its_address() -> None:
    """Any caller may send these headers: `--proxy-user` believes an address, so it must be that of the connection."""
    scopes: list[Any] = []

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await _hello(scope, receive, send)

    with ui_module.serving(noting, "127.0.0.1", 0) as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as caller:
            caller.request("GET", "/", headers={"X-Forwarded-For": "10.0.0.1", "X-Forwarded-Proto": "https"})
            caller.getresponse().read()
            own = caller.sock.getsockname() if caller.sock is not None else None
    (scope,) = [scope for scope in scopes if scope["type"] == "http"]
    assert (scope["client"][0], scope["scheme"]) == ("127.0.0.1", "http")
    assert own is None or scope["client"] == own


def test_an_address_of_ipv6_is_shown_in_brackets() -> None:
    with ui_module.serving(_hello, "::1", 0) as address:
        assert address.startswith("http://[::1]:")


@pytest.mark.parametrize(("password", "code"), [("secret", 0), ("", 78)])
def test_a_password_is_hashed_without_being_shown(
    password: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("getpass.getpass", lambda _: password)
    assert main(["ui", "--hash-password"]) == code
    said = capsys.readouterr()
    assert said.out.startswith("scrypt$") is (code == 0)
    assert "secret" not in said.out + said.err


# --- the demonstration


def test_the_demonstrations_dashboard_lets_everybody_change_things_and_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[Any] = []

    @contextmanager
    def block(name: str, *words: Any) -> Iterator[str]:
        done.append((name, *words))
        yield "http://here/"
        done.append(f"{name} ended")

    def dashboard(_: object, *, auth: Any, **options: Any) -> str:
        done.append((auth(None).role, options["title"], options["hosts"]))
        return "app"

    monkeypatch.setattr("leasehold.web.dashboard", dashboard)
    monkeypatch.setattr(demo_ui, "fleet_at_work", lambda store: block("fleet", store))
    monkeypatch.setattr(demo_ui, "serving", lambda *words: block("serving", *words))
    monkeypatch.setattr(demo_ui, "wait_for_a_signal", lambda: done.append("waited"))
    console: Any = SimpleNamespace(note=lambda _: None)
    url = f"sqlite:///{tmp_path}/locks.db"
    assert demo_ui.dashboard_of(url, console, lambda: noted(done, "told", 3)) == 3
    assert done == [
        ("fleet", url), (Role.WRITE, "leasehold demo", ui_module.LOCAL_NAMES), ("serving", "app", "127.0.0.1", 0),
        "told", "waited", "serving ended", "fleet ended",
    ]  # fmt: skip


def test_the_fleet_of_the_demonstration_works_and_ends(tmp_path: Path) -> None:
    url, threads = f"sqlite:///{tmp_path}/locks.db", threading.active_count()
    with demo_fleet.fleet_at_work(url), leasehold.connect(url) as client:
        state = client.inspect("import:customers")
        assert state is not None
        assert state.paused is not None
        assert (state.paused.by, state.paused.reason) == ("ana@ops-1", "the supplier sends broken files")
        assert threading.active_count() > threads + 15
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ((40, 37, 0, 40, 40, 1), 0),
        ((40, 40, 0, 40, 40, 1), 1),
        ((40, 37, 0, 40, 39, 1), 1),
        ((40, 37, 0, 40, 40, 0), 1),
        (None, 1),
    ],
)
def test_the_demonstration_fails_where_it_does_not_show_what_it_should(
    facts: tuple[int, ...] | None, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(_folder: object, name: str, _title: str) -> Any:
        if facts is None:
            return None
        confirmed, balance, refused = facts[:3] if name == "plain" else facts[3:]
        return SimpleNamespace(confirmed=confirmed, balance=balance, refused=refused, lost=confirmed - balance)

    said: list[str] = []
    console: Any = SimpleNamespace(error=said.append)
    monkeypatch.setattr(demo_module, "_play", play)
    assert demo_module._play_both("nowhere", console) == code
    assert bool(said) is (facts is None)
    assert "WITHOUT" not in capsys.readouterr().out


def test_the_story_tells_who_took_over_and_which_write_did_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = demo_module._Story(tmp_path, "plain")
    for step in (
        (2, "wrote", 1, 10), (1, "stopped", 1, 11), (2, "wrote", 2, 12), (3, "wrote", 3, 13), (1, "wrote", 2, 11),
        (1, "late", 0, 0), (1, "wrote", 3, 14), (1, "refused", 13, 11),
    ):  # fmt: skip
        story._show(*step)
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines] == [
        "worker 1 has read 1, holds fence 11, and is stopped before its write",
        "its lease ran out after 1 s; worker 2 took over with fence 12",
        "worker 1 writes 2 over a balance of 3: DAMAGE",
        "only now does worker 1 learn that it had lost its lease: too late",
        "worker 1 writes with fence 11: REFUSED, the guard has seen 13",
        "worker 1 takes the lock again and adds to what is really there",
    ]
    assert (story.confirmed, story.refused) == (5, 1)


@pytest.mark.parametrize("story", ["plain", "guarded"])
def test_a_worker_adds_under_the_lock_and_reports_each_step(
    story: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / f"{story}.db")) as bank:
        bank.execute("CREATE TABLE account (balance INTEGER)")
        bank.execute("INSERT INTO account VALUES (5)")
        bank.commit()
    told = io.BytesIO()
    sent: list[Any] = []
    fake = SimpleNamespace(
        write=lambda _, text: told.write(text), kill=lambda *words: sent.append(words), getpid=lambda: 7
    )
    monkeypatch.setattr(demo_worker, "os", fake)
    (tmp_path / f"{story}.stopped").touch()
    monkeypatch.setattr("sys.argv", ["worker", str(tmp_path), story, "1", "3", "2"])
    demo_worker.main()
    steps = [line.split() for line in told.getvalue().decode().splitlines()]
    assert [(step[1], step[2]) for step in steps] == [
        ("wrote", "6"), ("stopped", "6"), ("wrote", "7"), ("wrote", "8"),
    ]  # fmt: skip
    assert steps[1][3] == steps[2][3]
    assert sent == [(7, signal.SIGSTOP)]
    with closing(sqlite3.connect(tmp_path / f"{story}.db")) as bank:
        tables = {name for (name,) in bank.execute("SELECT name FROM sqlite_master")}
    assert ("leasehold_guard" in tables) is (story == "guarded")
