"""Leases and sets of leases, on a clock that is turned by hand."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold.errors import AcquireTimeout, LeaseLost
from leasehold.testing import ManualStore
from leasehold.values import LossReason

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
        assert client.inspect("x") is None


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
