"""Pools and engines of the user's own, step by step: how each lends and takes back, and what is refused."""

from __future__ import annotations

import asyncio
import math
import os
from types import SimpleNamespace
from typing import Any, ClassVar

import asyncpg
import psycopg
import pytest

from leasehold._backends.postgres import adopt, adopted_pool, lender
from leasehold._backends.postgres.adopted_pool import AdoptedPool
from leasehold._backends.postgres.asyncpg_lender import AsyncpgEngine, AsyncpgPool, _facts_of
from leasehold._backends.postgres.driver import SessionFacts
from leasehold._backends.postgres.lender import OneLoop, label_of, lender_for, require_process
from leasehold._backends.postgres.options import PostgresOptions
from leasehold._backends.postgres.psycopg_lender import PsycopgEngine, PsycopgPool
from leasehold._backends.postgres.statements import Statements
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, ConfigurationError
from tests.unit.planned_waits import PlannedWaits

LABEL = "postgresql://h/db"
SQL = Statements("leasehold")


@pytest.mark.parametrize(
    ("facts", "label"),
    [
        ({"user": "me", "host": "h", "port": "5433", "dbname": "db"}, "postgresql://me@h:5433/db"),
        ({"host": "h"}, "postgresql://h/"),
        ({"user": "", "host": None, "port": 0, "dbname": "db"}, "postgresql:///db"),
    ],
)
def test_messages_name_the_database_by_what_is_known_of_it(facts: dict[str, Any], label: str) -> None:
    assert label_of(facts) == label


@pytest.mark.parametrize(
    ("dsn", "facts"),
    [
        (None, {}),
        (object(), {}),
        ("postgresql://me:s3@h:1/db?password=s3", {"user": "me", "host": "h:1", "dbname": "db"}),
        ("postgresql://h/db", {"user": None, "host": "h", "dbname": "db"}),
    ],
)
def test_nothing_secret_is_read_of_a_dsn(dsn: object, facts: dict[str, Any]) -> None:
    assert _facts_of(dsn) == facts


def test_each_kind_of_pool_and_engine_has_its_lender() -> None:
    url = SimpleNamespace(username="me", host="h", port=1, database="db")

    def engine(name: str, driver: str, **more: Any) -> Any:
        return SimpleNamespace(dialect=SimpleNamespace(name=name, driver=driver), url=url, **more)

    assert type(lender_for(engine("postgresql", "psycopg"))) is PsycopgEngine
    assert type(lender_for(engine("postgresql", "psycopg_async", sync_engine=1))) is PsycopgEngine
    assert type(lender_for(engine("postgresql", "asyncpg", sync_engine=1))) is AsyncpgEngine
    assert [lender_for(engine("postgresql", "psycopg", **more)).blocking for more in ({}, {"sync_engine": 1})] == [
        True, False,
    ]  # fmt: skip
    assert lender_for(engine("postgresql", "psycopg")).label == "postgresql://me@h:1/db"
    for name, driver in (("postgresql", "psycopg2"), ("mysql", "asyncpg"), ("sqlite", "pysqlite")):
        with pytest.raises(ConfigurationError, match=rf"engine for {name}\+{driver}"):
            lender_for(engine(name, driver))
    pool = SimpleNamespace(getconn=0, putconn=0, conninfo="host=h dbname=db", kwargs={"user": "me", "password": "s3"})
    assert type(lender_for(pool)) is PsycopgPool
    assert lender_for(pool).label == "postgresql://me@h/db"
    assert type(lender_for(SimpleNamespace(acquire=0, release=0))) is AsyncpgPool
    for half in ({"getconn": 0}, {"acquire": 0}, {"url": 0}, {}):
        with pytest.raises(ConfigurationError, match="cannot lock with a SimpleNamespace"):
            lender_for(SimpleNamespace(**half))


def test_a_pool_is_used_in_the_process_that_made_it_alone() -> None:
    require_process(os.getpid())
    with pytest.raises(ConfigurationError, match="fork"):
        require_process(os.getpid() + 1)


