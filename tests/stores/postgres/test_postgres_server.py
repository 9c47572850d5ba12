"""PostgreSQL that ends a connection, cancels a statement, hangs, dies, comes back, or is only a standby."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy

import leasehold
from leasehold import LossReason
from tests.stores.support import eventually, waiters
from verification.lab.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OURS = "application_name = 'leasehold'"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One that this test may break."""
    with PostgresServer() as server:
        assert isinstance(server, PostgresServer)
        yield server


def end_ours(server: PostgresServer) -> int:
    """End every backend of ours; how many there were."""
    return len(server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}"))


def ours(server: PostgresServer) -> int:
    ((count,),) = server.run(f"SELECT count(*) FROM pg_stat_activity WHERE {OURS}")
    assert isinstance(count, int)
    return count


def test_killed_backends_cost_a_holder_nothing(server: PostgresServer) -> None:
    with leasehold.connect(server.url(), ttl=3) as client:
        with client.lock("job").hold() as lease:
            end = time.monotonic() + 5  # longer than the ttl
            killed = 0
            while time.monotonic() < end:
                killed += end_ours(server)
                time.sleep(0.2)
            assert killed > 0
            lease.check()
            assert client.lock("job").try_acquire() is None


def test_waiter_whose_backends_are_killed_gets_its_turn(server: PostgresServer) -> None:
    got: list[leasehold.Lease] = []
    with leasehold.connect(server.url(), ttl=20) as holder, leasehold.connect(server.url(), ttl=20) as client:
        first = holder.lock("job").acquire()
        waits = threading.Thread(target=lambda: got.append(client.lock("job").acquire(timeout=60)))
        waits.start()
        eventually(lambda: waiters(holder, "job") == 1)
        for _ in range(10):
            end_ours(server)
            time.sleep(0.05)
        assert first.release() is True
        waits.join()
        assert got[0].fence > first.fence
        got[0].release()


def test_killed_backend_in_the_middle_of_an_acquire_leaves_one_owner(server: PostgresServer) -> None:
    """The statement waits for a row that another transaction has locked; its backend is ended meanwhile."""
    with leasehold.connect(server.url(), ttl=20) as client:
        client.lock("job").acquire().release()
        with server.connect() as blocker, blocker.transaction():
            blocker.execute("SELECT 1 FROM leasehold.lock FOR UPDATE")
            got: list[leasehold.Lease] = []
            asks = threading.Thread(target=lambda: got.append(client.lock("job").acquire(timeout=30)))
            asks.start()
            waiting = f"SELECT count(*) FROM pg_stat_activity WHERE {OURS} AND wait_event_type = 'Lock'"
            eventually(lambda: server.run(waiting) == [(1,)])
            end_ours(server)
            eventually(lambda: server.run(waiting) == [(1,)], "the same claim is asked again")
        asks.join()
        state = client.inspect("job")
        assert state is not None
        assert [holding.fence for holding in state.holdings] == [got[0].fence]
        assert got[0].release() is True
        assert client.inspect("job") is None


def test_cancelled_statement_was_not_applied_and_is_asked_again(server: PostgresServer) -> None:
    server.run("ALTER SYSTEM SET statement_timeout = '100ms'")
    server.run("SELECT pg_reload_conf()")
    with leasehold.connect(server.url(), ttl=20) as client:
        client.lock("job").acquire().release()
        with server.connect() as blocker, blocker.transaction():
            blocker.execute("SET LOCAL statement_timeout = 0")
            blocker.execute("SELECT 1 FROM leasehold.lock FOR UPDATE")
            with pytest.raises(leasehold.BackendUnavailable, match="statement_timeout"):
                client.lock("job").acquire(timeout=0)
            got: list[leasehold.Lease] = []
            asks = threading.Thread(target=lambda: got.append(client.lock("job").acquire(timeout=30)))
            asks.start()
            time.sleep(0.3)
        asks.join()
        assert got[0].release() is True
        levels = {finding.check: finding.level.name for finding in client.examine()}
        assert levels["timeouts"] == "WARNING"


def test_renewal_that_is_cancelled_for_a_while_does_not_cost_the_lease(server: PostgresServer) -> None:
    with leasehold.connect(server.url(), ttl=3) as client:
        with client.lock("job").hold() as lease:
            server.run("ALTER ROLE postgres SET lock_timeout = '50ms'")
            end_ours(server)  # so that new sessions have the new limit
            with server.connect() as blocker, blocker.transaction():
                blocker.execute("SELECT 1 FROM leasehold.lock FOR UPDATE")
                time.sleep(1.5)
            server.run("ALTER ROLE postgres RESET lock_timeout")
            end_ours(server)
            time.sleep(2.5)
            lease.check()


