"""How the store of MySQL opens its connections, and what a failure or a close leaves; no server."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leasehold._backends import mysql as package
from leasehold._backends.mysql import pool as pool_module
from leasehold._backends.mysql.options import parse
from leasehold._backends.mysql.packets import Answer, Result, ServerError
from leasehold._backends.mysql.pool import Dialer, OwnPool
from leasehold._backends.mysql.session import SessionBackend, SessionSource
from leasehold._runtimes.threads import run
from leasehold._urls import find_store
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, ConfigurationError, OutcomeUnknown
from leasehold.kit.pool import BUSY
from leasehold.store_url import StoreURL
from leasehold.values import Claim, Grant, Holder, Mode, Refusal
from tests.unit.planned_waits import PlannedWaits

OPTIONS = parse(StoreURL.parse("mysql://h/db?connect_timeout=2s"))
LOCKED, NOT_LOCKED = Answer([Result([]), Result([(b"1",)])]), Answer([Result([]), Result([(b"0",)])])


class Dialed:
    """Connections that are made and set up as the test says."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.error: Exception | None = None
        self.failing: Exception | None = None  # at the setting up
        self.answer: Answer | Exception = LOCKED
        self.is_direct = True
        self.closed = self.ended = 0
        self.sent: list[bytes] = []
        self.seen: list[int] = []
        source._dialer = self

    async def connected(self, until: float) -> Any:
        if self.error is not None:
            raise self.error
        return self

    async def prepare(self, connection: object, until: float) -> None:
        self.seen.append(len(getattr(self.source, "_new", ())))
        if self.failing is not None:
            raise self.failing

    async def query(self, text: bytes, until: float) -> Answer:
        self.sent.append(text)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self, *_: object) -> None:
        self.closed += 1


def pool() -> Any:
    waits: Any = None
    return OwnPool(OPTIONS, waits, PlannedWaits())


def session() -> Any:
    waits: Any = None
    return SessionSource(OPTIONS, waits, PlannedWaits())


def test_a_connection_is_set_up_before_it_is_used_and_can_be_interrupted_meanwhile() -> None:
    own = pool()
    dialed = Dialed(own)
    assert run(own._open(9.0)) is dialed
    assert run(own.dedicated()) is dialed
    assert (dialed.seen, len(own._new), dialed.closed) == ([1, 1], 0, 0)


@pytest.mark.parametrize("source", [pool, session])
def test_a_connection_that_cannot_be_set_up_is_closed(source: Any) -> None:
    own = source()
    dialed = Dialed(own)
    dialed.failing = BackendUnavailable("no answer")
    with pytest.raises(BackendUnavailable):
        run(own._open(9.0))
    assert dialed.closed == 1


def test_a_client_that_is_closed_opens_nothing_and_says_so() -> None:
    own = pool()
    dialed = Dialed(own)
    dialed.error = BackendUnavailable("away")
    with pytest.raises(BackendUnavailable):
        run(own._open(9.0))

    async def closed_meanwhile(_: float) -> Any:
        own.is_closed = True
        raise BackendUnavailable("interrupted")

    dialed.connected = closed_meanwhile  # type: ignore[assignment, method-assign]
    with pytest.raises(ClientClosed):
        run(own._open(9.0))
    with pytest.raises(ClientClosed):
        run(own._open(9.0))


@pytest.mark.parametrize("source", [pool, session])
def test_closing_ends_every_connecting_that_is_under_way(source: Any) -> None:
    own = source()
    dialed = Dialed(own)
    run(own.close())
    assert dialed.closed == 1
    assert own.is_closed


def test_connecting_takes_no_longer_than_the_url_and_the_caller_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime: Any = PlannedWaits()
    waits: Any = None
    dialer: Any = cast("Any", Dialer(OPTIONS, waits, runtime))
    limits: list[float] = []

    async def open_(make: Any, undo: Any, until: float) -> Any:
        limits.append(until - runtime.now())
        undo(late)
        return make()

    late = SimpleNamespace(closed=0, close=lambda: limits.append(-1.0))
    monkeypatch.setattr(dialer._openings, "open", open_)
    monkeypatch.setattr(pool_module, "dial", lambda *_: "line")
    assert run(dialer.connected(runtime.now() + 60)) == "line"
    assert run(dialer.connected(runtime.now() + 0.5)) == "line"
    assert limits == [2.0, -1.0, 0.5, -1.0], "and a connection that comes too late is closed"


