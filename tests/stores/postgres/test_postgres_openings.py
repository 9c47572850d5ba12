"""How the store of PostgreSQL opens its connections: which way, for whom, and what a failure leaves; no server."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold._backends import postgres as package
from leasehold._backends.postgres import pool as pool_module
from leasehold._backends.postgres import session as session_module
from leasehold._backends.postgres.options import PostgresOptions
from leasehold._backends.postgres.pool import OwnPool
from leasehold._backends.postgres.session import SessionSource
from leasehold._backends.postgres.statements import Statements
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, ConfigurationError, OutcomeUnknown
from leasehold.kit.pool import BUSY
from leasehold.store_url import StoreURL

OPTIONS = PostgresOptions("postgresql://h/db", answer_timeout=3.0)


class Line:
    """A connection that was made; its greeting and its first statement go as the test says."""

    def __init__(self) -> None:
        self.closed = 0
        self.is_direct = True
        self.error: Exception | None = None
        self.answer: Any = SimpleNamespace(status=2, get_value=lambda *_: b"t")
        self.greetings: list[tuple[bool, float]] = []
        self.pool: Any = None
        self.interruptible: list[int] = []  # of how many connections the pool knew that they are being made
        self.begun: list[tuple[bytes, ...]] = []

    async def greet(self, _: object, *, own: bool, until: float) -> None:
        self.greetings.append((own, until))
        if self.pool is not None:
            self.interruptible.append(len(self.pool._new))
        if self.error is not None:
            raise self.error

    async def execute(self, _: object, values: tuple[bytes, ...], __: float) -> Any:
        self.begun.append(values)
        if self.answer is None:
            raise OutcomeUnknown("no answer")
        return self.answer

    def close(self) -> None:
        self.closed += 1


class Opened:
    """What connections are asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.line = Line()
        self.error: Exception | None = None
        self.asked: list[tuple[Any, ...]] = []
        for module in (pool_module, session_module):
            monkeypatch.setattr(module, "open_connection", self.open)

    async def open(self, wire: Any, parameters: Any, _: Any, label: str, timeout: float, **words: Any) -> Any:
        self.asked.append((parameters, label, timeout, words["until"], words["is_over"]()))
        if self.error is not None:
            raise self.error
        return self.line


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


def pool() -> Any:
    wire: Any = SimpleNamespace()
    return OwnPool(OPTIONS, {"host": "h"}, wire, ThreadRuntime(), Statements("leasehold").greet)


def session() -> Any:
    wire: Any = SimpleNamespace()
    return SessionSource(OPTIONS, {"host": "h"}, wire, ThreadRuntime(), Statements("leasehold"))


def test_each_connection_goes_where_the_url_says_and_is_greeted(opened: Opened) -> None:
    own = opened.line.pool = pool()
    assert run(own._open(9.0)) is opened.line
    assert run(own.dedicated()) is opened.line
    assert run(own.open_by({"host": "direct"})) is opened.line
    assert opened.asked == [
        ({"host": "h"}, OPTIONS.label, 3.0, 9.0, False),
        ({"host": "h"}, OPTIONS.label, 3.0, math.inf, False),
        ({"host": "direct"}, OPTIONS.label, 3.0, math.inf, False),
    ]
    assert opened.line.greetings == [(True, 9.0), (True, math.inf), (True, math.inf)]
    assert opened.line.interruptible == [1, 1, 1], "a close ends its greeting"
    assert len(own._new) == 0
    assert opened.line.closed == 0


@pytest.mark.parametrize("source", [pool, session])
def test_a_connection_that_cannot_be_greeted_is_closed(opened: Opened, source: Any) -> None:
    opened.line.error = BackendUnavailable("no answer")
    own = source()
    with pytest.raises(BackendUnavailable, match="no answer"):
        run(own._open(9.0))
    assert opened.line.closed == 1


def test_a_client_that_is_closed_opens_nothing_and_says_so(opened: Opened) -> None:
    own = pool()
    opened.error = BackendUnavailable("away")
    with pytest.raises(BackendUnavailable, match="away"):
        run(own._open(9.0))
    own.is_closed = True
    with pytest.raises(ClientClosed):
        run(own._open(9.0))
    assert len(opened.asked) == 1


def test_a_session_takes_its_lock_under_a_number_of_its_own(opened: Opened) -> None:
    for _ in range(2):
        assert run(session()._open(9.0)) is opened.line
    first, second = opened.line.begun
    assert first[0] == first[1]
    assert -(2**62) <= int(first[0]) < 2**62
    assert first != second
    assert opened.asked[0][:4] == ({"host": "h"}, OPTIONS.label, 3.0, 9.0)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"is_direct": False}, BackendRejected, "a pooler is in between"),
        ({"answer": None}, BackendUnavailable, "no answer"),
        ({"answer": SimpleNamespace(status=7)}, BackendUnavailable, "advisory lock"),
        ({"answer": SimpleNamespace(status=2, get_value=lambda *_: b"f")}, BackendUnavailable, "advisory lock"),
    ],
)
def test_a_session_without_its_lock_is_closed(
    opened: Opened, change: dict[str, Any], kind: type[Exception], words: str
) -> None:
    for name, value in change.items():
        setattr(opened.line, name, value)
    with pytest.raises(kind, match=words):
        run(session()._open(9.0))
    assert opened.line.closed == 1
    assert bool(opened.line.begun) is ("is_direct" not in change), "nothing is left behind at a pooler"


@pytest.mark.parametrize("direct", [True, False])
def test_without_a_way_of_its_own_a_listener_is_of_use_only_where_no_pooler_is_in_between(
    opened: Opened, direct: bool
) -> None:
    opened.line.is_direct = direct
    backend: Any = find_store("postgresql://h/db").open_backend(ThreadRuntime())
    assert run(backend._listener._connect()) is (opened.line if direct else None)
    assert opened.line.closed == (not direct)


def test_a_listener_goes_the_way_that_the_url_gives_it(opened: Opened) -> None:
    opened.line.is_direct = False  # which says nothing about that way
    url = "postgresql://pooler/db?listen_url=postgresql%3A%2F%2Fdirect%2Fdb"
    backend: Any = find_store(url).open_backend(ThreadRuntime())
    assert run(backend._listener._connect()) is opened.line
    assert opened.asked[0][0]["host"] == "direct"


@pytest.mark.parametrize("query", ["", "?mode=session"])
def test_every_mode_cleans_and_keeps_to_its_options(query: str) -> None:
    backend: Any = find_store(f"postgresql://h/db{query}").open_backend(ThreadRuntime())
    assert backend._executor.source.maintenance is not None
    assert backend.label == backend._executor.label == "postgresql://h/db"
    own: Any = find_store("postgresql://h/db?connections=7&answer_timeout=2&schema=s").open_backend(ThreadRuntime())
    assert (own._executor.source._limit, own._turns._timeout, own._sql.schema) == (7, 2.0, "s")
    assert own._executor.source._patience == BUSY * 2.0


def test_what_is_missing_to_connect_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"asyncpg.create_pool\(\)"):
        package.open_url(StoreURL.parse("postgresql+asyncpg://h/db"))
    monkeypatch.delattr(package, "store", raising=False)
    monkeypatch.setitem(sys.modules, f"{package.__name__}.store", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'leasehold\[postgres\]'"):
        package.open_url(StoreURL.parse("postgresql://h/db"))
