"""What is in the tables of MariaDB: names as bytes, fences, versions, old rows; and who may use them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.mysql import ddl, maintenance
from leasehold._backends.mysql.maintenance import CLEAN_EVERY, Cleaning
from leasehold._backends.mysql.packets import Answer, Result, ServerError
from leasehold._backends.mysql.statements import MICRO, NOW
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.errors import BackendRejected, BackendUnavailable
from leasehold.kit import rules
from leasehold.sql import store_schema
from leasehold.values import Claim, Holder, Mode
from tests.stores.support import eventually, waiters
from tests.unit.planned_waits import PlannedWaits

if TYPE_CHECKING:
    from verification.lab.mariadb import MariadbServer

HARD = [
    "job",
    "Job",
    "job ",
    " job",
    "cafe\u0301",
    "caf\u00e9",
    "\u00df",
    "ss",
    "a\x00b",
    "a\x00",
    "\U0001f512",
    "x" * 512,
]


def database_of(url: str) -> str:
    return url.rpartition("/")[2]


def rows_of(server: MariadbServer, url: str, query: str) -> list[tuple[object, ...]]:
    return server.run(query, database_of(url))


def test_names_are_compared_byte_by_byte(mariadb_database: str) -> None:
    with leasehold.connect(mariadb_database) as client:
        leases = [client.lock(name).acquire(timeout=20) for name in HARD]
        assert sorted(state.name for state in client.locks()) == sorted(HARD)
        for lease in leases:
            assert lease.release() is True


def test_the_longest_namespace_and_name_fit(mariadb_database: str) -> None:
    with leasehold.connect(mariadb_database, namespace="%" * 512) as client:
        one, other = client.lock("n" * 511 + "x"), client.lock("n" * 511 + "y")
        with one.hold(timeout=20), other.hold(timeout=20), client.semaphore("n" * 512, 2).hold():
            assert len(client.locks()) == 3


def test_uncontended_lock_is_one_row_and_leaves_no_claim(mariadb: MariadbServer, mariadb_database: str) -> None:
    with leasehold.connect(mariadb_database) as client:
        with client.lock("job").hold():
            assert rows_of(mariadb, mariadb_database, "SELECT shape FROM leasehold_lock") == [(1,)]
            assert rows_of(mariadb, mariadb_database, "SELECT COUNT(*) FROM leasehold_claim") == [(0,)]
        assert rows_of(mariadb, mariadb_database, "SELECT shape, owner FROM leasehold_lock") == [(0, None)]


def test_name_without_waiters_is_one_row_again_after_the_release_of_its_last_holder(
    mariadb: MariadbServer, mariadb_database: str
) -> None:
    got: list[leasehold.Lease] = []
    with leasehold.connect(mariadb_database) as client, leasehold.connect(mariadb_database) as other:
        first = client.lock("job").acquire()
        waits = threading.Thread(target=lambda: got.append(other.lock("job").acquire(timeout=60)))
        waits.start()
        eventually(lambda: waiters(client, "job") == 1)
        assert rows_of(mariadb, mariadb_database, "SELECT shape FROM leasehold_lock") == [(2,)]
        first.release()
        waits.join()
        assert rows_of(mariadb, mariadb_database, "SELECT state FROM leasehold_claim") == [(1,)], (
            "as it was handed over"
        )
        got[0].release()
        assert rows_of(mariadb, mariadb_database, "SELECT shape FROM leasehold_lock") == [(0,)]
        assert rows_of(mariadb, mariadb_database, "SELECT COUNT(*) FROM leasehold_claim") == [(0,)]


def test_time_zone_of_the_server_takes_no_part(mariadb: MariadbServer, mariadb_database: str) -> None:
    with leasehold.connect(mariadb_database, ttl=60) as client:
        with client.lock("job").hold() as lease:
            mariadb.run("SET GLOBAL time_zone = '-09:00'")
            try:
                with leasehold.connect(mariadb_database) as other:
                    assert other.lock("job").try_acquire() is None
                    state = other.inspect("job")
                    assert state is not None
                    assert 0 < state.holdings[0].expires_in <= 60
            finally:
                mariadb.run("SET GLOBAL time_zone = 'SYSTEM'")
            lease.renew()


def test_old_rows_are_cleaned_away_and_fences_go_on(mariadb: MariadbServer, mariadb_database: str) -> None:
    with leasehold.connect(mariadb_database) as client:
        lease = client.lock("old").acquire()
        lease.release()
        held = client.lock("held", ttl=60).acquire()
        client.lock("young").acquire().release()
        name = database_of(mariadb_database)
        mariadb.run(f"UPDATE leasehold_lock SET fence = fence - {2 * 86_400 * MICRO} WHERE name LIKE '%:old'", name)
        mariadb.run(f"UPDATE leasehold_lock SET fence = fence - {2 * 86_400 * MICRO} WHERE name LIKE '%:held'", name)
        runtime = ThreadRuntime()
        backend: Any = find_store(mariadb_database).open_backend(runtime)

        async def clean() -> None:
            connection = await backend._executor.source.take()
            await Cleaning("here", runtime).run(connection)
            backend._executor.source.give(connection)
            await backend.close()

        run(clean())
        left = {str(row[0]) for row in mariadb.run("SELECT CAST(name AS CHAR) FROM leasehold_lock", name)}
        assert left == {"leasehold:held", "leasehold:young"}
        again = client.lock("old").acquire()
        assert again.fence > lease.fence
        again.release()
        del held


def test_cleaning_frees_what_has_run_out_and_starts_again_after_the_last_name(
    mariadb: MariadbServer, mariadb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "SLICE", 2)
    runtime = ThreadRuntime()
    backend: Any = find_store(mariadb_database).open_backend(runtime)

    async def story() -> None:
        for number in range(5):
            await backend.try_acquire(claim(f"n{number}", ttl=0.01))
        cleaning = Cleaning("here", runtime)
        await runtime.sleep(0.05)
        for _ in range(4):
            connection = await backend._executor.source.take()
            await cleaning.run(connection)
            backend._executor.source.give(connection)
        await backend.close()

    run(story())
    shapes = rows_of(mariadb, mariadb_database, "SELECT DISTINCT shape FROM leasehold_lock")
    assert shapes == [(2,)], "nobody holds them, and the next holder learns that the last one vanished"


def test_records_and_names_are_cleaned_slice_by_slice_and_what_is_needed_stays(
    mariadb: MariadbServer, mariadb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "SLICE", 2)
    runtime = ThreadRuntime()
    backend: Any = find_store(mariadb_database).open_backend(runtime)
    run(backend.try_acquire(claim("held")))
    database = database_of(mariadb_database)
    day = 86_400 * MICRO
    now = int(str(mariadb.run(f"SELECT {NOW.decode()}")[0][0]))
    for name, expires, fence in (
        ("a gone", 1, 5), ("b lives", now + day, 5), ("c young", 1, now - day // 2), ("d gone", 1, now - 2 * day),
        ("e gone", 1, 5),
    ):  # fmt: skip
        mariadb.run(
            f"INSERT INTO leasehold_record (name, value, fence, expires) VALUES ('{name}', '', {fence}, {expires})",
            database,
        )
    for name, shape, fence in (("a", 0, 5), ("b", 2, 5), ("c", 0, now - day // 2), ("d", 0, 5), ("e", 1, 5)):
        mariadb.run(
            "INSERT INTO leasehold_lock (name, version, fence, shape, owner, ttl, since, expires, holder) "
            f"VALUES ('{name}', 1, {fence}, {shape}, 'o', 1, 1, {now + day}, '{{}}')",
            database,
        )

    async def story() -> None:
        cleaning = Cleaning("here", runtime)
        connection = await backend._executor.source.take()
        for _ in range(5):
            await cleaning.run(connection)
        backend._executor.source.give(connection)
        await backend.close()

    run(story())
    assert rows_of(mariadb, mariadb_database, "SELECT CAST(name AS CHAR) FROM leasehold_record ORDER BY name") == [
        ("b lives",),
        ("c young",),
    ]
    assert rows_of(mariadb, mariadb_database, "SELECT CAST(name AS CHAR), shape FROM leasehold_lock ORDER BY name") == [
        ("c", 0),
        ("e", 1),
        ("leasehold:held", 1),
    ]


def test_cleaning_that_is_refused_leaves_no_transaction_open() -> None:
    sent: list[bytes] = []

    class Line:
        async def query(self, text: bytes) -> Answer:
            sent.append(text)
            return Answer([Result([])], ServerError(1317, "70100", "interrupted"))

    line: Any = Line()
    with pytest.raises(BackendUnavailable):
        run(Cleaning("here", ThreadRuntime())._query(line, b"BEGIN; SELECT 1"))
    assert sent == [b"BEGIN; SELECT 1", b"ROLLBACK"]


def test_cleaning_is_due_now_and_then_and_not_by_all_clients_at_once() -> None:
    runtime: Any = PlannedWaits()
    runtime.random = lambda: 0.25
    cleaning = Cleaning("here", runtime)
    for seconds in (0.25 * CLEAN_EVERY, CLEAN_EVERY, CLEAN_EVERY):
        runtime.clock.advance(seconds - 1)
        assert not cleaning.is_due()
        runtime.clock.advance(1)
        assert cleaning.is_due()
        assert not cleaning.is_due()


def claim(name: str, ttl: float = 60.0) -> Claim:
    return Claim(f"leasehold:{name}", ThreadRuntime().owner(), ttl, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


@pytest.mark.parametrize("used", [False, True], ids=["new name", "used name"])
def test_change_that_was_decided_upon_an_older_version_is_not_applied(mariadb_database: str, *, used: bool) -> None:
    runtime = ThreadRuntime()
    one: Any = find_store(mariadb_database).open_backend(runtime)
    two: Any = find_store(mariadb_database).open_backend(runtime)

    async def story() -> None:
        mine, other = claim("job"), claim("job")
        if used:
            await two.release(await two.try_acquire(claim("job")))
        rows = await one._read(mine.key, runtime.now() + 60)
        rules.try_acquire(rows, mine)
        change = rows.change()
        assert change is not None
        granted = await two.try_acquire(other)
        assert not change.is_applied(await one._execute(change.text))
        state = await one.inspect(mine.key)
        assert [holding.fence for holding in state.holdings] == [granted.fence]
        assert await two.release(granted) is True
        await one.close()
        await two.close()

    run(story())


def test_account_with_the_least_rights_can_lock_and_wait(mariadb: MariadbServer, mariadb_database: str) -> None:
    name = database_of(mariadb_database)
    mariadb.run("CREATE USER IF NOT EXISTS worker IDENTIFIED BY 'x'")
    for statement in [*ddl.statements(), *ddl.grants(name, "worker").split(";\n")]:
        if statement:
            mariadb.run(statement, name)
    url, got = mariadb.url(name, "worker", "x"), []
    with leasehold.connect(url) as client, leasehold.connect(url) as other:
        first = client.lock("job").acquire()
        waits = threading.Thread(target=lambda: got.append(other.lock("job").acquire(timeout=60)))
        waits.start()
        eventually(lambda: waiters(client, "job") == 1)
        first.release()
        waits.join()
        got[0].release()
        with client.semaphore("slots", 2).hold():
            pass
        levels = {finding.check: finding.level.name for finding in client.examine()}
        assert levels["rights"] == "OK"


def test_account_that_may_not_make_tables_is_told_what_to_do(mariadb: MariadbServer, mariadb_database: str) -> None:
    name = database_of(mariadb_database)
    mariadb.run("CREATE USER IF NOT EXISTS reader IDENTIFIED BY 'x'")
    mariadb.run(f"GRANT SELECT ON `{name}`.* TO reader")
    with leasehold.connect(mariadb.url(name, "reader", "x")) as client:
        with pytest.raises(BackendRejected, match="leasehold schema mysql"):
            client.lock("job").acquire(timeout=20)


def test_tables_of_a_newer_version_are_left_alone(mariadb: MariadbServer, mariadb_database: str) -> None:
    for statement in ddl.statements():
        mariadb.run(statement, database_of(mariadb_database))
    mariadb.run("UPDATE leasehold_about SET version = 99", database_of(mariadb_database))
    with leasehold.connect(mariadb_database) as client:
        with pytest.raises(BackendRejected, match="newer leasehold"):
            client.lock("job").acquire(timeout=20)


def test_printed_schema_is_what_a_client_makes_and_may_be_run_again(
    mariadb: MariadbServer, mariadb_database: str
) -> None:
    text = store_schema("mysql", schema="locks", role="worker@%")
    assert "GRANT SELECT, INSERT, UPDATE, DELETE ON `locks`.`leasehold_lock` TO 'worker'@'%'" in text
    for _ in range(2):
        for statement in ddl.statements():
            mariadb.run(statement, database_of(mariadb_database))


def test_server_that_logs_statements_is_used_at_another_level() -> None:
    from verification.lab.mariadb import MariadbServer as Server

    settings = {"log-bin": "binlog", "binlog-format": "STATEMENT", "server-id": "1"}
    with Server(settings) as server:
        with leasehold.connect(server.make_database("locks")) as client:
            with client.lock("job").hold(), client.semaphore("slots", 2).hold():
                pass
            levels = {finding.check: finding.level.name for finding in client.examine()}
            assert levels["binary log"] == "WARNING"


def test_doctor_makes_no_tables(mariadb: MariadbServer, mariadb_database: str) -> None:
    with leasehold.connect(mariadb_database) as client:
        levels = {finding.check: finding.level.name for finding in client.examine()}
    assert levels["role"] == "OK"
    assert levels["writers"] == "OK"
    assert rows_of(mariadb, mariadb_database, "SHOW TABLES") == []
