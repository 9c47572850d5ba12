"""Locks that linger, where the store keeps fences free: a release keeps the grant for the next call of its client."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from leasehold.testing.contract.registry import store_case
from leasehold.testing.faults import Faults
from leasehold.values import Capability

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab


@store_case(Capability.RANGES)
async def a_lock_that_lingers_is_taken_again_without_a_request(lab: Lab) -> None:
    faults = Faults()
    lock = lab.client(faults, ttl=lab.ttl * 50).lock("x", linger=1)
    lease = await lock.acquire()
    began, asked, first = lab.runtime.now(), len(faults.calls), lease.fence
    for number in range(1, 4):
        assert await lease.release() is True
        lease = await lock.acquire()
        assert lease.fence >= first + number
    if lab.runtime.now() < began + 1:  # else its time was over
        assert lease.fence == first + 3
        assert set(faults.calls[asked:]) <= {"renew"}
    await lease.release()


@store_case(Capability.RANGES)
async def a_lock_that_lingers_is_free_for_others_after_its_time(lab: Lab) -> None:
    client = lab.client(ttl=lab.ttl * 50)
    lock = client.lock("x", linger=min(1.0, lab.ttl * 0.2))
    for _ in range(2):
        lease = await lock.acquire()
        await lease.release()
    waiting = lab.spawn(lab.client(ttl=lab.ttl * 50).lock("x").acquire(timeout=None))
    other = await lab.flowing(waiting.join())
    assert other.fence > lease.fence + 1
    await other.release()
    last = await lock.acquire(timeout=0)
    assert last.fence > other.fence
    await last.release()


@store_case(Capability.RANGES)
async def closing_a_client_gives_back_what_lingers(lab: Lab) -> None:
    client = lab.client(ttl=lab.ttl * 50)
    lease = await client.lock("x", linger=1).acquire()
    await lease.release()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await lab.close(client)
    next_one = await lab.client().lock("x").acquire(timeout=0)
    assert next_one.fence > lease.fence + 1
    await next_one.release()
