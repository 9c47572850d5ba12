"""The small parts that all of `leasehold.sql` is made of: names, pauses, savepoints, wires, and what opens them."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from leasehold._runtimes.threads import run
from leasehold.errors import BackendUnavailable, ConfigurationError
from leasehold.sql import pauses as pauses_module
from leasehold.sql import store_schema
from leasehold.sql.calls import call, require_transaction
from leasehold.sql.database_url import PATIENCE, database_name, open_database
from leasehold.sql.identifiers import escaped, literal, quoted, table_name
from leasehold.sql.mysql_table import MysqlTable, at_once
from leasehold.sql.pauses import Pauses
from leasehold.sql.savepoints import behind_a_savepoint
from leasehold.sql.sqlite_busy import with_busy_timeout, with_write_lock
from leasehold.sql.wires import Transaction, wire_of
from leasehold.sql.wires.mysql import mysql_transaction
from leasehold.sql.wires.names import in_style
from tests.unit.scripted_wire import ScriptedWire, rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# --- names


@pytest.mark.parametrize(
    ("name", "dialect", "written"),
    [
        ("a", None, '"a"'),
        ("a", "sqlite", '"a"'),
        ('a"b`c', "postgresql", '"a""b`c"'),
        ('a"b`c', "mysql", '`a"b``c`'),
        ("a.b", None, '"a.b"'),
        ("x" * 63, None, f'"{"x" * 63}"'),
    ],
)
def test_a_name_is_quoted_as_the_database_wants_it(name: str, dialect: str | None, written: str) -> None:
    assert quoted(name, dialect=dialect) == written


@pytest.mark.parametrize(("name", "why"), [("", "not empty"), ("a\0b", "NUL"), ("x" * 64, "63"), ("é" * 32, "63")])
def test_a_name_that_could_become_another_is_refused(name: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"the name of a table .*{why}"):
        table_name(name)
    with pytest.raises(ConfigurationError, match=rf"the name of a schema .*{why}"):
        table_name((name, "t"))


def test_a_table_is_named_with_its_schema_and_its_columns_without() -> None:
    assert table_name("t") == ('"t"', '"t"')
    assert table_name(("s", "t")) == ('"s"."t"', '"t"')
    assert table_name(("s", "t"), "mysql") == ("`s`.`t`", "`t`")
    assert escaped('"100%"') == '"100%%"'


@pytest.mark.parametrize(("text", "written"), [("a", "'a'"), ("a'b", "'a''b'"), ("a\\'b", "E'a\\\\''b'")])
def test_a_text_is_a_constant_whatever_the_server_makes_of_backslashes(text: str, written: str) -> None:
    assert literal(text) == written
    with pytest.raises(ConfigurationError, match="NUL"):
        literal(text + "\0")


def test_the_tables_of_the_store_are_printed_for_a_role_and_a_schema() -> None:
    assert "GRANT" not in store_schema()
    assert '"leasehold"' in store_schema() or "leasehold." in store_schema()
    assert "elsewhere" in store_schema(schema="elsewhere")
    assert "ann" in store_schema(role="ann")
    assert "GRANT" not in store_schema("mysql")
    assert "elsewhere" in store_schema("mysql", schema="elsewhere", role="ann")
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"dialect": "sqlite"}, "postgresql and mysql"),
        ({"schema": "a-b"}, "schema must be"),
        ({"schema": ""}, "schema must be"),
        ({"schema": "x" * 64}, "schema must be"),
        ({"role": ""}, "role must be"),
        ({"role": "a\0b"}, "role must be"),
    ]
    for words, why in mistakes:
        with pytest.raises(ConfigurationError, match=why):
            store_schema(**words)


# --- pauses


class Clock:
    """In the place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("wait", "pauses"),
    [
        (None, []),
        (0, []),
        (0.015, [0.01, 0.005]),
        (0.7, [0.01, 0.02, 0.05, 0.1, 0.2, 0.2, 0.12]),
    ],
)
def test_pauses_grow_to_a_fifth_of_a_second_and_end_with_the_wait(
    monkeypatch: pytest.MonkeyPatch, wait: float | None, pauses: list[float]
) -> None:
    clock, wire = Clock(), ScriptedWire()
    monkeypatch.setattr(pauses_module, "time", clock)
    waits = Pauses(wire, wait, "SLEEP %(pause)s")
    used = [waits.used]
    while run(waits.pause()):
        used.append(waits.used)
        clock.now += float(str(wire.asked[-1][1]["pause"]))
    assert [float(str(values["pause"])) for _, values in wire.asked] == pytest.approx(pauses)
    assert {statement for statement, _ in wire.asked} <= {"SLEEP %(pause)s"}
    assert used == [False, *(True for _ in pauses)]