def test_the_loop_of_a_pool_is_the_one_that_it_was_first_used_on() -> None:
    loop, pool, other = OneLoop(), SimpleNamespace(), SimpleNamespace()

    async def use(pool: object) -> None:
        loop.require(pool)

    asyncio.run(use(pool))
    with pytest.raises(ConfigurationError, match="event loop"):
        asyncio.run(use(pool))
    asyncio.run(use(other))  # of an engine that was disposed
    with pytest.raises(ConfigurationError, match="event loop"):
        asyncio.run(use(SimpleNamespace(_loop=object())))


# --- engines


class Loan:
    def __init__(self) -> None:
        self.did: list[str] = []
        self.connection = SimpleNamespace(driver_connection="theirs")

    def invalidate(self) -> None:
        self.did.append("invalidate")

    def close(self) -> None:
        self.did.append("close")


class Engine:
    """A blocking engine of SQLAlchemy, with as many idle connections as it is told."""

    def __init__(self, idle: int = 1, *, pings: bool = False, error: Exception | None = None) -> None:
        self.url = SimpleNamespace(username=None, host="h", port=None, database="db")
        self.pool = SimpleNamespace(_pre_ping=pings, checkedin=lambda: idle)
        self.error = error
        self.loan = Loan()

    def connect(self) -> Loan:
        if self.error is not None:
            raise self.error
        return self.loan


def noting(used: list[float]) -> Any:
    """Waits for nothing, and notes for how long it would have."""

    def in_time(make: Any, _: Any, seconds: float) -> Any:
        used.append(seconds)
        return make()

    return in_time


@pytest.mark.parametrize(
    ("idle", "pings", "beside"), [(1, False, False), (0, False, True), (1, True, True), (2, False, False)]
)
def test_what_an_engine_may_be_slow_to_lend_is_waited_for_beside_the_caller(
    monkeypatch: pytest.MonkeyPatch, idle: int, pings: bool, beside: bool
) -> None:
    used: list[float] = []

    monkeypatch.setattr(lender, "in_time", noting(used))
    engine = Engine(idle, pings=pings)
    assert run(PsycopgEngine(engine).borrow(2.5)) == (engine.loan, "theirs")
    assert used == ([2.5] if beside else [])


def test_an_engine_of_which_little_is_known_is_waited_for_beside_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[float] = []
    monkeypatch.setattr(lender, "in_time", noting(used))
    engine = Engine()
    for pool in (SimpleNamespace(), SimpleNamespace(_pre_ping=False)):
        engine.pool = pool
        run(PsycopgEngine(engine).borrow(1.0))
    assert used == [1.0, 1.0]


@pytest.mark.parametrize(("broken", "did"), [(False, ["close"]), (True, ["invalidate", "close"])])
def test_an_engine_gets_its_connection_back_and_a_broken_one_is_not_lent_again(broken: bool, did: list[str]) -> None:
    engine = Engine()
    run(PsycopgEngine(engine).give_back(engine.loan, broken=broken))
    assert engine.loan.did == did


@pytest.mark.parametrize(("broken", "did"), [(False, ["close"]), (True, ["invalidate", "close"])])
def test_an_async_engine_gets_its_connection_back_and_a_broken_one_is_not_lent_again(
    broken: bool, did: list[str]
) -> None:
    done: list[str] = []

    class Loan:
        async def invalidate(self) -> None:
            done.append("invalidate")

        async def close(self) -> None:
            done.append("close")

    url = SimpleNamespace(username="me", host="h", port=7, database="db")
    lends = AsyncpgEngine(SimpleNamespace(url=url, sync_engine=None))
    assert (lends.blocking, lends.label) == (False, "postgresql://me@h:7/db")
    run(lends.give_back(Loan(), broken=broken))
    assert done == did


