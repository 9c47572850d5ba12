"""A timeout is kept: used up while the store is away, and exceeded by no more than a second when it is mute.

A scripted store is mute for as long as its own limit says, `COMMAND_TIMEOUT`; no call may wait so long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._core.backoff import GRACE
from leasehold.errors import AcquireTimeout, BackendError, BackendUnavailable, OutcomeUnknown
from leasehold.testing.contract.expect import raises
from leasehold.testing.contract.registry import store_case
from leasehold.testing.faults import Faults
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from leasehold._face.lease import AsyncLease
    from leasehold.testing.contract.lab import Lab

COMMAND_TIMEOUT = 30.0
SOON = COMMAND_TIMEOUT / 3


async def _duration(lab: Lab, awaitable: Coroutine[object, object, object]) -> float:
    began = lab.runtime.now()
    await lab.flowing(awaitable)
    return lab.runtime.now() - began


@store_case()
async def a_timeout_is_used_up_while_nobody_listens(lab: Lab) -> None:
    for timeout in (0.4, 1.5):
        faults = Faults()
        client = lab.client(faults, connect_timeout=0.1)
        for _ in range(500):
            faults.refuse_next()
        took = await _duration(lab, raises(BackendUnavailable, client.lock("x").acquire(timeout=timeout)))
        assert timeout <= took < timeout + GRACE + SOON


@store_case()
async def connect_timeout_does_not_lengthen_a_shorter_timeout(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults, connect_timeout=COMMAND_TIMEOUT)
    for _ in range(5000):
        faults.refuse_next()
    assert await _duration(lab, raises(BackendUnavailable, client.lock("x").acquire(timeout=0.2))) < SOON


@store_case()
async def a_store_that_comes_back_after_connect_timeout_is_waited_for_until_the_timeout(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults, connect_timeout=0.01)
    for _ in range(4):
        faults.refuse_next()
    lease = await lab.flowing(client.lock("x").acquire(timeout=COMMAND_TIMEOUT))
    await lease.release()


@store_case()
async def no_call_waits_for_the_own_limit_of_a_mute_store(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults, ttl=COMMAND_TIMEOUT * 10)
    lease = await client.lock("held").acquire()
    faults.mute(COMMAND_TIMEOUT)
    assert await _duration(lab, raises(OutcomeUnknown, client.lock("x").try_acquire())) < SOON
    assert await _duration(lab, raises(OutcomeUnknown, client.lock("x").acquire(timeout=0))) < SOON
    assert await _duration(lab, raises(OutcomeUnknown, client.lock("x").acquire(timeout=0.3))) < SOON
    assert await _duration(lab, raises(BackendError, lease.release())) < SOON
    faults.heal()


@store_case(Capability.FIFO)
async def a_waiter_whose_store_becomes_mute_gives_up_in_time(lab: Lab) -> None:
    faults = Faults()
    lease = await lab.client().lock("x", ttl=lab.ttl * 100).acquire()
    task = lab.spawn(_timed_out(lab, faults))
    await lab.waiting("x", 1)
    faults.mute(COMMAND_TIMEOUT)
    assert await _duration(lab, task.join()) < SOON
    faults.heal()
    await lease.release()


async def _timed_out(lab: Lab, faults: Faults) -> None:
    waiting = lab.client(faults).lock("x", ttl=lab.ttl * 100).acquire(timeout=lab.ttl)
    await raises((AcquireTimeout, BackendError), waiting)  # type: ignore[arg-type]


@store_case()
async def what_was_left_in_doubt_is_withdrawn_when_the_store_answers_again(lab: Lab) -> None:
    """Long before its ttl: no call waited for the withdrawal, which is repeated in the background."""
    faults = Faults()
    client = lab.client(faults)
    faults.mute(COMMAND_TIMEOUT)
    await lab.flowing(raises(OutcomeUnknown, client.lock("x", ttl=lab.ttl * 1000).acquire(timeout=0.1)))
    faults.heal()
    await lab.flowing(_free_in_time(lab))


@store_case()
async def a_release_that_failed_goes_on_in_the_background(lab: Lab) -> None:
    faults = Faults()
    lease = await lab.client(faults).lock("x", ttl=lab.ttl * 1000).acquire()
    faults.cut()
    await lab.flowing(raises(BackendError, lease.release()))
    waiter = lab.spawn(lab.client().lock("x").acquire(timeout=lab.ttl * 100))
    faults.heal()
    await (await lab.flowing(waiter.join())).release()
    await lab.eventually(lambda: not faults.under_way, "the release is answered")
    assert await lease.release() is True
    assert await lease.release() is False


@store_case()
async def closing_waits_for_a_release_in_the_background(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    client._close_patience = 5.0
    lease = await client.lock("x", ttl=lab.ttl * 1000).acquire()
    for _ in range(6):
        faults.refuse_next("release")
    await lab.flowing(raises(BackendError, lease.release()))
    await lab.flowing(client.close())
    assert await lab.free("x")


async def _free_in_time(lab: Lab) -> None:
    lease: AsyncLease = await lab.client().lock("x").acquire(timeout=lab.ttl * 100)
    await lease.release()
