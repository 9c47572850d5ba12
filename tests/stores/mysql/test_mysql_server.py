"""MariaDB that ends a connection, hangs, restarts, or is only a replica; and a way to it that fails."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import LossReason
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.values import Claim, Grant, Holder, Mode
from tests.stores.half_open import gets_its_turn, keeps_its_lease
from tests.stores.support import eventually, opened, waiters
from verification.lab.certificates import Certificates
from verification.lab.mariadb import MariadbServer, mariadb_url
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leasehold.testing import contract

ON_LOCK = b"leasehold_lock"


@pytest.fixture
def proxy(mariadb: MariadbServer) -> Iterator[FaultProxy]:
    """Between the clients of this test and the server."""
    with FaultProxy(("127.0.0.1", mariadb.port)) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: FaultProxy, mariadb_database: str) -> str:
    """The way through the proxy; the tables exist."""
    make_tables(mariadb_database)
    return mariadb_url(proxy.port, database_of(mariadb_database))


def make_tables(url: str) -> None:
    with leasehold.connect(url) as client:
        client.lock("first").acquire().release()


def database_of(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def sessions(server: MariadbServer, url: str) -> list[object]:
    """Our connections to this database."""
    query = f"SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{database_of(url)}' AND ID <> CONNECTION_ID()"
    return [number for (number,) in server.run(query)]


def end_ours(server: MariadbServer, url: str) -> int:
    ended = 0
    for number in sessions(server, url):
        try:
            server.run(f"KILL {number}")
        except Exception:
            continue
        ended += 1
    return ended


def is_released(lease: leasehold.Lease) -> bool:
    """A release has a second, in which a busy machine may not get a new connection; it can be repeated."""
    try:
        lease.release()
    except leasehold.BackendError:
        return False
    return True


def test_killed_connections_cost_a_holder_nothing(mariadb: MariadbServer, mariadb_database: str) -> None:
    with leasehold.connect(mariadb_database, ttl=4) as client, client.lock("job").hold() as lease:
        end, killed = time.monotonic() + 5, 0  # longer than the ttl
        while time.monotonic() < end:
            killed += end_ours(mariadb, mariadb_database)
            time.sleep(0.2)
        assert killed > 0
        lease.check()
        assert client.lock("job").try_acquire() is None


def test_waiter_whose_connections_are_killed_gets_its_turn(mariadb: MariadbServer, mariadb_database: str) -> None:
    url, got = mariadb_database, []
    with leasehold.connect(url, ttl=20) as holder, leasehold.connect(url, ttl=20) as client:
        first = holder.lock("job").acquire()
        waits = threading.Thread(target=lambda: got.append(client.lock("job").acquire(timeout=60)))
        waits.start()
        eventually(lambda: waiters(holder, "job") == 1)
        for _ in range(5):
            end_ours(mariadb, url)
            time.sleep(0.05)
        eventually(lambda: is_released(first))
        waits.join()
        assert got[0].fence > first.fence
        got[0].release()


def test_connection_killed_in_the_middle_of_an_acquire_leaves_one_owner(
    mariadb: MariadbServer, mariadb_database: str
) -> None:
    """The statement waits for a row that another transaction has locked; its connection is ended meanwhile."""
    with leasehold.connect(mariadb_database, ttl=20) as client:
        client.lock("job").acquire().release()
        blocker = mariadb.connect(database_of(mariadb_database), autocommit=False)
        with blocker.cursor() as cursor:
            cursor.execute("SELECT 1 FROM leasehold_lock FOR UPDATE")
        got: list[leasehold.Lease] = []
        asks = threading.Thread(target=lambda: got.append(client.lock("job").acquire(timeout=30)))
        asks.start()
        waiting = (
            f"SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{database_of(mariadb_database)}' "
            "AND INFO LIKE 'INSERT INTO leasehold_lock%'"
        )
        eventually(lambda: mariadb.run(waiting))
        (first,) = mariadb.run(waiting)[0]
        mariadb.run(f"KILL {first}")
        eventually(lambda: [row for row in mariadb.run(waiting) if row != (first,)], "the same claim is asked again")
        blocker.rollback()
        blocker.close()
        asks.join()
        state = client.inspect("job")
        assert state is not None
        assert [holding.fence for holding in state.holdings] == [got[0].fence]
        assert got[0].release() is True
        assert client.inspect("job") is None


def test_request_that_lost_a_deadlock_is_sent_again(mariadb: MariadbServer, mariadb_database: str) -> None:
    """A transaction with more changes waits for a row that our renewal has locked, which waits for one of its rows."""
    name, answers, runtime = database_of(mariadb_database), [], ThreadRuntime()
    backend: Any = find_store(mariadb_database).open_backend(runtime)
    grants = [
        run(backend.try_acquire(Claim(word, runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))))
        for word in ("a", "b")
    ]
    blocker = mariadb.connect(name, autocommit=False)
    with blocker.cursor() as cursor:
        cursor.execute("CREATE TABLE heavy SELECT seq AS n FROM seq_1_to_1000")
        cursor.execute("UPDATE heavy SET n = n + 1")
        cursor.execute("SELECT 1 FROM leasehold_lock WHERE name = 'b' FOR UPDATE")
        renewal = threading.Thread(target=lambda: answers.extend(run(backend.renew(grants))))
        renewal.start()
        waiting = f"SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{name}' AND INFO LIKE 'UPDATE leasehold%'"
        eventually(lambda: mariadb.run(waiting))
        before = deadlocks(mariadb)
        cursor.execute("SELECT 1 FROM leasehold_lock WHERE name = 'a' FOR UPDATE")
    assert deadlocks(mariadb) > before
    blocker.rollback()
    blocker.close()
    renewal.join()
    assert [type(answer) for answer in answers] == [Grant, Grant]
    assert [run(backend.release(grant)) for grant in grants] == [True, True]
    run(backend.close())


def deadlocks(server: MariadbServer) -> int:
    """How many the server has resolved."""
    ((_, count),) = server.run("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")
    return int(str(count))


@pytest.mark.parametrize("skip", [0, 1], ids=["grant", "release"])
def test_lost_answer_is_an_unknown_outcome_that_leaves_one_owner(proxy: FaultProxy, through: str, skip: int) -> None:
    with leasehold.connect(through, ttl=20) as client:
        client.lock("warm").acquire().release()
        proxy.swallow(ON_LOCK, skip=skip)
        with client.lock("job").hold() as lease:
            state = client.inspect("job")
            assert state is not None
            assert [holding.fence for holding in state.holdings] == [lease.fence]
        proxy.wait_done()
        assert client.inspect("job") is None


def test_late_copy_of_a_withdrawn_claim_takes_nothing(proxy: FaultProxy, through: str, mariadb_database: str) -> None:
    with leasehold.connect(through, ttl=60) as client, leasehold.connect(mariadb_database) as other:
        client.lock("warm").acquire().release()
        proxy.keep_back(b"INSERT INTO leasehold_lock")
        held = other.lock("job").acquire()  # so that the request that is sent again is refused, and withdrawn
        assert client.lock("job").try_acquire() is None
        held.release()
        proxy.deliver()
        proxy.wait_done()
        eventually(lambda: other.inspect("job") is None)
        lease = other.lock("job").acquire(timeout=20)
        assert lease.release() is True


def test_connection_that_died_in_silence_is_replaced(
    driver: contract.Driver, proxy: FaultProxy, through: str, mariadb_database: str
) -> None:
    url = f"{through}?answer_timeout=0.5&connect_timeout=2"

    async def story() -> None:
        await keeps_its_lease(driver, proxy, url, mariadb_database, ttl=6)

    driver.run(story())


def test_waiter_behind_a_dead_connection_gets_its_turn(
    driver: contract.Driver, proxy: FaultProxy, through: str, mariadb_database: str
) -> None:
    url = f"{through}?answer_timeout=0.5&connect_timeout=2"

    async def story() -> None:
        await gets_its_turn(driver, proxy, url, mariadb_database, ttl=6, within=60)

    driver.run(story())


def test_restart_of_the_server_keeps_the_lease(own_mariadb: MariadbServer) -> None:
    url = own_mariadb.make_database("locks")
    with leasehold.connect(url, ttl=30) as client, client.lock("job").hold() as lease:
        own_mariadb.kill()
        own_mariadb.start()
        lease.renew()
        with leasehold.connect(url) as other:
            assert other.lock("job").try_acquire() is None


def test_fences_rise_over_the_loss_of_every_row(own_mariadb: MariadbServer) -> None:
    """No counter of the server takes part, which a restart after the rows are gone would set back."""
    with leasehold.connect(own_mariadb.make_database("locks")) as client:
        first = client.lock("job").acquire()
        first.release()
        for table in ("lock", "claim", "record", "about"):
            own_mariadb.run(f"DROP TABLE leasehold_{table}", "locks")
        own_mariadb.kill()
        own_mariadb.start()
        second = client.lock("job").acquire(timeout=60)
        assert second.fence > first.fence
        second.release()


def test_two_hundred_held_names_are_renewed_over_few_connections(mariadb: MariadbServer, mariadb_database: str) -> None:
    with leasehold.connect(f"{mariadb_database}?connections=2", ttl=6) as client:
        leases = [client.lock(f"name {number}").acquire() for number in range(190)]
        leases += [client.rwlock(f"name {number}").read.acquire() for number in range(190, 200)]
        end = time.monotonic() + 7  # longer than the ttl
        while time.monotonic() < end:
            assert len(sessions(mariadb, mariadb_database)) <= 3
            time.sleep(0.2)
        for lease in leases:
            lease.check()
            assert lease.release() is True


def test_read_only_server_is_named_and_found_again_when_it_takes_writes(own_mariadb: MariadbServer) -> None:
    url = own_mariadb.make_database("locks")
    own_mariadb.run("CREATE USER worker IDENTIFIED BY 'x'")
    own_mariadb.run("GRANT ALL ON locks.* TO worker")
    worker = own_mariadb.url("locks", "worker", "x")
    make_tables(url)
    own_mariadb.run("SET GLOBAL read_only = 1")  # which administrators may write in spite of
    with leasehold.connect(worker) as client:
        with pytest.raises(leasehold.BackendUnavailable, match="read-only"):
            client.lock("job").acquire(timeout=3)
        levels = {finding.check: finding.level.name for finding in client.examine()}
        assert levels["role"] == "PROBLEM"
        own_mariadb.run("SET GLOBAL read_only = 0")
        assert client.lock("job").acquire(timeout=20).release() is True


def test_wrong_password_and_missing_database_are_refused_at_once(mariadb: MariadbServer) -> None:
    mariadb.run("CREATE USER IF NOT EXISTS stranger IDENTIFIED BY 'x'")
    for url, words in (
        (mariadb.url("mysql", "stranger", "y"), "refused"),
        (mariadb.url("nowhere"), "no such database"),
    ):
        with leasehold.connect(url) as client, pytest.raises(leasehold.BackendRejected, match=words):
            client.lock("job").acquire(timeout=20)


def test_too_many_connections_is_waited_for(mariadb: MariadbServer, mariadb_database: str) -> None:
    make_tables(mariadb_database)
    mariadb.run("CREATE USER IF NOT EXISTS single WITH MAX_USER_CONNECTIONS 1")
    mariadb.run(f"GRANT ALL ON `{database_of(mariadb_database)}`.* TO single")
    taken = mariadb.connect(database_of(mariadb_database), "single")
    with leasehold.connect(mariadb.url(database_of(mariadb_database), "single")) as client:
        with pytest.raises(leasehold.BackendUnavailable, match="max_user_connections"):
            client.inspect("job")
        got: list[leasehold.Lease] = []
        asks = threading.Thread(target=lambda: got.append(client.lock("job").acquire(timeout=30)))
        asks.start()
        taken.close()
        asks.join()
        assert got[0].release() is True


def test_closed_client_leaves_no_connection(
    driver: contract.Driver, mariadb: MariadbServer, mariadb_database: str
) -> None:
    async def story() -> None:
        async with opened(driver, mariadb_database) as client, opened(driver, mariadb_database) as other:
            lease = await client.lock("job").acquire()
            assert await other.lock("job").try_acquire() is None
            await lease.release()

    driver.run(story())
    eventually(lambda: sessions(mariadb, mariadb_database) == [])


def test_idle_client_holds_no_connection(mariadb: MariadbServer, mariadb_database: str) -> None:
    with leasehold.connect(mariadb_database) as client:
        client.lock("job").acquire().release()
        eventually(lambda: sessions(mariadb, mariadb_database) == [])


def test_holder_cut_off_by_a_paused_server_learns_of_its_loss_by_its_own_clock(own_mariadb: MariadbServer) -> None:
    url = f"{own_mariadb.make_database('locks')}?answer_timeout=0.3&connect_timeout=0.5"
    with leasehold.connect(url, ttl=2) as client:
        lease = client.lock("job").acquire()
        own_mariadb.pause()
        try:
            eventually(lease.lost.is_set)
            assert lease.loss is not None
            assert lease.loss.reason in (LossReason.UNCONFIRMED, LossReason.EXPIRED)
        finally:
            own_mariadb.resume()


def test_tls_is_checked_where_it_is_asked_for_and_taken_where_it_is_offered(
    driver: contract.Driver, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path)
    with MariadbServer(certificates=certificates) as server:
        url = server.make_database("locks")

        async def locks(options: str) -> None:
            async with opened(driver, url + options, ttl=20) as client:
                lease = await client.lock("job").acquire(timeout=60)
                assert len(sessions(server, url)) >= 1
                assert await lease.release() is True

        async def story() -> None:
            await locks("")
            await locks(f"?tls_ca={certificates.authority}")
            with pytest.raises(leasehold.BackendRejected, match="TLS"):
                await locks("?tls_verify=yes")  # by the authorities of the system, which do not know it

        driver.run(story())
