"""Leases and sets of leases, on a clock that is turned by hand."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._core.keeper import Keeper
from leasehold._face.lease import AsyncLeaseSet
from leasehold._runtimes.threads import run
from leasehold.errors import AcquireTimeout, BackendUnavailable, LeaseLost
from leasehold.events import Acquired, Released
from leasehold.testing import ManualStore
from leasehold.values import Loss, LossReason
from tests.waiting import eventually

if TYPE_CHECKING:
    from leasehold import Lease


def test_several_locks_remain_as_long_as_the_first_of_them() -> None:
    store = ManualStore()
    with store.connect() as client, client.lock_all(["a", "b", "c"], renew=False, ttl=30).hold() as leases:
        store.clock.advance(10)
        leases.leases["a"].renew()
        leases.leases["c"].renew()
        assert leases.remaining() == leases.leases["b"].remaining()
        assert 18 < leases.remaining() < 20
        with pytest.raises(LeaseLost):
            leases.check(need=25)
        assert leases.renew() > 25


@pytest.mark.parametrize("now", [True, False])
def test_a_renewal_of_a_lease_that_is_gone_raises_the_loss(now: bool) -> None:
    with ManualStore().connect() as client:
        lease = client.lock("x").acquire()
        client.break_lock("x", fence=lease.fence, reason="stuck", now=now)
        with pytest.raises(LeaseLost) as lost:
            lease.renew()
        assert lost.value.reason is LossReason.BROKEN
        assert lease.remaining() == 0
        lease.release()


def test_a_renewal_after_the_deadline_raises_the_loss() -> None:
    store = ManualStore()
    with store.connect() as client:
        lease = client.lock("x", renew=False).acquire()
        store.clock.advance(31)
        with pytest.raises(LeaseLost) as lost:
            lease.renew()
        assert lost.value.reason is LossReason.EXPIRED
        lease.release()


def test_lost_is_true_once_the_lease_is_lost_in_both_faces() -> None:
    store = ManualStore()
    with store.connect() as client:
        lease = client.lock("x", ttl=10).acquire()
        assert not lease.lost
        store.clock.advance(11)
        assert lease.lost

    async def story() -> None:
        async with store.connect_async() as client:
            lease = await client.lock("y", ttl=10).acquire()
            assert not lease.lost
            store.clock.advance(11)
            assert lease.lost

    asyncio.run(story())


def test_a_re_entrant_acquire_after_the_deadline_is_a_new_grant() -> None:
    store = ManualStore()
    with store.connect() as client:
        lock = client.lock("x", reentrant=True, renew=False)
        first = lock.acquire()
        again = lock.acquire()
        assert again.fence == first.fence
        store.clock.advance(31)
        later = lock.acquire(timeout=0)
        assert later.fence > first.fence
        assert later.remaining() > 20
        once_more = lock.try_acquire()
        assert once_more is not None
        assert once_more.fence == later.fence
        assert first.loss is not None
        for lease in (once_more, later, again, first):
            lease.release()
        assert client.inspect("x") is None


def test_a_re_entrant_lock_is_free_after_as_many_releases_and_not_before() -> None:
    with ManualStore().connect() as client:
        lock = client.lock("x", reentrant=True)
        leases = [lock.acquire() for _ in range(3)]
        for lease in leases:
            assert client.inspect("x") is not None
            assert lease.release() is True
            assert lease.release() is False, "each counts once"
            assert lease.remaining() == 0
            with pytest.raises(LeaseLost):
                lease.check()
        assert client.inspect("x") is None


def test_a_block_that_has_ended_is_not_told_of_the_loss_of_the_lease_that_it_re_entered() -> None:
    store = ManualStore()
    outer: list[Loss] = []
    inner: list[Loss] = []
    with store.connect() as client:
        lock = client.lock("x", reentrant=True)
        with pytest.raises(LeaseLost), lock.hold(on_lost=outer.append) as lease:
            ended = lock.hold(on_lost=inner.append)
            with ended:
                pass
            store.lose(lease)
            eventually(lambda: outer)
        assert inner == []


def test_a_call_without_end_waits_longer_than_the_clients_own_timeout() -> None:
    with leasehold.connect("memory://", timeout=0.01) as client:
        got: list[Lease] = []
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                got.append(client.lock("x").acquire(timeout=None))
            except AcquireTimeout as error:
                failed.append(error)

        held = client.lock("x").acquire()
        with pytest.raises(AcquireTimeout):
            client.lock("x").acquire()
        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        patience = time.monotonic() + 30
        while not ((state := client.inspect("x")) and state.waiting) and not failed:
            assert time.monotonic() < patience
            time.sleep(0.001)
        time.sleep(0.1)  # ten times the client's own
        held.release()
        waiter.join(30)
        assert failed == []
        got[0].release()


@pytest.mark.parametrize("gone", ["a", "b", "c"])
def test_the_release_of_several_locks_is_true_only_if_each_was_still_ours(gone: str) -> None:
    with ManualStore().connect() as client:
        leases = client.lock_all(["a", "b", "c"]).acquire()
        client.break_lock(gone, fence=leases.fences[gone], reason="stuck", now=True)
        assert leases.release() is False
        assert client.locks() == [], "the others are given back all the same"
        assert client.lock_all(["a", "b", "c"]).acquire().release() is True


def test_several_locks_are_taken_in_one_order_however_they_are_named() -> None:
    with ManualStore().connect() as client:
        taken: list[str] = []
        freed: list[str] = []
        client.on_event(lambda event: taken.append(event.name) if isinstance(event, Acquired) else None)
        client.on_event(lambda event: freed.append(event.name) if isinstance(event, Released) else None)
        locks = client.lock_all(["b", "c", "a"])
        assert locks.names == ("a", "b", "c")
        locks.acquire().release()
        one = locks.try_acquire()
        assert one is not None
        one.release()
        assert taken == ["a", "b", "c", "a", "b", "c"]
        assert freed == ["c", "b", "a", "c", "b", "a"]


@pytest.mark.parametrize("gone", ["a", "b"])
def test_when_one_of_several_locks_is_lost_the_others_are_given_back_at_the_end_of_the_block(gone: str) -> None:
    store = ManualStore()
    with store.connect() as client:
        with pytest.raises(LeaseLost), client.lock_all(["a", "b"]).hold() as leases:
            store.lose(leases.leases[gone])
        assert client.locks() == []


def test_a_look_without_an_answer_is_repeated_once_and_leaves_nothing_in_doubt() -> None:
    store = ManualStore()
    with store.connect() as client:
        store.faults.drop_next_reply("inspect")
        assert client.inspect("x") is None
        store.faults.drop_next_reply("inspect")
        store.faults.drop_next_reply("inspect")
        with pytest.raises(BackendUnavailable):
            client.inspect("x")
        assert store.faults.calls.count("inspect") == 4


def test_locks_that_could_not_be_given_back_are_noted_in_the_error() -> None:
    store = ManualStore()
    with store.connect() as client, store.connect() as other, client.lock("b").hold():
        store.faults.reject_next("release")
        with pytest.raises(AcquireTimeout) as busy:
            other.lock_all(["a", "b"]).acquire(0)
        assert "already taken could not be released" in "".join(busy.value.__notes__)


def test_of_several_releases_that_fail_an_interruption_is_raised() -> None:
    class Failing:
        def __init__(self, error: BaseException) -> None:
            self.error = error

        async def release(self) -> bool:
            raise self.error

    leases: Any = [Failing(KeyboardInterrupt()), Failing(BackendUnavailable("away"))]
    with pytest.raises(KeyboardInterrupt):
        run(AsyncLeaseSet(leases).release())
    with pytest.raises(BackendUnavailable, match="first"):
        run(AsyncLeaseSet([leases[1], Failing(BackendUnavailable("first"))]).release())  # type: ignore[list-item]


def test_a_block_does_not_begin_under_a_lease_that_is_over() -> None:
    store = ManualStore()
    with store.connect() as client:
        lost = client.lock("x", renew=False).acquire()
        several = client.lock_all(["y", "z"], renew=False).acquire()
        released = client.lock("w").acquire()
        released.release()
        store.clock.advance(31)
        for lease in (lost, several, released):
            with pytest.raises(LeaseLost):
                with lease:
                    raise AssertionError("the block was run")
        lost.release()
        several.release()


def test_an_async_block_does_not_begin_under_a_lease_that_is_over() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            lost = await client.lock("x", renew=False).acquire()
            several = await client.lock_all(["y", "z"], renew=False).acquire()
            store.clock.advance(31)
            for lease in (lost, several):
                with pytest.raises(LeaseLost):
                    async with lease:
                        raise AssertionError("the block was run")
            await lost.release()
            await several.release()

    asyncio.run(main())


AFTER_A_FORK = """
import asyncio, os
import leasehold

