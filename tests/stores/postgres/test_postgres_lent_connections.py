"""Pools and engines over each driver: who may use one, and the connections of our own that are made as theirs are."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import asyncpg
import psycopg
import pytest

from leasehold._backends.postgres import asyncpg_lender, psycopg_lender
from leasehold._backends.postgres.asyncpg_connection import AsyncpgConnection
from leasehold._backends.postgres.asyncpg_lender import AsyncpgEngine, AsyncpgPool
from leasehold._backends.postgres.psycopg_lender import PsycopgEngine, PsycopgPool
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, ConfigurationError
from tests.unit.planned_waits import PlannedWaits

URL = SimpleNamespace(username="me", host="h", port=7, database="db")
RUNTIME: Any = PlannedWaits()


def never() -> bool:
    return False


def pool_of_asyncpg(**more: Any) -> Any:
    return AsyncpgPool(SimpleNamespace(_connect_args=("postgresql://ann@h/db",), **more))


def pool_of_psycopg(**more: Any) -> Any:
    async def getconn(timeout: float) -> str:
        return f"lent within {timeout}"

    return PsycopgPool(SimpleNamespace(**{"getconn": getconn, "conninfo": "host=h", "kwargs": None, **more}))


# --- who may use it


@pytest.mark.parametrize("make", [pool_of_asyncpg, pool_of_psycopg])
def test_a_pool_is_refused_in_a_child_process_and_on_another_loop(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    lends = make()

    async def check() -> None:
        lends.check()

    asyncio.run(check())
    with pytest.raises(ConfigurationError, match="belong to the event loop"):
        asyncio.run(check())
    lends = make()
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(ConfigurationError, match="do not survive a fork"):
        asyncio.run(check())


def test_a_blocking_pool_of_psycopg_needs_no_loop_and_is_refused_in_a_child_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lends = pool_of_psycopg(getconn=lambda timeout: timeout)
    lends.check()
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(ConfigurationError, match="do not survive a fork"):
        lends.check()


@pytest.mark.parametrize(
    ("conninfo", "kwargs", "label"),
    [
        ("host=h1 dbname=one user=ann", {"dbname": "two", "port": 7}, "postgresql://ann@h1:7/two"),
        (lambda: "host=h1", {"host": "h2"}, "postgresql://h2/"),
        ("host=h1", lambda: {"host": "h2"}, "postgresql://h1/"),
    ],
)
def test_what_a_pool_of_psycopg_was_told_beside_its_conninfo_counts_as_it_does_for_the_driver(
    conninfo: Any, kwargs: Any, label: str
) -> None:
    assert pool_of_psycopg(conninfo=conninfo, kwargs=kwargs).label == label


# --- what is lent and given back on a loop


def test_an_async_pool_of_psycopg_lends_in_time_and_is_given_back_to(monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[float] = []
    returned: list[object] = []

    async def in_time_async(make: Any, _: Any, seconds: float) -> Any:
        beside.append(seconds)
        return await make()

    async def putconn(connection: object) -> None:
        returned.append(connection)

    monkeypatch.setattr(psycopg_lender, "in_time_async", in_time_async)
    for checks in (None, print):
        lends = pool_of_psycopg(putconn=putconn, _check=checks)
        assert lends.blocking is False
        assert run(lends.borrow(2.5)) == ("lent within 2.5",) * 2
        run(lends.give_back("loan", broken=False))
    assert beside == [2.5], "one that checks a connection first does not keep to its timeout"
    assert returned == ["loan"] * 2


@pytest.mark.parametrize("closed", [True, False])
def test_a_connection_of_asyncpg_that_is_closed_is_not_used(closed: bool) -> None:
    theirs = SimpleNamespace(is_closed=lambda: closed)
    ours = pool_of_asyncpg().connection(theirs, RUNTIME, 2.5)
    assert (ours is None) is closed
    if ours is not None:
        assert (ours.driver_connection, ours._label, ours._timeout) == (theirs, "postgresql://ann@h/db", 2.5)


def test_a_connection_of_psycopg_that_is_closed_is_not_used() -> None:
    class Closed:
        @property
        def socket(self) -> int:
            raise psycopg.OperationalError("the connection is closed")

    theirs: Any = SimpleNamespace(pgconn=Closed())
    assert pool_of_psycopg().connection(theirs, RUNTIME, 2.5) is None


# --- one of our own


class Made:
    """A connection of asyncpg."""

    def __init__(self) -> None:
        self.terminated = 0

    def terminate(self) -> None:
        self.terminated += 1


def test_a_listener_of_asyncpg_gets_a_connection_as_the_pool_makes_them() -> None:
    made = Made()

    async def make() -> Made:
        return made

    lends = pool_of_asyncpg(_get_new_connection=make, connect=None)
    ours = asyncio.run(lends.another("a lent one", RUNTIME, 2.5, never))
    assert isinstance(ours, AsyncpgConnection)
    assert (ours.driver_connection, ours._label, ours._timeout) == (made, "postgresql://ann@h/db", 2.5)
    assert made.terminated == 0
    assert asyncio.run(pool_of_asyncpg().another("a lent one", RUNTIME, 2.5, never)) is None, "then waiters poll"


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OSError("no route to host"), BackendUnavailable, "cannot be reached: no route to host"),
        (TimeoutError(), BackendUnavailable, "cannot be reached: not in time"),
        (asyncpg.InterfaceError("pool is closing"), BackendUnavailable, "cannot be reached: pool is closing"),
        (asyncpg.InvalidPasswordError("password authentication failed"), BackendRejected, "authentication failed"),
        (asyncpg.TooManyConnectionsError("sorry, too many clients"), BackendUnavailable, "too many clients"),
    ],
)
def test_a_listener_of_asyncpg_that_cannot_connect_says_why(
    error: Exception, kind: type[Exception], words: str
) -> None:
    async def make() -> Made:
        raise error

    lends = pool_of_asyncpg(_get_new_connection=make)
    with pytest.raises(kind, match=words) as caught:
        asyncio.run(lends.another("a lent one", RUNTIME, 2.5, never))
    assert caught.value.backend == "postgresql://ann@h/db"  # type: ignore[attr-defined]  # of our errors
    assert str(caught.value).startswith("postgresql://ann@h/db")


def test_a_listener_of_asyncpg_that_connects_while_its_client_is_closed_gives_up() -> None:
    begun = asyncio.Event()

    async def make() -> Made:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    lends = pool_of_asyncpg(_get_new_connection=make)
    with pytest.raises(BackendUnavailable, match="not in time"):
        asyncio.run(lends.another("a lent one", RUNTIME, 600.0, begun.is_set))


def test_a_connection_of_asyncpg_that_comes_too_late_is_ended() -> None:
    made = Made()
    asyncio.run(asyncpg_lender._terminate(made))
    assert made.terminated == 1


@pytest.mark.parametrize("lends", [PsycopgEngine(SimpleNamespace(url=URL)), pool_of_psycopg()])
def test_a_listener_of_psycopg_connects_as_the_lent_connection_was_made(
    monkeypatch: pytest.MonkeyPatch, lends: Any
) -> None:
    """With the password, which a connection does not tell among its parameters."""
    given: list[Any] = []

    async def open_connection(*what: Any, **more: Any) -> str:
        given.extend((*what, more))
        return "ours"

    monkeypatch.setattr(psycopg_lender, "open_connection", open_connection)
    info = SimpleNamespace(get_parameters=lambda: {"host": "h", "user": "me"}, password="s3")
    assert run(lends.another(SimpleNamespace(info=info), RUNTIME, 2.5, never)) == "ours"
    _, parameters, runtime, label, timeout, more = given
    assert parameters == {"host": "h", "user": "me", "password": "s3"}
    assert (runtime, label, timeout, more) == (RUNTIME, lends.label, 2.5, {"is_over": never})


def test_an_engine_of_asyncpg_is_named_by_its_url() -> None:
    assert AsyncpgEngine(SimpleNamespace(url=URL, sync_engine=None)).label == "postgresql://me@h:7/db"
