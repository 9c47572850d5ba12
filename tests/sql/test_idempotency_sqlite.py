"""Idempotency keys in SQLite: one write lock for the whole file, snapshots, transactions that end too early."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from django.db import connections

from leasehold.errors import ConfigurationError, InFlight, RetryTransaction
from leasehold.sql import IdempotencyKeys, is_retryable
from tests.sql.desks import django_alias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(params=["delete", "wal"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., sqlite3.Connection]]:
    """Connections to a file in both modes of its journal; they are closed at the end."""
    opened: list[sqlite3.Connection] = []

    def connect(timeout: float = 0.01) -> sqlite3.Connection:
        opened.append(sqlite3.connect(tmp_path / "data.db", timeout=timeout))
        return opened[-1]

    with connect() as first:
        first.execute(f"PRAGMA journal_mode = {request.param}")
        first.execute("CREATE TABLE effect (n INTEGER)")
        first.executescript(IdempotencyKeys("charges").schema("sqlite"))
    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def keys() -> IdempotencyKeys:
    return IdempotencyKeys("charges")


def charge(connection: sqlite3.Connection, keys: IdempotencyKeys, key: str = "k", result: object = 1) -> Any:
    with connection, keys.attempt(connection, key, fingerprint="x") as attempt:
        if not attempt.replayed:
            connection.execute("INSERT INTO effect VALUES (1)")
            attempt.complete(result)
    return attempt.result


def effects(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("SELECT count(*) FROM effect").fetchone()
    return int(number)


def test_outside_a_transaction_it_is_refused(tmp_path: Path, keys: IdempotencyKeys) -> None:
    url = f"sqlite:///{tmp_path}/data.db"
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    alias = django_alias(url)
    with closing(sqlite3.connect(tmp_path / "data.db", isolation_level=None)) as plain, engine.connect() as core:
        for tx in (plain, plain.cursor(), core, alias):
            with pytest.raises(ConfigurationError, match="outside a transaction"), keys.attempt(tx, "k", fingerprint=1):
                pass
        plain.execute("BEGIN")
        with keys.attempt(plain, "k", fingerprint=1) as attempt:
            attempt.complete(1)
        plain.execute("COMMIT")
    engine.dispose()
    connections[alias].close()


def test_writer_keeps_others_out_and_they_have_no_transaction_open(
    connect: Callable[..., sqlite3.Connection], keys: IdempotencyKeys
) -> None:
    one, two = connect(), connect()
    charge(one, keys, "first", 5)
    one.execute("INSERT INTO effect VALUES (9)")  # something else; SQLite does not say what
    with pytest.raises(InFlight, match="perhaps"):
        charge(two, keys)
    assert not two.in_transaction
    assert charge(two, keys, "first") == 5, "what is completed is replayed whoever writes"
    one.rollback()
    assert charge(two, keys) == 1


def test_attempt_itself_takes_the_write_lock(connect: Callable[..., sqlite3.Connection], keys: IdempotencyKeys) -> None:
    """In a transaction that has written nothing yet: else two would find the key absent, and both do the work."""
    one, two = connect(), connect()
    for connection in (one, two):
        connection.execute("BEGIN")
    with keys.attempt(one, "k", fingerprint="x") as attempt:
        with pytest.raises(InFlight), keys.attempt(two, "k", fingerprint="x"):
            pass
        two.rollback()
        attempt.complete(1)
    one.commit()
    assert charge(two, keys, "k", 2) == 1


def test_wait_takes_the_place_of_the_busy_timeout_and_gives_it_back(connect: Callable[..., sqlite3.Connection]) -> None:
    keys = IdempotencyKeys("charges", wait=0)
    one, two = connect(), connect(timeout=3600)
    one.execute("BEGIN IMMEDIATE")
    with pytest.raises(InFlight):
        charge(two, keys)
    assert two.execute("PRAGMA busy_timeout").fetchone() == (3_600_000,)
    one.rollback()
    assert charge(two, keys) == 1
    assert two.execute("PRAGMA busy_timeout").fetchone() == (3_600_000,)


def test_transaction_that_had_read_an_older_state_has_to_be_run_again(tmp_path: Path, keys: IdempotencyKeys) -> None:
    with closing(sqlite3.connect(tmp_path / "data.db")) as one, closing(sqlite3.connect(tmp_path / "data.db")) as two:
        one.execute("PRAGMA journal_mode = wal")
        one.execute("CREATE TABLE effect (n INTEGER)")
        charge(one, keys, "first")
        two.execute("BEGIN")
        assert effects(two) == 1
        charge(one, keys)
        with pytest.raises(RetryTransaction, match="had read before") as caught:
            charge(two, keys)
        assert is_retryable(caught.value)
        two.rollback()
        assert charge(two, keys, "k", 2) == 1
        assert effects(two) == 2


def test_transaction_that_ended_before_complete_is_noticed(
    connect: Callable[..., sqlite3.Connection], keys: IdempotencyKeys
) -> None:
    connection = connect()
    for end in (connection.commit, connection.rollback):
        with (
            pytest.raises(ConfigurationError, match="inside the attempt's block"),
            connection,
            keys.attempt(connection, "k", fingerprint="x") as attempt,
        ):
            end()
            attempt.complete(1)
        with (
            pytest.raises(ConfigurationError, match="inside the attempt's block"),
            connection,
            keys.attempt(connection, "k", fingerprint="x") as attempt,
        ):
            end()
            connection.execute("INSERT INTO effect VALUES (2)")  # opens a transaction of its own
            attempt.complete(1)
    assert effects(connection) == 0
    assert charge(connection, keys, "k", 3) == 3


def test_commit_inside_the_block_after_complete_is_as_good_as_after_it(
    connect: Callable[..., sqlite3.Connection], keys: IdempotencyKeys
) -> None:
    connection = connect()
    with keys.attempt(connection, "k", fingerprint="x") as attempt:
        connection.execute("INSERT INTO effect VALUES (1)")
        attempt.complete(1)
        connection.commit()
    assert charge(connect(), keys) == 1


def test_block_that_fails_leaves_the_transaction_to_its_owner(
    connect: Callable[..., sqlite3.Connection], keys: IdempotencyKeys
) -> None:
    connection = connect()
    with connection:
        connection.execute("INSERT INTO effect VALUES (1)")
        with pytest.raises(KeyError), keys.attempt(connection, "k", fingerprint="x"):
            raise KeyError
        with keys.attempt(connection, "another", fingerprint="x") as attempt:
            attempt.complete(2)
    assert effects(connection) == 1
    assert charge(connect(), keys, "another") == 2


def test_schema_is_refused(connect: Callable[..., sqlite3.Connection]) -> None:
    keys = IdempotencyKeys("charges", schema="main")
    with pytest.raises(ConfigurationError, match="for PostgreSQL"):
        charge(connect(), keys)
    with pytest.raises(ConfigurationError, match="for PostgreSQL"):
        keys.schema("sqlite")


def test_sweep_of_a_file_without_the_table_removes_nothing(tmp_path: Path, keys: IdempotencyKeys) -> None:
    with closing(sqlite3.connect(tmp_path / "data.db")) as connection:
        assert keys.sweep(connection) == 0
