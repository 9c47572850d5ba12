"""The guard on PostgreSQL: isolation levels, what was read before, what must be run again, tables and rights."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy
from django.db import connections, transaction
from psycopg import IsolationLevel, sql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

import leasehold
from leasehold.errors import ConfigurationError, RetryTransaction, StaleFence
from leasehold.sql import guard, guard_schema, is_retryable
from tests.servers.postgres import fresh_database
from tests.sql.desks import ON_POSTGRESQL, django_alias, fresh_schema, make_desk, sqlalchemy_url
from tests.waiting import two_in_turn
from verification.lab.process import wait_until

if TYPE_CHECKING:
    from verification.lab.pgbouncer import PgBouncer
    from verification.lab.postgres import PostgresServer

LEVELS = [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE]
AS_ONE_MOMENT = LEVELS[1:]


class Base(DeclarativeBase):
    """Tables of the ORM tests."""


class Account(Base):
    """One account."""

    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    n: Mapped[int]


@pytest.fixture(params=["postgres", "newer_postgres"])
def server(request: pytest.FixtureRequest) -> PostgresServer:
    """Both versions: what the guard knows about locks and settings is the server's own business."""
    server: PostgresServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def url(server: PostgresServer) -> str:
    url = fresh_schema(server)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE account (id integer PRIMARY KEY, n integer)")
        connection.execute("INSERT INTO account VALUES (1, 0)")
    return url


def connect(url: str, level: IsolationLevel | None = None) -> psycopg.Connection:
    connection = psycopg.connect(url)
    connection.isolation_level = level
    return connection