# --- savepoints


class Lost(Exception):
    """What the work raises."""


def work_over(wire: ScriptedWire, error: Exception | None = None) -> str:
    async def work() -> str:
        wire.asked.append(("work", {}))
        if error is not None:
            raise error
        return "done"

    return run(behind_a_savepoint(wire, work))


def test_a_savepoint_ends_with_the_work_and_takes_back_what_failed() -> None:
    wire = ScriptedWire()
    assert work_over(wire) == "done"
    assert wire.statements == ["SAVEPOINT leasehold_piece", "work", "RELEASE SAVEPOINT leasehold_piece"]
    wire = ScriptedWire()
    with pytest.raises(Lost):
        work_over(wire, Lost())
    assert wire.statements == [
        "SAVEPOINT leasehold_piece",
        "work",
        "ROLLBACK TO SAVEPOINT leasehold_piece",
        "RELEASE SAVEPOINT leasehold_piece",
    ]


def test_the_error_of_the_work_is_told_also_where_the_connection_is_lost() -> None:
    wire = ScriptedWire(rows(), OSError("gone"))
    with pytest.raises(Lost):
        work_over(wire, Lost())


def test_a_transaction_that_is_not_open_yet_gets_its_savepoint_and_autocommit_gets_none() -> None:
    opens = ScriptedWire(state=Transaction.OPENS)
    work_over(opens)
    assert opens.statements[0] == "SAVEPOINT leasehold_piece"
    alone = ScriptedWire(state=Transaction.AUTOCOMMIT)
    assert work_over(alone) == "done"
    assert alone.statements == ["work"]


# --- the busy timeout of SQLite


@pytest.mark.parametrize(("wait", "meanwhile"), [(None, 5000), (0, 0), (0.25, 250), (2, 2000)])
def test_the_busy_timeout_is_what_was_asked_for_and_then_what_it_was(wait: float | None, meanwhile: int) -> None:
    with closing(sqlite3.connect(":memory:", timeout=5)) as connection:
        wire = wire_of(connection)

        async def ask() -> int:
            return int((await wire.query("PRAGMA busy_timeout", {})).rows[0][0])

        async def fail() -> int:
            assert await ask() == meanwhile
            raise Lost

        assert run(with_busy_timeout(wire, wait, ask)) == meanwhile
        assert run(ask()) == 5000
        with pytest.raises(Lost):
            run(with_busy_timeout(wire, wait, fail))
        assert run(ask()) == 5000


@pytest.mark.parametrize(
    ("error", "opens", "statements"),
    [
        (None, True, ["BEGIN IMMEDIATE", "work"]),
        (None, False, ["work"]),
        (Lost(), True, ["BEGIN IMMEDIATE", "work", "ROLLBACK"]),
        (Lost(), False, ["work"]),
        (KeyboardInterrupt(), True, ["BEGIN IMMEDIATE", "work", "ROLLBACK"]),
        (KeyboardInterrupt(), False, ["work"]),
        (GeneratorExit(), True, ["BEGIN IMMEDIATE", "work"]),
    ],
)
def test_a_write_lock_is_given_back_after_any_error_and_by_an_interruption_too(
    error: BaseException | None, opens: bool, statements: list[str]
) -> None:
    wire = ScriptedWire(dialect="sqlite")

    async def work() -> str:
        wire.asked.append(("work", {}))
        if error is not None:
            raise error
        return "done"

    if error is None:
        assert run(with_write_lock(wire, work, opens=opens)) == "done"
    else:
        with pytest.raises(type(error)) as raised:
            run(with_write_lock(wire, work, opens=opens))
        assert raised.value is error
    assert wire.statements == statements


def test_a_write_lock_whose_begin_failed_may_be_there_and_its_error_is_the_one_that_is_told() -> None:
    wire = ScriptedWire(Lost("begin"), Lost("rollback"), dialect="sqlite")

    async def work() -> str:
        raise AssertionError("there is no lock")

    with pytest.raises(Lost, match="begin"):
        run(with_write_lock(wire, work, opens=True))
    assert wire.statements == ["BEGIN IMMEDIATE", "ROLLBACK"]