def test_paused_server_is_survived_and_an_unanswered_claim_takes_nothing_for_nobody(server: PostgresServer) -> None:
    url = f"{server.url()}?answer_timeout=0.3&connect_timeout=2"
    with leasehold.connect(url, ttl=30) as client:
        with client.lock("held").hold() as lease:
            server.pause()
            with pytest.raises((leasehold.OutcomeUnknown, leasehold.BackendUnavailable)):
                client.lock("job").acquire(timeout=0)
            server.resume()
            lease.check()
            lease.renew()
        again = client.lock("job").acquire(timeout=30)
        assert again.release() is True
        eventually(lambda: client.inspect("job") is None, "the first request, late, must not take it for nobody")


def test_holder_cut_off_by_a_paused_server_learns_of_its_loss_by_its_own_clock(server: PostgresServer) -> None:
    losses: list[leasehold.LossReason | None] = []
    with leasehold.connect(server.url(), ttl=1.5) as client:
        with pytest.raises(leasehold.LeaseLost) as error:
            with client.lock("job").hold(on_lost=lambda loss: losses.append(loss.reason)) as lease:
                server.pause()
                try:
                    assert lease.lost.wait(10) is True
                    eventually(lambda: losses == [LossReason.UNCONFIRMED])
                finally:
                    server.resume()
        assert error.value.reason is LossReason.UNCONFIRMED


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_restarted_server_has_kept_what_it_acknowledged(server: PostgresServer, end: str) -> None:
    with leasehold.connect(server.url(), ttl=60) as client:
        with client.lock("job").hold() as lease:
            getattr(server, end)()
            with leasehold.connect(f"{server.url()}?connect_timeout=2") as other:
                with pytest.raises(leasehold.BackendUnavailable):
                    other.lock("job").acquire(timeout=0.2)
            server.start()
            lease.renew()
            assert client.lock("job").try_acquire() is None
        with client.lock("job").hold() as later:
            assert later.fence > lease.fence


def test_server_that_is_down_is_unavailable_and_one_that_comes_back_in_time_is_waited_for(
    server: PostgresServer,
) -> None:
    server.stop()
    with leasehold.connect(f"{server.url()}?connect_timeout=2") as client:
        with pytest.raises(leasehold.BackendUnavailable, match="cannot be reached"):
            client.lock("job").try_acquire()
        back = threading.Timer(0.5, server.start)
        back.start()
        client.lock("job").acquire(timeout=30).release()
        back.join()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda url: url.replace("postgres@", "nobody@"), "nobody"),
        (lambda url: url.replace("/postgres", "/nowhere"), "nowhere"),
    ],
)
def test_wrong_user_or_database_is_rejected_and_not_waited_for(
    server: PostgresServer, change: Callable[[str], str], words: str
) -> None:
    with leasehold.connect(change(server.url())) as client:
        with pytest.raises(leasehold.BackendRejected, match=words):
            client.lock("job").acquire(timeout=30)


def test_standby_is_told_apart_and_of_several_hosts_the_primary_is_found(server: PostgresServer) -> None:
    with server.standby() as standby:
        assert isinstance(standby, PostgresServer)
        with leasehold.connect(server.url()) as client:
            client.lock("job").acquire().release()
        server.wait_caught_up(standby)
        with leasehold.connect(standby.url()) as client:
            with pytest.raises(leasehold.BackendUnavailable, match="read-only"):
                client.lock("job").try_acquire()
            levels = {finding.check: finding.level.name for finding in client.examine()}
            assert levels["role"] == "PROBLEM"
        both = f"postgresql://postgres@127.0.0.1:{standby.port},127.0.0.1:{server.port}/postgres"
        with leasehold.connect(both) as client:
            client.lock("job").acquire().release()
        with leasehold.connect(server.url()) as client:
            levels = {finding.check: finding.level.name for finding in client.examine()}
            assert levels["failover"] == "WARNING"


def test_failover_to_a_lagging_standby_shows_two_holders_in_order_of_fences(server: PostgresServer) -> None:
    """What an asynchronous standby never got is lost with the primary: the lock is given again, with a higher fence."""
    with server.standby() as standby:
        assert isinstance(standby, PostgresServer)
        both = f"postgresql://postgres@127.0.0.1:{server.port},127.0.0.1:{standby.port}/postgres"
        with leasehold.connect(both, ttl=30) as client, leasehold.connect(both, ttl=30) as other:
            kept = client.lock("kept").acquire()
            before = client.lock("lost").acquire()
            before.release()
            server.wait_caught_up(standby)
            standby.cut_off()
            lost = client.lock("lost").acquire()
            assert lost.fence > before.fence
            server.kill()
            standby.promote()
            second = other.lock("lost").acquire(timeout=30)
            lost.check()  # it cannot know yet: this is why a resource has to check the fence
            assert second.fence > lost.fence, "the one that is refused at a guarded resource is the first"
            with pytest.raises(leasehold.LeaseLost) as error:
                lost.renew()
            assert error.value.reason is LossReason.TAKEN
            kept.renew()
            assert other.lock("kept").try_acquire() is None
            assert kept.release() is True
            second.release()


