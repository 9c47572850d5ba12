"""The guard for sqlite3 connections: who passes, who is refused, and where it would protect nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import sqlalchemy

import leasehold
from leasehold.errors import ConfigurationError, Conflict, StaleFence
from leasehold.sql import guard, guard_schema
from leasehold.values import MAX_FENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_HELD: list[leasehold.Lease] = []  # released at the end of each test


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE account (n INTEGER)")
        connection.execute("INSERT INTO account VALUES (0)")
        connection.commit()
    return path


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=0.1)) as connection:
        yield connection


@pytest.fixture
def client() -> Iterator[leasehold.Client]:
    with leasehold.connect("memory://") as client:
        yield client
        for lease in _HELD:
            lease.release()
        _HELD.clear()


def total(database: sqlite3.Connection) -> int:
    (n,) = database.execute("SELECT n FROM account").fetchone()
    return int(n)


def add_one(database: sqlite3.Connection, lease: leasehold.Lease) -> None:
    with database:
        guard(database, lease)
        database.execute("UPDATE account SET n = n + 1")


def two_in_turn(lock: leasehold.Lock) -> tuple[leasehold.Lease, leasehold.Lease]:
    first = lock.acquire()
    first.release()
    second = lock.acquire()
    _HELD.append(second)
    return first, second


def test_late_writer_is_refused_and_its_write_is_not_there(
    database: sqlite3.Connection, client: leasehold.Client
) -> None:
    stale, current = two_in_turn(client.lock("account"))
    add_one(database, current)
    with pytest.raises(StaleFence) as caught:
        add_one(database, stale)
    assert (caught.value.fence, caught.value.highest, caught.value.name) == (stale.fence, current.fence, "account")
    assert not database.in_transaction
    assert total(database) == 1


def test_same_holder_may_write_again(database: sqlite3.Connection, client: leasehold.Client) -> None:
    with client.lock("account").hold() as lease:
        for _ in range(3):
            add_one(database, lease)
    assert total(database) == 3


def test_refusal_closes_the_transaction_that_the_guard_has_opened_and_no_other(
    path: Path, database: sqlite3.Connection, client: leasehold.Client
) -> None:
    stale, current = two_in_turn(client.lock("account"))
    guard(database, current)
    database.commit()
    with pytest.raises(StaleFence):
        guard(database, stale)
    with closing(sqlite3.connect(path, timeout=0)) as other, other:
        other.execute("UPDATE account SET n = n + 1")  # nobody has the file
    database.execute("UPDATE account SET n = n + 1")
    with pytest.raises(StaleFence):
        guard(database, stale)
    database.commit()
    assert total(database) == 2, "what the program has written in a transaction of its own is left to it"


def test_guard_takes_the_write_lock_before_the_first_read(
    path: Path, database: sqlite3.Connection, client: leasehold.Client
) -> None:
    asked: list[str] = []
    database.set_trace_callback(asked.append)
    with client.lock("account").hold() as lease:
        guard(database, lease)
        assert asked[0] == "BEGIN IMMEDIATE"
        with closing(sqlite3.connect(path, timeout=0)) as other:
            with pytest.raises(leasehold.RetryTransaction, match="another connection was writing for too long"):
                guard(other, lease)
            assert not other.in_transaction
        database.rollback()


def reader_writer_reader(client: leasehold.Client) -> list[leasehold.Lease]:
    """Leases of one name, one after the other, all of which have been released."""
    lock = client.rwlock("account")
    leases = []
    for mode in (lock.read, lock.write, lock.read):
        leases.append(mode.acquire())
        leases[-1].release()
    return leases


def test_refusal_of_a_reader_names_the_fence_of_the_writer_that_came_later(
    database: sqlite3.Connection, client: leasehold.Client
) -> None:
    late, writer, newest = reader_writer_reader(client)
    for lease in (writer, newest):
        with database:
            guard(database, lease)
    with pytest.raises(StaleFence) as caught:
        guard(database, late)
    assert (caught.value.fence, caught.value.highest) == (late.fence, writer.fence)


def test_equal_fence_of_another_grant_is_refused(database: sqlite3.Connection, client: leasehold.Client) -> None:
    mine = client.lock("account").acquire()
    add_one(database, mine)
    with leasehold.connect("memory://") as elsewhere:  # a store that counts from one as well
        other = elsewhere.lock("account").acquire()
        assert other.fence == mine.fence
        with pytest.raises(StaleFence):
            add_one(database, other)
        other.release()
    mine.release()


def test_fence_is_raised_before_the_first_read_so_no_update_is_lost(
    path: Path, database: sqlite3.Connection, client: leasehold.Client
) -> None:
    """Stale A and current B each read and then write; whatever the order, no acknowledged write is lost."""
    stale, current = two_in_turn(client.lock("account"))
    with database:
        guard(database, stale)
        database.execute("UPDATE account SET n = 10")
    with closing(sqlite3.connect(path)) as other, other:
        guard(other, current)
        seen = total(other)
        other.execute("UPDATE account SET n = ?", (seen + 1,))
    with pytest.raises(StaleFence):
        add_one(database, stale)
    assert total(database) == 11


def test_fence_is_not_remembered_when_the_transaction_is_rolled_back(
    database: sqlite3.Connection, client: leasehold.Client
) -> None:
    first, second = two_in_turn(client.lock("account"))
    guard(database, second)
    database.rollback()
    add_one(database, first)  # nothing of the second holder was ever written
    assert total(database) == 1


def test_readers_pass_together_and_a_writer_older_than_a_reader_is_refused(
    database: sqlite3.Connection, client: leasehold.Client
) -> None:
    lock = client.rwlock("account")
    old_writer = lock.write.acquire()
    add_one(database, old_writer)
    old_writer.release()
    readers = [lock.read.acquire() for _ in range(2)]
    for reader in reversed(readers):
        with database:
            guard(database, reader)
    with pytest.raises(StaleFence):
        add_one(database, old_writer)
    for reader in readers:
        reader.release()
    writer = lock.write.acquire()
    _HELD.append(writer)
    add_one(database, writer)
    with pytest.raises(StaleFence), database:
        guard(database, readers[0])
    assert total(database) == 2


def test_late_reader_does_not_lower_what_the_newest_reader_has_set(
    database: sqlite3.Connection, client: leasehold.Client
) -> None:
    first, writer, newest = reader_writer_reader(client)
    for reader in (newest, first):
        with database:
            guard(database, reader)
    with pytest.raises(StaleFence):
        add_one(database, writer)
    assert total(database) == 0


def test_lease_of_a_semaphore_is_refused(database: sqlite3.Connection, client: leasehold.Client) -> None:
    with client.semaphore("account", 2).hold() as lease, pytest.raises(ConfigurationError, match="semaphore"):
        guard(database, lease)


def test_several_leases_at_once_are_refused(database: sqlite3.Connection, client: leasehold.Client) -> None:
    with client.lock_all(["a", "b"]).hold() as leases:
        with pytest.raises(ConfigurationError, match="several leases"):
            guard(database, leases)  # type: ignore[arg-type]  # what a user may try
        with database:
            guard(database, leases.leases["a"])


def test_resource_belongs_to_one_lock_of_one_namespace(database: sqlite3.Connection, client: leasehold.Client) -> None:
    with client.lock("a").hold() as first, client.lock("b").hold() as second:
        with database:
            guard(database, first, resource="table account")
        with pytest.raises(ConfigurationError, match="only within one lock"), database:
            guard(database, second, resource="table account")
        with database:
            guard(database, second)


def test_guard_by_number_does_not_free_the_resource_from_its_lock(
    database: sqlite3.Connection, client: leasehold.Client
) -> None:
    with client.lock("a").hold() as first, client.lock("b").hold() as second:
        with database:
            guard(database, first, resource="table account")
        with database:
            guard(database, first.fence, resource="table account")
        with pytest.raises(ConfigurationError, match="only within one lock"), database:
            guard(database, second, resource="table account")


def test_guard_by_number_does_not_open_the_resource_to_another_grant_with_that_number(
    database: sqlite3.Connection, client: leasehold.Client
) -> None:
    with client.lock("account").hold() as mine, leasehold.connect("memory://") as elsewhere:
        with database:
            guard(database, mine)
        with database:
            guard(database, mine.fence, resource="leasehold:account")
        with elsewhere.lock("account").hold() as other:
            assert other.fence == mine.fence
            with pytest.raises(StaleFence), database:
                guard(database, other)


def test_read_before_the_guard_is_not_noticed_where_it_opens_no_transaction_and_begin_is_the_cure(
    path: Path, database: sqlite3.Connection, client: leasehold.Client
) -> None:
    """What the page says of sqlite3's default mode, so that it stays true."""
    stale = client.lock("account").acquire()
    stale.release()
    with closing(sqlite3.connect(path, timeout=0.1)) as other, client.lock("account").hold() as lease:
        before = total(database)  # outside of any transaction
        with other:
            guard(other, stale)
            other.execute("UPDATE account SET n = n + 1")
        with database:
            guard(database, lease)
            assert total(database) == before + 1, "a read after the guard sees what was committed"
        database.execute("BEGIN")
        total(database)
        with other:
            other.execute("UPDATE account SET n = n + 1")
        with pytest.raises(leasehold.RetryTransaction):
            guard(database, lease)
        database.rollback()


