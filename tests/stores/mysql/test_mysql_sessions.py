"""`mode=session` of MariaDB: a grant ends with the session of its holder, at once; and nothing else ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import LossReason
from leasehold.testing.contract.lab import Child
from tests.stores.session_stories import (
    LONG,
    crash_frees_at_once,
    crash_frees_for_rows,
    paused_holder_loses_it_after_its_ttl,
)
from tests.stores.support import eventually, opened, waiters
from tests.waiting import until

if TYPE_CHECKING:
    from leasehold.testing import contract
    from verification.lab.mariadb import MariadbServer


@pytest.fixture
def url(mariadb_database: str) -> str:
    """Sessions in a database of their own."""
    return f"{mariadb_database}?mode=session"


def sessions(server: MariadbServer, url: str) -> list[object]:
    name = url.partition("?")[0].rpartition("/")[2]
    query = f"SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{name}' AND ID <> CONNECTION_ID()"
    return [number for (number,) in server.run(query)]


def test_crash_of_the_holder_frees_its_lock_at_once(url: str, child: Child) -> None:
    crash_frees_at_once(url, child)


def test_crash_frees_it_for_those_who_wait_in_rows_too(mariadb_database: str, child: Child) -> None:
    crash_frees_for_rows(mariadb_database, child)


def test_paused_holder_keeps_its_session_but_not_beyond_its_ttl(url: str) -> None:
    paused_holder_loses_it_after_its_ttl(url)


def test_holders_learn_at_once_that_the_server_has_ended_their_session(
    driver: contract.Driver, mariadb: MariadbServer, url: str
) -> None:
    async def story() -> None:
        async with opened(driver, url, ttl=LONG) as client, opened(driver, url, ttl=20) as other:
            leases = [await client.lock(f"name {number}").acquire() for number in range(3)]
            (number,) = sessions(mariadb, url)
            mariadb.run(f"KILL {number}")
            for lease in leases:
                await until(driver, lease.lost.is_set)
                assert lease.loss is not None
                assert lease.loss.reason is LossReason.SESSION_ENDED
            mine = await other.lock("name 0").acquire(timeout=60)
            assert mine.fence > leases[0].fence
            again = await client.lock("name 1").acquire(timeout=20)
            assert await again.release() is True, "the client goes on in a new session"
            await mine.release()

    driver.run(story())


def test_two_threads_of_one_client_exclude_each_other(url: str) -> None:
    """GET_LOCK alone would let a session have the same lock twice."""
    with leasehold.connect(url) as client:
        first = client.lock("job").acquire()
        assert client.lock("job").try_acquire() is None
        assert first.release() is True
        assert client.lock("job").acquire(timeout=20).release() is True


def test_names_that_differ_in_case_or_are_long_are_different_locks(url: str) -> None:
    """User locks ignore case and end at 64 characters; names of ours do neither."""
    with leasehold.connect(url) as client:
        names = ["job", "JOB", "job ", "j" * 65, "j" * 66]
        leases = [client.lock(name).acquire(timeout=20) for name in names]
        assert len({lease.name for lease in leases}) == len(names)
        for lease in leases:
            assert lease.release() is True


def test_idle_client_ends_its_session(mariadb: MariadbServer, url: str) -> None:
    with leasehold.connect(url, ttl=20) as client:
        lease = client.lock("job").acquire()
        assert len(sessions(mariadb, url)) == 1
        lease.release()
        eventually(lambda: sessions(mariadb, url) == [])


def test_what_a_session_cannot_do_is_refused_in_a_sentence(url: str) -> None:
    with leasehold.connect(url) as client:
        with pytest.raises(leasehold.LeaseholdError):
            client.semaphore("slots", 2).acquire(timeout=0)
        assert waiters(client, "slots") == 0
