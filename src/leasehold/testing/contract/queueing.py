"""First come, first served, among all clients of a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing.contract.expect import granted, placed, refused, signalled
from leasehold.testing.contract.registry import store_case
from leasehold.values import Capability

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab


@store_case(Capability.FIFO)
async def a_free_name_is_granted_to_the_first_who_joins(lab: Lab) -> None:
    granted(await lab.queueing().join(lab.claim()))


@store_case(Capability.FIFO)
async def the_queue_is_served_in_order(lab: Lab) -> None:
    store, backend = lab.queueing(), lab.backend()
    holding = granted(await store.join(lab.claim()))
    places = [placed(await lab.queueing().join(lab.claim())) for _ in range(4)]
    assert [place.ahead for place in places] == [0, 1, 2, 3]
    for number in range(4):
        await backend.release(holding)
        for later in places[number + 1 :]:
            placed(await store.turn(later))
        holding = granted(await store.turn(places[number]))


@store_case(Capability.FIFO)
async def a_place_says_who_holds_the_lock(lab: Lab) -> None:
    granted(await lab.queueing().join(lab.claim(label="first")))
    place = placed(await lab.queueing().join(lab.claim()))
    assert place.holder is not None
    assert place.holder.label == "first"
    assert 0 < place.recheck <= lab.ttl


@store_case(Capability.FIFO)
async def try_acquire_never_overtakes_a_waiter(lab: Lab) -> None:
    store, backend = lab.queueing(), lab.backend()
    holding = granted(await store.join(lab.claim()))
    place = placed(await store.join(lab.claim()))
    await backend.release(holding)
    refused(await lab.backend().try_acquire(lab.claim()))
    granted(await store.turn(place))


@store_case(Capability.FIFO)
async def joining_twice_keeps_the_place(lab: Lab) -> None:
    store, backend = lab.queueing(), lab.backend()
    holding = granted(await store.join(lab.claim()))
    claim = lab.claim()
    placed(await store.join(claim))
    later = placed(await store.join(lab.claim()))
    again = placed(await store.join(claim))
    assert again.ahead == 0
    await backend.release(holding)
    placed(await store.turn(later))
    granted(await store.turn(again))


@store_case(Capability.FIFO)
async def asking_again_after_the_grant_gives_the_same_grant(lab: Lab) -> None:
    store, backend = lab.queueing(), lab.backend()
    holding = granted(await store.join(lab.claim()))
    place = placed(await store.join(lab.claim()))
    await backend.release(holding)
    first = granted(await store.turn(place))
    assert granted(await store.turn(place)).fence == first.fence
    assert granted(await store.join(place.claim)).fence == first.fence


@store_case(Capability.FIFO)
async def who_withdraws_leaves_the_queue(lab: Lab) -> None:
    store, backend = lab.queueing(), lab.backend()
    holding = granted(await store.join(lab.claim()))
    first = placed(await store.join(lab.claim()))
    second = placed(await store.join(lab.claim()))
    await backend.withdraw(first.claim)
    await backend.release(holding)
    granted(await store.turn(second))
    refused(await store.turn(first))


@store_case(Capability.FIFO)
async def a_place_given_up_without_doubt_leaves_nothing_and_may_be_asked_for_again(lab: Lab) -> None:
    store, backend = lab.queueing(), lab.backend()
    holding = granted(await store.join(lab.claim()))
    claim = lab.claim()
    placed(await store.join(claim))
    second = placed(await store.join(lab.claim()))
    await backend.withdraw(claim, doubt=False)
    assert placed(await store.join(claim)).ahead == 1
    await backend.release(holding)
    granted(await store.turn(second))


@store_case(Capability.FIFO)
async def a_late_join_after_the_withdrawal_takes_no_place(lab: Lab) -> None:
    store, backend = lab.queueing(), lab.backend()
    holding = granted(await store.join(lab.claim()))
    claim = lab.claim()
    await backend.withdraw(claim)
    refused(await store.join(claim))
    await backend.release(holding)
    granted(await backend.try_acquire(lab.claim()))


@store_case(Capability.FIFO)
async def a_waiter_that_stops_asking_loses_its_place(lab: Lab) -> None:
    store, backend = lab.queueing(), lab.backend()
    holding = granted(await store.join(lab.claim(ttl=lab.ttl * 20)))
    dead = placed(await store.join(lab.claim()))
    live = placed(await store.join(lab.claim()))
    for _ in range(16):
        await lab.pass_time(live.recheck)
        live = placed(await store.turn(live))
        if live.ahead == 0:
            break
    assert live.ahead == 0
    await backend.release(holding)
    granted(await store.turn(live))
    refused(await store.turn(dead))


@store_case(Capability.FIFO)
async def a_waiter_that_keeps_asking_keeps_its_place(lab: Lab) -> None:
    store, backend = lab.queueing(), lab.backend()
    holding = granted(await store.join(lab.claim(ttl=lab.ttl * 20)))
    place = placed(await store.join(lab.claim()))
    for _ in range(6):
        await lab.pass_time(place.recheck)
        place = placed(await store.turn(place))
    await backend.release(holding)
    granted(await store.turn(place))


@store_case(Capability.FIFO)
async def the_queue_moves_on_when_the_holder_expires(lab: Lab) -> None:
    store = lab.queueing()
    holding = granted(await store.join(lab.claim()))
    place = placed(await store.join(lab.claim()))
    for _ in range(8):
        await lab.pass_time(min(place.recheck, holding.ttl / 4))
        answer = await store.turn(place)
        if answer is not place and not hasattr(answer, "recheck"):
            granted(answer)
            return
        place = placed(answer)
    raise AssertionError("the holder's ttl is over, and its successor was never let in")


@store_case(Capability.PUSH)
async def a_release_signals_the_next_in_line(lab: Lab) -> None:
    await signalled(lab, lab.backend().release, "release")


@store_case(Capability.PUSH)
async def a_withdrawal_signals_the_next_in_line(lab: Lab) -> None:
    backend = lab.backend()
    await signalled(lab, lambda holding: backend.withdraw(holding.claim), "withdrawal")


@store_case(Capability.PUSH)
async def a_withdrawal_without_doubt_signals_the_next_in_line(lab: Lab) -> None:
    backend = lab.backend()
    await signalled(lab, lambda holding: backend.withdraw(holding.claim, doubt=False), "withdrawal")
