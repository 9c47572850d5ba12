"""The triggers of `leasehold schema fence`: a table that refuses late writes and unfenced ones from any program."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

import leasehold
from leasehold.errors import ConfigurationError
from leasehold.sql import fence_schema, guard
from tests.sql.desks import fresh_schema
from verification.lab.process import find_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.postgres import PostgresServer

HOSTILE = [
    "a'b",
    'a"b',
    "a;DROP TABLE other;--",
    "a\\",
    "a\nDROP TABLE other;\n--",
    "$leasehold$",
    "{}",
    "{id}",
    "100%",
]


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    url = fresh_schema(postgres)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, state text)")
        connection.execute("INSERT INTO orders VALUES (1, 'new'), (2, 'new')")
    return url


def schema_of(url: str) -> str:
    return url.rpartition("%3D")[2]


def install(url: str, table: str = "orders", key: str = "id", **options: Any) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(fence_schema(table, key, schema=schema_of(url), **options).encode())


@pytest.fixture
def client() -> Iterator[leasehold.Client]:
    with leasehold.connect("memory://") as client:
        client.raise_fence("orders:1", 100, reason="numbers that read well")
        yield client


def psql(url: str, script: str) -> subprocess.CompletedProcess[str]:
    """A program that knows nothing of leasehold."""
    program = find_program("psql", "postgresql-client")
    command = [program, "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", url]
    return subprocess.run(command, input=script, text=True, capture_output=True, check=False, timeout=60)


def state(url: str, order: int = 1) -> str | None:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT state FROM orders WHERE id = %s", [order]).fetchone()
    return None if row is None else row[0]


def refusal(url: str, *statements: str) -> str | None:
    """The code with which the last statement is refused, in one transaction of plain psycopg."""
    with closing(psycopg.connect(url)) as connection:
        try:
            for statement in statements:
                connection.execute(statement.encode())
            connection.commit()
        except psycopg.Error as error:
            return error.sqlstate
    return None


FENCE = "SET LOCAL leasehold.fence = '{}'"


@pytest.mark.parametrize(
    "write",
    [
        "UPDATE orders SET state = 'x' WHERE id = 1",
        "DELETE FROM orders WHERE id = 1",
        "INSERT INTO orders VALUES (3, 'x')",
        "INSERT INTO orders VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET state = 'x'",
        "UPDATE orders SET id = 1 + 10 WHERE id = 1",
        "TRUNCATE orders",
        "MERGE INTO orders USING (SELECT 1 AS one) AS s ON orders.id = s.one WHEN MATCHED THEN UPDATE SET state = 'x'",
        "COPY orders FROM PROGRAM 'echo 3,x' CSV",
    ],
)
def test_write_without_a_fence_is_refused_whatever_it_is(url: str, write: str) -> None:
    install(url)
    assert refusal(url, write) == "LH002"
    assert (state(url), state(url, 3)) == ("new", None)


def test_psql_with_the_newest_fence_passes_and_with_an_older_one_is_refused(url: str) -> None:
    install(url)
    write = "BEGIN; SET LOCAL leasehold.fence = '{}'; UPDATE orders SET state = 'by {}' WHERE id = 1; COMMIT;"
    assert psql(url, write.format(34, 34)).returncode == 0
    done = psql(url, write.format(33, 33))
    assert done.returncode != 0
    assert "LH001" in done.stderr
    assert "has seen 34" in done.stderr
    assert state(url) == "by 34"
    unset = psql(url, "UPDATE orders SET state = 'by nobody' WHERE id = 1;")
    assert "LH002" in unset.stderr
    assert psql(url, write.format(34, "34 again")).returncode == 0
    assert state(url) == "by 34 again"


def test_fence_ends_with_its_transaction(url: str) -> None:
    install(url)
    with psycopg.connect(url, autocommit=True) as connection:
        for ending in ("COMMIT", "ROLLBACK"):
            connection.execute("BEGIN")
            connection.execute("SET LOCAL leasehold.fence = '5'")
            connection.execute("UPDATE orders SET state = 'x' WHERE id = 1")
            connection.execute(ending.encode())
            with pytest.raises(psycopg.Error) as caught:
                connection.execute("UPDATE orders SET state = 'late' WHERE id = 1")
            assert caught.value.sqlstate == "LH002"


def test_deleted_row_is_not_brought_back_by_a_late_writer(url: str) -> None:
    install(url)
    assert refusal(url, FENCE.format(34), "DELETE FROM orders WHERE id = 1") is None
    assert refusal(url, FENCE.format(33), "INSERT INTO orders VALUES (1, 'risen')") == "LH001"
    assert refusal(url, FENCE.format(35), "INSERT INTO orders VALUES (1, 'new again')") is None
    assert state(url) == "new again"


def test_row_that_changes_its_key_needs_the_fence_of_both(url: str) -> None:
    install(url)
    assert refusal(url, FENCE.format(50), "INSERT INTO orders VALUES (7, 'x')") is None
    assert refusal(url, FENCE.format(50), "DELETE FROM orders WHERE id = 7") is None
    assert refusal(url, FENCE.format(40), "UPDATE orders SET id = 7 WHERE id = 1") == "LH001"
    assert refusal(url, FENCE.format(60), "UPDATE orders SET id = 7 WHERE id = 1") is None


@pytest.mark.parametrize("fence", ["", "0", "-1", "x", "9007199254740992", "99999999999999999999", "1.5", " 1"])
def test_what_is_no_fence_is_refused(url: str, fence: str) -> None:
    install(url)
    assert refusal(url, FENCE.format(fence), "UPDATE orders SET state = 'x' WHERE id = 1") == "LH002"


def test_guard_gives_its_fence_to_the_triggers(url: str, client: leasehold.Client) -> None:
    install(url)
    lock = client.lock("orders:1")
    stale = lock.acquire()
    stale.release()
    with lock.hold() as lease, client.lock("orders:2").hold() as second:
        with psycopg.connect(url) as connection:
            guard(connection, lease)
            guard(connection, second)
            for _ in range(2):
                connection.execute("UPDATE orders SET state = 'guarded'")
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT count(*) FROM leasehold_guard").fetchone()
        assert row == (2,), "guard and triggers keep one book"
        assert refusal(url, FENCE.format(stale.fence), "UPDATE orders SET state = 'x' WHERE id = 1") == "LH001"
        with closing(psycopg.connect(url)) as connection:
            guard(connection, lease)
            with pytest.raises(psycopg.Error) as caught:
                connection.execute("UPDATE orders SET state = 'not mine' WHERE id = 2")
            assert caught.value.sqlstate == "LH002", "the fence of one lock does not open the rows of another"
    assert (state(url), state(url, 2)) == ("guarded", "guarded")


def test_many_rows_of_one_transaction_write_into_the_book_once(url: str, client: leasehold.Client) -> None:
    """A new version of its row for each of them would make large writes slower and slower."""
    install(url, lock="all orders")
    place = "SELECT ctid FROM leasehold_guard"
    with client.lock("all orders").hold() as lease:
        for begin in (lambda tx: guard(tx, lease), lambda tx: tx.execute(FENCE.format(lease.fence).encode())):
            with psycopg.connect(url) as connection:
                begin(connection)
                connection.execute("INSERT INTO orders SELECT max(id) + 1, 'x' FROM orders")
                before = connection.execute(place).fetchone()
                connection.execute("UPDATE orders SET state = 'y'")
                assert connection.execute(place).fetchone() == before


def test_plain_writer_is_refused_after_a_guard_with_a_newer_fence(url: str, client: leasehold.Client) -> None:
    install(url)
    with client.lock("orders:1").hold() as lease:
        assert refusal(url, FENCE.format(lease.fence - 1), "UPDATE orders SET state = 'old' WHERE id = 1") is None
        with psycopg.connect(url) as connection:
            guard(connection, lease)
        assert refusal(url, FENCE.format(lease.fence - 1), "UPDATE orders SET state = 'late' WHERE id = 1") == "LH001"
    assert state(url) == "old"


def test_lease_that_is_shared_does_not_open_a_table_for_writing(url: str, client: leasehold.Client) -> None:
    install(url)
    with client.rwlock("orders:1").read.hold() as lease, closing(psycopg.connect(url)) as connection:
        guard(connection, lease)
        with pytest.raises(psycopg.Error) as caught:
            connection.execute("UPDATE orders SET state = 'x' WHERE id = 1")
        assert caught.value.sqlstate == "LH002"


def test_writer_older_than_a_reader_is_refused(url: str, client: leasehold.Client) -> None:
    install(url)
    with client.rwlock("orders:1").read.hold() as lease:
        with psycopg.connect(url) as connection:
            guard(connection, lease)
        for fence, code in ((lease.fence - 1, "LH001"), (lease.fence, "LH001"), (lease.fence + 1, None)):
            assert refusal(url, FENCE.format(fence), "UPDATE orders SET state = 'x' WHERE id = 1") == code


def test_savepoint_that_is_rolled_back_takes_its_fence_along(url: str) -> None:
    install(url)
    with closing(psycopg.connect(url)) as connection:
        connection.execute("SAVEPOINT s")
        connection.execute("SET LOCAL leasehold.fence = '5'")
        connection.execute("UPDATE orders SET state = 'x' WHERE id = 1")
        connection.execute("ROLLBACK TO s")
        with pytest.raises(psycopg.Error) as caught:
            connection.execute("UPDATE orders SET state = 'x' WHERE id = 1")
        assert caught.value.sqlstate == "LH002"


def test_one_lock_for_the_whole_table(url: str, client: leasehold.Client) -> None:
    install(url, lock="all orders")
    with client.lock("all orders").hold() as lease, psycopg.connect(url) as connection:
        guard(connection, lease)
        connection.execute("UPDATE orders SET state = 'x'")
        connection.execute("TRUNCATE orders")
    assert refusal(url, "TRUNCATE orders") == "LH002"


def test_lock_of_a_row_may_be_named_otherwise(url: str) -> None:
    with leasehold.connect("memory://", namespace="sh:op") as client:
        install(url, lock="order {id}!", namespace="sh:op")
        with client.lock("order 1!").hold() as lease, psycopg.connect(url) as connection:
            guard(connection, lease)
            connection.execute("UPDATE orders SET state = 'x' WHERE id = 1")
    assert state(url) == "x"


def test_lenient_form_lets_unfenced_writes_through_but_no_stale_ones(url: str) -> None:
    install(url, strict=False)
    assert refusal(url, "UPDATE orders SET state = 'unfenced' WHERE id = 1") is None
    assert refusal(url, FENCE.format(34), "UPDATE orders SET state = 'x' WHERE id = 1") is None
    assert refusal(url, FENCE.format(33), "UPDATE orders SET state = 'y' WHERE id = 1") == "LH001"
    assert refusal(url, "TRUNCATE orders") is None
    install(url)
    assert refusal(url, "INSERT INTO orders VALUES (1, 'x')") == "LH002"


def test_account_that_may_write_the_table_needs_no_right_on_the_book_and_cannot_write_there(
    postgres: PostgresServer, url: str
) -> None:
    install(url)
    schema, account = schema_of(url), f"{schema_of(url)}_app"
    postgres.run(f"CREATE ROLE {account} LOGIN")
    postgres.run(f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {account}", schema)
    postgres.run(f"GRANT ALL ON {schema}.orders TO {account}", schema)
    app = url.replace("postgres@", f"{account}@")
    write = "UPDATE orders SET state = 'x' WHERE id = 1"
    assert refusal(app, FENCE.format(34), write) is None
    assert refusal(app, FENCE.format(33), write) == "LH001"
    insufficient_privilege = "42501"
    for forbidden in (
        "UPDATE leasehold_guard SET exclusive_fence = 0",
        "SELECT leasehold_check_fence('leasehold:orders:1', true)",
        "ALTER TABLE orders DISABLE TRIGGER ALL",
        "SET session_replication_role = replica",
    ):
        assert refusal(app, FENCE.format(33), forbidden) == insufficient_privilege
    shadow = (
        "CREATE TEMP TABLE leasehold_guard (resource text PRIMARY KEY, exclusive_fence bigint, shared_fence bigint)"
    )
    assert refusal(app, shadow, FENCE.format(33), write) == "LH001"


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_inert(postgres: PostgresServer, url: str, name: str, client: leasehold.Client) -> None:
    with psycopg.connect(url) as connection:
        table, column = sql.Identifier(name), sql.Identifier(name)
        connection.execute("CREATE TABLE other (n integer)")
        connection.execute(sql.SQL("CREATE TABLE {} ({} text, state text)").format(table, column))
        connection.execute(sql.SQL("INSERT INTO {} VALUES ('1', 'new')").format(table))
    words = ["schema", "fence", "--table", name, "--key", name, "--schema", schema_of(url)]
    script = subprocess.run(
        [sys.executable, "-m", "leasehold", *words], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert psql(url, script).returncode == 0
    assert psql(url, script).returncode == 0, "it may be run again"
    with psycopg.connect(url) as connection:
        connection.execute("SELECT n FROM other")
    quoted = name.replace('"', '""')
    update = f"UPDATE \"{quoted}\" SET state = 'x'"
    assert refusal(url, update) == "LH002"
    with client.lock(f"{name}:1").hold() as lease:
        with psycopg.connect(url) as connection:
            guard(connection, lease)
            connection.execute(update.encode())
        assert refusal(url, FENCE.format(lease.fence - 1), update) == ("LH001" if lease.fence > 1 else "LH002")


@pytest.mark.parametrize("lock", HOSTILE)
def test_names_of_locks_are_inert(url: str, lock: str, client: leasehold.Client) -> None:
    install(url, lock=lock)
    name = lock.replace("{id}", "1")
    with client.lock(name).hold() as lease, psycopg.connect(url) as connection:
        guard(connection, lease)
        connection.execute("UPDATE orders SET state = 'x' WHERE id = 1")
    assert refusal(url, "UPDATE orders SET state = 'y' WHERE id = 1") == "LH002"


def test_what_cannot_be_meant_is_refused() -> None:
    senseless: list[dict[str, Any]] = [
        {"lock": ""}, {"lock": "{id} {id}"}, {"lock": "a\0"}, {"namespace": ""}, {"schema": "s" * 64},
    ]  # fmt: skip
    for words in senseless:
        with pytest.raises(ConfigurationError):
            fence_schema("orders", "id", **words)


def test_long_table_names_do_not_share_a_function() -> None:
    scripts = [fence_schema("t" * 62 + end, "id") for end in "ab"]
    functions = {script.partition("EXECUTE FUNCTION ")[2].partition("(")[0] for script in scripts}
    assert len(functions) == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["guard"], 0),
        (["guard", "--dialect", "sqlite"], 0),
        (["guard", "--dialect", "mysql"], 0),
        (["fence"], 64),
        (["fence", "--table", "t"], 64),
        (["fence", "--table", "t", "--key", "k", "--dialect", "sqlite"], 64),
        (["nothing"], 64),
    ],
)
def test_command_line_prints_it_or_says_what_is_missing(words: list[str], code: int) -> None:
    command = [sys.executable, "-m", "leasehold", "schema", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("CREATE TABLE IF NOT EXISTS leasehold_guard") is (code == 0)


def test_truncate_of_a_partition_is_refused_like_that_of_its_table(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE part (id integer, state text) PARTITION BY RANGE (id)")
        connection.execute("CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)")
        connection.execute("CREATE TABLE part_1_1 PARTITION OF part_1 FOR VALUES FROM (0) TO (5)")
    install(url, "part")
    for table in ("part", "part_1", "part_1_1"):
        assert refusal(url, f"TRUNCATE {table}") == "LH002"
        assert refusal(url, f"INSERT INTO {table} VALUES (1, 'x')") == "LH002"


def test_tables_that_inherit_are_fenced_like_the_one_that_they_inherit_from(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute('CREATE TABLE "or""d%s" () INHERITS (orders)')
        connection.execute('CREATE TABLE below () INHERITS ("or""d%s")')
    install(url)
    for table in ('"or""d%s"', "below"):
        for write in ("TRUNCATE {}", "INSERT INTO {} VALUES (1, 'x')", "INSERT INTO {} VALUES (5, 'x')"):
            assert refusal(url, write.format(table)) == "LH002"
        assert refusal(url, FENCE.format(34), f"INSERT INTO {table} VALUES (1, 'x')") is None
        assert refusal(url, FENCE.format(33), f"DELETE FROM {table}") == "LH001"


def test_write_after_a_refusal_that_was_caught_around_a_savepoint_carries_no_fence(
    url: str, client: leasehold.Client
) -> None:
    install(url)
    stale = client.lock("orders:1").acquire()
    stale.release()
    with client.lock("orders:1").hold() as current, closing(psycopg.connect(url)) as connection:
        guard(connection, current)
        connection.commit()
        with connection.transaction():
            with pytest.raises(leasehold.StaleFence), connection.transaction():
                guard(connection, stale)
            with pytest.raises(psycopg.Error) as caught, connection.transaction():
                connection.execute("UPDATE orders SET state = 'late' WHERE id = 1")
            assert caught.value.sqlstate == "LH002"