def test_fences_rise_over_a_failover_that_lost_every_row(server: PostgresServer) -> None:
    with server.standby() as standby:
        assert isinstance(standby, PostgresServer)
        with leasehold.connect(server.url()) as client:
            server.wait_caught_up(standby)
            standby.cut_off()
            fences = []
            for _ in range(50):
                lease = client.lock("job").acquire()
                fences.append(lease.fence)
                lease.release()
        server.kill()
        standby.promote()
        with leasehold.connect(standby.url()) as client, client.lock("job").hold() as lease:
            assert lease.fence > max(fences)


def test_pool_and_engine_of_the_users_own_lock_in_the_schema_that_they_are_told(server: PostgresServer) -> None:
    from psycopg_pool import ConnectionPool

    options = {"schema": "elsewhere", "fence_floor": 1_900_000_000_000_000}
    engine = sqlalchemy.create_engine(server.url().replace("postgresql:", "postgresql+psycopg:"))
    with ConnectionPool(server.url(), min_size=1, max_size=3) as pool:
        for theirs in (pool, engine):
            with (
                leasehold.connect(theirs, ttl=20, options=options) as client,
                leasehold.connect(f"{server.url()}?schema=elsewhere") as same,
                leasehold.connect(server.url()) as other,
                client.lock("x").hold() as lease,
            ):
                assert lease.fence > 1_900_000_000_000_000
                assert same.lock("x").try_acquire() is None
                assert other.inspect("x") is None
        with pytest.raises(leasehold.ConfigurationError, match=r"no option 'mode'; it takes .*schema"):
            leasehold.connect(pool, options={"mode": "session"})
    engine.dispose()


def test_aborted_or_open_transactions_of_the_users_own_do_not_reach_the_store(server: PostgresServer) -> None:
    from psycopg_pool import ConnectionPool

    with ConnectionPool(server.url(), min_size=1, max_size=3) as pool, leasehold.connect(pool, ttl=20) as client:
        with pool.connection() as mine:
            with pytest.raises(psycopg.errors.DivisionByZero):
                mine.execute("SELECT 1/0")
            lease = client.lock("job").acquire()  # by another connection: this one is in a failed transaction
            assert client.lock("job").try_acquire() is None
            mine.rollback()
            mine.execute("CREATE TABLE work (n int)")
            mine.rollback()
        state = client.inspect("job")
        assert state is not None, "the user's rollback is not ours"
        assert lease.release() is True


def connects(url: str, connections: list[psycopg.Connection[Any]]) -> bool:
    try:
        connections.append(psycopg.connect(url))
    except psycopg.OperationalError:
        return False
    return True


def test_server_without_a_free_connection_is_unavailable_until_there_is_one() -> None:
    with PostgresServer(settings={"max_connections": "6", "superuser_reserved_connections": "3"}) as server:
        assert isinstance(server, PostgresServer)
        server.run("CREATE ROLE plain LOGIN; ALTER DATABASE postgres OWNER TO plain")
        url = server.url(user="plain")
        with leasehold.connect(url, ttl=20) as client:
            client.lock("job").acquire().release()
            others = [psycopg.connect(url) for _ in range(2)]
            eventually(lambda: ours(server) == 0, "the idle client lets go")
            # a connection leaves the list of activities before its place is free
            eventually(lambda: connects(url, others), "its place is free for another")
            with pytest.raises(leasehold.BackendUnavailable, match=r"cannot be reached|too many|remaining"):
                client.lock("job").try_acquire()
            threading.Timer(0.3, others[0].close).start()
            client.lock("job").acquire(timeout=30).release()
            for other in others:
                other.close()


def test_waiter_that_cannot_listen_for_want_of_a_connection_asks_instead() -> None:
    with PostgresServer(settings={"max_connections": "5", "superuser_reserved_connections": "3"}) as server:
        assert isinstance(server, PostgresServer)
        server.run("CREATE ROLE plain LOGIN; ALTER DATABASE postgres OWNER TO plain")
        url = f"{server.url(user='plain')}?connections=1"
        with leasehold.connect(url, ttl=20) as holder, leasehold.connect(url, ttl=20) as client:
            first = holder.lock("job").acquire()
            got: list[leasehold.Lease] = []
            waits = threading.Thread(target=lambda: got.append(client.lock("job").acquire(timeout=60)))
            waits.start()
            eventually(lambda: waiters(holder, "job") == 1)
            first.release()
            waits.join()
            got[0].release()


def test_a_signal_to_the_postmaster_is_not_our_business(server: PostgresServer) -> None:
    with leasehold.connect(server.url(), ttl=20) as client, client.lock("job").hold() as lease:
        os.kill(server.pid, signal.SIGHUP)
        lease.renew()
