"""Leaving in order: `close(release=True)`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from leasehold._core import events as happened
from leasehold.errors import ClientClosed, LeaseLost
from leasehold.testing.contract.expect import raises
from leasehold.testing.faults import Faults
from leasehold.testing.patterns.registry import pattern_case
from leasehold.values import Capability, LossReason, Skipped

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab
    from leasehold.values import Loss

NAMES = [f"n{number}" for number in range(7)]  # more than are released at a time


@pattern_case(Capability.EXCLUSIVE)
async def what_a_leaving_client_holds_is_free_for_the_next_at_once(lab: Lab) -> None:
    client, seen = lab.client(), list[happened.Event]()
    client.on_event(seen.append)
    leases = [await client.lock(name, ttl=lab.ttl * 50).acquire() for name in NAMES]
    await client.close(release=True)
    assert all(lease.loss is not None and lease.loss.reason is LossReason.GIVEN_BACK for lease in leases)
    assert [await lease.release() for lease in leases] == [False] * len(NAMES)
    freed = {event.name: event.freed for event in seen if isinstance(event, happened.Released)}
    assert freed == dict.fromkeys(NAMES, True)
    assert not any(isinstance(event, happened.Lost) for event in seen), "an orderly end is no error"
    other = lab.client()
    for lease in leases:
        following = await other.lock(lease.name).acquire(0)
        assert following.fence > lease.fence
        assert following.abandoned is not True
        await following.release()


@pattern_case(Capability.EXCLUSIVE)
async def without_release_they_stay_until_their_ttl(lab: Lab) -> None:
    client = lab.client()
    lease = await client.lock("x", ttl=lab.ttl * 50).acquire()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        await client.close()
    assert lease.loss is not None
    assert lease.loss.reason is LossReason.CLOSED
    assert await lab.client().lock("x").try_acquire() is None


@pattern_case(Capability.EXCLUSIVE)
async def holders_are_told_before_the_locks_are_free(lab: Lab) -> None:
    client, other = lab.client(), lab.client()
    await (await other.lock("y").acquire()).release()  # connected
    seen: list[tuple[Loss, int]] = []
    faults_seen: list[happened.Event] = []
    client.on_event(faults_seen.append)
    entered = False

    def on_lost(loss: Loss) -> None:
        seen.append((loss, sum(isinstance(event, happened.Released) for event in faults_seen)))

    async def work() -> None:
        nonlocal entered
        async with client.lock("x", ttl=lab.ttl * 50).hold(on_lost=on_lost) as lease:
            entered = True
            await lease.lost.wait()

    task = lab.spawn(work())
    await lab.eventually(lambda: entered, "it works")
    await client.close(release=True)
    lost = await raises(LeaseLost, task.join())
    assert lost.reason is LossReason.GIVEN_BACK
    ((loss, released),) = seen
    assert (loss.reason, released) == (LossReason.GIVEN_BACK, 0)
    await (await other.lock("x").acquire(0)).release()


@pattern_case(Capability.EXCLUSIVE, Capability.FIFO, Capability.INSPECT)
async def calls_of_the_leaving_client_are_not_handed_what_it_gives_back(lab: Lab) -> None:
    client, other = lab.client(), lab.client()
    lease = await client.lock("x", ttl=lab.ttl * 50).acquire()
    own = lab.spawn(client.lock("x", ttl=lab.ttl * 50).acquire(None))
    await lab.waiting("x", 1)
    following = lab.spawn(other.lock("x", ttl=lab.ttl * 50).acquire(None))
    await lab.waiting("x", 2)
    await client.close(release=True)
    await raises(ClientClosed, own.join())
    got = await lab.flowing(following.join())
    assert got.fence > lease.fence
    await got.release()
    assert await lab.free("x")


@pattern_case(Capability.EXCLUSIVE)
async def an_answer_that_gets_lost_is_asked_for_again(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    lease = await client.lock("x", ttl=lab.ttl * 50).acquire()
    faults.refuse_next("release")
    faults.drop_next_reply("release")
    await lab.flowing(client.close(release=True, timeout=lab.ttl * 20))
    following = await lab.client().lock("x").acquire(0)
    assert following.fence > lease.fence
    await following.release()


@pattern_case(Capability.EXCLUSIVE)
async def a_store_that_is_away_holds_nobody_up_for_longer_than_the_timeout(lab: Lab) -> None:
    faults, seen = Faults(), list[Any]()
    client = lab.client(faults)
    leases = [await client.lock(name, ttl=lab.ttl * 50).acquire() for name in NAMES]
    client.on_event(seen.append)
    started = lab.runtime.now()
    faults.cut()
    await lab.flowing(client.close(release=True, timeout=lab.ttl / 2))
    assert lab.runtime.now() - started < lab.ttl * 25, "not until the ttl"
    assert all(lease.loss is not None for lease in leases)

    def failed() -> set[str]:
        return {event.name for event in seen if isinstance(event, happened.ReleaseFailed) and event.is_final}

    await lab.eventually(lambda: failed() == set(NAMES), "each is reported")
    faults.heal()


@pattern_case(Capability.RECORD)
async def a_run_of_a_leaving_client_leaves_its_slot_to_the_next_at_once(lab: Lab) -> None:
    client, entered = lab.client(), False

    async def work() -> None:
        nonlocal entered
        async with client.once("job", slot="monday", ttl=lab.ttl * 50).attempt() as run:
            assert not isinstance(run, Skipped)
            entered = True
            await run.lost.wait()

    task = lab.spawn(work())
    await lab.eventually(lambda: entered, "it runs")
    await client.close(release=True)
    await raises(LeaseLost, task.join())
    async with lab.client().once("job", slot="monday", on_conflict="raise").attempt() as again:
        assert again