def test_sqlalchemy_opens_no_transaction_for_a_read_before_the_guard_either_and_begin_is_the_cure(
    path: Path, client: leasehold.Client
) -> None:
    """What the page says of SQLAlchemy's default mode: its own block begins nothing in the file."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": 0.1})
    read = sqlalchemy.text("SELECT n FROM account")
    stale = client.lock("account").acquire()
    stale.release()
    with closing(sqlite3.connect(path, timeout=0.1)) as other, client.lock("account").hold() as lease:
        with engine.begin() as tx:
            before = tx.scalar(read)
            add_one(other, stale)
            guard(tx, lease)
            assert (before, tx.scalar(read)) == (0, 1), "not noticed; a read after the guard sees what was committed"
        with engine.begin() as tx:
            tx.exec_driver_sql("BEGIN IMMEDIATE")
            before = tx.scalar(read)
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("UPDATE account SET n = n + 1")
            guard(tx, lease)
            assert (before, tx.scalar(read)) == (1, 1)
    engine.dispose()


def test_autocommit_connection_is_refused(path: Path, client: leasehold.Client) -> None:
    with client.lock("account").hold() as lease, closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(ConfigurationError, match="outside a transaction"):
            guard(connection, lease)
        connection.execute("BEGIN IMMEDIATE")
        guard(connection, lease)
        connection.execute("COMMIT")


def test_autocommit_attribute_of_newer_pythons_is_understood(path: Path, client: leasehold.Client) -> None:
    class Connection(sqlite3.Connection):
        autocommit = True  # what an older Python does not have; a newer one reads it in the same way

    with client.lock("account").hold() as lease:
        with closing(sqlite3.connect(path, factory=Connection)) as connection, pytest.raises(ConfigurationError):
            guard(connection, lease)
        with closing(sqlite3.connect(path)) as other:
            if hasattr(other, "autocommit"):
                other.autocommit = False
            add_one(other, lease)
            assert total(other) == 1


def test_transaction_that_read_an_older_state_is_refused(
    path: Path, database: sqlite3.Connection, client: leasehold.Client
) -> None:
    with client.lock("account").hold() as lease, closing(sqlite3.connect(path)) as other:
        add_one(database, lease)
        database.execute("BEGIN")
        seen = total(database)
        with other:
            other.execute("UPDATE account SET n = 100")
        with pytest.raises(Conflict, match="had read before the guard"):
            guard(database, lease)
        database.rollback()
        assert seen == 1


def test_number_of_a_fence_needs_the_resource_and_counts_like_the_lease(
    database: sqlite3.Connection, client: leasehold.Client
) -> None:
    stale, current = two_in_turn(client.lock("account"))
    with pytest.raises(ConfigurationError, match="resource="):
        guard(database, current.fence)
    for token in (current, current.fence, current):
        with database:
            guard(database, token, resource="account")
    with pytest.raises(StaleFence), database:
        guard(database, stale.fence, resource="account")


@pytest.mark.parametrize("fence", [0, -1, True, MAX_FENCE + 1])
def test_number_that_no_store_mints_is_refused(database: sqlite3.Connection, fence: int) -> None:
    with pytest.raises(ConfigurationError, match="a fence is a whole number"):
        guard(database, fence, resource="account")


def test_connection_of_an_unknown_kind_is_refused_by_name(client: leasehold.Client) -> None:
    with client.lock("account").hold() as lease, pytest.raises(ConfigurationError, match=r"builtins\.object"):
        guard(object(), lease)


def test_schema_can_be_made_beforehand_and_a_cursor_will_do(
    database: sqlite3.Connection, client: leasehold.Client
) -> None:
    database.execute(guard_schema("sqlite"))
    with client.lock("account").hold() as lease, database:
        guard(database.cursor(), lease)
    assert database.execute("SELECT count(*) FROM leasehold_guard").fetchone() == (1,)
    with pytest.raises(ConfigurationError, match="no guard for"):
        guard_schema("oracle")


def test_fence_from_a_store_that_counts_otherwise_names_the_remedy(
    database: sqlite3.Connection, client: leasehold.Client
) -> None:
    with database:
        guard(database, 1_800_000_000_000_000, resource="leasehold:account")
    with client.lock("account").hold() as lease, pytest.raises(StaleFence, match="leasehold fence raise account 18"):
        add_one(database, lease)


def test_owner_is_not_stored_at_the_resource(database: sqlite3.Connection, client: leasehold.Client) -> None:
    with client.lock("account").hold() as lease:
        add_one(database, lease)
        owner = lease._twin._tenure.grant.claim.owner
    assert owner not in "\n".join(database.iterdump())
