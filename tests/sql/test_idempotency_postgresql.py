"""Idempotency keys in PostgreSQL: who is in flight, levels of isolation, the table, rights."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy
from django.db import connections

from leasehold.errors import ConfigurationError, InFlight, RetryTransaction
from leasehold.sql import IdempotencyKeys, is_retryable
from leasehold.sql.wires.psycopg import PsycopgWire
from tests.servers.postgres import fresh_database
from tests.sql.desks import django_alias, fresh_schema, sqlalchemy_url
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leasehold.sql.wires import Answer
    from verification.lab.pgbouncer import PgBouncer
    from verification.lab.postgres import PostgresServer

Connection = psycopg.Connection[tuple[Any, ...]]
LEVELS = [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> str:
    return fresh_schema(postgres)


@pytest.fixture
def connect(url: str) -> Iterator[Callable[[], Connection]]:
    """Connections to an empty table `effect`, beside an empty table of keys; they are closed at the end."""
    with psycopg.connect(url) as first:
        for table in ("effect", "leasehold_idempotency"):
            first.execute(f"DROP TABLE IF EXISTS {table}".encode())
        first.execute("CREATE TABLE effect (n integer)")
        first.execute(IdempotencyKeys("charges").schema().encode())
    opened: list[Connection] = []

    def connect() -> Connection:
        opened.append(psycopg.connect(url))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def keys() -> IdempotencyKeys:
    return IdempotencyKeys("charges")


def charge(connection: Connection, keys: IdempotencyKeys, key: str = "k", result: object = 1) -> Any:
    with connection.transaction(), keys.attempt(connection, key, fingerprint="x") as attempt:
        if not attempt.replayed:
            connection.execute("INSERT INTO effect VALUES (1)")
            attempt.complete(result)
    return attempt.result


def effects(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM effect").fetchone()
    connection.rollback()
    assert row is not None
    return int(row[0])


def test_outside_a_transaction_it_is_refused(url: str, keys: IdempotencyKeys) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), isolation_level="AUTOCOMMIT")
    alias = django_alias(url)
    with psycopg.connect(url, autocommit=True) as plain, engine.connect() as core:
        for tx in (plain, plain.cursor(), core, alias, connections[alias]):
            with pytest.raises(ConfigurationError, match="outside a transaction"), keys.attempt(tx, "k", fingerprint=1):
                pass
    engine.dispose()
    connections[alias].close()


def test_pipeline_is_refused(connect: Callable[[], Connection], keys: IdempotencyKeys) -> None:
    connection = connect()
    with (
        connection.pipeline(),
        pytest.raises(ConfigurationError, match="pipeline"),
        keys.attempt(connection, "k", fingerprint=1),
    ):
        pass


def test_commit_inside_the_block_is_noticed_and_nothing_more_is_committed(
    connect: Callable[[], Connection], keys: IdempotencyKeys
) -> None:
    connection = connect()
    for end in (connection.commit, connection.rollback):
        with keys.attempt(connection, "k", fingerprint="x") as attempt:
            end()
            connection.execute("INSERT INTO effect VALUES (2)")
            with pytest.raises(ConfigurationError, match="inside the attempt's block"):
                attempt.complete(1)
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):  # a program that goes on cannot commit
            connection.execute("SELECT 1")
        connection.rollback()
    assert effects(connection) == 0


def test_commit_inside_the_block_after_complete_is_as_good_as_after_it(
    connect: Callable[[], Connection], keys: IdempotencyKeys
) -> None:
    connection = connect()
    with keys.attempt(connection, "k", fingerprint="x") as attempt:
        connection.execute("INSERT INTO effect VALUES (1)")
        attempt.complete(1)
        connection.commit()
    assert charge(connect(), keys) == 1
    assert effects(connection) == 1


def test_in_flight_leaves_the_transaction_usable(connect: Callable[[], Connection], keys: IdempotencyKeys) -> None:
    one, two = connect(), connect()
    with one.transaction(), keys.attempt(one, "k", fingerprint="x"):
        with pytest.raises(InFlight), keys.attempt(two, "k", fingerprint="x"):
            pass
        with keys.attempt(two, "another", fingerprint="x") as attempt:
            attempt.complete(2)
        two.commit()
    assert charge(one, keys, "another") == 2


def test_waiting_attempt_replays_what_the_first_has_done(connect: Callable[[], Connection]) -> None:
    keys = IdempotencyKeys("charges", wait=60)
    one, two = connect(), connect()
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND wait_event = 'PgSleep'"
    with ThreadPoolExecutor(1) as pool:
        with one.transaction(), keys.attempt(one, "k", fingerprint="x") as attempt:
            waiting = pool.submit(charge, two, keys, "k", 2)
            watcher = connect()
            watcher.autocommit = True
            eventually(lambda: watcher.execute(asleep).fetchone() != (0,), "it does not wait")
            one.execute("INSERT INTO effect VALUES (1)")
            attempt.complete(1)
        assert waiting.result() == 1
    assert effects(one) == 1


def test_wait_ends_with_in_flight(connect: Callable[[], Connection]) -> None:
    keys = IdempotencyKeys("charges", wait="50ms", retry_after=7)
    one, two = connect(), connect()
    with one.transaction(), keys.attempt(one, "k", fingerprint="x"):
        with pytest.raises(InFlight) as caught, two.transaction(), keys.attempt(two, "k", fingerprint="x"):
            pass
        assert caught.value.retry_after == 7.0


def test_commit_between_the_look_and_the_lock_is_seen(
    connect: Callable[[], Connection], keys: IdempotencyKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first transaction commits after the second has looked, and before that one has the lock."""
    one, two = connect(), connect()
    plain = PsycopgWire.query
    looked = []

    async def query(wire: PsycopgWire, statement: str, values: dict[str, object]) -> Answer:
        if wire.driver is two and "pg_try_advisory_xact_lock" in statement:
            answer = await plain(wire, statement, values)
            assert answer.rows[0][:3] == (None, None, True)
            # The lock is two's by now, so the first does what it did just before: it writes its row and commits.
            with one.transaction():
                one.execute("INSERT INTO effect VALUES (1)")
                one.execute(
                    "INSERT INTO leasehold_idempotency (name, principal, key, result, completed_at, expires_at) "
                    "VALUES ('charges', '', 'k', '1', now(), now() + interval '1h')"
                )
            looked.append(True)
            return answer
        return await plain(wire, statement, values)

    monkeypatch.setattr(PsycopgWire, "query", query)
    with two.transaction(), keys.attempt(two, "k", fingerprint="x") as attempt:
        assert attempt.replayed
    assert looked
    assert attempt.result == 1


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_transaction_that_sees_an_older_state_has_to_be_run_again(
    connect: Callable[[], Connection], keys: IdempotencyKeys, level: psycopg.IsolationLevel
) -> None:
    one, two = connect(), connect()
    two.isolation_level = level
    two.execute("SELECT count(*) FROM effect")  # from here on it sees the database as it is now
    assert charge(one, keys) == 1
    with pytest.raises(RetryTransaction) as caught, keys.attempt(two, "k", fingerprint="x") as attempt:
        assert not attempt.replayed
        two.execute("INSERT INTO effect VALUES (2)")
        attempt.complete(2)
    assert is_retryable(caught.value)
    two.rollback()
    assert charge(two, keys, "k", 2) == 1
    assert effects(one) == 1


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_who_has_waited_with_an_older_state_does_no_work_in_vain(
    connect: Callable[[], Connection], level: psycopg.IsolationLevel
) -> None:
    keys = IdempotencyKeys("charges", wait=60)
    one, two = connect(), connect()
    two.isolation_level = level
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND wait_event = 'PgSleep'"
    with ThreadPoolExecutor(1) as pool:
        with one.transaction(), keys.attempt(one, "k", fingerprint="x") as attempt:
            waiting = pool.submit(charge, two, keys)
            watcher = connect()
            watcher.autocommit = True
            eventually(lambda: watcher.execute(asleep).fetchone() != (0,), "it does not wait")
            attempt.complete(1)
        with pytest.raises(RetryTransaction, match="as it was before"):
            waiting.result()
    assert effects(one) == 0


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_many_transactions_at_a_higher_level_have_one_effect(
    connect: Callable[[], Connection], keys: IdempotencyKeys, level: psycopg.IsolationLevel
) -> None:
    def work(number: int) -> Any:
        connection = connect()
        connection.isolation_level = level
        while True:
            try:
                return charge(connection, keys, "k", number)
            except InFlight:
                pass
            except Exception as error:
                if not is_retryable(error):
                    raise

    with ThreadPoolExecutor(8) as pool:
        results = set(pool.map(work, range(8)))
    assert len(results) == 1
    assert effects(connect()) == 1


