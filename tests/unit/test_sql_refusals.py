"""What an error of a database is turned into, for every part of `leasehold.sql`."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg
import pymysql
import pytest

from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError, RetryTransaction, RowBusy, StaleFence
from leasehold.sql import mysql_table
from leasehold.sql.errors import is_retryable, mysql_code, sqlite_code, sqlstate
from leasehold.sql.guards import postgresql as pg_guard
from leasehold.sql.idempotency import mysql as my_keys
from leasehold.sql.idempotency import postgresql as pg_keys
from leasehold.sql.idempotency import sqlite as lite_keys
from leasehold.sql.idempotency.record import Opened, Rules, make_claim
from leasehold.sql.inserts import mysql as my_inserts
from leasehold.sql.inserts import postgresql as pg_inserts
from leasehold.sql.inserts import sqlite as lite_inserts
from leasehold.sql.inserts.insert_once import Taken
from leasehold.sql.queue import mysql as my_queue
from leasehold.sql.queue import postgresql as pg_queue
from leasehold.sql.queue import sqlite as lite_queue
from leasehold.sql.reservations import mysql as my_stock
from leasehold.sql.reservations import postgresql as pg_stock
from leasehold.sql.reservations import sqlite as lite_stock
from leasehold.sql.row_locks import mysql as my_rows
from leasehold.sql.row_locks import postgresql as pg_rows
from leasehold.sql.row_locks import sqlite as lite_rows
from leasehold.sql.row_locks.lock_request import LockRequest
from leasehold.sql.tables.rows import Rows
from tests.unit.scripted_wire import ScriptedWire, rows


def pg(state: str) -> Exception:
    error: Exception = psycopg.errors.lookup(state)("why")
    return error


def my(number: int, words: str = "why") -> Exception:
    error: Exception = pymysql.OperationalError(number, words)
    return error


def lite(code: int, words: str = "why") -> sqlite3.Error:
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


# --- whose error it is


def of(module: str, *args: object, **facts: object) -> Exception:
    """An error of a class that is defined there."""
    error: Exception = type("Error", (Exception,), {"__module__": module})(*args)
    vars(error).update(facts)
    return error


@pytest.mark.parametrize(
    "module", ["pymysql.err", "MySQLdb._exceptions", "aiomysql", "asyncmy.errors", "mariadb", "mysql.connector.errors"]
)
def test_number_of_mysql_is_known_whichever_driver_raised_it(module: str) -> None:
    assert mysql_code(of(module, 1213, "deadlock")) == 1213
    assert is_retryable(of(module, 1213, "deadlock"))


def test_number_of_somebody_else_is_no_code_of_mysql() -> None:
    assert mysql_code(of("shop.errors", 1213)) is None
    assert mysql_code(of("pymysql.err", "1213")) is None
    assert mysql_code(of("pymysql.err")) is None


def test_state_of_postgresql_is_known_under_both_names_of_drivers() -> None:
    assert sqlstate(of("asyncpg.exceptions", sqlstate="40001")) == "40001"
    assert sqlstate(of("psycopg2.errors", pgcode="40P01")) == "40P01"
    assert sqlstate(of("shop", sqlstate=7)) is None
    outer = of("shop", sqlstate=None)
    outer.__cause__ = of("psycopg2.errors", pgcode="40001")
    assert sqlstate(outer) == "40001"


def test_errors_that_name_each_other_as_their_causes_are_looked_through_once() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert (sqlstate(one), sqlite_code(one), mysql_code(one)) == (None, None, None)
    assert not is_retryable(one)


# --- what it is turned into

RETRY, TELL = RetryTransaction, ConfigurationError
CASES: list[tuple[str, Any, Exception, type[Exception] | None, str]] = []


def table(name: str, explain: Any, *cases: tuple[Exception, type[Exception] | None, str]) -> None:
    CASES.extend((name, explain, *case) for case in cases)


for name, explain in (
    ("guard", pg_guard._explain),
    ("stock", pg_stock.explain),
    ("keys", pg_keys._explain),
    ("queue", pg_queue.explain),
):
    of_table = {"guard": "guard", "stock": "reservations", "keys": "idempotency", "queue": "queue"}[name]
    rights = "SELECT, INSERT, UPDATE on" if name == "guard" else "SELECT, INSERT, UPDATE, DELETE on"
    table(
        f"postgresql {name}",
        explain,
        (pg("40001"), RETRY, "into an order with another"),
        (pg("40P01"), RETRY, "into an order with another"),
        (pg("55P03"), RETRY, "into an order with another"),
        (pg("42501"), TELL, f"`leasehold schema {of_table}`, and GRANT {rights}"),
        (pg("25006"), TELL, "read-only: use a read-write"),
        (pg("23505"), None, ""),
        (ValueError("mine"), None, ""),
    )
    table(f"postgresql {name}", explain, (pg("42P01"), None if name == "stock" else RETRY, "not where it was"))

PRINTED = {"stock": "reservations", "queue": "queue"}
for name, explain in (("stock", my_stock.explain), ("queue", my_queue.explain)):
    table(
        f"mysql {name}",
        explain,
        (my(1213), RETRY, "into an order with another"),
        (my(1205), RETRY, "into an order with another"),
        (my(1146, "Table 'shop.leasehold_queue' doesn't exist"), TELL, f"schema {PRINTED[name]} --dialect mysql"),
        (my(1142), TELL, "GRANT SELECT, INSERT, UPDATE, DELETE on"),
        (my(1044), TELL, "GRANT SELECT, INSERT, UPDATE, DELETE on"),
        (my(1290), TELL, "read-only"),
        (my(1792), TELL, "read-only"),
        (my(1062), None, ""),
        (ValueError("mine"), None, ""),
    )
table(
    "mysql queue",
    my_queue.explain,
    (my(1064, "syntax near 'SKIP LOCKED'"), TELL, "MariaDB 10.6"),
    (my(1064, "syntax near 'FROM'"), None, ""),
    (my(1143), TELL, "GRANT"),
    (my(1836), TELL, "read-only"),
)
table("mysql stock", my_stock.explain, (my(1146, "Table 'shop.product' doesn't exist"), None, ""))


def explain_shared(wire: object, error: Exception) -> None:
    mysql_table.explain(error, "verb()", "the_table", "leasehold schema it", "SELECT, DELETE")


SHARED = "may not create or write the table the_table: .* `leasehold schema it`, and GRANT SELECT, DELETE on it"
table(
    "mysql guard and keys",
    explain_shared,
    (my(1213), RETRY, r"run the whole transaction again, verb\(\) included"),
    *((my(number), TELL, SHARED) for number in (1044, 1142, 1143, 1227, 1370)),
    *((my(number), TELL, r"verb\(\) has to write, .*read-only") for number in (1290, 1792, 1836)),
    (my(1046), TELL, "no current database: USE one, or name one with schema="),
    (my(1062), pymysql.OperationalError, "1062"),
    (TELL("ours"), TELL, "^ours$"),
    (StaleFence("ours"), StaleFence, "^ours$"),
    (RETRY("ours"), RETRY, "^ours$"),
)

for name, explain in (("stock", lite_stock.explain), ("queue", lite_queue.explain)):
    table(
        f"sqlite {name}",
        explain,
        (lite(sqlite3.SQLITE_BUSY), RETRY, "writing for too long"),
        (lite(sqlite3.SQLITE_BUSY_SNAPSHOT), RETRY, "had read before"),
        (lite(sqlite3.SQLITE_CONSTRAINT), None, ""),
    )


@pytest.mark.parametrize(("name", "explain", "error", "kind", "words"), CASES)
def test_an_error_says_what_to_do_or_is_left_as_it_is(
    name: str, explain: Any, error: Exception, kind: type[Exception] | None, words: str
) -> None:
    if kind is None:
        assert explain(ScriptedWire(), error) is None
        return
    with pytest.raises(kind, match=words) as told:
        explain(ScriptedWire(), error)
    assert told.value is error or told.value.__cause__ is error


class Driver:
    """A connection that can be remembered."""


@pytest.mark.parametrize(
    ("explain", "tables"),
    [
        (pg_keys._explain, [pg_keys.TABLE]),
        (pg_queue.explain, [pg_queue.TABLE]),
        (pg_stock.explain, [pg_stock.STOCK, pg_stock.RESERVATIONS]),
    ],
)
def test_a_table_that_is_gone_is_looked_for_again(explain: Any, tables: list[Any]) -> None:
    wire = ScriptedWire()
    wire.driver, other = Driver(), Driver()
    for each in tables:
        each._seen.update({wire.driver: "a", other: "b"})
    for state, still in (("40001", True), ("42P01", False)):
        with pytest.raises(Exception, match=r"why|not where|order"):
            explain(wire, pg(state))
            raise pg(state)
        assert [wire.driver in each._seen for each in tables] == [still] * len(tables)
    assert all(other in each._seen for each in tables)


# --- row locks


def rows_of(dialect: str) -> Rows:
    return Rows(ScriptedWire(dialect=dialect), "stock")


WAITED, PATIENT = LockRequest(share=False, wait=2.0), LockRequest(share=False)


@pytest.mark.parametrize(
    ("error", "asked", "kind", "words"),
    [
        (pg("40001"), PATIENT, RETRY, "changed after the moment"),
        (pg("40P01"), PATIENT, RETRY, "each other's locks"),
        (pg("55P03"), PATIENT, RowBusy, r"the lock_timeout of this connection\): roll back"),
        (pg("55P03"), WAITED, RowBusy, r"wait=2 s\): the transaction can go on"),
        (my(1020), PATIENT, RETRY, "changed after the moment"),
        (my(1213), PATIENT, RETRY, "each other's locks"),
        (my(1205), PATIENT, RowBusy, r"innodb_lock_wait_timeout of this connection\): the transaction can go on"),
        (my(3572), WAITED, RowBusy, r"wait=2 s\)"),
        (lite(sqlite3.SQLITE_BUSY_SNAPSHOT), PATIENT, RETRY, "changed after the moment"),
        (lite(sqlite3.SQLITE_BUSY), PATIENT, RowBusy, "the connection's own busy timeout; SQLite has one write lock"),
        (lite(sqlite3.SQLITE_BUSY_RECOVERY), WAITED, RowBusy, "wait=2 s; SQLite has one write lock"),
        (pg("23505"), PATIENT, None, ""),
        (my(1146), PATIENT, None, ""),
        (lite(sqlite3.SQLITE_CONSTRAINT), PATIENT, None, ""),
    ],
)
def test_a_row_that_cannot_be_locked_is_told_with_its_reason(
    error: Exception, asked: LockRequest, kind: type[Exception] | None, words: str
) -> None:
    dialect, module, key = {
        "psycopg": ("postgresql", pg_rows, {"id": 7}),
        "pymysql": ("mysql", my_rows, {"id": 7}),
        "sqlite3": ("sqlite", lite_rows, [{"id": 7}, {"id": 8}]),
    }[type(error).__module__.partition(".")[0]]
    explain: Any = module._explain
    if kind is None:
        explain(error, rows_of(dialect), key, asked)
        return
    with pytest.raises(kind, match=words) as told:
        explain(error, rows_of(dialect), key, asked)
    assert "{'id': 7} of stock" in str(told.value)
    assert told.value.__cause__ is error
    if isinstance(told.value, RowBusy):
        assert (told.value.table, told.value.key) == ("stock", {"id": 7})
        assert told.value.limit is not None
        assert told.value.limit in str(told.value)
        assert told.value.waited >= 0


# --- inserts


@pytest.mark.parametrize(
    ("words", "index"),
    [
        ("Duplicate entry '7-monday' for key 'PRIMARY'", "PRIMARY"),
        ("Duplicate entry 'x' for key 'bookings.one_code'", "one_code"),
        ("Duplicate entry 'it's' for key 'one_code'", "one_code"),
        ("Duplicate entry", None),
    ],
)
def test_the_index_that_is_in_the_way_is_read_out_of_the_message_of_mysql(words: str, index: str | None) -> None:
    assert my_inserts._index(my(1062, words)) == index
    assert my_inserts._index(of("shop")) is None


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ("UNIQUE constraint failed: bookings.code", Taken(by_key=False, columns=("code",))),
        ("UNIQUE constraint failed: b.room, b.day", Taken(by_key=False, columns=("room", "day"))),
        ("UNIQUE constraint failed: index 'lower_code'", Taken(by_key=False, constraint="lower_code")),
        ("something else", Taken(by_key=False)),
    ],
)
def test_what_is_in_the_way_is_read_out_of_the_message_of_sqlite(words: str, taken: Taken) -> None:
    error = lite(sqlite3.SQLITE_CONSTRAINT_UNIQUE, words)
    assert lite_inserts._taken(error) == taken
    wrapped = RuntimeError(f"{words}\n[SQL: INSERT INTO ...]")
    wrapped.__cause__ = error
    assert lite_inserts._taken(wrapped) == taken


@pytest.mark.parametrize(
    ("code", "is_taken"),
    [
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, True),
        (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, True),
        (sqlite3.SQLITE_CONSTRAINT_ROWID, True),
        (sqlite3.SQLITE_CONSTRAINT_NOTNULL, False),
        (sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, False),
        (sqlite3.SQLITE_BUSY, False),
    ],
)
def test_only_a_unique_constraint_of_sqlite_means_that_a_row_is_there(code: int, is_taken: bool) -> None:
    wire = ScriptedWire(lite(code), dialect="sqlite")
    work = lite_inserts.insert(wire, Rows(wire, "t"), {"id": 1}, ["id"])
    if is_taken:
        assert isinstance(run(work), Taken)
    else:
        with pytest.raises(sqlite3.Error):
            run(work)


def test_the_constraint_of_postgresql_is_named_where_the_driver_tells() -> None:
    class Diag:
        constraint_name = "one_code"

    assert pg_inserts._constraint(of("psycopg", diag=Diag())) == "one_code"
    assert pg_inserts._constraint(of("asyncpg", constraint_name="one_code")) == "one_code"
    assert pg_inserts._constraint(of("asyncpg", constraint_name=None)) is None
    for inner in (of("psycopg", diag=Diag()), of("asyncpg", constraint_name="one_code")):
        middle, outer = of("sqlalchemy.dialects", constraint_name=None), of("sqlalchemy.exc")
        middle.__cause__, outer.__cause__ = inner, middle
        assert pg_inserts._constraint(outer) == "one_code", "an outer layer does not hide what the driver knows"


@pytest.mark.parametrize(
    ("state", "kind"),
    [("23505", None), ("23P01", None), ("42P10", TELL), ("40001", RETRY), ("23502", psycopg.Error)],
)
def test_an_insert_that_postgresql_refuses_takes_back_its_savepoint_and_says_why(
    state: str, kind: type[Exception] | None
) -> None:
    error = pg(state)
    wire = ScriptedWire(rows(), error)
    work = pg_inserts.insert(wire, Rows(wire, "t"), {"id": 1, "code": "x"}, ["id"])
    if kind is None:
        assert run(work) == Taken(by_key=False)
    else:
        with pytest.raises(kind) as told:
            run(work)
        assert told.value is error or told.value.__cause__ is error
    assert [each.partition(" leasehold_")[0] for each in wire.statements[2:]] == [
        "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT",
    ]  # fmt: skip


# --- idempotency keys

RULES = Rules(keep=60.0, wait=None, retry_after=1.0, schema=None)
CLAIM = make_claim("charges", None, "k", None)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (lite(sqlite3.SQLITE_BUSY), RETRY, "writing for too long"),
        (lite(sqlite3.SQLITE_ERROR, "no such table: leasehold_idempotency"), TELL, "inside the attempt's block"),
        (lite(sqlite3.SQLITE_ERROR, "no such table: other"), sqlite3.Error, "other"),
        (lite(sqlite3.SQLITE_CONSTRAINT), sqlite3.Error, "why"),
    ],
)
def test_a_completion_that_sqlite_does_not_take_is_told(error: Exception, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        run(lite_keys.complete(ScriptedWire(error), CLAIM, Opened("t"), "1", RULES))


def test_a_sweep_that_the_file_has_no_time_for_is_told() -> None:
    with pytest.raises(RetryTransaction, match="writing for too long"):
        run(lite_keys.sweep(ScriptedWire(lite(sqlite3.SQLITE_BUSY)), 5, None))
    with pytest.raises(sqlite3.Error, match="why"):
        run(lite_keys.sweep(ScriptedWire(lite(sqlite3.SQLITE_FULL)), 5, None))


@pytest.mark.parametrize(("error", "removed"), [(my(1205), 0), (my(3572), 0)])
def test_a_record_that_another_has_locked_is_left_to_it(error: Exception, removed: int) -> None:
    wire = ScriptedWire(error, dialect="mysql")
    wire.driver = Server("10.11.6-MariaDB")
    assert run(my_keys._remove(wire, "DELETE", {})) == removed
    wire = ScriptedWire(my(1146), dialect="mysql")
    wire.driver = Server("10.11.6-MariaDB")
    with pytest.raises(pymysql.OperationalError):
        run(my_keys._remove(wire, "DELETE", {}))


class Server:
    """A driver that says what it is connected to."""

    def __init__(self, info: str) -> None:
        self._info = info

    def get_server_info(self) -> str:
        return self._info


@pytest.mark.parametrize(
    ("info", "variable"),
    [
        ("5.5.5-10.6.18-MariaDB-log", "@@tx_isolation"),
        ("8.0.36", "@@transaction_isolation"),
        ("11.4.2-mariadb", "@@tx_isolation"),
    ],
)
def test_the_level_of_isolation_is_asked_for_by_the_name_that_the_server_knows(info: str, variable: str) -> None:
    wire = ScriptedWire(dialect="mysql")
    wire.driver = Server(info)
    assert mysql_table.level_variable(wire) == variable


def test_names_in_mysql_are_bytes_up_to_the_longest_key() -> None:
    assert mysql_table.as_hex("é") == "c3a9"
    assert mysql_table.as_hex(None) is None
    assert len(mysql_table.as_hex("x" * 1024) or "") == 2048
    with pytest.raises(ConfigurationError, match="at most 1024 bytes in MySQL, and this one 1026"):
        mysql_table.as_hex("é" * 513)
    given: list[Any] = [b"a", bytearray(b"a"), "a", None]
    assert [mysql_table.as_text(value) for value in given] == ["a", "a", "a", None]
