"""Failover under Sentinel: kept, lost and doubled state. Fences rise, holders lose their leases, waiters go on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.stores.support import eventually, waiters
from verification.lab.sentinel import SERVICE, SentinelGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.stores.support import Worker

TASKS = ["hold", "hold-asyncio"]


@pytest.fixture
def group() -> Iterator[SentinelGroup]:
    """One that this test may break."""
    with SentinelGroup() as group:
        yield group


def in_sync(group: SentinelGroup) -> None:
    eventually(group.primary.has_replicated, "the replica does not confirm")


def held(worker: Worker) -> int:
    words = worker.line()
    if words == ["asking"]:
        words = worker.line()
    assert (words[0], words[2], words[3]) == ("held", "False", "True")
    return int(words[1])


@pytest.mark.parametrize("task", TASKS)
def test_failover_that_keeps_the_lock_costs_neither_holder_nor_waiter(
    group: SentinelGroup, start: Callable[..., Worker], task: str
) -> None:
    holder = start(task, group.url, "name", 20)
    fence = held(holder)
    waiter = start(task, group.url, "name", 20)
    with leasehold.connect(group.url) as client:
        eventually(lambda: waiters(client, "name") == 1)
        in_sync(group)
        group.fail_over()
    assert holder.ask("check") == ["ok"]
    with leasehold.connect(group.url) as client:
        state = client.inspect("name")
        assert state is not None
        assert state.holdings[0].fence == fence
    assert holder.ask("release") == ["released", "True"]
    assert held(waiter) > fence


@pytest.mark.parametrize("task", TASKS)
def test_failover_that_loses_the_lock_is_a_loss_for_the_holder_and_the_new_fence_is_higher(
    group: SentinelGroup, start: Callable[..., Worker], task: str
) -> None:
    with leasehold.connect(group.url) as client:
        client.lock("before", ttl=30).acquire().release()
        in_sync(group)
        old, replica = group.primary, group.replica
        replica.pause()
        old.leave_replicas_behind()
        holder = start(task, group.url, "name", 9)
        fence = held(holder)
        old.kill()
        replica.resume()
        assert group.wait_for_another(old) is replica
        assert replica.ask("KEYS", "*name*") == [], "the replica knows the lock; the test shows nothing"
        successor = client.lock("name", ttl=30).acquire(timeout=60)
        assert successor.fence > fence
        told, reason = holder.ask("lost")
        assert told == "told"
        assert reason in ("TAKEN", "UNCONFIRMED")
        assert holder.ask("release") == ["released", "False"]
        successor.check()
        assert successor.release()


def test_split_brain_gives_two_holders_whose_fences_are_in_the_order_of_time(group: SentinelGroup) -> None:
    """The old primary was only paused. When it wakes it still grants, to a client that knows no Sentinel."""
    old = group.primary
    with leasehold.connect(old.url) as stray:
        first = stray.lock("name", ttl=60, renew=False).acquire()
        in_sync(group)
        old.pause()
        new = group.wait_for_another(old)
        with leasehold.connect(group.url) as client:
            assert client.inspect("name") is not None, (
                "the new primary knows the lock"
            )  # has time to connect; a try has not
            assert client.lock("name").try_acquire() is None
            assert client.break_lock("name", fence=first.fence, reason="split brain", now=True)
            second = client.lock("name", ttl=60).acquire(timeout=60)
            assert second.fence > first.fence
            old.resume()
            third = grant_of_the_old_primary(stray, first)
            assert third is None or third > second.fence, "not in the order of time, on hosts whose clocks agree"
            second.check()
            assert second.release()
        eventually(lambda: old.is_role("slave"), "the old primary is not taken back")
        # Sentinel cuts the connections of a server that it takes back: a call on one of them got no answer.
        with pytest.raises((leasehold.BackendUnavailable, leasehold.OutcomeUnknown)):
            stray.lock("name").acquire(timeout=0)
        assert new.is_role("master")
        first.release()


def grant_of_the_old_primary(stray: leasehold.Client, first: leasehold.Lease) -> int | None:
    """The fence of one more grant there; None if the old primary was demoted before we came."""
    try:
        stray.break_lock("name", fence=first.fence, reason="split brain", now=True)
        lease = stray.lock("name", ttl=60, renew=False).acquire(timeout=0)
        lease.release()
    except leasehold.BackendError:
        return None
    return lease.fence


def test_acks_refuse_a_grant_that_no_replica_has(group: SentinelGroup) -> None:
    url = f"{group.url}?acks=1"
    with leasehold.connect(url) as client:
        lease = client.lock("name", ttl=30).acquire(timeout=60)
        assert lease.release()
        group.replica.pause()
        try:
            with pytest.raises((leasehold.BackendError, leasehold.AcquireTimeout)):
                client.lock("name", ttl=30).acquire(timeout=1)
        finally:
            group.servers[1].resume()
        eventually(lambda: client.inspect("name") is None, "the grant that was not acknowledged is left behind")
        group.wait_settled()
        assert client.lock("name", ttl=30).acquire(timeout=60).release()


def test_sentinels_that_are_gone_are_not_needed_while_the_primary_answers(group: SentinelGroup) -> None:
    with leasehold.connect(group.url) as client:
        lease = client.lock("name", ttl=3).acquire()
        for sentinel in group.sentinels:
            sentinel.kill()
        time.sleep(2)
        lease.check()
        assert lease.release()
        assert client.lock("name").acquire(timeout=5).release()
    with leasehold.connect(group.url) as late, pytest.raises(leasehold.BackendUnavailable):
        late.lock("name").acquire(timeout=0)


def test_one_sentinel_of_three_is_enough(group: SentinelGroup) -> None:
    for sentinel in group.sentinels[:2]:
        sentinel.kill()
    with leasehold.connect(group.url) as client:
        assert client.lock("name").acquire(timeout=30).release()


def test_sentinel_that_slept_through_the_failover_is_outvoted(group: SentinelGroup) -> None:
    """It wakes with an old opinion, and the old primary comes back believing in it."""
    sleeper, old = group.sentinels[0], group.primary
    sleeper.pause()
    old.kill()
    awake = group.sentinels[1:]
    eventually(lambda: all(sentinel.primary_port() != old.port for sentinel in awake), "no failover")
    new = next(server for server in group.servers if server is not old)
    eventually(lambda: new.is_role("master"))
    old.start()
    sleeper.resume()
    with leasehold.connect(group.url) as client:
        lease = client.lock("name", ttl=30).acquire(timeout=30)
        assert new.ask("KEYS", "*name*"), "it was granted by the old primary"
        assert lease.release()


def test_sentinel_that_does_not_know_the_service_leaves_it_to_the_others(group: SentinelGroup) -> None:
    """It did not: one that was set up anew, without the service, was believed at once and for good."""
    group.sentinels[0].ask("SENTINEL", "REMOVE", SERVICE)
    with leasehold.connect(group.url) as client:
        assert client.lock("name").acquire(timeout=0).release()
    for sentinel in group.sentinels[1:]:
        sentinel.kill()
    with leasehold.connect(group.url) as client:
        with pytest.raises(leasehold.BackendUnavailable, match="does not know"):
            client.lock("name").acquire(timeout=0)


def test_service_that_the_sentinels_do_not_know_is_rejected(sentinel_group: SentinelGroup) -> None:
    url = sentinel_group.url.replace("mymaster", "nobody")
    with leasehold.connect(url) as client, pytest.raises(leasehold.BackendRejected, match="nobody"):
        client.lock("name").acquire(timeout=5)