client = leasehold.connect_async("memory://")

async def use():
    async with client.lock("x").hold() as lease:
        return lease.fence

asyncio.run(use())
child = os.fork()
if child == 0:
    os._exit(0 if asyncio.run(use()) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_an_async_client_that_was_inherited_over_a_fork_works_on_the_childs_own_loop() -> None:
    done = subprocess.run([sys.executable, "-c", AFTER_A_FORK], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "0", done.stderr


def test_waiting_for_the_loss_does_not_depend_on_the_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper that is late, because the process was paused say, must not keep the loss from anybody."""
    monkeypatch.setattr(Keeper, "_attend", lambda _, now: now + 3600)
    with leasehold.connect("memory://") as client:
        lease = client.lock("x", ttl=0.2, renew=False).acquire()
        started = time.monotonic()
        assert lease.lost.wait(30) is True
        assert time.monotonic() - started < 10
        lease.release()


LOCK_OVER_A_FORK = """
import os
import leasehold

client = leasehold.connect("memory://")
lock = client.lock("x", reason="nightly")  # made and used before the fork, and used again after it
lease = lock.acquire()
child = os.fork()
if child == 0:
    mine = lock.acquire(timeout=0)  # a private memory store: the child's is another one
    whose = (mine.holder.pid, mine.holder.reason) == (os.getpid(), "nightly")
    ours = whose and lease.remaining() == 0 and mine.remaining() > 0
    os._exit(0 if ours and mine.release() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), lease.remaining() > 0, lease.release())
"""


def test_a_lock_object_that_was_used_before_a_fork_is_the_childs_own_after_it() -> None:
    command = [sys.executable, "-c", LOCK_OVER_A_FORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "0 True True", done.stderr


def test_every_block_under_a_lease_learns_that_its_own_call_raises_the_loss(
    client: leasehold.Client, store: ManualStore
) -> None:
    class Watcher:
        heard: list[str]

        def __init__(self) -> None:
            self.heard = []

        def on_end(self, loss: Loss | None) -> None:
            self.heard.append("over")

        def loss_is_raised(self) -> None:
            self.heard.append("raised")

    lease = client.lock("x", renew=False).acquire()
    watchers = [Watcher() for _ in range(3)]
    for watcher in watchers:
        lease._twin._watch(watcher)
    store.clock.advance(60)
    with pytest.raises(LeaseLost):
        lease.check()
    assert ["raised" in watcher.heard for watcher in watchers] == [True] * 3