# --- a connection from a URL


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("a.db", "sqlite a.db"),
        ("sqlite:///a%20b.db?timeout=3", "sqlite a b.db"),
        ("sqlite:////srv/a.db", "sqlite /srv/a.db"),
        ("postgresql://ann:secret@db.example:5433/shop?sslmode=require", "postgresql://db.example/shop"),
        ("postgres:///shop", "postgres://localhost/shop"),
        ("mariadb://ann:secret@db/shop", "mariadb://db/shop"),
        ("mysql://db/shop?password=secret", "mysql://db/shop"),
    ],
)
def test_what_is_shown_of_a_database_has_no_password(url: str, shown: str) -> None:
    assert database_name(url) == shown


def test_a_file_is_opened_with_patience_and_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in (str(tmp_path / "a b.db"), f"sqlite:///{tmp_path}/a%20b.db", "sqlite:///a%20b.db"):
        with pytest.raises(ConfigurationError, match="nothing was made"):
            open_database(url)
    assert list(tmp_path.iterdir()) == []
    sqlite3.connect(tmp_path / "a b.db").close()
    for url in (str(tmp_path / "a b.db"), f"sqlite:///{tmp_path}/a%20b.db", "sqlite:///a%20b.db"):
        with closing(open_database(url)) as connection:
            assert connection.execute("PRAGMA busy_timeout").fetchone() == (PATIENCE * 1000,)


def test_a_server_is_not_waited_for_without_end_and_its_driver_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("psycopg.connect", lambda *args, **words: given.append((args, words)))
    monkeypatch.setattr("pymysql.connect", lambda **words: given.append(words))
    open_database("postgres://db/shop")
    open_database("mysql://db/shop?charset=utf8mb4&unix_socket=/run/my.sock")
    assert given[0] == (("postgres://db/shop",), {"connect_timeout": PATIENCE})
    chosen = {name: given[1][name] for name in ("connect_timeout", "charset", "unix_socket")}
    assert chosen == {"connect_timeout": PATIENCE, "charset": "utf8mb4", "unix_socket": "/run/my.sock"}
    with pytest.raises(ConfigurationError, match="unknown option 'ssl'"):
        open_database("mysql://db/shop?ssl=1")
    with pytest.raises(ConfigurationError, match="queues are not in redis://"):
        open_database("redis://db/0")


@pytest.mark.parametrize(("url", "driver"), [("postgres://db/shop", "psycopg"), ("mariadb://db/shop", "pymysql")])
def test_what_keeps_a_server_from_being_reached_is_told(monkeypatch: pytest.MonkeyPatch, url: str, driver: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr(f"{driver}.connect", fail)
    with pytest.raises(BackendUnavailable, match=r"://db/shop cannot be reached: no route"):
        open_database(url)
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(ConfigurationError, match=rf"(?i)needs {driver}, .*pip install {driver}"):
        open_database(url)


# --- a table in MySQL and MariaDB


def test_a_table_of_mysql_is_looked_at_once_per_connection_and_database() -> None:
    """One of another engine would let two writers pass, also where the table of another database is sound."""

    class Session:
        """What a driver has for a connection."""

    def shown(engine: str) -> Any:
        return rows(("leasehold_x", f"CREATE TABLE ... ENGINE={engine} DEFAULT CHARSET=ascii"))

    table = MysqlTable("leasehold_x", "CREATE TABLE @table@ (a INTEGER)", printed_by="x")
    wire = ScriptedWire(shown("InnoDB"), shown("MyISAM"), shown("Aria"), shown("INNODB"), dialect="mysql")
    wire.driver = Session()
    look = ["SHOW CREATE TABLE leasehold_x", *["SHOW CREATE TABLE `shop`.leasehold_x"] * 3]
    for _ in range(2):
        run(table.require_transactions(wire, None))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="leasehold_x is not of InnoDB"):
            run(table.require_transactions(wire, "shop"))
    for _ in range(2):
        run(table.require_transactions(wire, "shop"))
    assert wire.statements == look
    other = ScriptedWire(shown("InnoDB"), dialect="mysql")
    other.driver = Session()
    run(table.require_transactions(other, None))
    assert other.statements == look[:1], "another connection may be to another server"