def test_no_sweeping_at_a_higher_level_where_it_would_fail_the_work(connect: Callable[[], Connection]) -> None:
    plain = IdempotencyKeys("charges", sweep_every=0)
    keys = IdempotencyKeys("charges", sweep_every=1)
    one, two = connect(), connect()
    charge(one, plain, "old")
    one.execute("UPDATE leasehold_idempotency SET expires_at = completed_at")
    one.commit()
    two.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with two.transaction():
        two.execute("SELECT count(*) FROM effect")
        with one.transaction():
            assert keys.sweep(one) == 1  # after the moment that the other one sees
        with keys.attempt(two, "new", fingerprint="x") as attempt:
            attempt.complete(1)
    assert charge(one, keys, "new") == 1


def test_sweep_does_not_wait_for_rows_that_others_have(connect: Callable[[], Connection]) -> None:
    keys = IdempotencyKeys("charges", sweep_every=0)
    one, two = connect(), connect()
    for key in ("a", "b"):
        charge(one, keys, key)
    one.execute("UPDATE leasehold_idempotency SET expires_at = completed_at")
    one.commit()
    with one.transaction():
        assert charge_again(one, keys, "a") is False
        two.autocommit = True  # it also works outside a transaction
        assert keys.sweep(two) == 1
    assert charge(two, keys, "a") == "again"


