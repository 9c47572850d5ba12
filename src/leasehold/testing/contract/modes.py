"""Readers share, writers do not; a semaphore admits as many as it has permits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import ModeConflict
from leasehold.testing.contract.expect import granted, lost, placed, raises, refused
from leasehold.testing.contract.registry import store_case
from leasehold.values import Capability, Grant, Mode

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab
    from leasehold.values import Claim


@store_case(Capability.SHARED)
async def readers_share_and_keep_a_writer_out(lab: Lab) -> None:
    backend = lab.backend()
    readers = [granted(await backend.try_acquire(lab.claim(mode=Mode.SHARED))) for _ in range(3)]
    refused(await backend.try_acquire(lab.claim()))
    for grant in readers:
        assert await backend.release(grant)
    granted(await backend.try_acquire(lab.claim()))


@store_case(Capability.SHARED)
async def another_share_of_the_same_owner_is_not_touched(lab: Lab) -> None:
    """A late copy of a claim may be granted anew after the release, beside another reader."""
    backend, claim = lab.backend(), lab.claim(mode=Mode.SHARED)
    granted(await backend.try_acquire(lab.claim(mode=Mode.SHARED, ttl=lab.ttl * 20)))
    first = granted(await backend.try_acquire(claim))
    await backend.release(first)
    second = granted(await backend.try_acquire(claim))
    assert second.fence > first.fence
    lost((await backend.renew([first]))[0])
    assert await backend.release(first) is False
    assert granted((await backend.renew([second]))[0]).fence == second.fence


@store_case(Capability.SHARED)
async def a_writer_keeps_readers_out(lab: Lab) -> None:
    backend = lab.backend()
    writer = granted(await backend.try_acquire(lab.claim()))
    refused(await backend.try_acquire(lab.claim(mode=Mode.SHARED)))
    await backend.release(writer)
    granted(await backend.try_acquire(lab.claim(mode=Mode.SHARED)))


@store_case(Capability.SHARED)
async def a_reader_that_renews_and_vanishes_takes_nothing_from_one_with_a_longer_ttl(lab: Lab) -> None:
    backend = lab.backend()
    long = granted(await backend.try_acquire(lab.claim(mode=Mode.SHARED, ttl=lab.ttl * 20)))
    short = granted(await backend.try_acquire(lab.claim(mode=Mode.SHARED)))
    granted((await backend.renew([short]))[0])
    await lab.pass_time(lab.ttl * 2)
    refused(await lab.backend().try_acquire(lab.claim()))
    granted((await backend.renew([long]))[0])


@store_case(Capability.SHARED, Capability.FIFO)
async def a_reader_does_not_overtake_a_waiting_writer(lab: Lab) -> None:
    store = lab.queueing()
    reader = granted(await store.join(lab.claim(mode=Mode.SHARED)))
    writer = placed(await store.join(lab.claim()))
    late = placed(await store.join(lab.claim(mode=Mode.SHARED)))
    refused(await lab.backend().try_acquire(lab.claim(mode=Mode.SHARED)))
    await lab.backend().release(reader)
    grant = granted(await store.turn(writer))
    late = placed(await store.turn(late))
    await lab.backend().release(grant)
    granted(await store.turn(late))


@store_case(Capability.SHARED, Capability.FIFO)
async def waiting_readers_enter_together(lab: Lab) -> None:
    store = lab.queueing()
    writer = granted(await store.join(lab.claim()))
    first = placed(await store.join(lab.claim(mode=Mode.SHARED)))
    second = placed(await store.join(lab.claim(mode=Mode.SHARED)))
    await lab.backend().release(writer)
    granted(await store.turn(first))
    granted(await store.turn(second))


@store_case(Capability.SHARED, Capability.FIFO)
async def a_writer_that_stops_asking_does_not_keep_the_readers_behind_it_out(lab: Lab) -> None:
    store = lab.queueing()
    granted(await store.join(lab.claim(mode=Mode.SHARED, ttl=lab.ttl * 20)))
    placed(await store.join(lab.claim()))  # it vanishes
    answer: object = await store.join(lab.claim(mode=Mode.SHARED))
    for _ in range(16):
        place = placed(answer)
        await lab.pass_time(place.recheck)
        answer = await store.turn(place)
        if isinstance(answer, Grant):
            break
    granted(answer)


def _permit(lab: Lab, capacity: int = 2) -> Claim:
    return lab.claim(mode=Mode.PERMIT, capacity=capacity)


@store_case(Capability.PERMITS)
async def a_semaphore_admits_exactly_its_permits(lab: Lab) -> None:
    backend = lab.backend()
    first, second = [granted(await backend.try_acquire(_permit(lab))) for _ in range(2)]
    refused(await backend.try_acquire(_permit(lab)))
    await backend.release(first)
    third = granted(await backend.try_acquire(_permit(lab)))
    refused(await backend.try_acquire(_permit(lab)))
    assert len({first.fence, second.fence, third.fence}) == 3


@store_case(Capability.PERMITS, Capability.FIFO)
async def a_permit_goes_to_the_first_in_line_whoever_leaves_first(lab: Lab) -> None:
    store, backend = lab.queueing(), lab.backend()
    first, second = [granted(await store.join(_permit(lab))) for _ in range(2)]
    third, fourth = [placed(await store.join(_permit(lab))) for _ in range(2)]
    await backend.release(first)
    granted(await store.turn(third))
    fourth = placed(await store.turn(fourth))
    await backend.release(second)
    granted(await store.turn(fourth))


@store_case(Capability.PERMITS)
async def an_expired_permit_is_free_again(lab: Lab) -> None:
    backend = lab.backend()
    grants = [granted(await backend.try_acquire(_permit(lab))) for _ in range(2)]
    await lab.pass_time(grants[0].ttl * 1.1)
    granted(await backend.try_acquire(_permit(lab)))


@store_case(Capability.PERMITS)
async def one_name_is_one_kind_of_lock_while_it_is_in_use(lab: Lab) -> None:
    backend = lab.backend()
    grant = granted(await backend.try_acquire(_permit(lab)))
    await raises(ModeConflict, backend.try_acquire(lab.claim()))
    await raises(ModeConflict, backend.try_acquire(_permit(lab, capacity=3)))
    await backend.release(grant)
    granted(await backend.try_acquire(lab.claim()))
    await raises(ModeConflict, backend.try_acquire(_permit(lab)))


@store_case(Capability.PERMITS)
async def a_mode_conflict_names_the_lock_and_leaves_nothing(lab: Lab) -> None:
    client = lab.client()
    lease = await client.semaphore("x", 2).acquire()
    error = await raises(ModeConflict, client.lock("x").acquire(timeout=1))
    assert "semaphore of 2" in str(error)
    await lease.release()
    assert await lab.free("x")