@pytest.mark.parametrize("keeps", [True, False])
def test_only_an_async_engine_that_keeps_connections_belongs_to_one_loop(keeps: bool) -> None:
    pool = type("AsyncAdaptedQueuePool" if keeps else "NullPool", (), {})()
    url = SimpleNamespace(username=None, host="h", port=None, database="db")
    lends = AsyncpgEngine(SimpleNamespace(url=url, sync_engine=None, pool=pool))

    async def check() -> None:
        lends.check()

    asyncio.run(check())
    if keeps:
        with pytest.raises(ConfigurationError, match="belong to the event loop"):
            asyncio.run(check())
    else:
        asyncio.run(check())


def test_the_error_of_the_driver_is_found_below_that_of_the_engine() -> None:
    from sqlalchemy.exc import DBAPIError

    below = psycopg.OperationalError("refused")
    wrapped = RuntimeError()
    wrapped.__cause__ = below
    for orig in (below, wrapped):
        with pytest.raises(psycopg.OperationalError, match="refused"):
            run(PsycopgEngine(Engine(error=DBAPIError("SELECT 1", {}, orig))).borrow(1.0))
    other: Any = RuntimeError("of its own")
    with pytest.raises(DBAPIError):
        run(PsycopgEngine(Engine(error=DBAPIError("SELECT 1", {}, other))).borrow(1.0))


# --- pools of psycopg


class Pool:
    def __init__(self, *, checks: bool = False) -> None:
        self.conninfo, self.kwargs = "host=h dbname=db", None
        self._check = print if checks else None
        self.asked: list[float] = []
        self.returned: list[object] = []
        self.connection = SimpleNamespace(finished=0, pgconn=SimpleNamespace(finish=self.finish))

    def finish(self) -> None:
        self.connection.finished += 1

    def getconn(self, timeout: float) -> Any:
        self.asked.append(timeout)
        return self.connection

    def putconn(self, connection: object) -> None:
        self.returned.append(connection)