@pytest.mark.parametrize(
    ("fails", "state", "statements"),
    [
        (1146, Transaction.OPENS, ["WRITE `a%%b`.t", "DO 0", "CREATE `a%%b`.t", "WRITE `a%%b`.t"]),
        (1146, Transaction.AUTOCOMMIT, ["WRITE `a%%b`.t", "DO 0", "CREATE `a%%b`.t", "WRITE `a%%b`.t"]),
        (1146, Transaction.OPEN, ["WRITE `a%%b`.t", "DO 0"]),
        (1142, Transaction.OPENS, ["WRITE `a%%b`.t"]),
    ],
)
def test_a_table_of_mysql_is_made_only_where_nothing_is_open(
    fails: int, state: Transaction, statements: list[str]
) -> None:
    table = MysqlTable("t", "CREATE @table@", printed_by="leasehold schema x")
    wire = ScriptedWire(
        pymysql.ProgrammingError(fails, "why"), rows(), rows(), rows((7,)), dialect="mysql", state=state
    )
    work = table.query(wire, "WRITE @table@", "a%b", {"a": 1})
    if len(statements) == 4:
        assert run(work).rows == [(7,)]
        assert [values for _, values in wire.asked] == [{"a": 1}, {}, {}, {"a": 1}]
    elif fails == 1146:
        with pytest.raises(ConfigurationError, match=r"there is no table t, .*`leasehold schema x` once, beforehand"):
            run(work)
    else:
        with pytest.raises(pymysql.ProgrammingError):
            run(work)
    assert wire.statements == statements
    assert table.script("a%b") == "CREATE `a%b`.t"


def test_the_patience_of_a_session_of_mysql_is_put_back_also_after_an_error() -> None:
    class Driver:
        def get_server_info(self) -> str:
            return "8.0.36"

    for error in (None, pymysql.OperationalError(1205, "locked")):
        wire = ScriptedWire(rows((47,)), rows(), error or rows((1,)), dialect="mysql")
        wire.driver = Driver()
        if error is None:
            assert run(at_once(wire, "WORK", {"a": 1})).rows == [(1,)]
        else:
            with pytest.raises(pymysql.OperationalError):
                run(at_once(wire, "WORK", {"a": 1}))
        assert wire.statements == [
            "SELECT @@innodb_lock_wait_timeout",
            "SET SESSION innodb_lock_wait_timeout = 1",
            "WORK",
            "SET SESSION innodb_lock_wait_timeout = 47",
        ]


# --- wires


class Driver:
    """A connection of a driver of MySQL, as far as its transaction goes."""

    def __init__(self, autocommit: bool, **facts: Any) -> None:
        self._autocommit = autocommit
        vars(self).update(facts)

    def get_autocommit(self) -> bool:
        return self._autocommit


@pytest.mark.parametrize(
    ("driver", "state"),
    [
        (Driver(True, server_status=2), Transaction.AUTOCOMMIT),
        (Driver(False, server_status=0), Transaction.OPENS),
        (Driver(False, server_status=1), Transaction.OPEN),
        (Driver(True, server_status=3), Transaction.OPEN),
        (Driver(True, get_transaction_status=lambda: False), Transaction.AUTOCOMMIT),
        (Driver(False, get_transaction_status=lambda: False), Transaction.OPENS),
        (Driver(True, get_transaction_status=lambda: True), Transaction.OPEN),
    ],
)
def test_the_state_of_a_transaction_of_mysql_is_the_servers_word(driver: Driver, state: Transaction) -> None:
    assert mysql_transaction(driver) is state


def test_a_driver_that_does_not_tell_of_its_transaction_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="use PyMySQL"):
        mysql_transaction(Driver(False))


def test_a_connection_of_a_class_of_the_users_own_is_known_by_its_base() -> None:
    class Mine(sqlite3.Connection):
        pass

    with closing(sqlite3.connect(":memory:", factory=Mine)) as connection:
        assert wire_of(connection).dialect == "sqlite"
        assert wire_of(connection.cursor()).driver is connection


def test_a_style_of_parameters_that_nobody_has_is_refused() -> None:
    values: Mapping[str, object] = {"a": 1}
    with pytest.raises(ConfigurationError, match="'dollar' is not supported"):
        in_style("SELECT %(a)s", values, "dollar")


def test_every_state_but_autocommit_is_a_transaction() -> None:
    for state in (Transaction.OPEN, Transaction.OPENS):
        assert require_transaction(ScriptedWire(state=state), "f()", "why") is state
    with pytest.raises(ConfigurationError, match=r"f\(\) was called outside a transaction.*: because"):
        require_transaction(ScriptedWire(state=Transaction.AUTOCOMMIT), "f()", "because")


def test_the_answer_of_the_work_is_given_back() -> None:
    async def work(wire: Any) -> str:
        return str(wire.dialect)

    with closing(sqlite3.connect(":memory:")) as connection:
        assert call(connection, "f", work) == "sqlite"
