"""The triggers of `leasehold schema fence --dialect mysql`, also with sessions that are used again by others."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
import sqlalchemy

import leasehold
from leasehold.errors import ConfigurationError, RetryTransaction
from leasehold.sql import fence_schema, fence_statements, guard
from tests.sql.desks import sqlalchemy_url
from tests.sql.mariadb_sessions import connect, run
from tests.waiting import two_in_turn
from verification.lab.process import find_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.mariadb import MariadbServer

HOSTILE = ["a'b", 'a"b', "a`b", "a;DROP TABLE other;--", "a\\", "a\n//\nDROP TABLE other;\n--", "{}", "{id}", "100%"]
FENCE = "SET @leasehold_fence = '{}'"
WRITE = "UPDATE orders SET state = 'x' WHERE id = 1"


def refusal(connection: pymysql.Connection[Any], *statements: str) -> str | None:
    """The code with which the last statement is refused, in one transaction."""
    try:
        run(connection, *statements)
        connection.commit()
    except pymysql.MySQLError as error:
        connection.rollback()
        return str(error.args[1]).partition("LH")[1] + str(error.args[1]).partition("LH")[2][:3]
    return None


def alone(url: str, *statements: str) -> str | None:
    """The same in a session of its own."""
    with closing(connect(url)) as connection:
        return refusal(connection, *statements)


def install(url: str, table: str = "orders", key: str = "id", **options: Any) -> None:
    with closing(connect(url)) as connection:
        run(connection, *fence_statements(table, key, dialect="mysql", **options))


@pytest.fixture
def url(mariadb_database: str) -> str:
    with closing(connect(mariadb_database)) as connection:
        run(connection, "CREATE TABLE orders (id INTEGER PRIMARY KEY, state VARCHAR(40))")
        run(connection, "INSERT INTO orders VALUES (1, 'new'), (2, 'new')")
        connection.commit()
    return mariadb_database


@pytest.fixture
def client() -> Iterator[leasehold.Client]:
    with leasehold.connect("memory://") as client:
        client.raise_fence("orders:1", 100, reason="numbers that read well")
        yield client


def state(url: str, order: int = 1) -> str | None:
    with closing(connect(url)) as connection:
        rows = run(connection, f"SELECT state FROM orders WHERE id = {order}")
    return rows[0][0] if rows else None


@pytest.mark.parametrize(
    "write",
    [
        WRITE,
        "UPDATE IGNORE orders SET state = 'x' WHERE id = 1",
        "DELETE FROM orders WHERE id = 1",
        "INSERT INTO orders VALUES (3, 'x')",
        "INSERT IGNORE INTO orders VALUES (3, 'x')",
        "REPLACE INTO orders VALUES (1, 'x')",
        "INSERT INTO orders VALUES (1, 'x') ON DUPLICATE KEY UPDATE state = 'x'",
        "UPDATE orders SET id = 11 WHERE id = 1",
    ],
)
def test_write_without_a_fence_is_refused_whatever_it_is(url: str, write: str) -> None:
    install(url)
    assert alone(url, write) == "LH002"
    assert (state(url), state(url, 3)) == ("new", None)


def test_newest_number_passes_and_an_older_one_is_refused(url: str) -> None:
    install(url)
    assert alone(url, FENCE.format(34), WRITE, WRITE) is None
    assert alone(url, FENCE.format(33), WRITE) == "LH001"
    assert alone(url, FENCE.format(34), "DELETE FROM orders WHERE id = 1") is None
    assert alone(url, FENCE.format(33), "INSERT INTO orders VALUES (1, 'risen')") == "LH001"
    assert alone(url, FENCE.format(35), "INSERT INTO orders VALUES (1, 'new again')") is None


@pytest.mark.parametrize("fence", ["", "0", "-1", "x", "9007199254740992", "99999999999999999999", "1.5", " 1"])
def test_what_is_no_fence_is_refused(url: str, fence: str) -> None:
    install(url)
    assert alone(url, FENCE.format(fence), WRITE) == "LH002"


def test_guard_gives_its_fence_to_the_triggers(url: str, client: leasehold.Client) -> None:
    install(url)
    with client.lock("orders:1").hold() as lease, client.lock("orders:2").hold() as second:
        with closing(connect(url)) as connection:
            guard(connection, lease)
            guard(connection, second)
            assert refusal(connection, "UPDATE orders SET state = 'a'", "UPDATE orders SET state = 'b'") is None
        assert alone(url, FENCE.format(lease.fence - 1), WRITE) == "LH001"
        with closing(connect(url)) as connection:
            guard(connection, lease)
            other = "UPDATE orders SET state = 'not mine' WHERE id = 2"
            assert refusal(connection, other) == "LH002", "the fence of one lock does not open the rows of another"
    assert (state(url), state(url, 2)) == ("b", "b")


def test_lease_that_is_shared_does_not_open_a_table_for_writing(url: str, client: leasehold.Client) -> None:
    install(url)
    lock = client.rwlock("orders:1")
    writer, _ = two_in_turn(lock.write)
    with lock.read.hold() as lease, closing(connect(url)) as connection:
        guard(connection, writer)
        assert refusal(connection, WRITE) is None
        guard(connection, lease)
        connection.commit()
        guard(connection, lease)
        assert refusal(connection, WRITE) == "LH002"
        for fence, code in ((lease.fence - 1, "LH001"), (lease.fence, "LH001"), (lease.fence + 1, None)):
            assert alone(url, FENCE.format(fence), WRITE) == code


# --- sessions that are used again


def test_number_that_was_left_in_a_session_is_used_up_and_opens_no_other_row(url: str) -> None:
    install(url)
    with closing(connect(url)) as pooled:
        assert refusal(pooled, FENCE.format(34), WRITE) is None
        assert refusal(pooled, "UPDATE orders SET state = 'x' WHERE id = 2") == "LH002"
        assert alone(url, FENCE.format(34), WRITE) is None
        assert refusal(pooled, WRITE) == "LH002", "another session with the same number has passed since"


def test_session_that_guarded_before_is_refused_once_another_has_passed(url: str, client: leasehold.Client) -> None:
    """So what a session that nobody cleaned up lets through is what a late holder could write before the next one."""
    install(url)
    first, second = two_in_turn(client.lock("orders:1"))
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), pool_size=1, max_overflow=0)
    with engine.begin() as tx:
        guard(tx, first)
        tx.execute(sqlalchemy.text(WRITE))
    with closing(connect(url)) as other:
        guard(other, second)
        run(other, "UPDATE orders SET state = 'second' WHERE id = 1")
        other.commit()
    with pytest.raises(sqlalchemy.exc.DBAPIError, match="LH002"), engine.begin() as tx:
        tx.execute(sqlalchemy.text(WRITE))  # the same session, out of the pool
    engine.dispose()
    assert state(url) == "second"


def test_write_of_a_session_that_guarded_before_is_noticed_by_older_snapshots(
    url: str, client: leasehold.Client
) -> None:
    """The pass that the trigger counts: without it, the second would write what it computed from the old value."""
    install(url)
    first, second = two_in_turn(client.lock("orders:1"))
    with closing(connect(url)) as pooled, closing(connect(url)) as other:
        guard(pooled, first)
        pooled.commit()
        run(other, "SELECT state FROM orders")
        assert refusal(pooled, WRITE) is None
        with pytest.raises(RetryTransaction):
            guard(other, second)


def test_refused_guard_leaves_no_fence_behind(url: str, client: leasehold.Client) -> None:
    install(url)
    stale, current = two_in_turn(client.lock("orders:1"))
    with closing(connect(url)) as other:
        guard(other, current)
        other.commit()
    with closing(connect(url)) as pooled:
        with pytest.raises(leasehold.StaleFence):
            guard(pooled, stale)
        pooled.rollback()
        assert refusal(pooled, WRITE) == "LH002"
        guard(pooled, current)
        pooled.rollback()
        assert refusal(pooled, WRITE) == "LH002", "nothing of it was committed"


# --- names, rights, forms


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_inert(mariadb: MariadbServer, url: str, name: str, client: leasehold.Client) -> None:
    quoted = name.replace("`", "``")
    with closing(connect(url)) as connection:
        run(
            connection, "CREATE TABLE other (n INTEGER)", f"CREATE TABLE `{quoted}` (`{quoted}` VARCHAR(9), state TEXT)"
        )
        run(connection, f"INSERT INTO `{quoted}` VALUES ('1', 'new')")
        connection.commit()
    words = ["schema", "fence", "--dialect", "mysql", "--table", name, "--key", name, f"--lock={name}:{{{name}}}"]
    print_it = [sys.executable, "-m", "leasehold", *words]
    script = subprocess.run(print_it, capture_output=True, text=True, check=True, timeout=60).stdout
    program = [find_program("mariadb", "mariadb-client"), "-h127.0.0.1", f"-P{mariadb.port}", "-uroot"]
    for _ in range(2):
        command = [*program, "--default-character-set=latin1", sqlalchemy.make_url(url).database or ""]
        done = subprocess.run(command, input=script, text=True, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
    update = f"UPDATE `{quoted}` SET state = 'x'"
    assert alone(url, "SELECT n FROM other", update) == "LH002"
    with client.lock(f"{name}:1").hold() as lease, closing(connect(url)) as connection:
        guard(connection, lease)
        assert refusal(connection, update) is None


def test_account_that_may_write_the_table_needs_no_right_on_the_book(mariadb: MariadbServer, url: str) -> None:
    install(url)
    database = sqlalchemy.make_url(url).database
    account = f"{database}_app"
    mariadb.run(f"CREATE USER {account}@'127.0.0.1'")
    mariadb.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.orders TO {account}@'127.0.0.1'")
    with closing(connect(url, user=account)) as connection:
        assert refusal(connection, FENCE.format(34), WRITE) is None
        assert refusal(connection, FENCE.format(33), WRITE) == "LH001"
        for forbidden in ("UPDATE leasehold_guard SET exclusive_fence = 0", "CALL leasehold_check_fence('a', TRUE)"):
            with pytest.raises(pymysql.MySQLError, match="denied"):
                run(connection, forbidden)


def test_one_lock_for_the_whole_table_and_the_lenient_form(url: str, client: leasehold.Client) -> None:
    install(url, lock="all orders")
    with client.lock("all orders").hold() as lease, closing(connect(url)) as connection:
        guard(connection, lease)
        assert refusal(connection, "UPDATE orders SET state = 'x'") is None
    assert alone(url, WRITE) == "LH002"
    install(url, strict=False)
    assert alone(url, "UPDATE orders SET state = 'unfenced' WHERE id = 1") is None
    assert alone(url, FENCE.format(34), WRITE) is None
    assert alone(url, FENCE.format(33), WRITE) == "LH001"


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="postgresql and mysql"):
        fence_schema("orders", "id", dialect="sqlite")
    scripts = [fence_schema("t" * 62 + end, "id", dialect="mysql") for end in "ab"]
    assert len({script.partition("CREATE TRIGGER ")[2].split()[0] for script in scripts}) == 2
