"""PostgreSQL: who may make the tables, who may only use them, versions, and names that look like SQL."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

import leasehold
from leasehold._backends.postgres import ddl, doctor, schema
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.findings import Finding
from leasehold.sql import store_schema
from leasehold.values import Claim, Grant, Holder, Mode
from tests.servers.postgres import fresh_database
from tests.stores.support import eventually
from verification.lab.pgbouncer import PgBouncer

if TYPE_CHECKING:
    from pathlib import Path

    from verification.lab.postgres import PostgresServer

HOSTILE = "x'; DROP TABLE leasehold.lock; -- \\ \" $$ %s $1"


@pytest.fixture
def worker(postgres: PostgresServer, database: str) -> str:
    """The url of a role that owns nothing; the database is empty."""
    name = f"worker {database[-6:]}\"';"
    postgres.run(f"CREATE ROLE {sql.Identifier(name).as_string()} LOGIN")
    return postgres.url(database.rpartition("/")[2], name)


def owner_runs(database: str, script: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(script.encode())


def test_role_with_the_least_rights_can_do_everything_but_make_tables(database: str, worker: str) -> None:
    role = psycopg.conninfo.conninfo_to_dict(worker)["user"]
    owner_runs(database, store_schema(role=str(role)))
    for mode in ("rows", "session"):
        with leasehold.connect(f"{worker}?mode={mode}", ttl=5) as client:
            with client.lock("job").hold() as lease:
                lease.renew()
                assert client.lock("job").try_acquire() is None
                assert client.break_lock("job", fence=lease.fence + 1, reason="not this one") is False
            assert client.raise_fence("job", 7, reason="test") >= lease.fence
            assert client.locks() == []
            assert [finding.level.name for finding in client.examine() if finding.check == "rights"] == ["OK"]
    with leasehold.connect(worker, ttl=5) as client:
        assert client.once("slot", slot="1").run(lambda: 1)
        with client.semaphore("seats", 2).hold(), client.rwlock("doc").read.hold(), client.lock("job").hold():
            waits = threading.Thread(target=lambda: client.lock("job").acquire(timeout=20).release())
            waits.start()
            eventually(lambda: len(client.inspect("job").waiting) == 1)  # type: ignore[union-attr]
        waits.join()
    with psycopg.connect(worker, autocommit=True) as connection:
        for forbidden in (
            "CREATE TABLE leasehold.other (n int)",
            "DROP TABLE leasehold.lock",
            "TRUNCATE leasehold.lock",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(forbidden.encode())


def test_role_without_rights_is_refused_with_what_to_do(database: str, worker: str) -> None:
    for _ in range(2):
        with leasehold.connect(worker) as client, pytest.raises(leasehold.BackendRejected, match="leasehold schema"):
            client.lock("job").acquire()
        owner_runs(database, store_schema())  # the tables are there the second time, and still not this role's
    with leasehold.connect(worker) as client:
        (finding,) = [finding for finding in client.examine() if finding.check == "rights"]
        assert finding.level.name == "PROBLEM"
        assert "--role" in finding.advice


def test_many_clients_that_come_first_at_once_all_find_their_tables(database: str) -> None:
    errors: list[BaseException] = []
    barrier = threading.Barrier(12)

    def first() -> None:
        try:
            with leasehold.connect(database, ttl=20) as client:
                barrier.wait()
                client.lock("first").acquire(timeout=30).release()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=first) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_tables_that_vanish_are_made_again(database: str) -> None:
    with leasehold.connect(database) as client:
        for _ in range(5):  # so often that the statements are prepared
            client.lock("job").acquire().release()
        owner_runs(database, "DROP SCHEMA leasehold CASCADE")
        with client.lock("job").hold() as lease:
            assert lease.fence > 1_600_000_000_000_000


@pytest.mark.parametrize("ahead", [1, 90])
def test_tables_of_a_newer_leasehold_are_left_alone(database: str, ahead: int) -> None:
    owner_runs(database, store_schema())
    owner_runs(database, f"UPDATE leasehold.about SET version = version + {ahead}")
    with leasehold.connect(database) as client:
        client.lock("job").acquire().release()  # the functions that it knows are still there
    owner_runs(database, "DROP FUNCTION leasehold.withdraw_3, leasehold.release_5")
    with leasehold.connect(database) as client:
        lease = client.lock("job").acquire()
        with pytest.raises(leasehold.BackendRejected, match="newer leasehold"):
            lease.release()


def test_function_that_is_missing_from_tables_of_this_version_is_told_with_what_to_do(database: str) -> None:
    owner_runs(database, store_schema())
    owner_runs(database, "DROP FUNCTION leasehold.turns_5")
    errors: list[BaseException] = []
    with leasehold.connect(database, ttl=20) as client:
        lease = client.lock("job").acquire()

        def wait() -> None:
            try:
                client.lock("job", fair="strict").acquire(timeout=60).release()
            except leasehold.BackendRejected as error:
                errors.append(error)

        threads = [threading.Thread(target=wait) for _ in range(10)]  # several, so that they ask together
        for thread in threads:
            thread.start()
        eventually(lambda: errors, "no waiter raises")
        assert "have their owner run what `leasehold schema postgresql` prints" in str(errors[0])
        owner_runs(database, store_schema())
        lease.release()
        for thread in threads:
            thread.join()
        client.lock("job").acquire(timeout=60).release()


def test_clients_that_find_no_tables_at_the_same_time_make_them_once(postgres: PostgresServer, database: str) -> None:
    """Each made them anew, and all requests waited for locks on the tables meanwhile; releases missed their time."""
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = "
        f"(SELECT oid FROM pg_database WHERE datname = '{database.rpartition('/')[2]}')"
    )
    clients = [leasehold.connect(database, ttl=20) for _ in range(5)]
    with psycopg.connect(database) as first:
        first.execute(f"SELECT pg_advisory_xact_lock({ddl.ONE_AT_A_TIME})".encode())
        threads = [
            threading.Thread(target=lambda client=client: client.lock("job").acquire(timeout=60).release())
            for client in clients
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: postgres.run(waiting) == [(5,)], "not all of them want to make the tables")
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    with psycopg.connect(database) as connection:
        remade = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'leasehold'::regnamespace AND xmin <> "
        row = connection.execute(f"{remade} (SELECT xmin FROM pg_namespace WHERE nspname = 'leasehold')".encode())
        assert row.fetchone() == (0,), "functions were replaced after they had been made"


def test_short_statement_timeout_does_not_keep_the_tables_from_being_made(
    postgres: PostgresServer, database: str
) -> None:
    backend: Any = find_store(f"{database}?options=-cstatement_timeout%3D200").open_backend(ThreadRuntime())
    claim = Claim("ns:x", "owner", 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
    answers: list[object] = []
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND waitstart < now() - interval"
    )
    with psycopg.connect(database) as first:
        first.execute(f"SELECT pg_advisory_xact_lock({ddl.ONE_AT_A_TIME})".encode())
        thread = threading.Thread(target=lambda: answers.append(run(backend.try_acquire(claim))))
        thread.start()
        eventually(lambda: postgres.run(f"{waiting} '0.4 s'") == [(1,)], "it does not wait, or not for long")
    thread.join()
    assert [type(answer) for answer in answers] == [Grant]
    run(backend.close())


def test_upgrade_runs_only_the_steps_that_are_missing(
    database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with leasehold.connect(database) as client:
        held = client.lock("held", ttl=600).acquire()
        step = "CREATE FUNCTION @schema@.newer_6() RETURNS integer LANGUAGE sql AS 'SELECT 6';\n"
        (tmp_path / "newer.sql").write_text(step)
        for name in [name for step in ddl.STEPS.values() for name in step]:
            (tmp_path / name).write_text("SELECT 1/0;\n")  # must not be run again
        for patch, value in (("FOLDER", tmp_path), ("STEPS", {**ddl.STEPS, 6: ("newer.sql",)}), ("VERSION", 6)):
            monkeypatch.setattr(ddl, patch, value)
        monkeypatch.setattr(schema, "VERSION", 6)
        owner_runs(database, "DROP FUNCTION leasehold.raise_fence_3")  # whatever is missed first
        with leasehold.connect(database) as other, pytest.raises(leasehold.BackendRejected):
            other.raise_fence("held", 5, reason="test")
        with psycopg.connect(database) as connection:
            row = connection.execute("SELECT version, leasehold.newer_6() FROM leasehold.about").fetchone()
            assert row == (6, 6)
        held.check()
        assert held.release() is True


def test_schema_can_be_chosen_and_two_do_not_meet(database: str) -> None:
    with leasehold.connect(f"{database}?schema=one") as one, leasehold.connect(f"{database}?schema=Two_3") as two:
        with one.lock("job").hold(), two.lock("job").hold():
            assert one.lock("job").try_acquire() is None


@pytest.mark.parametrize("schema", ["a b", 'a"b', "a;b", "a'b", "a\\b", "1a", "", "a" * 64, "ä", "a.b", "a-b", "a\n"])
def test_schema_names_that_are_no_plain_identifiers_are_refused_before_any_io(schema: str) -> None:
    from urllib.parse import quote

    with pytest.raises(leasehold.ConfigurationError, match="schema"):
        leasehold.connect(f"postgresql://nowhere/?schema={quote(schema)}")
    with pytest.raises(leasehold.ConfigurationError, match="schema"):
        store_schema(schema=schema)


def test_names_reasons_and_labels_are_only_ever_values(database: str) -> None:
    with leasehold.connect(database, label=HOSTILE, namespace=HOSTILE) as client:
        lease = client.lock(HOSTILE, reason=HOSTILE + "\x00").acquire()
        (state,) = client.locks("x'")
        assert state.name == HOSTILE
        assert state.holdings[0].holder.label == HOSTILE
        assert state.holdings[0].holder.reason == HOSTILE + "\x00"
        assert client.break_lock(HOSTILE, fence=lease.fence, reason=HOSTILE) is True
        with pytest.raises(leasehold.LeaseLost, match="DROP TABLE"):
            lease.renew()
        assert client.once(f"2 {HOSTILE}", slot=HOSTILE[:40]).run(lambda: 1)


def test_other_search_paths_and_settings_of_the_role_do_not_matter(database: str, worker: str) -> None:
    role = str(psycopg.conninfo.conninfo_to_dict(worker)["user"])
    quoted = sql.Identifier(role).as_string()
    owner_runs(database, store_schema(role=role))
    owner_runs(
        database,
        f"ALTER ROLE {quoted} SET search_path = 'nowhere'; ALTER ROLE {quoted} SET bytea_output = 'escape';"
        f"ALTER ROLE {quoted} SET extra_float_digits = 0; ALTER ROLE {quoted} SET datestyle = 'German';"
        f"ALTER ROLE {quoted} SET intervalstyle = 'sql_standard'; ALTER ROLE {quoted} SET timezone = 'Asia/Kathmandu';"
        f"ALTER ROLE {quoted} SET standard_conforming_strings = off;"
        f"ALTER ROLE {quoted} SET client_encoding = 'LATIN1';"
        f"ALTER ROLE {quoted} SET default_transaction_isolation = 'serializable'",
    )
    with leasehold.connect(worker, ttl=20) as client:
        lock = client.lock("ключ 🔒 \\ '")
        with lock.hold() as lease:
            assert lock.try_acquire() is None
            (state,) = client.locks("ключ")
            assert 15 < state.holdings[0].expires_in <= 20
        assert client.once("slot \x00", slot="ä").run(lambda: 1)
        with lock.hold() as later:
            assert later.fence > lease.fence


def test_pooler_whose_role_has_another_isolation_level_only_costs_time(postgres: PostgresServer, database: str) -> None:
    name = database.rpartition("/")[2]
    postgres.run(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    with PgBouncer(postgres) as pooler, leasehold.connect(pooler.url(name), ttl=20) as client:
        counter: list[int] = []

        def work() -> None:
            for _ in range(5):
                with client.lock("job").hold(timeout=60):
                    counter.append(len(counter))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counter == list(range(20))
        levels = {finding.check: finding.level.name for finding in client.examine()}
        assert levels["isolation"] == "WARNING"


def test_two_databases_of_one_server_are_two_stores(postgres: PostgresServer, database: str) -> None:
    other = postgres.url(fresh_database(postgres))
    with leasehold.connect(database) as one, leasehold.connect(other) as two:
        with one.lock("job").hold(), two.lock("job").hold():
            pass


def test_timeout_of_the_role_that_the_query_of_the_doctor_exceeds_is_a_finding(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_FACTS", f"{doctor._FACTS}, LATERAL pg_catalog.pg_sleep(0.5)")
    role = f"hasty_{database[-6:]}".replace("/", "_")
    postgres.run(f"CREATE ROLE {role} LOGIN")
    url = postgres.url(database.rpartition("/")[2], role)
    postgres.run(f"ALTER ROLE {role} SET statement_timeout = '100ms'")
    with leasehold.connect(url) as client:
        (finding,) = [finding for finding in client.examine() if finding.check == "timeouts"]
        assert (finding.level.name, finding.found) == ("WARNING", "statement_timeout 100 ms")
        assert len(client.examine()) > 5, "the other checks are made as well"


def test_query_of_the_doctor_that_is_cancelled_is_a_finding(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_FACTS", f"{doctor._FACTS}, LATERAL pg_catalog.pg_sleep(60)")
    name = database.rpartition("/")[2]
    cancel = f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = '{name}'"
    with leasehold.connect(f"{database}?answer_timeout=60") as client:
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.extend(client.examine()))
        thread.start()
        eventually(lambda: postgres.run(cancel), "it does not run")
        thread.join()
        (finding,) = found
        assert isinstance(finding, Finding)
        assert (finding.check, finding.level.name) == ("timeouts", "PROBLEM")
        client.lock("job").acquire().release()  # the connection is in no transaction
