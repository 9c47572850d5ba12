"""Names that an operator has paused: they are not granted, and their holders go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from leasehold.errors import ConfigurationError, OutcomeUnknown, Paused
from leasehold.testing.contract.expect import granted, placed, raises, refused
from leasehold.testing.contract.registry import core_case, store_case
from leasehold.testing.faults import Faults
from leasehold.values import UNLIMITED, Capability, Holder, Mode

if TYPE_CHECKING:
    from leasehold.spi import Pausing
    from leasehold.testing.contract.lab import Lab

ANA = Holder("ops-1", 7, "ana", "moving the database")


def _operator(lab: Lab) -> Pausing:
    return cast("Pausing", lab.backend())


async def _pause(lab: Lab, name: str = "x", seconds: float = UNLIMITED) -> Pausing:
    operator = _operator(lab)
    await operator.pause(lab.claim(name).key, ANA, seconds)
    return operator


@store_case(Capability.PAUSE)
async def a_paused_name_is_granted_to_nobody_and_who_asks_is_told_why(lab: Lab) -> None:
    operator = await _pause(lab)
    refusal = refused(await lab.backend().try_acquire(lab.claim()))
    assert refusal.holder is None
    assert refusal.paused is not None
    assert (refusal.paused.by, refusal.paused.reason) == ("ana", "moving the database")
    assert refusal.paused.expires_in is None
    assert await operator.resume(lab.claim().key) is True
    granted(await lab.backend().try_acquire(lab.claim()))


@store_case(Capability.PAUSE, Capability.PERMITS, Capability.SHARED)
async def every_kind_of_lock_can_be_paused(lab: Lab) -> None:
    operator = await _pause(lab)
    kinds = ((Mode.EXCLUSIVE, 1), (Mode.SHARED, 1), (Mode.PERMIT, 2), (Mode.PERMIT, 3))
    for mode, capacity in kinds:
        refusal = refused(await lab.backend().try_acquire(lab.claim(mode=mode, capacity=capacity)))
        assert refusal.paused is not None, f"{mode} was refused for another reason"
    assert await operator.resume(lab.claim().key)
    holding = granted(await lab.backend().try_acquire(lab.claim(mode=Mode.PERMIT, capacity=3)))
    await operator.pause(lab.claim().key, ANA, UNLIMITED)
    refused(await lab.backend().try_acquire(lab.claim(mode=Mode.PERMIT, capacity=3)))
    await operator.resume(lab.claim().key)
    granted(await lab.backend().try_acquire(lab.claim(mode=Mode.PERMIT, capacity=3)))
    assert await lab.backend().release(holding) is True


@store_case(Capability.PAUSE)
async def a_holder_goes_on_under_a_pause_and_nobody_follows_it(lab: Lab) -> None:
    backend = lab.backend()
    holding = granted(await backend.try_acquire(lab.claim(ttl=lab.ttl * 20, label="worker")))
    operator = await _pause(lab)
    refusal = refused(await lab.backend().try_acquire(lab.claim()))
    assert refusal.paused is not None
    granted((await backend.renew([holding]))[0])
    again = granted(await backend.try_acquire(holding.claim))
    assert again.fence == holding.fence, "the same claim sent again is the same grant, also under a pause"
    assert await backend.release(holding) is True
    refused(await lab.backend().try_acquire(lab.claim()))
    await operator.resume(lab.claim().key)
    heir = granted(await lab.backend().try_acquire(lab.claim()))
    assert heir.fence > holding.fence


@store_case(Capability.PAUSE)
async def nobody_follows_a_holder_that_vanishes_under_a_pause(lab: Lab) -> None:
    granted(await lab.backend().try_acquire(lab.claim()))
    operator = await _pause(lab)
    await lab.pass_time(lab.ttl * 2.5)
    assert refused(await lab.backend().try_acquire(lab.claim())).paused is not None
    state = await lab.client().inspect("x")
    assert state is not None
    assert not state.holdings
    await operator.resume(lab.claim().key)
    granted(await lab.backend().try_acquire(lab.claim()))


@store_case(Capability.PAUSE, Capability.FIFO)
async def waiters_keep_their_places_and_are_served_in_order_after_the_pause(lab: Lab) -> None:
    store = lab.queueing()
    holding = granted(await store.join(lab.claim(ttl=lab.ttl * 20)))
    before = placed(await store.join(lab.claim(ttl=lab.ttl * 20)))
    operator = await _pause(lab)
    after = placed(await store.join(lab.claim(ttl=lab.ttl * 20)))
    assert after.paused is not None
    assert await lab.backend().release(holding) is True
    before, after = placed(await store.turn(before)), placed(await store.turn(after))
    assert before.paused is not None
    assert (before.ahead, after.ahead) == (0, 1)
    await operator.resume(lab.claim().key)
    first = granted(await store.turn(before))
    assert placed(await store.turn(after)).paused is None
    assert await lab.backend().release(first) is True
    granted(await store.turn(after))


@store_case(Capability.PAUSE, Capability.FIFO)
async def who_withdraws_leaves_the_queue_of_a_paused_name(lab: Lab) -> None:
    store = lab.queueing()
    operator = await _pause(lab)
    gone, stays = lab.claim(ttl=lab.ttl * 20), lab.claim(ttl=lab.ttl * 20)
    placed(await store.join(gone))
    place = placed(await store.join(stays))
    await lab.backend().withdraw(gone)
    place = placed(await store.turn(place))
    assert place.ahead == 0
    assert place.paused is not None
    await operator.resume(lab.claim().key)
    granted(await store.turn(place))


@store_case(Capability.PAUSE, Capability.PUSH)
async def the_first_in_line_is_signalled_when_a_name_is_resumed(lab: Lab) -> None:
    store = lab.queueing()
    for name in ("first", "second"):  # twice, as in `signalled`
        operator = await _pause(lab, name)
        place = placed(await store.join(lab.claim(name, ttl=lab.ttl * 20)))
        place.signal.clear()
        place = placed(await store.turn(place))
        assert await operator.resume(lab.claim(name).key)
        await lab.eventually(place.signal.is_set, "the end of the pause is signalled")
        granted(await store.turn(place))


@store_case(Capability.PAUSE)
async def a_pause_ends_by_itself_when_its_time_is_over(lab: Lab) -> None:
    operator = await _pause(lab, seconds=lab.ttl)
    refusal = refused(await lab.backend().try_acquire(lab.claim()))
    assert refusal.paused is not None
    assert refusal.paused.expires_in is not None
    assert 0 < refusal.paused.expires_in <= lab.ttl * 1.1
    await lab.pass_time(lab.ttl * 2.5)
    assert await lab.client().inspect("x") is None
    assert await operator.resume(lab.claim().key) is False
    granted(await lab.backend().try_acquire(lab.claim()))


@store_case(Capability.PAUSE, Capability.FIFO)
async def who_waits_gets_the_name_when_the_time_of_the_pause_is_over(lab: Lab) -> None:
    await _pause(lab, seconds=lab.ttl)
    lease = await lab.flowing(lab.client().lock("x", ttl=lab.ttl * 20).acquire(timeout=lab.ttl * 40))
    await lease.release()


@store_case(Capability.PAUSE)
async def pausing_again_replaces_the_pause(lab: Lab) -> None:
    operator = await _pause(lab, seconds=lab.ttl)
    await operator.pause(lab.claim().key, Holder("ops-2", 8, "bo", "still moving"), UNLIMITED)
    await lab.pass_time(lab.ttl * 2.5)
    refusal = refused(await lab.backend().try_acquire(lab.claim()))
    assert refusal.paused is not None
    assert (refusal.paused.by, refusal.paused.reason) == ("bo", "still moving")
    assert await operator.resume(lab.claim().key) is True
    assert await operator.resume(lab.claim().key) is False
    granted(await lab.backend().try_acquire(lab.claim()))


@store_case(Capability.PAUSE, Capability.INSPECT)
async def an_operator_sees_what_is_paused_with_and_without_a_holder(lab: Lab) -> None:
    client = lab.client(label="worker")
    lease = await client.lock("held", ttl=lab.ttl * 20).acquire(timeout=0)
    for name in ("free", "held"):
        await client.pause(name, reason="moving the database", by="ana")
    free, held = await client.inspect("free"), await client.inspect("held")
    assert free is not None
    assert held is not None
    assert not free.holdings
    assert [holding.fence for holding in held.holdings] == [lease.fence]
    for state in (free, held):
        assert state.paused is not None
        assert (state.paused.by, state.paused.reason, state.paused.expires_in) == ("ana", "moving the database", None)
        assert not state.waiting
    assert [state.name for state in await client.locks()] == ["free", "held"]
    assert await lease.release() is True
    assert [state.name for state in await client.locks()] == ["free", "held"]
    for name in ("free", "held"):
        assert await client.resume(name)
    assert await client.locks() == []


@core_case(Capability.PAUSE)
async def the_error_for_a_paused_name_has_the_operator_s_reason(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    faults.drop_next_reply("pause")
    await client.pause("x", reason="moving the database", by="ana", duration=lab.ttl * 100)
    error = await raises(Paused, lab.client().lock("x").acquire(timeout=0))
    assert "paused by ana" in str(error)
    assert "moving the database" in str(error)
    assert error.pause is not None
    assert error.retry_after is not None
    assert await lab.client().lock("x").try_acquire() is None
    faults.drop_next_reply("resume")
    await raises(OutcomeUnknown, client.resume("x"))
    assert await client.resume("x") is False
    lease = await lab.client().lock("x").acquire(timeout=0)
    await lease.release()


@core_case(Capability.PAUSE)
async def pausing_needs_a_reason_and_a_sensible_time(lab: Lab) -> None:
    client = lab.client()
    await raises(ConfigurationError, client.pause("x", reason=""))
    await raises(ConfigurationError, client.pause("", reason="r"))
    await raises(ConfigurationError, client.pause("x", reason="r" * 257))
    await raises(ConfigurationError, client.pause("x", reason="r", duration=-1))
    assert await client.inspect("x") is None