def value(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT n FROM account WHERE id = 1").fetchone()
    assert row is not None
    return int(row[0])


def write(connection: psycopg.Connection, n: int) -> None:
    connection.execute("UPDATE account SET n = %s WHERE id = 1", [n])


def make_table(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(guard_schema("postgresql"))


def is_waiting(url: str) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        ).fetchone()
    return row is not None and row[0] > 0


# --- the order of two holders


@pytest.mark.parametrize("level", LEVELS)
def test_stale_writer_that_comes_while_the_new_holder_works_waits_and_is_refused(
    url: str, client: leasehold.Client, level: IsolationLevel
) -> None:
    stale, current = two_in_turn(client.lock("account"))
    make_table(url)
    outcome: list[BaseException] = []

    def late() -> None:
        try:
            with connect(url, level) as connection:
                guard(connection, stale)
                write(connection, 1000)
        except BaseException as error:
            outcome.append(error)

    with connect(url, level) as connection:
        guard(connection, current)
        n = value(connection)
        thread = threading.Thread(target=late)
        thread.start()
        wait_until(lambda: is_waiting(url), "the stale writer does not wait")
        write(connection, n + 1)
    thread.join()
    expected = StaleFence if level is IsolationLevel.READ_COMMITTED else RetryTransaction
    assert [type(error) for error in outcome] == [expected]
    with connect(url) as connection:
        assert value(connection) == 1


@pytest.mark.parametrize("level", LEVELS)
def test_new_holder_that_waited_for_the_stale_one_sees_its_write(
    url: str, client: leasehold.Client, level: IsolationLevel
) -> None:
    """The stale one was first after all: nothing of it may be lost."""
    stale, current = two_in_turn(client.lock("account"))
    make_table(url)
    retries = 0

    def add_one() -> None:
        nonlocal retries
        while True:
            try:
                with connect(url, level) as connection:
                    guard(connection, current)
                    write(connection, value(connection) + 1)
            except RetryTransaction as error:
                assert is_retryable(error)
                retries += 1
            else:
                return

    with connect(url, level) as connection:
        guard(connection, stale)
        thread = threading.Thread(target=add_one)
        thread.start()
        wait_until(lambda: is_waiting(url), "the new holder does not wait")
        write(connection, 10)
    thread.join()
    with connect(url) as connection:
        assert value(connection) == 11
    assert retries == (0 if level is IsolationLevel.READ_COMMITTED else 1)


def test_readers_that_have_been_here_do_not_wait_for_each_other(url: str, client: leasehold.Client) -> None:
    lock = client.rwlock("account")
    readers = [lock.read.acquire() for _ in range(2)]
    for reader in readers:
        with connect(url) as connection:
            guard(connection, reader)
    with connect(url) as first, connect(url) as second:
        second.execute("SET lock_timeout = '5s'")
        second.commit()
        guard(first, readers[0])
        guard(second, readers[1])
        assert value(first) == value(second) == 0
    for reader in readers:
        reader.release()


def test_older_reader_that_waits_for_a_newer_one_does_not_lower_the_fence(url: str, client: leasehold.Client) -> None:
    lock = client.rwlock("account")
    make_table(url)
    older, newer = two_in_turn(lock.read)

    def visit() -> None:
        with connect(url) as connection:
            guard(connection, older)

    with connect(url) as connection:
        guard(connection, newer)
        thread = threading.Thread(target=visit)
        thread.start()
        wait_until(lambda: is_waiting(url), "the older reader does not wait")
    thread.join()
    with connect(url) as connection:
        assert connection.execute("SELECT shared_fence FROM leasehold_guard").fetchone() == (newer.fence,)


@pytest.mark.parametrize("visits", [1, 2])
def test_new_writer_waits_for_the_transaction_of_a_reader(url: str, client: leasehold.Client, visits: int) -> None:
    """So that a reader whose lease is over reads one state, and not half of the next; also when it was here before."""
    lock = client.rwlock("account")
    make_table(url)
    _, reader = two_in_turn(lock.read)
    _, writer = two_in_turn(lock.write)
    for _ in range(visits - 1):
        with connect(url) as connection:
            guard(connection, reader)

    def change() -> None:
        with connect(url) as connection:
            guard(connection, writer)
            write(connection, 1)

    with connect(url) as connection:
        guard(connection, reader)
        thread = threading.Thread(target=change)
        thread.start()
        wait_until(lambda: is_waiting(url), "the writer does not wait")
        assert value(connection) == 0
    thread.join()
    with connect(url) as connection:
        assert value(connection) == 1


# --- what was read before


def test_transaction_that_read_before_the_guard_is_refused_at_read_committed(
    url: str, client: leasehold.Client
) -> None:
    with client.lock("account").hold() as lease, closing(connect(url)) as connection:
        for _ in range(2):  # the table of the guard is not there yet, and then it is
            n = value(connection)
            with pytest.raises(ConfigurationError, match="before guard"):
                guard(connection, lease)
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                write(connection, n + 1)
            connection.rollback()
            make_table(url)
        guard(connection, lease)
        write(connection, value(connection) + 1)
        connection.commit()
        assert value(connection) == 1


@pytest.mark.parametrize("kind", ON_POSTGRESQL)
def test_earlier_read_is_noticed_over_every_kind_of_connection(url: str, client: leasehold.Client, kind: str) -> None:
    make_table(url)
    with client.lock("account").hold() as lease, closing(make_desk(kind, url)) as desk:
        with pytest.raises(ConfigurationError, match="before guard"), desk.begin() as tx:
            desk.run(tx, "SELECT n FROM account")
            guard(tx, lease)
        with desk.begin() as tx:
            desk.run(tx, "SELECT 1")  # asks nothing of any table
            desk.run(tx, "SELECT count(*) FROM pg_class")
            guard(tx, lease)


def test_earlier_read_is_refused_at_read_uncommitted_as_well(url: str, client: leasehold.Client) -> None:
    """PostgreSQL runs that level as READ COMMITTED, and calls it by its own name."""
    make_table(url)
    with client.lock("account").hold() as lease:
        for _ in range(2):  # the table of the guard is not there yet, and then it is
            with closing(connect(url, IsolationLevel.READ_UNCOMMITTED)) as connection:
                value(connection)
                with pytest.raises(ConfigurationError, match="before guard"):
                    guard(connection, lease)
                connection.rollback()
                guard(connection, lease)
                connection.commit()


def test_reads_that_have_nothing_to_do_with_the_resource_can_be_trusted(url: str, client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("account"))
    with closing(connect(url)) as connection:
        for _ in range(2):  # the table of the guard is not there yet, and then it is
            value(connection)
            guard(connection, current, trust_earlier_reads=True)
            connection.commit()
        with pytest.raises(StaleFence):
            guard(connection, stale, trust_earlier_reads=True)


@pytest.mark.parametrize("level", AS_ONE_MOMENT)
def test_earlier_read_does_no_harm_where_a_transaction_sees_one_moment(
    url: str, client: leasehold.Client, level: IsolationLevel
) -> None:
    stale, current = two_in_turn(client.lock("account"))
    make_table(url)
    with connect(url, level) as connection:
        n = value(connection)
        guard(connection, stale)
        write(connection, n + 1)
    with closing(connect(url, level)) as late, connect(url, level) as other:
        n = value(late)
        guard(other, stale)
        write(other, value(other) + 1)
        other.commit()
        with pytest.raises(RetryTransaction):
            guard(late, current)
    with connect(url) as connection:
        assert value(connection) == 2


def test_guarding_a_second_resource_after_a_read_is_refused(url: str, client: leasehold.Client) -> None:
    make_table(url)
    with client.lock("a").hold() as first, client.lock("b").hold() as second, closing(connect(url)) as connection:
        guard(connection, first)
        value(connection)
        guard(connection, first)
        with pytest.raises(ConfigurationError, match="for every resource"):
            guard(connection, second)


@pytest.mark.parametrize("database", ["postgresql", "sqlite"])
def test_session_that_holds_objects_from_before_is_refused(
    url: str, client: leasehold.Client, database: str, tmp_path: Any
) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url) if database == "postgresql" else f"sqlite:///{tmp_path}/d.db")
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.merge(Account(id=1, n=0))
    with client.lock("account").hold() as lease, Session(engine, expire_on_commit=False) as session:
        with session.begin():
            account = session.get(Account, 1)
        assert account is not None
        with pytest.raises(ConfigurationError, match="holds objects"), session.begin():
            guard(session, lease)
        with pytest.raises(KeyError), session.begin():
            guard(session, lease, trust_earlier_reads=True)
            raise KeyError
        session.expire_all()
        for n in (1, 2):  # the second time the objects are from after the first guard
            with session.begin():
                guard(session, lease)
                account.n += 1
                assert account.n == n
                guard(session, lease)
    engine.dispose()


