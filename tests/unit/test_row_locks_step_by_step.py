"""Row locks statement by statement: which words, how long, and what is put back."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg
import pymysql
import pytest

from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError, RowBusy
from leasehold.sql.row_locks import lock_request, mysql, postgresql, sqlite
from leasehold.sql.row_locks.lock_request import Free, LockRequest, check_free, in_order, make_request
from leasehold.sql.tables.rows import Rows
from leasehold.sql.wires import Transaction
from tests.unit.scripted_wire import ScriptedWire, rows

KEYS = [{"id": 1}, {"id": 2}, {"id": 3}]


class Ticking(ScriptedWire):
    """Every statement that locks a row takes so long."""

    def __init__(self, clock: list[float], takes: float, *answers: Any, dialect: str) -> None:
        super().__init__(*answers, dialect=dialect)
        self._clock, self._takes = clock, takes

    async def query(self, statement: str, values: Any) -> Any:
        if statement.startswith("SELECT") and "FROM" in statement:
            self._clock[0] += self._takes
        return await super().query(statement, values)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(lock_request, "monotonic", lambda: now[0])
    return now


def asked(wire: ScriptedWire) -> list[str]:
    """What follows the condition of each statement that locks, and the settings with their values."""
    found = []
    for statement, (_, values) in zip(wire.statements, wire.asked, strict=True):
        _, is_lock, words = statement.partition("= %(key_0)s")
        found.append(words.strip() if is_lock else f"{statement} {values.get('limit', '')}".strip())
    return found


def lock(module: Any, wire: ScriptedWire, request: LockRequest, keys: list[dict[str, int]] = KEYS) -> Any:
    return run(module.lock_these(wire, Transaction.OPEN, Rows(wire, "stock"), keys, request))


@pytest.mark.parametrize(
    ("words", "postgresql_words", "mysql_words", "mariadb_words"),
    [
        ({"share": False}, "FOR UPDATE", "FOR UPDATE", "FOR UPDATE"),
        ({"share": True}, "FOR SHARE", "LOCK IN SHARE MODE", "LOCK IN SHARE MODE"),
        (
            {"share": False, "skip_locked": True},
            "FOR UPDATE SKIP LOCKED",
            "FOR UPDATE SKIP LOCKED",
            "FOR UPDATE SKIP LOCKED",
        ),
        (
            {"share": True, "skip_locked": True},
            "FOR SHARE SKIP LOCKED",
            "FOR SHARE SKIP LOCKED",
            "LOCK IN SHARE MODE SKIP LOCKED",
        ),
        ({"share": False, "wait": 0.0}, "FOR UPDATE NOWAIT", "FOR UPDATE NOWAIT", "FOR UPDATE NOWAIT"),
        ({"share": True, "wait": 0.0}, "FOR SHARE NOWAIT", "FOR SHARE NOWAIT", "LOCK IN SHARE MODE NOWAIT"),
    ],
)
def test_a_lock_is_asked_for_in_the_words_of_each_server(
    words: dict[str, Any], postgresql_words: str, mysql_words: str, mariadb_words: str
) -> None:
    request = LockRequest(**words)
    wire = ScriptedWire()
    lock(postgresql, wire, request, [{"id": 1}])
    assert [each for each in asked(wire) if "SAVEPOINT" not in each] == [postgresql_words]
    for version, wanted in (("8.0.36", mysql_words), ("10.11.6-MariaDB", mariadb_words)):
        wire = ScriptedWire(dialect="mysql")

        async def is_mariadb(_: object, version: str = version) -> bool:
            return "MariaDB" in version

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mysql, "_is_mariadb", is_mariadb)
            lock(mysql, wire, request, [{"id": 1}])
        assert asked(wire) == [wanted]


def test_free_rows_are_asked_for_with_the_words_that_skip() -> None:
    for module, dialect, mark in ((postgresql, "postgresql", '"'), (mysql, "mysql", "`")):
        wire = ScriptedWire(dialect=dialect)
        free = check_free({"state": "new"}, 7, ["due", "id"])
        run(module.lock_free(wire, Rows(wire, ("shop", "jobs")), free, LockRequest(share=False, skip_locked=True)))
        written = (
            'SELECT "jobs".* FROM "shop"."jobs" WHERE "jobs"."state" = %(key_0)s '
            'ORDER BY "jobs"."due", "jobs"."id" LIMIT 7 FOR UPDATE SKIP LOCKED'
        )
        assert wire.statements == [written.replace('"', mark)]
        assert wire.asked[0][1] == {"key_0": "new"}


def test_the_wait_of_postgresql_is_for_all_rows_together_and_its_setting_is_put_back(clock: list[float]) -> None:
    before = rows(("7s", "x"))
    setting = (
        "SELECT pg_catalog.current_setting('lock_timeout'), pg_catalog.set_config('lock_timeout', %(limit)s, true)"
    )
    wire = Ticking(clock, 1.5, rows(), before, rows(), rows(("2500ms", "x")), dialect="postgresql")
    lock(postgresql, wire, LockRequest(share=False, wait=2.5, begun=clock[0]))
    assert asked(wire) == [
        "SAVEPOINT leasehold_piece",
        f"{setting} 2500",
        "FOR UPDATE",
        f"{setting} 1000",
        "FOR UPDATE",
        "FOR UPDATE NOWAIT",
        "SELECT pg_catalog.set_config('lock_timeout', %(limit)s, true) 7s",
        "RELEASE SAVEPOINT leasehold_piece",
    ]


def test_the_wait_of_mariadb_is_for_all_rows_together(clock: list[float]) -> None:
    wire = Ticking(clock, 1.5, rows(("10.11.6-MariaDB",)), dialect="mysql")
    lock(mysql, wire, LockRequest(share=False, wait=2.0, begun=clock[0]))
    assert asked(wire) == ["SELECT VERSION()", "FOR UPDATE WAIT 2", "FOR UPDATE WAIT 1", "FOR UPDATE NOWAIT"]


def test_the_wait_of_mysql_is_a_setting_of_the_session_that_is_put_back_also_after_an_error(clock: list[float]) -> None:
    setting = "SET SESSION innodb_lock_wait_timeout = %(limit)s"
    busy: Any = type("Busy", (Exception,), {"__module__": "pymysql.err"})(1205, "timeout")
    answers = (rows(("8.0.36",)), rows((50,)), rows(), rows(), rows(), rows((50,)), rows(), busy)
    wire = Ticking(clock, 1.0, *answers, dialect="mysql")
    with pytest.raises(RowBusy) as caught:
        lock(mysql, wire, LockRequest(share=True, wait=3.0, begun=clock[0]))
    assert asked(wire) == [
        "SELECT VERSION()",
        "SELECT @@SESSION.innodb_lock_wait_timeout",
        f"{setting} 3",
        "FOR SHARE",
        f"{setting} 50",
        "SELECT @@SESSION.innodb_lock_wait_timeout",
        f"{setting} 2",
        "FOR SHARE",
        f"{setting} 50",
    ]
    assert (caught.value.key, caught.value.waited) == ({"id": 2}, 2.0)


def test_a_wait_that_mysql_cannot_keep_is_refused_before_anything_is_sent() -> None:
    wire = ScriptedWire(dialect="mysql")
    with pytest.raises(ConfigurationError, match=r"wait=1.2 s cannot be kept: write 2, or 0"):
        lock(mysql, wire, LockRequest(share=False, wait=1.2))
    assert wire.asked == []


def test_what_is_left_of_a_wait_never_falls_below_nothing(clock: list[float]) -> None:
    request = LockRequest(share=False, wait=2.0, begun=clock[0])
    assert (request.left(), LockRequest(share=False).left()) == (2.0, None)
    clock[0] += 1.5
    assert request.left() == 0.5
    clock[0] += 1.5
    assert request.left() == 0.0


def test_what_a_caller_wants_is_checked() -> None:
    assert make_request(share=True, wait=None, skip_locked=True).skip_locked
    request = make_request(share=True, wait="2s")
    assert (request.share, request.wait, request.skip_locked) == (True, 2.0, False)
    with pytest.raises(ConfigurationError, match="skip_locked does not wait"):
        make_request(share=False, wait=0, skip_locked=True)
    assert check_free({}, 1, "id") == Free({}, 1, ("id",))
    for limit, order in ((0, "id"), (1, ())):
        with pytest.raises(ConfigurationError, match="limit must be at least 1"):
            check_free({}, limit, order)
    with pytest.raises(ConfigurationError, match="NULL equals nothing"):
        check_free({"a": None}, 1, "id")


def test_keys_are_locked_in_one_order_each_once() -> None:
    assert in_order([{"b": 2, "a": 1}, {"a": 1, "b": 1}, {"b": 2, "a": 1}]) == [{"a": 1, "b": 1}, {"a": 1, "b": 2}]
    assert in_order([{"a": 2, "b": 1}, {"a": 1, "b": 2}]) == [{"a": 1, "b": 2}, {"a": 2, "b": 1}]
    assert in_order([{"b": 1, "a": 2}, {"a": 1, "b": 2}]) == [{"a": 1, "b": 2}, {"a": 2, "b": 1}]
    assert in_order([]) == []
    with pytest.raises(ConfigurationError, match="the same columns"):
        in_order([{"a": 1}, {"b": 1}])
    with pytest.raises(ConfigurationError, match="as one type"):
        in_order([{"a": 1}, {"a": "1"}])


def busy_error(module: Any) -> Exception:
    by_code = sqlite3.OperationalError("database is locked")
    by_code.sqlite_errorcode = sqlite3.SQLITE_BUSY
    errors: dict[Any, Exception] = {
        postgresql: psycopg.errors.LockNotAvailable("busy"),
        mysql: pymysql.err.OperationalError(1205, "busy"),
        sqlite: by_code,
    }
    return errors[module]


@pytest.mark.parametrize("module", [postgresql, mysql, sqlite], ids=["postgresql", "mysql", "sqlite"])
@pytest.mark.parametrize(("wait", "limit"), [(0.0, "wait=0 s"), (7.0, "wait=7 s"), (None, "connection")])
def test_one_who_did_not_want_to_wait_is_not_told_of_a_limit_of_its_connection(
    clock: list[float], module: Any, wait: float | None, limit: str
) -> None:
    request = LockRequest(share=False, wait=wait, begun=clock[0])
    clock[0] += 3
    subject: Any = KEYS[1:2] if module is sqlite else KEYS[1]
    with pytest.raises(RowBusy) as refused:
        module._explain(busy_error(module), Rows(ScriptedWire(), ("shop", "stock")), subject, request)
    error = refused.value
    assert (error.table, error.key, error.waited) == ("shop.stock", {"id": 2}, 3)
    assert error.limit is not None
    assert limit in error.limit
    assert (wait is None) is ("connection" in error.limit.partition(";")[0])
