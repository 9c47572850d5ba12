"""A Redis Cluster whose slots move and whose nodes die while locks are held and waited for."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._urls import find_store
from leasehold.values import Claim, Grant, Holder, Mode, Record
from tests.stores.redis.redis_calls import backend_of
from tests.stores.support import eventually, opened, waiters
from verification.lab.redis_cluster import RedisCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leasehold.testing import contract
    from tests.stores.support import Worker


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    """One that this test may break."""
    with RedisCluster(replicas=True) as cluster:
        yield cluster


def slot_of(cluster: RedisCluster, name: str) -> int:
    return cluster.slot_of(f"{{leasehold:{name}}}")


def claim_of(name: str, owner: str) -> Claim:
    return Claim(f"leasehold:{name}", owner, 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


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


@pytest.mark.parametrize("share", ["none", "one", "all"])
def test_slot_on_the_move_is_unavailable_or_served_and_waited_for(
    driver: contract.Driver, cluster_nodes: RedisCluster, share: str
) -> None:
    """ASK for keys that went already, TRYAGAIN while those of one lock are on both sides or not there yet."""
    cluster_nodes.flush()
    name = f"asked {share}"
    slot = slot_of(cluster_nodes, name)
    source = cluster_nodes.owner_of(slot)

    async def body() -> None:
        async with opened(driver, cluster_nodes.url) as client:
            runtime = driver.runtime()
            lease = await client.lock(name, ttl=20).acquire()
            target = cluster_nodes.begin_move(slot)
            keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100)
            assert len(keys) >= 2
            for key in {"none": [], "one": keys[:1], "all": keys}[share]:
                source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
            try:
                assert await client.lock(name).try_acquire() is None
            except leasehold.BackendUnavailable as error:
                assert "being moved" in str(error)
            except leasehold.OutcomeUnknown:
                pass  # its time was over while it asked once more

            async def finish() -> None:
                await runtime.sleep(0.5)
                cluster_nodes.finish_move(slot, target)

            task = runtime.spawn(finish(), "mover")
            with pytest.raises(leasehold.AcquireTimeout):
                await client.lock(name).acquire(timeout=3)
            assert await task.join(runtime.now() + 60)
            lease.check()
            assert await lease.release()
            again = await client.lock(name, ttl=20).acquire(timeout=20)
            assert again.fence > lease.fence
            assert await again.release()

    driver.run(body())


@contextmanager
def half_moved(cluster: RedisCluster, slot: int) -> Iterator[Callable[[], None]]:
    """Begin to move a slot, and move one of its keys: a call that needs them all has to wait. The rest on command.

    Whatever becomes of the test: others use this cluster, too.
    """
    source, target = cluster.owner_of(slot), cluster.begin_move(slot)
    first, *_ = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100)
    source.ask("MIGRATE", "127.0.0.1", target.port, first, 0, 5000)
    try:
        yield lambda: cluster.finish_move(slot, target)
    finally:
        if cluster.owner_of(slot) is source:
            cluster.finish_move(slot, target)


def test_release_waits_for_a_slot_on_the_move(driver: contract.Driver, cluster_nodes: RedisCluster) -> None:
    """It did not: it was refused at once, and the lock stayed for its ttl."""
    cluster_nodes.flush()
    slot = slot_of(cluster_nodes, "moving")

    async def body() -> None:
        async with backend_of(driver, cluster_nodes.url) as (backend, runtime):
            grant = await backend.try_acquire(claim_of("moving", "o1"))
            with half_moved(cluster_nodes, slot) as finish_move:

                async def finish() -> None:
                    await runtime.sleep(0.5)
                    finish_move()

                # Unknown: the time was over while it asked once more.
                with pytest.raises((leasehold.BackendUnavailable, leasehold.OutcomeUnknown)):
                    await backend.release(grant, runtime.now() + 0.3)
                task = runtime.spawn(finish(), "mover")
                assert await backend.release(grant) is True
                assert await task.join(runtime.now() + 60)
            assert await backend.inspect("leasehold:moving") is None

    driver.run(body())


def test_call_whose_time_is_over_after_it_was_put_off_names_the_moving_slot(
    driver: contract.Driver, cluster_nodes: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It named the missing time to send the request, and not the reason."""
    cluster_nodes.flush()
    slot = slot_of(cluster_nodes, "moving")

    async def body() -> None:
        async with backend_of(driver, cluster_nodes.url) as (backend, runtime):
            grant = await backend.try_acquire(claim_of("moving", "o1"))
            plain = runtime.sleep

            async def oversleep(_: float) -> None:
                await plain(6)

            with half_moved(cluster_nodes, slot), monkeypatch.context() as patch:
                patch.setattr(runtime, "sleep", oversleep)
                with pytest.raises(leasehold.BackendUnavailable, match="being moved"):
                    await backend.release(grant, runtime.now() + 5)
            assert await backend.release(grant) is True

    driver.run(body())


