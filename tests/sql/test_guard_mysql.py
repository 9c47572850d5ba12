"""The guard on MariaDB: isolation levels, what was read before, what must be run again, tables and rights."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
import sqlalchemy
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import leasehold
from leasehold.errors import ConfigurationError, RetryTransaction, StaleFence
from leasehold.sql import DatabaseRegister, IdempotencyKeys, guard, guard_schema, is_retryable
from tests.sql.desks import ON_MYSQL, django_alias, make_desk, make_mysql_tables, sqlalchemy_url
from tests.sql.mariadb_sessions import LEVELS, SEE_COMMITS, connect, run
from tests.waiting import two_in_turn
from verification.lab.process import wait_until

if TYPE_CHECKING:
    from verification.lab.mariadb import MariadbServer


class Base(DeclarativeBase):
    """Tables of the ORM tests."""


class Account(Base):
    """One account."""

    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    n: Mapped[int]


@pytest.fixture
def empty(mariadb_database: str) -> str:
    """Without the table of the guard."""
    with closing(connect(mariadb_database)) as connection:
        run(connection, "CREATE TABLE account (id INTEGER PRIMARY KEY, n INTEGER)", "INSERT INTO account VALUES (1, 0)")
        connection.commit()
    return mariadb_database


@pytest.fixture
def url(empty: str) -> str:
    make_mysql_tables(empty)
    return empty


def value(connection: pymysql.Connection[Any]) -> int:
    return int(run(connection, "SELECT n FROM account WHERE id = 1")[0][0])


def write(connection: pymysql.Connection[Any], n: int) -> None:
    run(connection, f"UPDATE account SET n = {n} WHERE id = 1")


def committed(url: str) -> int:
    with closing(connect(url)) as connection:
        return value(connection)


def is_waiting(server: MariadbServer) -> bool:
    rows = server.run("SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'")
    return rows != [(0,)]


# --- the order of two holders


@pytest.mark.parametrize("level", LEVELS)
def test_stale_writer_that_comes_while_the_new_holder_works_waits_and_is_refused(
    mariadb: MariadbServer, url: str, client: leasehold.Client, level: str
) -> None:
    stale, current = two_in_turn(client.lock("account"))
    outcome: list[BaseException] = []

    def late() -> None:
        with closing(connect(url, level)) as connection:
            try:
                guard(connection, stale)
                write(connection, 1000)
                connection.commit()
            except BaseException as error:
                outcome.append(error)

    with closing(connect(url, level)) as connection:
        guard(connection, current)
        n = value(connection)
        thread = threading.Thread(target=late)
        thread.start()
        wait_until(lambda: is_waiting(mariadb), "the stale writer does not wait")
        write(connection, n + 1)
        connection.commit()
    thread.join()
    assert [type(error) for error in outcome] == [StaleFence]
    assert committed(url) == 1


@pytest.mark.parametrize("begin", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_new_holder_that_waited_for_the_stale_one_sees_its_write(
    mariadb: MariadbServer, url: str, client: leasehold.Client, level: str, begin: bool
) -> None:
    """The stale one was first after all: nothing of it may be lost. Nobody has to be run again."""
    stale, current = two_in_turn(client.lock("account"))
    outcome: list[BaseException] = []

    def add_one() -> None:
        with closing(connect(url, level)) as connection:
            try:
                if begin:
                    connection.begin()
                guard(connection, current, trust_earlier_reads=begin and level in SEE_COMMITS)
                write(connection, value(connection) + 1)
                connection.commit()
            except BaseException as error:
                outcome.append(error)

    with closing(connect(url, level)) as connection:
        guard(connection, stale)
        thread = threading.Thread(target=add_one)
        thread.start()
        wait_until(lambda: is_waiting(mariadb), "the new holder does not wait")
        write(connection, 10)
        connection.commit()
    thread.join()
    assert outcome == []
    assert committed(url) == 11


def test_readers_that_have_been_here_do_not_wait_for_each_other(url: str, client: leasehold.Client) -> None:
    lock = client.rwlock("account")
    readers = [lock.read.acquire() for _ in range(2)]
    with closing(connect(url)) as first, closing(connect(url)) as second:
        for _ in range(2):
            for connection, reader in ((first, readers[0]), (second, readers[1])):
                guard(connection, reader)
                connection.commit()
        run(second, "SET SESSION innodb_lock_wait_timeout = 1")
        guard(first, readers[0])
        guard(second, readers[1])
        assert value(first) == value(second) == 0
    for reader in readers:
        reader.release()


# --- what was read before


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SNAPSHOT ISOLATION"])
@pytest.mark.parametrize("begin", ["", "BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT"])
def test_earlier_read_is_refused_exactly_if_another_has_committed_since(
    url: str, client: leasehold.Client, level: str, begin: str
) -> None:
    stale, current = two_in_turn(client.lock("account"))
    with closing(connect(url, level)) as late, closing(connect(url, level)) as other:
        for connection in (late, other):  # each of them is once the last to pass
            run(connection, begin or "DO 0")
            n = value(connection)
            guard(connection, stale)
            write(connection, n + 1)
            connection.commit()
        run(late, begin or "DO 0")
        n = value(late)
        for _ in range(2):  # the same holder again: only the number of passes tells
            guard(other, stale)
            write(other, value(other) + 1)
            other.commit()
        with pytest.raises(RetryTransaction) as caught:
            guard(late, current)
        assert is_retryable(caught.value)
        with suppress(pymysql.MySQLError):  # a program that goes on all the same
            write(late, n + 1)
        late.commit()
    assert committed(url) == 4


def test_at_serializable_nobody_writes_what_was_read_before(url: str, client: leasehold.Client) -> None:
    with closing(connect(url, "SERIALIZABLE")) as first, closing(connect(url, "SERIALIZABLE")) as second:
        with client.lock("account").hold() as lease:
            n = value(first)
            run(second, "SET SESSION innodb_lock_wait_timeout = 1")
            guard(second, lease)
            with pytest.raises(pymysql.MySQLError) as caught:
                write(second, 7)
            assert is_retryable(caught.value)
            second.rollback()
            guard(first, lease)
            write(first, n + 1)
            first.commit()
    assert committed(url) == 1


@pytest.mark.parametrize("level", SEE_COMMITS)
@pytest.mark.parametrize("begin", [True, False])
def test_earlier_read_is_refused_where_every_statement_sees_commits(
    url: str, client: leasehold.Client, level: str, begin: bool
) -> None:
    with client.lock("account").hold() as lease, closing(connect(url, level)) as connection:
        with closing(connect(url)) as other:
            guard(other, lease)
            other.commit()
        if begin:
            connection.begin()
        n = value(connection)
        with pytest.raises(ConfigurationError, match="before guard"):
            guard(connection, lease)
        with pytest.raises(pymysql.MySQLError, match="READ ONLY"):
            write(connection, n + 1)
        connection.rollback()
        guard(connection, lease)
        write(connection, value(connection) + 1)
        guard(connection, lease)  # by a helper of the same transaction
        connection.commit()
        value(connection)  # opens the next one
        guard(connection, lease)  # this session was the last to pass: nobody has written since
        connection.commit()
        connection.begin()
        value(connection)
        guard(connection, lease, trust_earlier_reads=True)
        connection.commit()
    assert committed(url) == 1


@pytest.mark.parametrize("level", SEE_COMMITS)
def test_second_resource_may_be_guarded_before_anything_is_read(url: str, client: leasehold.Client, level: str) -> None:
    with client.lock("a").hold() as first, client.lock("b").hold() as second:
        with closing(connect(url)) as other:
            for lease in (first, second):
                guard(other, lease)
            other.commit()
        with closing(connect(url, level)) as connection:
            guard(connection, first)
            guard(connection, second)
            connection.commit()
        with closing(connect(url)) as other:
            guard(other, second)
            other.commit()
        with closing(connect(url, level)) as connection:
            guard(connection, first)
            value(connection)
            with pytest.raises(ConfigurationError, match="for every resource"):
                guard(connection, second)


def test_session_that_holds_objects_from_before_is_refused(url: str, client: leasehold.Client) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url))
    with client.lock("account").hold() as lease, Session(engine, expire_on_commit=False) as session:
        with session.begin():
            account = session.get_one(Account, 1)
        with pytest.raises(ConfigurationError, match="holds objects"), session.begin():
            guard(session, lease)
        session.expire_all()
        for n in (1, 2):  # the second time the objects are from after the first guard
            with session.begin():
                guard(session, lease)
                account.n += 1
                assert account.n == n
    engine.dispose()


# --- outside a transaction, and what is no ordinary one


def test_connection_that_commits_by_itself_is_refused_over_every_driver(url: str, client: leasehold.Client) -> None:
    alias = django_alias(url)
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), isolation_level="AUTOCOMMIT")
    with client.lock("account").hold() as lease:
        with closing(connect(url, autocommit=True)) as connection:
            with pytest.raises(ConfigurationError, match="outside a transaction"):
                guard(connection, lease)
            connection.begin()
            guard(connection, lease)
            connection.commit()
        with engine.begin() as tx, pytest.raises(ConfigurationError, match="outside a transaction"):
            guard(tx, lease)
        with pytest.raises(ConfigurationError, match="outside a transaction"):
            guard(alias, lease)
        transaction.set_autocommit(False, using=alias)
        guard(alias, lease)
        transaction.rollback(using=alias)
        transaction.set_autocommit(True, using=alias)
    connections[alias].close()
    engine.dispose()


@pytest.mark.parametrize("kind", ON_MYSQL)
def test_refused_transaction_cannot_commit_even_if_the_program_goes_on(
    url: str, client: leasehold.Client, kind: str
) -> None:
    stale, current = two_in_turn(client.lock("account"))
    with closing(make_desk(kind, url)) as desk:
        with desk.begin() as tx:
            guard(tx, current)
        with pytest.raises(Exception, match="READ ONLY"), desk.begin() as tx:
            with pytest.raises(StaleFence):
                guard(tx, stale)
            desk.run(tx, "UPDATE account SET n = 1000")
        with desk.begin() as tx:
            guard(tx, current)
            desk.run(tx, "UPDATE account SET n = 1")
    assert committed(url) == 1


def test_refusal_that_is_caught_around_a_savepoint_is_not_taken_back(url: str, client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("account"))
    alias = django_alias(url)
    with transaction.atomic(using=alias):
        guard(alias, current)
    with pytest.raises(transaction.TransactionManagementError), transaction.atomic(using=alias):
        with pytest.raises(StaleFence), transaction.atomic(using=alias):
            guard(alias, stale)
        with connections[alias].cursor() as cursor:
            cursor.execute("UPDATE account SET n = 1000")
    connections[alias].close()
    assert committed(url) == 0


def test_xa_transaction_is_guarded_until_its_commit(url: str, client: leasehold.Client) -> None:
    with client.lock("account").hold() as lease, closing(connect(url)) as first, closing(connect(url)) as second:
        run(first, "XA START 'a'")
        guard(first, lease)
        write(first, value(first) + 1)
        run(first, "XA END 'a'", "XA PREPARE 'a'")
        run(second, "SET SESSION innodb_lock_wait_timeout = 1")
        with pytest.raises(RetryTransaction):
            guard(second, lease)
        second.rollback()
        run(first, "XA COMMIT 'a'")
        guard(second, lease)
        assert value(second) == 1


def test_read_only_transaction_and_lost_database_are_told(url: str, client: leasehold.Client) -> None:
    with client.lock("account").hold() as lease, closing(connect(url)) as connection:
        run(connection, "START TRANSACTION READ ONLY")
        with pytest.raises(ConfigurationError, match="read-only"):
            guard(connection, lease)
        with closing(connect(url, database=None)) as nowhere:
            with pytest.raises(ConfigurationError, match="no current database"):
                guard(nowhere, lease)
            nowhere.rollback()
            guard(nowhere, lease, schema=sqlalchemy.make_url(url).database)
            nowhere.commit()


def test_deadlock_is_told_apart_from_a_stale_fence(mariadb: MariadbServer, url: str, client: leasehold.Client) -> None:
    outcome: list[BaseException | None] = []
    with client.lock("a").hold() as a, client.lock("b").hold() as b, closing(connect(url)) as one:
        for lease in (a, b):
            guard(one, lease)
        one.commit()

        def other_way_round() -> None:
            with closing(connect(url)) as two:
                try:
                    guard(two, b)
                    guard(two, a)
                    two.commit()
                except BaseException as error:
                    outcome.append(error)
                else:
                    outcome.append(None)

        guard(one, a)
        thread = threading.Thread(target=other_way_round)
        thread.start()
        wait_until(lambda: is_waiting(mariadb), "it does not wait")
        try:
            guard(one, b)
        except RetryTransaction as error:
            outcome.append(error)
        one.rollback()
        thread.join()
    assert [type(each) for each in outcome if each is not None] == [RetryTransaction]


# --- the table


@pytest.mark.parametrize("begin", ["BEGIN", "SELECT n FROM account FOR UPDATE", "INSERT INTO account VALUES (2, 2)"])
def test_table_is_never_made_inside_a_transaction(empty: str, client: leasehold.Client, begin: str) -> None:
    """It would commit what is open."""
    keys = IdempotencyKeys("work")
    with client.lock("account").hold() as lease, closing(connect(empty)) as connection:
        for use in (
            lambda: guard(connection, lease),
            lambda: keys.attempt(connection, "k", fingerprint=None).__enter__(),
        ):
            run(connection, begin)
            with pytest.raises(ConfigurationError, match=r"leasehold schema .* --dialect mysql"):
                use()
            connection.rollback()
        assert run(connection, "SELECT count(*) FROM account") == [(1,)]
        connection.rollback()
        guard(connection, lease)  # nothing is open here: it is made
        connection.rollback()
        with pytest.raises(KeyError), keys.attempt(connection, "k", fingerprint=None):
            raise KeyError
        connection.rollback()
        assert run(connection, "SELECT count(*) FROM leasehold_guard") == [(0,)]


def test_table_without_transactions_is_refused(empty: str, client: leasehold.Client) -> None:
    with closing(connect(empty)) as connection, client.lock("account").hold() as lease:
        run(
            connection,
            guard_schema("mysql")
            .replace("InnoDB", "MyISAM")
            .replace(" ROW_FORMAT = DYNAMIC", "")
            .replace("1024", "900"),
        )
        with pytest.raises(ConfigurationError, match="not of InnoDB"):
            guard(connection, lease)


def test_account_without_rights_is_told_what_to_do(
    mariadb: MariadbServer, empty: str, client: leasehold.Client
) -> None:
    database = sqlalchemy.make_url(empty).database
    account = f"{database}_app"
    mariadb.run(f"CREATE USER {account}@'127.0.0.1'")
    mariadb.run(f"GRANT SELECT, UPDATE ON {database}.account TO {account}@'127.0.0.1'")
    with client.lock("account").hold() as lease:
        for _ in range(2):
            with closing(connect(empty, user=account)) as connection:
                with pytest.raises(ConfigurationError, match="leasehold schema guard --dialect mysql"):
                    guard(connection, lease)
            make_mysql_tables(empty)
        mariadb.run(f"GRANT SELECT, INSERT, UPDATE ON {database}.leasehold_guard TO {account}@'127.0.0.1'")
        with closing(connect(empty, user=account)) as connection:
            guard(connection, lease)
            write(connection, 1)
            connection.commit()
    assert committed(empty) == 1


def test_names_that_a_collation_takes_for_each_other_are_different_resources(
    url: str, client: leasehold.Client
) -> None:
    names = ["a", "A", "a ", "ä", "a\u0308", "ß", "ss", "a\0"]
    with client.lock("lock").hold() as lease, closing(connect(url, charset="latin1")) as connection:
        for name in names:
            guard(connection, lease, resource=name)
            connection.commit()
    with closing(connect(url)) as connection:
        assert {row[0].decode() for row in run(connection, "SELECT resource FROM leasehold_guard")} == set(names)
        with client.lock("lock").hold() as lease, pytest.raises(ConfigurationError, match="1024 bytes"):
            guard(connection, lease, resource="x" * 1025)


# --- what else is built on it


def test_register_of_the_middleware_keeps_its_fences_there(url: str) -> None:
    async def story() -> None:
        engine = create_async_engine(sqlalchemy_url(url).replace("pymysql", "aiomysql"))
        register = DatabaseRegister(engine.begin)
        await register.raise_fence("account", 5)
        await register.raise_fence("account", 5)
        with pytest.raises(StaleFence) as caught:
            await register.raise_fence("account", 4)
        assert caught.value.highest == 5
        await engine.dispose()

    asyncio.run(story())


def test_store_that_has_gone_back_is_told_what_the_table_has_seen(url: str, client: leasehold.Client) -> None:
    with closing(connect(url)) as connection:
        guard(connection, 5_000, resource="leasehold:account")
        connection.commit()
        with client.lock("account").hold() as lease, pytest.raises(StaleFence):
            guard(connection, lease)
        connection.rollback()
        with client.lock("account").hold() as lease:
            assert lease.fence > 5_000
            guard(connection, lease)


@pytest.mark.parametrize("number", [1213, 1205, 1020, 1412, 1613, 1614, 1689, 3101, 3572])
def test_errors_that_ask_for_another_try_are_known_through_every_wrapper(number: int) -> None:
    error = pymysql.OperationalError(number, "in the words of the server")
    wrapped = sqlalchemy.exc.DBAPIError("SELECT 1", {}, error)
    caused = ValueError()
    caused.__cause__ = error
    assert is_retryable(error)
    assert is_retryable(wrapped)
    assert is_retryable(caused)
    assert not is_retryable(pymysql.IntegrityError(1062, "a duplicate"))
