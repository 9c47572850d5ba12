"""Three NATS servers: the leader of the bucket is killed or stopped while locks are held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold.findings import Level
from tests.waiting import eventually
from verification.lab.nats import NatsCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

TTL = 60


@pytest.fixture
def cluster() -> Iterator[NatsCluster]:
    with NatsCluster() as cluster:
        yield cluster


def test_a_killed_leader_gives_no_second_grant(cluster: NatsCluster) -> None:
    with leasehold.connect(cluster.url, ttl=TTL) as holder, leasehold.connect(cluster.url, ttl=TTL) as rival:
        lease = holder.lock("x").acquire(timeout=30)
        leader = cluster.leader()
        leader.kill()
        cluster.leader()
        eventually(lambda: _renewed(lease), "the lease cannot be renewed")
        assert rival.lock("x").try_acquire() is None
        assert _replicas(holder) is Level.PROBLEM
        lease.release()
        heir = rival.lock("x").acquire(timeout=30)
        assert heir.fence > lease.fence
        leader.start()
        eventually(lambda: _replicas(rival) is Level.OK, "the server does not catch up")
        heir.release()


def test_a_stopped_leader_gives_no_second_grant(cluster: NatsCluster) -> None:
    with leasehold.connect(cluster.url, ttl=TTL) as holder, leasehold.connect(cluster.url, ttl=TTL) as rival:
        lease = holder.lock("x").acquire(timeout=30)
        leader = cluster.leader()
        leader.pause()
        try:
            with pytest.raises((leasehold.AcquireTimeout, leasehold.BackendError)):
                rival.lock("x").acquire(timeout=12)
            with leasehold.connect(cluster.url, ttl=TTL) as third:
                third.lock("y").acquire(timeout=40).release()
            eventually(lambda: _renewed(lease), "the lease cannot be renewed")
        finally:
            leader.resume()
        with pytest.raises((leasehold.AcquireTimeout, leasehold.BackendError)):
            rival.lock("x").acquire(timeout=2)
        lease.release()
        heir = rival.lock("x").acquire(timeout=30)
        assert heir.fence > lease.fence
        heir.release()


def _renewed(lease: leasehold.Lease) -> bool:
    """The server that this client is connected to may be the one that is gone."""
    try:
        lease.renew()
    except leasehold.BackendError:
        return False
    return True


def _replicas(client: leasehold.Client) -> Level | None:
    return next((finding.level for finding in client.examine() if finding.check == "replicas"), None)