def test_a_pool_of_psycopg_lends_in_time_and_gets_its_connection_back(monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[float] = []
    monkeypatch.setattr(
        "leasehold._backends.postgres.psycopg_lender.in_time",
        noting(beside),
    )
    for checks in (False, True):
        pool = Pool(checks=checks)
        lends = PsycopgPool(pool)
        assert run(lends.borrow(2.5)) == (pool.connection, pool.connection)
        assert pool.asked == [2.5]
        run(lends.give_back(pool.connection, broken=False))
        assert pool.connection.finished == 0
        run(lends.give_back(pool.connection, broken=True))
        assert pool.connection.finished == 1, "or the pool would lend it again"
        assert pool.returned == [pool.connection] * 2
    assert beside == [2.5], "one that checks a connection first does not keep to its timeout"


# --- what is borrowed for a request


class Lends:
    """A lender whose connections are this object."""

    def __init__(self, *, blocking: bool = True) -> None:
        self.blocking = blocking
        self.label = LABEL
        self.driver_errors = (psycopg.Error,)
        self.error: BaseException | None = None
        self.asked: list[float] = []
        self.back: list[tuple[object, bool]] = []
        self.did: list[str] = []
        self.usable = self.direct = True
        self.facts = SessionFacts()
        self.slot: Any = None
        self.session: Any = type("Session", (), {})()
        self.is_there = self.has_another = True
        self.greetings: list[bool] = []
        self.greeted_by: list[float] = []

    async def borrow(self, seconds: float) -> Any:
        self.asked.append(seconds)
        if self.error is not None:
            raise self.error
        return "loan", self.session

    async def give_back(self, loan: object, *, broken: bool) -> None:
        self.back.append((loan, broken))

    def check(self) -> None:
        self.did.append("check")

    def connection(self, *_: object) -> Any:
        return self if self.is_there else None

    async def another(self, like: object, *_: object) -> Any:
        assert like is self.session
        return self if self.has_another else None

    # as a connection

    @property
    def driver_connection(self) -> Any:
        return self.session

    @property
    def is_direct(self) -> bool:
        return self.direct

    def is_usable(self) -> bool:
        return self.usable

    async def greet(self, _: object, *, own: bool, until: float = math.inf) -> None:
        self.greetings.append(own)
        self.greeted_by.append(until)
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.did.append("close")

    def interrupt(self) -> None:
        self.did.append("interrupt")


def borrowing(lends: Lends) -> tuple[Any, Any]:
    runtime: Any = PlannedWaits()
    runtime.spawned = []
    runtime.spawn = lambda work, _: runtime.spawned.append(work)
    source: Any = lends
    return AdoptedPool(source, PostgresOptions(LABEL, answer_timeout=3.0), runtime, SQL.greet), runtime


def test_a_connection_is_borrowed_for_one_request_and_greeted_once_in_its_life() -> None:
    lends = Lends()
    pool, runtime = borrowing(lends)
    for _ in range(2):
        connection = run(pool.take())
        pool.give(connection)
    run(pool.take(runtime.now() + 1.0))
    assert lends.asked == [3.0, 3.0, 1.0]
    assert lends.greetings == [False], "its level belongs to the user"
    assert lends.back == [("loan", False)] * 2
    assert lends.did == ["check"] * 3
    assert len(pool._debts) == 1


def test_what_the_greeting_found_holds_for_every_later_loan_of_the_session() -> None:
    """Also where each loan has an object of its own, which knows nothing yet."""
    lends = Lends()
    pool, _ = borrowing(lends)
    lends.facts.is_direct = True
    first = lends.facts
    pool.give(run(pool.take()))
    lends.facts = SessionFacts()
    assert run(pool.take()).facts is first


def test_another_session_of_the_pool_is_greeted_as_well() -> None:
    lends = Lends()
    pool, _ = borrowing(lends)
    pool.give(run(pool.take()))
    lends.session = type("Session", (), {})()
    pool.give(run(pool.take()))
    assert lends.greetings == [False, False]


def test_a_connection_that_failed_is_closed_and_given_back_as_broken() -> None:
    lends = Lends()
    pool, _ = borrowing(lends)
    pool.discard(run(pool.take()), dead=True)
    assert (lends.back, lends.did[-1], pool._debts) == ([("loan", True)], "close", {})


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (psycopg.OperationalError("refused"), BackendUnavailable, "cannot be reached: refused"),
        (psycopg.OperationalError("password authentication failed"), BackendRejected, "authentication"),
        (TimeoutError("none was free"), BackendUnavailable, "is the pool open and large enough.*none was free"),
        (ConfigurationError("made and not opened"), ConfigurationError, "made and not opened"),
    ],
)
def test_a_pool_that_lends_nothing_says_why(error: Exception, kind: type[Exception], words: str) -> None:
    lends = Lends()
    pool, _ = borrowing(lends)
    lends.error = error
    with pytest.raises(kind, match=words) as caught:
        run(pool.take())
    assert pool._debts == {}
    assert isinstance(caught.value, ConfigurationError) or caught.value.backend == LABEL  # type: ignore[attr-defined]
    if not isinstance(error, ConfigurationError):
        pool.is_closed = True
        with pytest.raises(ClientClosed):
            run(pool._borrowed(math.inf))


@pytest.mark.parametrize("what", ["usable", "is_there"])
def test_a_connection_in_a_transaction_or_a_closed_one_is_given_back_unused(what: str) -> None:
    lends = Lends()
    pool, _ = borrowing(lends)
    setattr(lends, what, False)
    with pytest.raises(BackendUnavailable, match="closed or in a transaction"):
        run(pool.take())
    assert lends.back == [("loan", True)]
    assert lends.greetings == []
    assert pool._debts == {}


def test_a_greeting_that_the_end_of_the_client_has_broken_says_so_and_the_loan_is_returned() -> None:
    lends = Lends()
    pool, _ = borrowing(lends)

    async def fail(*_: object, **__: object) -> None:
        pool.is_closed = True
        raise BackendUnavailable("away")

    lends.greet = fail  # type: ignore[method-assign]
    with pytest.raises(ClientClosed) as closed:
        run(pool.take())
    assert closed.value.backend == LABEL
    assert lends.back == [("loan", True)]
    assert pool._debts == {}