def test_record_in_a_slot_on_the_move_is_found_where_it_is(
    driver: contract.Driver, cluster_nodes: RedisCluster
) -> None:
    """A record is one key: the old owner answers ASK when it has gone, and the new one answers."""
    cluster_nodes.flush()
    key = "leasehold:record"
    slot = cluster_nodes.slot_of(f"{{{key}}}")
    source = cluster_nodes.owner_of(slot)

    async def body() -> None:
        backend: Any = find_store(cluster_nodes.url).open_backend(driver.runtime())
        try:
            assert await backend.write(Record(key, b"value", 7, 60))
            target = cluster_nodes.begin_move(slot)
            try:
                (kept,) = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100)
                source.ask("MIGRATE", "127.0.0.1", target.port, kept, 0, 5000)
                reading = await backend.read(key)
                assert reading.record is not None
                assert reading.record.value == b"value"
                assert await backend.write(Record(key, b"newer", 8, 60))
            finally:
                cluster_nodes.finish_move(slot, target)
            assert (await backend.read(key)).record.value == b"newer"
        finally:
            await backend.close()

    driver.run(body())


def test_slot_without_a_server_is_unavailable_until_its_replica_takes_over(
    cluster: RedisCluster, start: Callable[..., Worker]
) -> None:
    with leasehold.connect(cluster.url) as client:
        lease = client.lock("name", ttl=30).acquire()
        owner = cluster.owner_of(slot_of(cluster, "name"))
        waiter = start("hold", cluster.url, "name", 30)
        eventually(lambda: waiters(client, "name") == 1)
        eventually(owner.has_replicated, "the replica does not confirm")
        owner.kill()
        # Unknown: a connection that was used a moment ago is taken to be alive, and what was sent on it got no answer.
        with pytest.raises((leasehold.BackendUnavailable, leasehold.OutcomeUnknown)):
            client.lock("name").acquire(timeout=0)
        eventually(lambda: cluster.owner_of(slot_of(cluster, "name")) is not owner, "the replica does not take over")
        lease.check()
        assert lease.release()
        assert waiter.line() == ["asking"]
        assert int(waiter.line()[1]) > lease.fence


def test_failover_that_loses_the_lock_is_a_loss_and_fences_still_rise(cluster: RedisCluster) -> None:
    with leasehold.connect(cluster.url) as client:
        slot = slot_of(cluster, "name")
        owner = cluster.owner_of(slot)
        replica = cluster.replicas[cluster.masters.index(owner)]
        replica.pause()
        owner.leave_replicas_behind()
        lease = client.lock("name", ttl=9).acquire()
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


def test_cluster_without_a_node_and_without_replicas_serves_the_other_slots_if_configured() -> None:
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


def test_stopped_node_does_not_keep_leases_on_the_others_from_being_renewed(driver: contract.Driver) -> None:
    """With threads it did: connecting to it took the time of all, and their renewals were given up unanswered."""
    settings = ["cluster-require-full-coverage no", "cluster-node-timeout 60000"]
    with RedisCluster(settings=settings) as cluster:
        names = {cluster.owner_of(slot_of(cluster, f"n{number}")).port: f"n{number}" for number in range(30)}
        stopped = cluster.masters[0]
        ports = sorted(names, key=lambda port: port != stopped.port)  # the stopped one is asked first

        async def body() -> None:
            runtime = driver.runtime()
            backend: Any = find_store(cluster.url).open_backend(runtime)
            try:
                claims = [claim_of(names[port], runtime.owner()) for port in ports]
                grants = [await backend.try_acquire(claim) for claim in claims]
                stopped.pause()
                for _ in range(3):
                    first, *others = await backend.renew(grants)
                    assert isinstance(first, leasehold.BackendError)
                    assert all(isinstance(answer, Grant) for answer in others), others
            finally:
                stopped.resume()
                await backend.close()

        assert len(ports) == 3
        driver.run(body())


def test_slot_without_a_server_does_not_keep_leases_in_others_from_being_renewed(driver: contract.Driver) -> None:
    """It did: looking for the server of one lock failed, and nothing was sent for the others."""
    with RedisCluster(settings=["cluster-require-full-coverage no"]) as cluster:
        slot = slot_of(cluster, "n0")
        owner = cluster.owner_of(slot)
        there = next(name for name in map(str, range(30)) if cluster.owner_of(slot_of(cluster, name)) is not owner)

        async def body() -> None:
            runtime = driver.runtime()
            backend: Any = find_store(cluster.url).open_backend(runtime)
            try:
                claims = [claim_of(name, runtime.owner()) for name in ("n0", there)]
                grants = [await backend.try_acquire(claim) for claim in claims]
                for node in cluster.masters:
                    node.ask("CLUSTER", "DELSLOTS", slot)
                for _ in range(2):
                    answers = await backend.renew(grants)
                    assert isinstance(answers[0], leasehold.BackendError)
                    assert isinstance(answers[1], Grant), answers[1]
            finally:
                await backend.close()

        driver.run(body())
