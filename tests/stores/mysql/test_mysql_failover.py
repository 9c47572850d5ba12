"""A primary that is killed, and its replica that takes over: one that has all, and one that lags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import LossReason
from tests.waiting import LIMIT
from verification.lab.mariadb import REPLICATED, MariadbServer, mariadb_url
from verification.lab.process import wait_until
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

TTL = 60


@pytest.fixture
def primary() -> Iterator[MariadbServer]:
    with MariadbServer({**REPLICATED, "server-id": "1"}) as server:
        server.make_database("locks")
        yield server


@pytest.fixture
def replica(primary: MariadbServer) -> Iterator[MariadbServer]:
    with MariadbServer({**REPLICATED, "server-id": "2"}) as server:
        server.follow(primary)
        yield server


@pytest.fixture
def address(primary: MariadbServer) -> Iterator[FaultProxy]:
    """Where clients find the primary, whichever server that is."""
    with FaultProxy(("127.0.0.1", primary.port)) as proxy:
        yield proxy


def fail_over(primary: MariadbServer, replica: MariadbServer, address: FaultProxy) -> None:
    primary.kill()
    wait_until(lambda: address.links == 0, "connections outlive the server", LIMIT)
    replica.promote()
    address.aim(("127.0.0.1", replica.port))


def test_lease_lives_on_over_a_failover_to_a_replica_that_has_all(
    primary: MariadbServer, replica: MariadbServer, address: FaultProxy
) -> None:
    url = mariadb_url(address.port, "locks")
    with leasehold.connect(url, ttl=TTL) as client, leasehold.connect(url, ttl=TTL) as other:
        lease = client.lock("kept").acquire()
        with client.semaphore("slots", 2).hold():
            primary.wait_caught_up(replica)
            fail_over(primary, replica, address)
            lease.renew()
        assert other.lock("kept").try_acquire() is None
        assert lease.release() is True
        with other.lock("kept").hold(timeout=LIMIT) as heir:
            assert heir.fence > lease.fence


def test_failover_to_a_replica_that_lags_shows_two_holders_in_order_of_fences(
    primary: MariadbServer, replica: MariadbServer, address: FaultProxy
) -> None:
    """What the replica never got is lost with the primary: the lock is given again, with a higher fence."""
    url = mariadb_url(address.port, "locks")
    with leasehold.connect(url, ttl=TTL) as client, leasehold.connect(url, ttl=TTL) as other:
        before = client.lock("lost").acquire()
        before.release()
        primary.wait_caught_up(replica)
        replica.cut_off()
        lost = client.lock("lost").acquire()
        assert lost.fence > before.fence
        fail_over(primary, replica, address)
        second = other.lock("lost").acquire(timeout=LIMIT)
        lost.check()  # it cannot know yet: this is why a resource has to check the fence
        assert second.fence > lost.fence
        with pytest.raises(leasehold.LeaseLost) as error:
            lost.renew()
        assert error.value.reason is LossReason.TAKEN
        second.release()


def test_fences_rise_over_a_failover_that_lost_every_row(
    primary: MariadbServer, replica: MariadbServer, address: FaultProxy
) -> None:
    url = mariadb_url(address.port, "locks")
    with leasehold.connect(url, ttl=TTL) as client:
        primary.wait_caught_up(replica)
        replica.cut_off()
        fences = []
        for _ in range(30):
            with client.lock("job").hold() as lease:
                fences.append(lease.fence)
        fail_over(primary, replica, address)
        with client.lock("job").hold(timeout=LIMIT) as lease:
            assert lease.fence > max(fences)