def test_a_listener_has_a_connection_of_its_own_and_the_pool_keeps_all_of_its() -> None:
    lends = Lends()
    pool, _ = borrowing(lends)
    assert run(pool.dedicated()) is lends
    assert lends.back == [("loan", False)]
    assert lends.greetings == [False, True]
    lends.direct = False  # a pooler is in between
    assert run(pool.dedicated()) is None
    assert lends.did[-1] == "close"
    lends.has_another = False
    assert run(pool.dedicated()) is None


def test_a_listener_that_connects_learns_that_its_client_is_closed() -> None:
    lends = Lends()
    pool, runtime = borrowing(lends)
    given: list[Any] = []

    async def another(like: object, *more: object) -> Any:
        given.extend((like, *more))

    lends.another = another  # type: ignore[method-assign]
    assert run(pool.dedicated()) is None
    like, timed, timeout, is_over = given
    assert (like, timed, timeout) == (lends.session, runtime, pool._options.answer_timeout)
    assert is_over() is False
    run(pool.close())
    assert is_over() is True


def test_a_listener_that_cannot_be_greeted_leaves_no_connection() -> None:
    lends = Lends()
    pool, _ = borrowing(lends)
    pool.give(run(pool.take()))

    async def fail(*_: object, **__: object) -> None:
        raise BackendUnavailable("away")

    lends.greet = fail  # type: ignore[method-assign]
    with pytest.raises(BackendUnavailable):
        run(pool.dedicated())
    assert lends.did[-1] == "close"


def test_closing_waits_for_what_is_borrowed_and_then_interrupts_it() -> None:
    lends = Lends()
    pool, runtime = borrowing(lends)
    connection = run(pool.take())
    began = runtime.now()
    run(pool.close())
    assert runtime.now() - began == pytest.approx(adopted_pool.CLOSE_PATIENCE, abs=0.01)
    assert lends.did[-1] == "interrupt"
    pool.give(connection)
    began = runtime.now()
    run(pool.close())
    assert runtime.now() == began, "nothing is borrowed any more"
    assert lends.did.count("interrupt") == 1
    with pytest.raises(ClientClosed):
        run(pool.take())


def test_maintenance_runs_beside_the_caller_when_it_is_due_and_fails_in_silence() -> None:
    lends = Lends()
    pool, runtime = borrowing(lends)
    ran: list[object] = []

    async def maintain(connection: object) -> None:
        ran.append(connection)
        if len(ran) > 1:
            raise BackendUnavailable("away")

    pool.maintenance = SimpleNamespace(is_due=lambda: True, run=maintain)
    for number, broken in ((1, False), (2, True)):
        pool.give(run(pool.take()))
        assert len(ran) == number - 1, "not before the caller has its answer"
        with pytest.raises(StopIteration):
            runtime.spawned.pop().send(None)
        assert len(ran) == number
        assert lends.back[-1] == ("loan", broken)
        runtime.spawned.clear()
        assert pool._debts == {}
    pool.maintenance = SimpleNamespace(is_due=lambda: False, run=maintain)
    pool.give(run(pool.take()))
    assert runtime.spawned == []
    pool.maintenance = SimpleNamespace(is_due=lambda: True, run=maintain)
    lent = run(pool.take())
    pool.is_closed = True
    pool.give(lent)
    assert runtime.spawned == [], "nothing is begun for a client that is closed"


@pytest.mark.parametrize(("left", "asked"), [(9.0, 3.0), (1.0, 1.0), (0.0, 0.0), (-2.0, 0.0)])
def test_a_call_borrows_and_greets_for_no_longer_than_it_has_time(left: float, asked: float) -> None:
    """A pool takes a negative time for an error of its own, or for no limit."""
    lends = Lends()
    pool, runtime = borrowing(lends)
    until = runtime.now() + left
    run(pool.take(until))
    assert lends.asked == [asked]
    assert lends.greeted_by == [until]


@pytest.mark.parametrize(
    ("theirs", "words"), [(True, r"blocking .* connect\(\)"), (False, r"asyncio .* connect_async\(\)")]
)
def test_a_pool_of_the_other_kind_is_refused(theirs: bool, words: str) -> None:
    runtime: Any = PlannedWaits()
    runtime.blocking = not theirs
    source: Any = Lends(blocking=theirs)
    with pytest.raises(ConfigurationError, match=words):
        AdoptedPool(source, PostgresOptions(LABEL), runtime, SQL.greet)