# --- sessions


def test_a_session_takes_a_user_lock_under_a_name_of_its_own() -> None:
    names = []
    for _ in range(2):
        own = session()
        dialed = Dialed(own)
        assert run(own._open(9.0)) is dialed
        (text,) = dialed.sent
        name = text.partition(b" = ")[2].partition(b";")[0]
        assert text == b"SET @leasehold_session = %b; SELECT GET_LOCK(%b, 0)" % (name, name)
        assert bytes.fromhex(name[2:-1].decode()).startswith(b"leasehold:")
        names.append(name)
    assert names[0] != names[1]


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"is_direct": False}, BackendRejected, "a proxy is in between"),
        ({"answer": OutcomeUnknown("no answer")}, BackendUnavailable, "no answer"),
        ({"answer": NOT_LOCKED}, BackendUnavailable, "user lock"),
        ({"answer": Answer([], ServerError(1305, "42000", "why"))}, BackendUnavailable, "user lock"),
    ],
)
def test_a_session_without_its_lock_is_closed(change: dict[str, Any], kind: type[Exception], words: str) -> None:
    own = session()
    dialed = Dialed(own)
    for name, value in change.items():
        setattr(dialed, name, value)
    with pytest.raises(kind, match=words):
        run(own._open(9.0))
    assert dialed.closed == 1
    assert bool(dialed.sent) is ("is_direct" not in change), "a lock would be left behind at a proxy"


def test_a_session_knows_what_is_held_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []
    renewed: list[object] = []

    def noted(answers: object) -> object:
        renewed.append(answers)
        return answers

    source: Any = SimpleNamespace(
        hold=lambda claim: held.append(claim.owner),
        drop=lambda claim: held.remove(claim.owner),
        renewed=noted,
    )
    executor: Any = SimpleNamespace(execute=None)
    backend: Any = SessionBackend(OPTIONS, executor, PlannedWaits(), source)
    claim = Claim("ns:x", "owner", 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("h", 1))
    answers: list[Any] = [Grant(claim, 7, 60.0, None, True, 3), Refusal("ns:x"), Grant(claim, 8, 60.0)]

    asked: list[object] = []

    async def by_base(_: object, *given: object, **words: object) -> Any:
        asked.append((*given, *words.values()))
        return answers.pop(0) if answers else True

    for verb in ("try_acquire", "renew", "release", "withdraw"):
        monkeypatch.setattr(f"leasehold._backends.mysql.base.BaseBackend.{verb}", by_base)
    assert run(backend.try_acquire(claim)) == Grant(claim, 7, 60.0)
    assert held == ["owner"]
    assert isinstance(run(backend.try_acquire(claim)), Refusal)
    assert held == ["owner"]
    run(backend.try_acquire(claim))
    asked.clear()
    grant = Grant(claim, 7, 60.0)
    answers.append([grant])
    assert run(backend.renew([grant], 7.0)) == [grant]
    assert renewed == [[grant]], "what is held longer needs its session for longer"
    assert run(backend.release(grant, 8.0)) is True
    run(backend.withdraw(claim, 9.0, doubt=False))
    assert asked == [([grant], 7.0), (grant, 8.0), (claim, 9.0, False)]
    assert held == []


# --- from a url


@pytest.mark.parametrize("query", ["", "&mode=session"])
def test_every_mode_cleans_and_keeps_to_its_options(query: str) -> None:
    url = f"mysql://h/db?answer_timeout=2&connections=7&fence_floor=9{query}"
    backend: Any = find_store(url).open_backend(PlannedWaits())
    assert backend._executor.source.maintenance is not None
    assert (backend.label, backend._executor.label) == ("mysql://h/db", "mysql://h/db")
    assert (backend._executor._patience, backend._first_fence) == (2.0, 10)
    if not query:
        assert backend._executor.source._limit == 7
        assert backend._executor.source._patience == BUSY * 2.0


def test_what_is_missing_to_connect_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(package, "store", raising=False)
    monkeypatch.setitem(sys.modules, f"{package.__name__}.store", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'leasehold\[mysql\]'"):
        package.open_url(StoreURL.parse("mysql://h/db"))