# --- outside a transaction


def test_connection_that_commits_by_itself_is_refused_over_every_driver(url: str, client: leasehold.Client) -> None:
    alias = django_alias(url)
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), isolation_level="AUTOCOMMIT")
    with client.lock("account").hold() as lease:
        with psycopg.connect(url, autocommit=True) as connection:
            with pytest.raises(ConfigurationError, match="outside a transaction"):
                guard(connection, lease)
            with connection.transaction():
                guard(connection, lease)
            connection.execute("BEGIN")
            guard(connection, lease)
            connection.execute("COMMIT")
        with engine.begin() as tx, pytest.raises(ConfigurationError, match="outside a transaction"):
            guard(tx, lease)
        with Session(engine) as session, pytest.raises(ConfigurationError, match="outside a transaction"):
            guard(session, lease)
        with pytest.raises(ConfigurationError, match="outside a transaction"):
            guard(alias, lease)
        transaction.set_autocommit(False, using=alias)
        guard(alias, lease)
        transaction.rollback(using=alias)
        transaction.set_autocommit(True, using=alias)
    connections[alias].close()
    engine.dispose()


def test_what_is_no_transaction_is_refused_by_name(url: str, client: leasehold.Client) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url))
    with client.lock("account").hold() as lease, connect(url) as connection:
        with pytest.raises(ConfigurationError, match=r"engine\.begin"):
            guard(engine, lease)
        with pytest.raises(ConfigurationError, match="psycopg"):
            guard(psycopg.sql.SQL(""), lease)
        with connection.pipeline(), pytest.raises(ConfigurationError, match="pipeline"):
            guard(connection, lease)
    engine.dispose()


