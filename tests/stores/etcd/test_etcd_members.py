"""Members of an etcd cluster that stop, die, are cut off or restarted, while clients hold and wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.stores.contest import Contest
from tests.stores.etcd.etcd_process import Worker
from verification.lab.etcd import EtcdCluster
from verification.lab.namespaces import Network

if TYPE_CHECKING:
    from collections.abc import Iterator

TTL = 3.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EtcdCluster]:
    """Three members, each on a host of its own as far as the network is concerned."""
    with Network(3) as network, EtcdCluster(version="3.5", namespaces=network.hosts, election_ms=300) as members:
        yield members


def test_leader_that_stops_and_goes_on_does_not_let_two_in(cluster: EtcdCluster) -> None:
    with Contest(cluster.url, ttl=TTL) as contest:
        contest.everybody_gets_it()
        leader = cluster.leader()
        leader.pause()
        try:
            contest.everybody_gets_it()
        finally:
            leader.resume()
        contest.everybody_gets_it()
    contest.verdict()


def test_holder_keeps_its_lease_while_the_leader_stands_still_for_less_than_the_ttl(cluster: EtcdCluster) -> None:
    with Contest(cluster.url, ttl=6.0, held=8.0, workers=2) as contest:
        contest.wait_for_a_holder()
        leader = cluster.leader()
        leader.pause()
        try:
            time.sleep(3.0)
        finally:
            leader.resume()
        contest.wait_for_an_end()
    contest.verdict()
    assert not contest.tenures[0].lost


def test_fences_stay_in_order_when_a_leader_that_stood_still_too_long_revokes_live_leases(cluster: EtcdCluster) -> None:
    """A known fault of these versions (etcd issue 15247): on waking, the old leader ends leases that others renewed.

    Then two may hold at one instant, until the first asks again. That is what the fence is for.
    """
    with Contest(cluster.url, ttl=2.0, held=5.0, workers=2) as contest:
        contest.wait_for_a_holder()
        leader = cluster.leader()
        leader.pause()
        try:
            time.sleep(3.5)
        finally:
            leader.resume()
        contest.wait_for_an_end()
    contest.fences_rise()


def test_leader_that_dies_does_not_let_two_in(cluster: EtcdCluster) -> None:
    with Contest(cluster.url, ttl=TTL) as contest:
        contest.everybody_gets_it()
        leader = cluster.leader()
        leader.kill()
        try:
            contest.everybody_gets_it()
        finally:
            leader.start()
        contest.everybody_gets_it()
    contest.verdict()


def test_leader_that_is_cut_off_and_comes_back_does_not_let_two_in(cluster: EtcdCluster) -> None:
    with Contest(cluster.url, ttl=TTL) as contest:
        contest.everybody_gets_it()
        leader = cluster.leader()
        assert leader.namespace is not None
        leader.namespace.cut()
        try:
            contest.everybody_gets_it()
        finally:
            leader.namespace.heal()
        contest.everybody_gets_it()
    contest.verdict()


def test_holder_beside_a_leader_that_is_cut_off_is_not_fooled_by_its_answers(cluster: EtcdCluster) -> None:
    """Holder and leader are cut off together: what the leader still confirms alone does not count."""
    leader = cluster.leader()
    assert leader.namespace is not None
    rest = "etcd://" + ",".join(member.address for member in cluster.members if member is not leader)
    with Worker(leader.url, "beside", 3, leader.namespace.prefix) as holder:
        said, fence, _ = holder.line()
        assert said == "held"
        with leasehold.connect(rest, ttl=3, namespace="faults") as client:
            leader.namespace.cut()
            try:
                lease = client.lock("beside").acquire(timeout=60)
                granted = time.monotonic()
                told, _, instant = holder.line()
            finally:
                leader.namespace.heal()
            assert told == "lost"
            assert float(instant) < granted
            assert lease.fence > int(fence)
            lease.release()


def test_rolling_restart_costs_no_lease(cluster: EtcdCluster) -> None:
    """Each member is away for a while, and the leader changes; that is less than the ttl."""
    with leasehold.connect(cluster.url, ttl=15) as client, leasehold.connect(cluster.url, ttl=15) as other:
        lease = client.lock("rolling").acquire(timeout=30)
        for member in cluster.members:
            member.stop()
            time.sleep(1.0)  # a restart takes a while
            member.start()
            lease.check()
        before = lease.remaining()
        deadline = time.monotonic() + 30
        while lease.remaining() <= before:  # renewed over the restarted members
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert other.lock("rolling").try_acquire() is None
        assert lease.release() is True
        later = other.lock("rolling").acquire(timeout=30)
        assert later.fence > lease.fence
        later.release()