def charge_again(connection: Connection, keys: IdempotencyKeys, key: str) -> bool:
    with keys.attempt(connection, key, fingerprint="x") as attempt:
        attempt.complete("again")
    return attempt.replayed


def test_many_that_come_first_make_one_table(postgres: PostgresServer) -> None:
    url = fresh_schema(postgres)
    keys = IdempotencyKeys("charges", wait=60)
    ready = threading.Barrier(6)

    def work(number: int) -> Any:
        with psycopg.connect(url) as connection:
            ready.wait()
            with connection.transaction(), keys.attempt(connection, f"{number}", fingerprint="x") as attempt:
                attempt.complete(number)
        return attempt.result

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(work, range(6))) == list(range(6))


def test_transaction_that_makes_the_table_keeps_nobody_waiting(postgres: PostgresServer, keys: IdempotencyKeys) -> None:
    url = fresh_schema(postgres)
    with psycopg.connect(url) as one, psycopg.connect(url) as two:
        with one.transaction(), keys.attempt(one, "k", fingerprint="x") as attempt:
            with pytest.raises(InFlight, match="made by a transaction"), keys.attempt(two, "other", fingerprint="x"):
                pass
            assert keys.sweep(two) == 0
            two.rollback()
            attempt.complete(1)
        with two.transaction(), keys.attempt(two, "k", fingerprint="x") as attempt:
            assert attempt.result == 1


def test_one_table_serves_all_search_paths_unless_one_is_named(postgres: PostgresServer) -> None:
    name = fresh_database(postgres)
    plain = IdempotencyKeys("charges")
    with psycopg.connect(postgres.url(name)) as connection:
        for schema in ("a", "b"):
            connection.execute(f"CREATE SCHEMA {schema}".encode())
            connection.execute(f"CREATE TABLE {schema}.effect (n integer)".encode())
        connection.commit()

        def use(path: str, keys: IdempotencyKeys) -> Any:
            connection.execute(f"SET search_path TO {path}".encode())
            connection.commit()
            return charge(connection, keys, "k", path)

        assert use("a", plain) == "a"
        assert use("b", plain) == "a"
        own = IdempotencyKeys("charges", schema="b")
        assert use("b", own) == "b", "a table of its own, for data of its own"
    with psycopg.connect(postgres.url(name)) as connection:
        with pytest.raises(ConfigurationError, match="'a', 'b'"):
            charge(connection, plain)
        assert 'CREATE TABLE IF NOT EXISTS "b".leasehold_idempotency (' in own.schema()


