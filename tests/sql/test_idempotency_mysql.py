"""Idempotency keys on MariaDB: what waits for what, older snapshots, and a transaction that ends too early."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.errors import ConfigurationError, InFlight, RetryTransaction
from leasehold.sql import IdempotencyKeys, is_retryable, mysql_table
from leasehold.sql.wires.mysql import MysqlWire
from tests.sql.desks import make_mysql_tables
from tests.sql.mariadb_sessions import LEVELS, connect, run
from tests.waiting import eventually
from verification.lab.mariadb import MariadbServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pymysql

    from leasehold.sql.wires import Answer


@pytest.fixture
def url(mariadb_database: str) -> str:
    make_mysql_tables(mariadb_database)
    with closing(connect(mariadb_database)) as connection:
        run(connection, "CREATE TABLE effect (n INTEGER)")
    return mariadb_database


@pytest.fixture
def opened(url: str) -> Iterator[Callable[..., pymysql.Connection[Any]]]:
    """Connections that are closed at the end."""
    made: list[pymysql.Connection[Any]] = []

    def make(level: str | None = None) -> pymysql.Connection[Any]:
        made.append(connect(url, level))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def keys() -> IdempotencyKeys:
    return IdempotencyKeys("charges", keep="1h")


def charge(connection: pymysql.Connection[Any], keys: IdempotencyKeys, key: str = "k", result: object = None) -> object:
    with keys.attempt(connection, key, fingerprint="x") as attempt:
        if not attempt.replayed:
            run(connection, "INSERT INTO effect VALUES (1)")
            attempt.complete(result)
    connection.commit()
    return attempt.result


def effects(connection: pymysql.Connection[Any]) -> int:
    ((n,),) = run(connection, "SELECT count(*) FROM effect")
    connection.rollback()
    return int(n)


def test_in_flight_is_told_at_once_and_leaves_the_transaction_usable(
    opened: Callable[..., pymysql.Connection[Any]], keys: IdempotencyKeys
) -> None:
    one, two = opened(), opened()
    with keys.attempt(one, "k", fingerprint="x"):
        run(two, "INSERT INTO effect VALUES (2)")
        with pytest.raises(InFlight), keys.attempt(two, "k", fingerprint="x"):
            pass
        with keys.attempt(two, "another", fingerprint="x") as attempt:
            attempt.complete(2)
        two.commit()
    one.commit()
    assert effects(one) == 1
    assert charge(one, keys, "another") == 2
    assert charge(two, keys) is None, "a block without complete has recorded nothing, although its row was committed"


def test_waiting_attempt_replays_what_the_first_has_done(
    mariadb: MariadbServer, opened: Callable[..., pymysql.Connection[Any]]
) -> None:
    keys = IdempotencyKeys("charges", wait=60)
    one, two = opened(), opened()
    asleep = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP%'"
    with ThreadPoolExecutor(1) as pool:
        with keys.attempt(one, "k", fingerprint="x") as attempt:
            waiting = pool.submit(charge, two, keys, "k", 2)
            eventually(lambda: mariadb.run(asleep) != [(0,)], "it does not wait")
            run(one, "INSERT INTO effect VALUES (1)")
            attempt.complete(1)
        one.commit()
        assert waiting.result() == 1
    assert effects(one) == 1


def test_wait_ends_with_in_flight(opened: Callable[..., pymysql.Connection[Any]]) -> None:
    keys = IdempotencyKeys("charges", wait="50ms", retry_after=7)
    with keys.attempt(opened(), "k", fingerprint="x"):
        with pytest.raises(InFlight) as caught, keys.attempt(opened(), "k", fingerprint="x"):
            pass
        assert caught.value.retry_after == 7.0


@pytest.mark.parametrize(("wait", "is_open"), [(0, False), (0, True), ("50ms", False), ("50ms", True)], ids=str)
def test_key_that_another_transaction_has_is_never_waited_for_in_the_server(
    mariadb: MariadbServer, opened: Callable[..., pymysql.Connection[Any]], wait: Any, is_open: bool
) -> None:
    """The server would wait for as long as `innodb_lock_wait_timeout` says, whatever `wait` is."""
    one, two = opened(), opened()
    run(two, "SET SESSION innodb_lock_wait_timeout = 1000")
    with ThreadPoolExecutor(1) as pool, in_flight_on(one):
        if is_open:
            run(two, "INSERT INTO effect VALUES (2)")
        refused = pool.submit(charge, two, IdempotencyKeys("charges", wait=wait))
        eventually(lambda: refused.done() or waits_for_a_lock(mariadb, two), "it neither waits nor ends")
        assert refused.done(), "it waits in the server"
        assert isinstance(refused.exception(), InFlight)


@contextmanager
def in_flight_on(connection: pymysql.Connection[Any]) -> Iterator[None]:
    """The key is in flight there; the end frees it, and whoever waits for it in the server."""
    try:
        with IdempotencyKeys("charges").attempt(connection, "k", fingerprint="x"):
            yield
    finally:
        connection.rollback()


def waits_for_a_lock(server: MariadbServer, connection: pymysql.Connection[Any]) -> bool:
    waiting = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    return server.run(f"{waiting} AND trx_mysql_thread_id = {connection.thread_id()}") != [(0,)]


def test_replays_do_not_call_each_other_in_flight(
    opened: Callable[..., pymysql.Connection[Any]], keys: IdempotencyKeys
) -> None:
    charge(opened(), keys, result=1)
    for connection in (opened(), opened()):  # both transactions stay open
        with keys.attempt(connection, "k", fingerprint="x") as attempt:
            assert (attempt.replayed, attempt.result) == (True, 1)


@pytest.mark.parametrize("level", LEVELS)
def test_older_snapshot_hides_no_completed_key(
    opened: Callable[..., pymysql.Connection[Any]], keys: IdempotencyKeys, level: str
) -> None:
    one, two = opened(level), opened(level)
    run(two, "SELECT * FROM leasehold_guard")  # takes the snapshot, where there is one
    charge(one, keys, result=1)
    try:
        assert charge(two, keys, result=2) == 1
    except RetryTransaction as error:
        assert level == "SNAPSHOT ISOLATION", error
        two.rollback()
        assert charge(two, keys, result=2) == 1
    assert effects(one) == 1


@pytest.mark.parametrize("level", LEVELS)
def test_many_transactions_with_keys_of_their_own_do_not_disturb_each_other(
    opened: Callable[..., pymysql.Connection[Any]], level: str
) -> None:
    """At REPEATABLE READ a search for a row that is not there would lock the gap in which the others' rows go."""
    keys = IdempotencyKeys("charges", sweep_every=1)
    many = [opened(level) for _ in range(6)]
    attempts = [keys.attempt(connection, f"key {n}", fingerprint=None) for n, connection in enumerate(many)]
    for attempt in attempts:
        attempt.__enter__()
    for attempt in attempts:
        attempt.complete(1)
        attempt.__exit__(None, None, None)
    for connection in many:
        connection.commit()


