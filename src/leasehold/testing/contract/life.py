"""The life of a client: opened late, closed twice, dropped, used by many."""

from __future__ import annotations

import gc
import pickle
import warnings
from typing import TYPE_CHECKING

from leasehold.errors import ClientClosed
from leasehold.testing.contract.expect import raises
from leasehold.testing.contract.registry import core_case, store_case
from leasehold.testing.faults import Faults
from leasehold.values import Capability, LossReason

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab


@store_case()
async def closing_twice_is_fine_and_use_after_close_is_refused(lab: Lab) -> None:
    client = lab.client()
    lock = client.lock("x")
    await (await lock.acquire()).release()
    await client.close()
    await client.close()
    await raises(ClientClosed, lock.acquire(timeout=None))
    await raises(ClientClosed, lock.try_acquire())
    await raises(ClientClosed, client.inspect("x"))


@store_case()
async def closing_ends_the_calls_that_wait(lab: Lab) -> None:
    lease = await lab.client().lock("x", ttl=lab.ttl * 50).acquire()
    client = lab.client()
    tasks = [lab.spawn(client.lock("x", ttl=lab.ttl * 50).acquire(timeout=None)) for _ in range(3)]
    if Capability.FIFO in lab.capabilities:
        await lab.calls_waiting(client, 3)
    else:
        await lab.eventually(lambda: client._opened is not None, "they ask")
    await client.close()
    for task in tasks:
        await raises(ClientClosed, task.join())
    await lab.waiting("x", 0)
    await lease.release()
    assert await lab.free("x")


@store_case()
async def closing_ends_a_call_that_waits_for_a_store_that_is_away(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults, connect_timeout=lab.ttl * 1000)
    faults.cut()
    task = lab.spawn(client.lock("x").acquire(timeout=None))
    await lab.eventually(lambda: bool(faults.calls) and not faults.under_way, "it has failed once")
    await client.close()
    await raises(ClientClosed, task.join())


@store_case()
async def an_acquire_that_ends_while_its_client_is_closed_gives_no_lease(lab: Lab) -> None:
    """Nothing would renew it."""
    faults = Faults()
    client = lab.client(faults)
    verb = "join" if Capability.FIFO in lab.capabilities else "try_acquire"
    faults.delay_next_reply(lab.ttl * 0.3, verb)
    task = lab.spawn(client.lock("x").acquire(timeout=None))
    await lab.eventually(lambda: faults.delayed == 1, "the store has granted, and the answer is on its way")
    await client.close()
    await lab.flowing(raises(ClientClosed, task.join()))
    await lab.flowing(_got(lab))


@core_case()
async def closing_with_leases_held_tells_their_holders(lab: Lab) -> None:
    client = lab.client()
    lease = await client.lock("x").acquire()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        await client.close()
    assert any("'x'" in str(warning.message) for warning in seen)
    assert lease.lost.is_set()
    assert lease.loss is not None
    assert lease.loss.reason is LossReason.CLOSED
    assert await lease.release() is False


@core_case()
async def a_dropped_lease_is_not_renewed_any_more(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        await client.lock("x").acquire()  # the reference is dropped at once
        gc.collect()
        await lab.flowing(_got(lab))


async def _got(lab: Lab) -> None:
    lease = await lab.client().lock("x").acquire(timeout=lab.ttl * 20)
    await lease.release()


@core_case()
async def clients_locks_and_leases_refuse_to_be_pickled(lab: Lab) -> None:
    client = lab.client()
    lock = client.lock("x")
    lease = await lock.acquire()
    for thing in (client, lock, lease, client.lock_all(["a", "b"])):
        try:
            pickle.dumps(thing)
        except TypeError as error:
            assert "process" in str(error)
        else:
            raise AssertionError(f"{thing!r} was pickled")
    await lease.release()


@store_case()
async def a_hundred_cycles_leave_nothing_behind(lab: Lab) -> None:
    client = lab.client()
    lock = client.lock("x")
    for _ in range(100):
        await (await lock.acquire()).release()
    assert client._opened is not None
    assert client._opened.keeper.held == 0
    assert await lab.free("x")
    if Capability.INSPECT in lab.capabilities:
        assert list(await client.locks()) == []


@store_case()
async def no_text_shows_an_owner_value(lab: Lab) -> None:
    client = lab.client()
    lease = await client.lock("x").acquire()
    grant = lease._tenure.grant
    texts = [repr(lease), repr(client), repr(client.lock("x")), repr(grant), repr(grant.claim), str(lease.holder)]
    texts.append(repr(await client.inspect("x")))
    for text in texts:
        assert grant.claim.owner not in text
    assert len(grant.claim.owner) * 4 >= 128
    await lease.release()