def test_options_beside_a_pool_are_read() -> None:
    store: Any = adopt(Pool(), {"schema": "locks"})
    assert store._options == PostgresOptions("postgresql://h/db", schema="locks")


def test_a_store_over_a_pool_keeps_to_every_option_and_cleans_its_own_schema() -> None:
    store: Any = adopt(Pool(), {"schema": "mine", "answer_timeout": "2", "fence_floor": "41"})
    backend = store.open_backend(ThreadRuntime())
    pool = backend._executor.source
    assert (backend._sql.schema, backend._floor, backend._turns._timeout) == ("mine", 41, 2.0)
    assert (backend.label, backend._executor.label, pool._options.answer_timeout) == (LABEL, LABEL, 2.0)
    assert b'"mine"' in pool.maintenance._statement.text
    assert backend._listener._connect == pool.dedicated


# --- asyncpg


class AsyncpgLoan:
    def __init__(self, did: list[str]) -> None:
        self.did = did
        self._con = object()

    def terminate(self) -> None:
        self.did.append("terminate")

    def detach(self) -> None:
        self.did.append("detach")

    @property
    def driver_connection(self) -> object:
        return self._con


class PoolOfAsyncpg:
    """What is asked of a pool; it fails with `error`."""

    _connect_args = ("postgresql://ann:secret@h1:7,h2/one?sslmode=require",)
    _connect_kwargs: ClassVar[dict[str, Any]] = {"database": "two", "password": "secret", "timeout": 9}

    def __init__(self, error: Exception | None = None) -> None:
        self.did: list[str] = []
        self.error = error
        self.loan = AsyncpgLoan(self.did)

    async def acquire(self, *, timeout: float) -> AsyncpgLoan:
        self.did.append(f"acquire in {timeout}")
        if self.error is not None:
            raise self.error
        return self.loan

    async def release(self, loan: AsyncpgLoan) -> None:
        assert loan is self.loan
        self.did.append("release")
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("broken", [False, True])
def test_a_pool_of_asyncpg_gets_its_connection_back_and_a_broken_one_is_not_lent_again(broken: bool) -> None:
    pool = PoolOfAsyncpg()
    lends = AsyncpgPool(pool)
    assert run(lends.borrow(2.5)) == (pool.loan, pool.loan._con), "the session, and not the proxy of one loan"
    pool.error = asyncpg.InterfaceError("it cannot be reset")  # the pool replaces it
    run(lends.give_back(pool.loan, broken=broken))
    assert pool.did == ["acquire in 2.5", *["terminate"] * broken, "release"]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (TimeoutError(), TimeoutError, r"none was free within 2\.5 s"),
        (asyncpg.InterfaceError("pool is not initialized"), ConfigurationError, "made and not opened"),
        (asyncpg.InterfaceError("pool is closing"), asyncpg.InterfaceError, "pool is closing"),
    ],
)
def test_a_pool_of_asyncpg_that_lends_nothing_says_why(error: Exception, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        run(AsyncpgPool(PoolOfAsyncpg(error)).borrow(2.5))


def test_what_a_pool_of_asyncpg_was_told_beside_its_dsn_counts_and_no_secret_is_shown() -> None:
    assert AsyncpgPool(PoolOfAsyncpg()).label == "postgresql://ann@h1:7,h2/two"


def test_a_connection_that_an_engine_of_asyncpg_made_for_a_listener_is_not_in_its_pool_any_more() -> None:
    did: list[str] = []
    loan = AsyncpgLoan(did)

    async def raw_connection() -> AsyncpgLoan:
        return loan

    url = SimpleNamespace(username=None, host="h", port=None, database="db")
    engine = SimpleNamespace(url=url, sync_engine=None, raw_connection=raw_connection)
    make: Any = AsyncpgEngine(engine)._maker()
    assert run(make()) is loan._con
    assert did == ["detach"]