def test_scoped_session_and_savepoints_will_do(url: str, client: leasehold.Client) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url))
    sessions = scoped_session(sessionmaker(engine))
    stale, current = two_in_turn(client.lock("account"))
    with sessions.begin(), sessions.begin_nested():
        guard(sessions, current)
        sessions.execute(sqlalchemy.text("UPDATE account SET n = 1"))
    with sessions.begin():
        with pytest.raises(StaleFence), sessions.begin_nested():
            guard(sessions, stale)
    sessions.remove()
    engine.dispose()
    with connect(url) as connection:
        assert value(connection) == 1


def test_refused_transaction_cannot_commit_even_if_the_program_goes_on(url: str, client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("account"))
    with closing(connect(url)) as connection:
        guard(connection, current)
        write(connection, 1)
        connection.commit()
        with pytest.raises(StaleFence):
            guard(connection, stale)
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            write(connection, 1000)
        connection.commit()
        assert value(connection) == 1


# --- the table


def test_table_is_made_by_many_at_once_without_an_error(url: str, client: leasehold.Client) -> None:
    start = threading.Barrier(6)
    outcomes: list[object] = []

    def first_use(number: int) -> None:
        with client.lock(f"account {number}").hold() as lease, connect(url) as connection:
            start.wait()
            try:
                guard(connection, lease)
            except BaseException as error:
                outcomes.append(error)
            else:
                outcomes.append("passed")

    threads = [threading.Thread(target=first_use, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["passed"] * 6


def test_table_is_made_again_when_its_transaction_was_rolled_back(url: str, client: leasehold.Client) -> None:
    with client.lock("account").hold() as lease, closing(connect(url)) as connection:
        for _ in range(2):
            guard(connection, lease)
            connection.rollback()
        guard(connection, lease)
        connection.commit()
        guard(connection, lease)


def test_programs_with_different_search_paths_share_one_table(url: str, client: leasehold.Client) -> None:
    """Each had a table of its own, and a late write that came by the other way was accepted."""
    stale, current = two_in_turn(client.lock("account"))
    with closing(connect(url)) as one, closing(connect(url)) as other:
        other.execute('CREATE SCHEMA "te""nant"')
        other.execute('SET search_path = "te""nant"')
        other.commit()
        guard(one, current)
        one.commit()
        with pytest.raises(leasehold.StaleFence):
            guard(other, stale)
        other.rollback()
        guard(other, current)
        other.commit()


def test_two_tables_of_the_guard_are_refused_unless_the_program_says_which(url: str, client: leasehold.Client) -> None:
    home = url.rpartition("%3D")[2]
    with client.lock("account").hold() as lease, closing(connect(url)) as connection:
        guard(connection, lease)
        connection.execute('CREATE SCHEMA "te""nant%s"')
        connection.execute(guard_schema("postgresql").replace("leasehold_guard (", '"te""nant%s".leasehold_guard ('))
        connection.commit()
    with client.lock("account").hold() as lease, closing(connect(url)) as connection:
        with pytest.raises(ConfigurationError, match=r"te\"nant%s"):
            guard(connection, lease)
        connection.rollback()
        for schema in (home, 'te"nant%s'):
            guard(connection, lease, schema=schema)
            connection.commit()
            (count,) = connection.execute(
                sql.SQL("SELECT count(*) FROM {}.leasehold_guard").format(sql.Identifier(schema))
            ).fetchone()  # type: ignore[misc]
            assert count == 1
            connection.commit()


def test_table_that_is_moved_to_another_schema_is_found_there(url: str, client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("account"))
    with closing(connect(url)) as connection:
        guard(connection, current)
        connection.commit()
        guard(connection, current)
        connection.execute("CREATE SCHEMA elsewhere")
        connection.execute("ALTER TABLE leasehold_guard SET SCHEMA elsewhere")
        connection.commit()
        with pytest.raises(RetryTransaction, match="not where it was"):
            guard(connection, stale)
        connection.rollback()
        with pytest.raises(leasehold.StaleFence):
            guard(connection, stale)


def test_refusal_that_is_caught_around_a_savepoint_is_taken_back_with_it(url: str, client: leasehold.Client) -> None:
    """As any error of PostgreSQL is: what the page says, so that nobody builds on more."""
    stale, current = two_in_turn(client.lock("account"))
    with closing(connect(url)) as connection:
        connection.execute("CREATE TABLE note (n integer)")
        connection.commit()
        guard(connection, current)
        connection.commit()
        with connection.transaction():
            with pytest.raises(leasehold.StaleFence), connection.transaction():
                guard(connection, stale)
            connection.execute("INSERT INTO note VALUES (1)")
        assert connection.execute("SELECT count(*) FROM note").fetchone() == (1,)


def test_account_without_the_right_to_make_tables_is_told_what_to_do(
    server: PostgresServer, url: str, client: leasehold.Client
) -> None:
    schema = url.rpartition("%3D")[2]
    account = f"{schema}_app"
    server.run(f"CREATE ROLE {account} LOGIN")
    server.run(f"GRANT USAGE ON SCHEMA {schema} TO {account}", schema)
    app_url = url.replace("postgres@", f"{account}@")
    with client.lock("account").hold() as lease, closing(psycopg.connect(app_url)) as app:
        with pytest.raises(ConfigurationError, match="leasehold schema guard"):
            guard(app, lease)
        app.rollback()
        with psycopg.connect(url) as owner:
            owner.execute(guard_schema("postgresql"))
            owner.execute(f"GRANT SELECT, INSERT, UPDATE ON leasehold_guard TO {account}".encode())
        guard(app, lease)
        app.commit()
        app.read_only = True
        with pytest.raises(ConfigurationError, match="read-only"):
            guard(app, lease)


def test_name_with_a_nul_is_refused_before_it_reaches_the_database(url: str, client: leasehold.Client) -> None:
    with client.lock("a\0b").hold() as lease, connect(url) as connection:
        for token, resource in ((lease, None), (lease, "a and b"), (lease.fence, "a\0b")):
            with pytest.raises(ConfigurationError, match="NUL"):
                guard(connection, token, resource=resource)
        guard(connection, lease.fence, resource="a and b")


def test_guard_works_through_a_pooler_that_gives_every_transaction_another_connection(
    postgres: PostgresServer, pgbouncer: PgBouncer, client: leasehold.Client
) -> None:
    stale, current = two_in_turn(client.lock("account"))
    name = fresh_database(postgres)
    with postgres.connect(name) as owner:
        owner.execute("CREATE TABLE account (id integer PRIMARY KEY, n integer)")
        owner.execute("INSERT INTO account VALUES (1, 0)")
    pooled = [psycopg.connect(pgbouncer.url(name), prepare_threshold=None) for _ in range(3)]
    for _ in range(4):
        for connection in pooled:
            with connection.transaction():
                guard(connection, current)
                write(connection, value(connection) + 1)
            with pytest.raises(StaleFence), connection.transaction():
                guard(connection, stale)
    assert value(pooled[0]) == 12
    for connection in pooled:
        connection.close()


def test_deadlock_is_told_apart_from_a_stale_fence(url: str, client: leasehold.Client) -> None:
    make_table(url)
    outcomes: list[object] = []
    with client.lock("a").hold() as a, client.lock("b").hold() as b:
        both = threading.Barrier(2)

        def cross(first: leasehold.Lease, second: leasehold.Lease) -> None:
            with closing(connect(url)) as connection:
                guard(connection, first)
                both.wait()
                try:
                    guard(connection, second)
                except RetryTransaction as error:
                    outcomes.append(getattr(error.__cause__, "sqlstate", None))
                else:
                    outcomes.append("passed")
                    connection.commit()

        threads = [threading.Thread(target=cross, args=pair) for pair in ((a, b), (b, a))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(map(str, outcomes)) == ["40P01", "passed"]


def test_other_errors_of_the_database_are_raised_as_they_are(url: str, client: leasehold.Client) -> None:
    make_table(url)
    with client.lock("account").hold() as lease, closing(connect(url)) as connection:
        connection.execute("SET statement_timeout = '100ms'")
        connection.commit()
        with connect(url) as other:
            guard(other, lease)
            with pytest.raises(psycopg.errors.QueryCanceled) as caught:
                guard(connection, lease)
        assert not is_retryable(caught.value)