@pytest.mark.parametrize("level", LEVELS)
def test_same_key_in_many_threads_has_one_effect(
    opened: Callable[..., pymysql.Connection[Any]], keys: IdempotencyKeys, level: str
) -> None:
    patient = IdempotencyKeys("charges", wait=60)
    connections = [opened(level) for _ in range(5)]
    start = threading.Barrier(len(connections))

    def ask(number: int) -> object:
        start.wait()
        while True:
            try:
                return charge(connections[number], patient, result=number)
            except Exception as error:
                connections[number].rollback()
                if not (isinstance(error, InFlight) or is_retryable(error)):
                    raise

    with ThreadPoolExecutor(len(connections)) as pool:
        results = set(pool.map(ask, range(len(connections))))
    assert len(results) == 1
    assert effects(connections[0]) == 1


@pytest.mark.parametrize("again", ["SELECT 1", "INSERT INTO effect VALUES (2)"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_transaction_that_ended_inside_the_block_is_noticed_and_what_follows_cannot_be_committed(
    opened: Callable[..., pymysql.Connection[Any]], keys: IdempotencyKeys, end: str, again: str
) -> None:
    connection = opened()
    with pytest.raises(ConfigurationError, match="inside the attempt's block"):
        with keys.attempt(connection, "k", fingerprint="x") as attempt:
            getattr(connection, end)()
            run(connection, again)
            attempt.complete(1)
    connection.commit()  # a program that goes on all the same
    assert effects(connection) == 0
    assert charge(connection, keys, result=3) == 3


def test_sweep_does_not_wait_for_rows_that_others_have(
    opened: Callable[..., pymysql.Connection[Any]], keys: IdempotencyKeys
) -> None:
    one, two = opened(), opened()
    for number in range(3):
        charge(one, keys, f"old {number}")
    run(one, "UPDATE leasehold_idempotency SET expires_at = completed_at")
    one.commit()
    with keys.attempt(one, "old 1", fingerprint=None) as attempt:
        assert not attempt.replayed
        assert keys.sweep(two) == 2
        two.commit()
        attempt.complete("again")
    one.commit()
    assert charge(two, keys, "old 1") == "again"


def test_sweep_leaves_a_key_that_was_completed_anew_since_it_looked(
    opened: Callable[..., pymysql.Connection[Any]], keys: IdempotencyKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = opened(), opened()
    charge(one, keys, result=1)
    run(one, "UPDATE leasehold_idempotency SET expires_at = UTC_TIMESTAMP(6)")
    one.commit()
    query = MysqlWire.query

    async def completed_behind_the_look(wire: MysqlWire, statement: str, values: Any) -> Answer:
        answer = await query(wire, statement, values)
        if wire.driver is two and "HEX(name)" in statement:
            charge(one, keys, result=2)
        return answer

    monkeypatch.setattr(MysqlWire, "query", completed_behind_the_look)
    assert keys.sweep(two) == 0
    two.commit()
    assert charge(one, keys, result=3) == 2


def test_server_that_rolls_back_at_a_lock_is_noticed(keys: IdempotencyKeys) -> None:
    """There the transaction is gone: it is not in flight, but has to be run again."""
    with MariadbServer({"innodb-rollback-on-timeout": "ON"}) as server:
        url = server.make_database("shop")
        make_mysql_tables(url)
        with closing(connect(url)) as one, closing(connect(url)) as two, keys.attempt(one, "k", fingerprint="x"):
            run(two, "SELECT * FROM leasehold_guard FOR UPDATE")
            run(two, "INSERT INTO leasehold_guard VALUES ('a', NULL, 1, NULL, 1, 1, NULL)")
            with pytest.raises(RetryTransaction), keys.attempt(two, "k", fingerprint="x"):
                pass


def test_lock_that_mysql_cannot_ask_for_without_waiting_is_waited_for_a_second_and_the_setting_put_back(
    opened: Callable[..., pymysql.Connection[Any]], keys: IdempotencyKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What MySQL gets, which has no SET STATEMENT; MariaDB understands it as well."""
    one, two = opened(), opened()
    run(two, "SET SESSION innodb_lock_wait_timeout = 37")
    with keys.attempt(one, "k", fingerprint="x"):
        monkeypatch.setattr(mysql_table, "_is_mariadb", lambda wire: False)
        with pytest.raises(InFlight), keys.attempt(two, "k", fingerprint="x"):
            pass
        assert run(two, "SELECT @@innodb_lock_wait_timeout") == [(37,)]
    one.rollback()
