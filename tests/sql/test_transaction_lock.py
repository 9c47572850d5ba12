"""`transaction_lock`: as long as the caller's own transaction, and not a moment longer."""

from __future__ import annotations

import asyncio
import threading

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from leasehold import ConfigurationError
from leasehold.sql import transaction_lock, transaction_lock_async
from tests.sql.desks import sqlalchemy_url

HOSTILE = "'; DROP TABLE x; -- \\ \" % %s"


def test_lock_lasts_until_the_end_of_the_transaction(database: str) -> None:
    with psycopg.connect(database) as one, psycopg.connect(database) as two:
        for end in (one.commit, one.rollback):
            assert transaction_lock(one, HOSTILE) is True
            assert transaction_lock(one, HOSTILE) is True, "the same transaction may have it twice"
            assert transaction_lock(two, HOSTILE, wait=False) is False
            assert transaction_lock(two, "another", wait=False) is True
            assert transaction_lock(two, HOSTILE, wait=False, namespace="other") is True
            two.rollback()
            end()
            assert transaction_lock(two, HOSTILE, wait=False) is True
            two.rollback()


def test_waiting_transaction_goes_on_and_sees_what_was_committed(database: str) -> None:
    with psycopg.connect(database) as one, psycopg.connect(database) as two:
        one.execute("CREATE TABLE stock (n int)")
        one.execute("INSERT INTO stock VALUES (10)")
        one.commit()
        seen: list[object] = []

        def second() -> None:
            transaction_lock(two, "stock")
            seen.append(two.execute("SELECT n FROM stock").fetchone())

        transaction_lock(one, "stock")
        waits = threading.Thread(target=second)
        waits.start()
        one.execute("UPDATE stock SET n = 9")
        waits.join(0.2)
        assert waits.is_alive()
        one.commit()
        waits.join()
        assert seen == [(9,)]


def test_end_of_the_connection_frees_it(database: str) -> None:
    one = psycopg.connect(database)
    transaction_lock(one, "job")
    one.close()
    with psycopg.connect(database) as two:
        assert transaction_lock(two, "job") is True


def test_names_that_read_the_same_when_joined_are_different_locks(database: str) -> None:
    with psycopg.connect(database) as one, psycopg.connect(database) as two:
        assert transaction_lock(one, "ab", namespace="x") is True
        assert transaction_lock(two, "b", wait=False, namespace="xa") is True
        one.rollback()
        two.rollback()


def test_shared_locks_go_together_and_keep_an_exclusive_one_out(database: str) -> None:
    with psycopg.connect(database) as one, psycopg.connect(database) as two, psycopg.connect(database) as three:
        assert transaction_lock(one, "doc", shared=True)
        assert transaction_lock(two, "doc", shared=True, wait=False)
        assert transaction_lock(three, "doc", wait=False) is False
        one.commit()
        two.commit()
        assert transaction_lock(three, "doc", wait=False) is True
        assert transaction_lock(one, "doc", shared=True, wait=False) is False
        three.rollback()
        one.rollback()


def test_outside_a_transaction_it_is_refused(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        with pytest.raises(ConfigurationError, match="outside a transaction"):
            transaction_lock(connection, "job")
        with connection.transaction():
            assert transaction_lock(connection, "job") is True


@pytest.mark.parametrize("name", ["", "x" * 513])
def test_bad_names_are_refused(database: str, name: str) -> None:
    with psycopg.connect(database) as connection, pytest.raises(ConfigurationError):
        transaction_lock(connection, name)


def test_other_databases_are_refused() -> None:
    import sqlite3

    with pytest.raises(ConfigurationError, match="PostgreSQL"):
        transaction_lock(sqlite3.connect(":memory:"), "job")


def test_mysql_is_refused_because_its_named_locks_outlive_the_transaction(mariadb_database: str) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(mariadb_database))
    with engine.begin() as tx, pytest.raises(ConfigurationError, match="FOR UPDATE"):
        transaction_lock(tx, "job")
    engine.dispose()


def test_engines_and_asyncio_do_as_well(database: str) -> None:
    engine = sqlalchemy.create_engine(database.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as one, engine.begin() as two:
        assert transaction_lock(one, "job") is True
        assert transaction_lock(two, "job", wait=False) is False
    engine.dispose()

    async def story() -> None:
        plain = await psycopg.AsyncConnection.connect(database)
        engine = create_async_engine(database.replace("postgresql:", "postgresql+psycopg:"))
        async with plain, engine.connect() as other:
            assert await transaction_lock_async(plain, "job") is True
            assert await transaction_lock_async(other, "job", wait=False) is False
            with pytest.raises(ConfigurationError, match="async"):
                transaction_lock(plain, "job")
        await engine.dispose()

    asyncio.run(story())
    with psycopg.connect(database) as connection, pytest.raises(ConfigurationError, match="not async"):
        asyncio.run(transaction_lock_async(connection, "job"))