def test_table_that_is_gone_is_made_again(connect: Callable[[], Connection], keys: IdempotencyKeys) -> None:
    one = connect()
    charge(one, keys, "before")
    with connect() as two:
        two.execute("DROP TABLE leasehold_idempotency")
    with pytest.raises(RetryTransaction, match="not where it was"):
        charge(one, keys)
    assert charge(one, keys, "k", 3) == 3


def test_a_table_that_was_taken_back_with_its_transaction_is_made_again_at_once(
    connect: Callable[[], Connection], keys: IdempotencyKeys
) -> None:
    connection = connect()
    connection.execute("DROP TABLE leasehold_idempotency")
    connection.commit()
    for key in ("makes the table", "finds it"):
        with keys.attempt(connection, key, fingerprint="x") as attempt:
            attempt.complete(1)
    connection.rollback()
    assert charge(connection, keys) == 1


def test_role_without_rights_is_told_what_it_needs(
    connect: Callable[[], Connection], keys: IdempotencyKeys, url: str
) -> None:
    role = f"reader_{threading.get_native_id()}"
    owner = connect()
    schema = owner.execute("SELECT current_schema()").fetchone()
    assert schema is not None
    owner.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA {schema[0]} TO {role}".encode())
    owner.execute(f"GRANT SELECT, INSERT ON effect TO {role}".encode())
    owner.commit()
    worker = connect()
    worker.execute(f"SET ROLE {role}".encode())
    worker.commit()
    with pytest.raises(ConfigurationError, match="schema idempotency"):
        charge(worker, keys)
    owner.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_idempotency TO {role}".encode())
    owner.commit()
    assert charge(worker, keys) == 1


def test_read_only_transaction_is_refused(connect: Callable[[], Connection], keys: IdempotencyKeys) -> None:
    connection = connect()
    connection.read_only = True
    with (
        pytest.raises(ConfigurationError, match="read-only"),
        connection.transaction(),
        keys.attempt(connection, "k", fingerprint="x") as attempt,
    ):
        attempt.complete(1)


def test_nothing_that_was_planted_in_the_search_path_runs(
    connect: Callable[[], Connection], keys: IdempotencyKeys
) -> None:
    """A function of another role in a schema of the search path would run as the role that uses the key."""
    connection = connect()
    for name, arguments, gives in (
        ("pg_try_advisory_xact_lock", "bigint", "boolean"),
        ("clock_timestamp", "", "timestamptz"),
        ("current_setting", "text, boolean", "text"),
        ("strpos", "text, text", "integer"),
    ):
        body = "BEGIN RAISE EXCEPTION 'planted'; END"
        connection.execute(
            f"CREATE FUNCTION {name}({arguments}) RETURNS {gives} LANGUAGE plpgsql AS $$ {body} $$".encode()
        )
    connection.execute(
        "CREATE FUNCTION same(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN false; END $$"
    )
    connection.execute("CREATE OPERATOR = (FUNCTION = same, LEFTARG = text, RIGHTARG = text)")
    row = connection.execute("SELECT current_schema()").fetchone()
    assert row is not None
    connection.execute(f"SET LOCAL search_path TO {row[0]}, pg_catalog".encode())
    with keys.attempt(connection, "k", fingerprint="x") as attempt:
        attempt.complete(1)
    with keys.attempt(connection, "k", fingerprint="x") as attempt:
        assert attempt.result == 1
    connection.rollback()


def test_a_pooler_may_be_between(postgres: PostgresServer, pgbouncer: PgBouncer, keys: IdempotencyKeys) -> None:
    name = fresh_database(postgres)
    address = pgbouncer.url(name)
    with (
        psycopg.connect(address, prepare_threshold=None) as one,
        psycopg.connect(address, prepare_threshold=None) as two,
    ):
        one.execute("CREATE TABLE effect (n integer)")
        one.commit()
        charge(one, keys, "first")
        with one.transaction(), keys.attempt(one, "k", fingerprint="x") as attempt:
            with pytest.raises(InFlight):
                charge(two, keys)
            attempt.complete(5)
        assert charge(two, keys) == 5
