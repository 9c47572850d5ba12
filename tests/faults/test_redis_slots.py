"""A Redis Cluster whose slots move and whose nodes die while locks are held and waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.faults.support import eventually, opened, waiters
from verification.lab.redis_cluster import RedisCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leasehold.testing import contract
    from tests.faults.support import Worker


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    """One that this test may break."""
    with RedisCluster(replicas=True) as cluster:
        yield cluster


def slot_of(cluster: RedisCluster, name: str) -> int:
    return cluster.slot_of(f"{{leasehold:{name}}}")


def test_locks_are_spread_over_the_nodes_and_each_lies_in_one_slot(cluster_nodes: RedisCluster) -> None:
    cluster_nodes.flush()
    with leasehold.connect(cluster_nodes.url) as client:
        leases = [client.lock(f"name {number}", ttl=30).acquire() for number in range(30)]
        for node in cluster_nodes.masters:
            keys = node.ask("KEYS", "*")
            assert keys, "one node has nothing"
            for key in keys:
                assert cluster_nodes.owner_of(cluster_nodes.slot_of(key)) is node
        slots = {cluster_nodes.slot_of(key) for node in cluster_nodes.masters for key in node.ask("KEYS", "*")}
        assert len(slots) <= 30
        assert len(client.locks()) == 30
        for lease in leases:
            assert lease.release()


def test_moved_slot_is_followed_by_holder_waiter_and_newcomer(
    driver: contract.Driver, cluster_nodes: RedisCluster
) -> None:
    cluster_nodes.flush()
    slot = slot_of(cluster_nodes, "moved")

    async def body() -> None:
        async with opened(driver, cluster_nodes.url) as client, opened(driver, cluster_nodes.url) as other:
            runtime = driver.runtime()
            lease = await client.lock("moved", ttl=6).acquire()
            got: list[int] = []

            async def wait() -> None:
                following = await other.lock("moved", ttl=6).acquire(timeout=60)
                got.append(following.fence)
                await following.release()

            task = runtime.spawn(wait(), "waiter")
            end = runtime.now() + 60
            while (state := await client.inspect("moved")) is None or not state.waiting:
                assert runtime.now() < end
                await runtime.sleep(0.01)
            cluster_nodes.move(slot)
            await lease.renew()
            cluster_nodes.move(slot)
            assert not await lease.lost.wait(3)
            assert await lease.release()
            assert await task.join(runtime.now() + 60)
            assert got
            assert got[0] > lease.fence
            again = await client.lock("moved").acquire(timeout=30)
            assert again.fence > got[0]
            assert await again.release()

    driver.run(body())


def test_slot_on_the_move_is_asked_for_where_its_keys_are(driver: contract.Driver, cluster_nodes: RedisCluster) -> None:
    """ASK for what is not there yet, TRYAGAIN while the keys of one lock are on both sides."""
    cluster_nodes.flush()
    slot = slot_of(cluster_nodes, "asked")

    async def body() -> None:
        async with opened(driver, cluster_nodes.url) as client:
            lease = await client.lock("asked", ttl=20).acquire()
            source = cluster_nodes.owner_of(slot)
            target = cluster_nodes.begin_move(slot)
            first, *_ = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100)
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", first)
            with pytest.raises(leasehold.BackendUnavailable, match=r"TRYAGAIN|ASK"):
                await client.lock("asked").acquire(timeout=0)
            cluster_nodes.finish_move(slot, target)
            assert await client.lock("asked").try_acquire() is None
            await lease.renew()
            assert await lease.release()
            moving = cluster_nodes.begin_move(slot)
            keys = cluster_nodes.owner_of(slot).ask("CLUSTER", "GETKEYSINSLOT", slot, 100)
            if keys:
                cluster_nodes.owner_of(slot).ask("MIGRATE", "127.0.0.1", moving.port, "", 0, 5000, "KEYS", *keys)
            again = await client.lock("asked", ttl=20).acquire(timeout=20)
            assert again.fence > lease.fence
            cluster_nodes.finish_move(slot, moving)
            assert await again.release()

    driver.run(body())


def test_slot_that_nobody_serves_is_unavailable_until_its_replica_takes_over(
    cluster: RedisCluster, start: Callable[..., Worker]
) -> None:
    with leasehold.connect(cluster.url) as client:
        lease = client.lock("name", ttl=30).acquire()
        owner = cluster.owner_of(slot_of(cluster, "name"))
        waiter = start("hold", cluster.url, "name", 30)
        eventually(lambda: waiters(client, "name") == 1)
        eventually(lambda: owner.ask("WAIT", 1, 1000) == 1)
        owner.kill()
        with pytest.raises(leasehold.BackendError) as caught:
            client.lock("name").acquire(timeout=0)
        assert not isinstance(caught.value, leasehold.BackendRejected)
        eventually(lambda: cluster.owner_of(slot_of(cluster, "name")) is not owner, "the replica does not take over")
        lease.check()
        assert lease.release()
        assert waiter.line() == ["asking"]
        assert int(waiter.line()[1]) > lease.fence


def test_failover_that_loses_the_lock_is_told_and_fences_still_rise(cluster: RedisCluster) -> None:
    with leasehold.connect(cluster.url) as client:
        slot = slot_of(cluster, "name")
        owner = cluster.owner_of(slot)
        replica = cluster.replicas[cluster.masters.index(owner)]
        replica.pause()
        lease = client.lock("name", ttl=30).acquire()
        owner.kill()
        replica.resume()
        eventually(lambda: cluster.owner_of(slot) is replica, "the replica does not take over")
        assert replica.ask("KEYS", "*name*") == [], "the replica knows the lock; the test shows nothing"
        successor = client.lock("name", ttl=30).acquire(timeout=60)
        assert successor.fence > lease.fence
        assert lease.lost.wait(30)
        assert lease.release() is False
        successor.check()
        assert successor.release()


def test_cluster_without_a_node_and_without_replicas_serves_the_other_slots_when_told_to() -> None:
    with RedisCluster(settings=["cluster-require-full-coverage no"]) as cluster:
        with leasehold.connect(cluster.url) as client:
            dead = cluster.masters[0]
            names = [f"name {number}" for number in range(20)]
            there = [name for name in names if cluster.owner_of(slot_of(cluster, name)) is dead]
            here = [name for name in names if name not in there]
            assert there
            assert here
            dead.kill()
            for name in here:
                assert client.lock(name).acquire(timeout=30).release()
            with pytest.raises(leasehold.BackendUnavailable):
                client.lock(there[0]).acquire(timeout=0)
            dead.start()
            assert client.lock(there[0]).acquire(timeout=60).release()
