"""`mode=session`: a grant ends with the session of its holder, at once; and nothing else ends it by mistake."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import BackendUnavailable, LossReason
from leasehold.testing.contract.lab import Child
from tests.stores.session_stories import (
    LONG,
    crash_frees_at_once,
    crash_frees_for_rows,
    paused_holder_loses_it_after_its_ttl,
)
from tests.stores.support import eventually, opened
from verification.lab.postgres import PostgresServer

if TYPE_CHECKING:
    from leasehold.testing import contract
    from verification.lab.pgbouncer import PgBouncer


@pytest.fixture
def url(database: str) -> str:
    """Sessions in a database of their own."""
    return f"{database}?mode=session"


def sessions(server: PostgresServer, url: str) -> list[int]:
    name = url.partition("?")[0].rpartition("/")[2]
    rows = server.run(
        f"SELECT pid FROM pg_stat_activity WHERE datname = '{name}' AND application_name = 'leasehold' ORDER BY pid"
    )
    return [pid for (pid,) in rows if isinstance(pid, int)]


def test_crash_of_the_holder_frees_its_lock_at_once(url: str, child: Child) -> None:
    crash_frees_at_once(url, child)


def test_crash_frees_it_for_those_who_wait_in_rows_too(database: str, child: Child) -> None:
    crash_frees_for_rows(database, child)


def test_paused_holder_keeps_its_session_but_not_beyond_its_ttl(url: str) -> None:
    paused_holder_loses_it_after_its_ttl(url)


def test_killed_backend_ends_every_grant_of_its_session_and_the_holders_learn_why(
    postgres: PostgresServer, url: str
) -> None:
    with leasehold.connect(url, ttl=3) as client, leasehold.connect(url, ttl=20) as other:
        leases = [client.lock(f"name {number}").acquire() for number in range(3)]
        (pid,) = sessions(postgres, url)
        postgres.run(f"SELECT pg_terminate_backend({pid})")
        mine = other.lock("name 0").acquire(timeout=60)
        for lease in leases:
            eventually(lease.lost.is_set)
            assert lease.loss is not None
            assert lease.loss.reason is LossReason.SESSION_ENDED
        assert mine.fence > leases[0].fence
        assert client.lock("name 1").acquire(timeout=20).release() is True, "the client goes on in a new session"
        mine.release()


def test_holder_learns_at_once_that_the_server_has_ended_its_session(
    driver: contract.Driver, postgres: PostgresServer, url: str
) -> None:
    """The next holder is let in at once, so `check` must not pass until the next renewal is due."""

    async def story() -> None:
        async with opened(driver, url, ttl=LONG) as client:
            leases = [await client.lock(f"name {number}").acquire() for number in range(3)]
            (pid,) = sessions(postgres, url)
            postgres.run(f"SELECT pg_terminate_backend({pid})")
            before = client._runtime.now()
            while not all(lease.lost.is_set() for lease in leases):
                assert client._runtime.now() < before + LONG / 10, "a renewal would have come later"
                await client._runtime.sleep(0.01)
            for lease in leases:
                assert lease.loss is not None
                assert lease.loss.reason is LossReason.SESSION_ENDED
                with pytest.raises(leasehold.LeaseLost):
                    lease.check()
            again = await client.lock("name 0").acquire(timeout=20)
            assert await again.release() is True

    driver.run(story())


def test_session_that_is_used_all_the_time_is_not_taken_for_ended(postgres: PostgresServer, url: str) -> None:
    with leasehold.connect(url, ttl=LONG) as client:
        held = client.lock("held").acquire()
        before = sessions(postgres, url)

        def work(number: int) -> None:
            for _ in range(100):
                client.lock(f"name {number}").acquire(timeout=60).release()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sessions(postgres, url) == before
        held.check()
        assert held.release() is True


def test_all_grants_of_a_client_live_in_one_connection_that_goes_when_none_is_left(
    postgres: PostgresServer, url: str
) -> None:
    with leasehold.connect(url, ttl=20) as client:
        leases = [client.lock(f"name {number}").acquire() for number in range(50)]
        assert len(sessions(postgres, url)) == 1
        time.sleep(3)  # longer than an idle connection stays
        assert len(sessions(postgres, url)) == 1
        for lease in leases:
            assert lease.release() is True
        eventually(lambda: sessions(postgres, url) == [])
        client.lock("again").acquire().release()


def test_session_stays_for_as_long_as_a_lease_in_it_is_renewed(
    postgres: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.kit.one_session.LINGER", 0.2)
    with leasehold.connect(url) as client:
        lease = client.lock("job", ttl=60, renew=False).acquire()
        opened_client: Any = client._twin._open()
        held = opened_client.backend._source._held
        (owner,) = held
        held[owner] = opened_client.runtime.now()  # as if the ttl since the acquire were over
        lease.renew()
        before = sessions(postgres, url)
        time.sleep(1)  # longer than an idle connection stays
        assert sessions(postgres, url) == before
        lease.renew()
        assert lease.release() is True


def test_session_that_does_not_answer_is_not_given_up_while_a_lease_lives_in_it(
    postgres: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(*_: object) -> bool:
        raise BackendUnavailable("the answer to an earlier call is still awaited")

    with leasehold.connect(url) as client:
        lease = client.lock("job", ttl=60, renew=False).acquire()
        before = sessions(postgres, url)
        with monkeypatch.context() as patch:
            patch.setattr("leasehold._backends.postgres.connection.Connection.recovers", late)
            with pytest.raises(BackendUnavailable):
                lease.renew()
        lease.renew()
        assert sessions(postgres, url) == before
        assert lease.release() is True


def test_two_threads_of_one_session_never_hold_one_name_together(url: str) -> None:
    inside: list[int] = []
    overlaps: list[int] = []
    with leasehold.connect(url, ttl=60) as client:

        def work(number: int) -> None:
            for _ in range(10):
                with client.lock("job").hold(timeout=60):
                    inside.append(number)
                    if inside != [number]:
                        overlaps.append(number)
                    time.sleep(0.001)
                    inside.remove(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not overlaps


def test_cancelled_callers_do_not_end_the_session(postgres: PostgresServer, url: str) -> None:
    async def story() -> None:
        async with leasehold.connect_async(url, ttl=20) as client:
            held = await client.lock("held").acquire()
            before = sessions(postgres, url)
            for number in range(60):
                task = asyncio.create_task(client.lock("other").try_acquire())
                await asyncio.sleep(number * 0.00005)
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled() and (lease := task.result()) is not None:
                    await lease.release()
            assert sessions(postgres, url) == before
            await held.renew()
            assert await held.release() is True

    asyncio.run(story())


def test_session_needs_a_server_of_its_own_and_says_so_behind_a_pooler(pgbouncer: PgBouncer) -> None:
    with leasehold.connect(f"{pgbouncer.url()}?mode=session") as client:
        with pytest.raises(leasehold.BackendRejected, match="pooler"):
            client.lock("job").acquire(timeout=30)


def test_restart_of_the_server_ends_every_session() -> None:
    with PostgresServer() as server:
        assert isinstance(server, PostgresServer)
        with leasehold.connect(f"{server.url()}?mode=session", ttl=LONG) as client:
            lease = client.lock("job").acquire()
            server.stop()
            server.start()
            with leasehold.connect(f"{server.url()}?mode=session", ttl=20) as other:
                assert other.lock("job").acquire(timeout=60).fence > lease.fence
            with pytest.raises(leasehold.LeaseLost) as error:
                lease.renew()
            assert error.value.reason is LossReason.SESSION_ENDED


def test_readers_of_one_session_and_of_others_share(url: str) -> None:
    with leasehold.connect(url, ttl=20) as one, leasehold.connect(url, ttl=20) as two:
        with one.rwlock("doc").read.hold(), one.rwlock("doc").read.hold(), two.rwlock("doc").read.hold():
            assert one.rwlock("doc").write.try_acquire() is None
            assert two.rwlock("doc").write.try_acquire() is None
        with one.rwlock("doc").write.hold():
            assert one.rwlock("doc").read.try_acquire() is None
