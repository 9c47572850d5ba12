"""Waiters of etcd clients on a simulated cluster: inside their client, and in the store's queue, turn by turn."""

from __future__ import annotations

import pytest

from leasehold._backends.etcd.queue import MOST_IN_STORE, LocalQueue
from leasehold._backends.etcd.rpc import Method
from leasehold.spi import Place
from leasehold.values import Mode, Refusal
from tests.stores.etcd.etcd_bench import Bench, granted, same_suffixes, waiting
from tests.stores.etcd.etcd_histories import simulated

# --- the local queue in front of the store's


@simulated
async def test_a_client_has_so_many_claims_in_the_store_and_the_others_wait_inside(bench: Bench) -> None:
    client, holder = bench.client(), bench.client()
    held = granted(await holder.join(bench.claim()))
    places = [waiting(await client.join(bench.claim())) for _ in range(MOST_IN_STORE + 3)]
    assert len(bench.claims_stored()) == 1 + MOST_IN_STORE
    inside = places[MOST_IN_STORE:]
    assert [place.ahead for place in inside] == [MOST_IN_STORE, MOST_IN_STORE + 1, MOST_IN_STORE + 2]
    assert {place.recheck for place in inside} == {10.0}
    bench.methods()
    assert waiting(await client.turn(inside[0])).signal is inside[0].signal
    assert bench.methods() == [], "it asks its own client only"
    assert await holder.release(held) is True
    granted(await client.turn(places[0]))
    assert inside[0].signal.is_set()
    assert not inside[1].signal.is_set()
    moved = waiting(await client.turn(inside[0]))
    assert len(bench.claims_stored()) == 1 + MOST_IN_STORE
    assert moved.claim is inside[0].claim


@simulated
async def test_a_waiter_inside_that_gives_up_leaves_nothing(bench: Bench) -> None:
    client = bench.client()
    for _ in range(MOST_IN_STORE + 1):
        await client.join(bench.claim())
    place = waiting(await client.join(bench.claim()))
    assert place.claim.owner in client._claims.local_queue
    await client.withdraw(place.claim, doubt=False)
    assert place.claim.owner not in client._claims.local_queue


@simulated
async def test_a_waiter_inside_is_dead_after_three_times_in_which_it_did_not_ask(bench: Bench) -> None:
    client, holder = bench.client(), bench.client()
    granted(await holder.join(bench.claim(ttl=600.0)))
    places = [waiting(await client.join(bench.claim(ttl=600.0))) for _ in range(MOST_IN_STORE + 2)]
    dead, alive = places[-2:]
    await bench.pass_time(25.0)
    waiting(await client.turn(alive))
    await client.withdraw(places[0].claim)
    waiting(await client.turn(alive))
    assert alive.claim.owner in client._claims.local_queue, "the one before it is not dead yet"
    await bench.pass_time(6.0)
    waiting(await client.turn(alive))
    assert alive.claim.owner not in client._claims.local_queue
    assert dead.claim.owner not in client._claims.local_queue


def test_a_waiter_that_asks_again_keeps_its_signal_and_its_place() -> None:
    runtime = Bench().main
    queue = LocalQueue(runtime)
    first, _ = queue.wait_here(b"lock", "first", 10.0)
    queue.wait_here(b"lock", "second", 10.0)
    again, _ = queue.wait_here(b"lock", "first", 20.0)
    assert again is first
    assert list(queue._queues[b"lock"]) == ["first", "second"]
    assert queue._until["first"] == 20.0
    queue.close()
    assert first.is_set()


# --- turns


@simulated
async def test_a_waiter_that_is_not_first_reads_the_floor_alone_while_its_watch_is_on(bench: Bench) -> None:
    client = bench.client()
    granted(await client.join(bench.claim()))
    place = waiting(await client.join(bench.claim()))
    bench.calls.clear()
    again = waiting(await client.turn(place))
    assert again.signal is place.signal
    assert bench.methods() == [Method.TXN]
    assert client._claims.by_owner[place.claim.owner].watch is not None


@simulated
async def test_a_waiter_keeps_its_session_alive_when_a_quarter_of_the_ttl_has_passed(bench: Bench) -> None:
    client, holder = bench.client(), bench.client()
    granted(await holder.join(bench.claim(ttl=600.0)))
    place = waiting(await client.join(bench.claim()))
    for _ in range(12):
        await bench.pass_time(16.0)
        bench.methods()
        waiting(await client.turn(place))
        assert bench.methods() == [Method.LEASE_KEEP_ALIVE, Method.TXN]
    assert len(bench.claims_stored()) == 2


@simulated
async def test_a_dead_waiter_is_out_of_the_way_although_its_session_is_not_due(bench: Bench) -> None:
    client, holder = bench.client(), bench.client()
    granted(await holder.join(bench.claim(ttl=600.0)))
    dead, alive = [waiting(await client.join(bench.claim())) for _ in range(2)]
    await bench.pass_time(50.0)
    waiting(await client.turn(alive))
    assert len(bench.claims_stored()) == 3
    await bench.pass_time(11.0)
    bench.methods()
    assert waiting(await client.turn(alive)).ahead == 0
    assert Method.LEASE_KEEP_ALIVE not in bench.methods()
    assert len(bench.claims_stored()) == 2
    assert isinstance(await client.turn(dead), Refusal)


@simulated
async def test_a_place_that_goes_on_in_another_client_is_as_far_behind(bench: Bench) -> None:
    holder, client, heir = (bench.client() for _ in range(3))
    held = granted(await holder.join(bench.claim(ttl=600.0)))
    place = [waiting(await client.join(bench.claim())) for _ in range(4)][-1]
    assert place.ahead == 3
    taken = waiting(await heir.turn(place))
    assert taken.ahead == 3
    assert taken.holder == held.claim.holder


@simulated
async def test_the_turn_of_a_claim_whose_session_has_ended_is_a_refusal_and_it_may_join_again(bench: Bench) -> None:
    client, holder = bench.client(), bench.client()
    granted(await holder.join(bench.claim(ttl=600.0)))
    place = waiting(await client.join(bench.claim(ttl=10.0)))
    await bench.pass_time(12.0)
    assert await client.turn(place) == Refusal("ns:x")
    assert client._claims.by_owner == {}
    assert client._claims.local_queue._in_store == {}, "it takes no place of its client any more"
    waiting(await client.join(place.claim))


@simulated
async def test_the_turn_of_a_claim_whose_key_is_gone_is_a_refusal(bench: Bench) -> None:
    client = bench.client()
    held = granted(await client.join(bench.claim()))
    place = waiting(await client.join(bench.claim()))
    bench.delete(client._claims.by_owner[place.claim.owner].key)
    assert await client.release(held) is True
    assert await client.turn(place) == Refusal("ns:x")
    assert client._claims.by_owner == {}


@simulated
async def test_a_waiter_is_not_granted_by_the_key_of_another_claim_in_its_place(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    same_suffixes(client, other)
    place = Place(granted(await client.join(bench.claim())).claim, bench.main.signal(), 1.0, 0)
    bench.delete(bench.claims_stored()[0])
    theirs = granted(await other.join(bench.claim()))
    assert len(bench.claims_stored()) == 1
    assert await client.turn(place) == Refusal("ns:x")
    granted((await other.renew([theirs]))[0])


@simulated
async def test_a_waiter_for_a_permit_looks_at_all_that_are_before_it(bench: Bench) -> None:
    client = bench.client()
    for _ in range(2):
        granted(await client.join(bench.claim(mode=Mode.PERMIT, capacity=2)))
    places = [waiting(await client.join(bench.claim(mode=Mode.PERMIT, capacity=2))) for _ in range(2)]
    for _ in range(3):
        assert [client._claims.by_owner[place.claim.owner].blocker for place in places] == [None, None]
        assert len(client._claims.notifications._watches) == 2, "a watch that is replaced is ended"
        for place in places:
            waiting(await client.turn(place))


@simulated
async def test_the_place_of_another_client_is_taken_over_with_its_signal(bench: Bench) -> None:
    first, second = bench.client(), bench.client()
    held = granted(await first.join(bench.claim()))
    place = waiting(await first.join(bench.claim()))
    taken = waiting(await second.turn(place))
    assert taken.signal is place.signal
    place.signal.clear()
    assert await first.release(held) is True
    await bench.pass_time(1.0)
    assert place.signal.is_set()
    grant = granted(await second.turn(taken))
    assert (grant.ttl, await second.release(grant)) == (60.0, True)
    assert await second.turn(place) == Refusal("ns:x", queue=place.ahead), "it is nowhere any more"


@pytest.mark.parametrize("after", ["broken", "cooling"])
@simulated
async def test_a_waiter_whose_claim_was_granted_and_ended_elsewhere_is_refused(bench: Bench, after: str) -> None:
    first, second = bench.client(), bench.client()
    claim = bench.claim(min_hold=50.0)
    grant = granted(await first.join(claim))
    place = Place(claim, bench.main.signal(), 1.0, 0)
    if after == "broken":
        assert await second.break_("ns:x", grant.fence, "stuck", now=False)
    else:
        assert await second.release(grant) is True
    assert await first.turn(place) == Refusal("ns:x", claim.holder), "it stands in its own way"
    assert isinstance(await second.turn(place), Refusal)
    assert isinstance(await first.join(claim), Refusal)
    assert first._claims.local_queue._in_store == {}


@simulated
async def test_a_place_whose_key_was_made_anew_elsewhere_moves_to_the_session_of_that_key(bench: Bench) -> None:
    """The old session must not delete the key, and the new one has to before it is kept alive in vain."""
    client = bench.client()
    granted(await client.join(bench.claim()))
    claim = bench.claim()
    waiting(await client.join(claim))
    claims = client._claims
    mine = claims.by_owner[claim.owner]
    before = mine.session
    longer, _ = await claims.sessions.take(90.0)
    stored = bench.server.keys[mine.key]
    bench.delete(mine.key)
    bench.write(mine.key, stored.value, longer.lease)
    own = await claims.find(claim)
    place = waiting(await client._queue.repeated(claim, own, Refusal("ns:x"), bench.main.now()))
    assert claims.by_owner[claim.owner] is mine
    assert mine.session is longer
    assert mine not in before.claims
    assert mine in longer.claims
    assert mine.created == own.kv.created
    assert place.claim == claim


@simulated
async def test_a_waiter_for_a_permit_is_woken_by_whoever_leaves(bench: Bench) -> None:
    clients = [bench.client() for _ in range(3)]
    held = [granted(await clients[0].join(bench.claim(mode=Mode.PERMIT, capacity=2))) for _ in range(2)]
    places = [waiting(await clients[1].join(bench.claim(mode=Mode.PERMIT, capacity=2))) for _ in range(2)]
    await bench.pass_time(1.0)  # watches begin with a look around
    for place in places:
        place.signal.clear()
    assert await clients[0].release(held[0]) is True
    await bench.pass_time(1.0)
    assert [place.signal.is_set() for place in places] == [True, False]
    granted(await clients[1].turn(places[0]))
    await bench.pass_time(1.0)
    assert places[1].signal.is_set(), "the grant of the one before it makes it the first"
    waiting(await clients[1].turn(places[1]))
    await bench.pass_time(1.0)
    places[1].signal.clear()
    assert await clients[0].release(held[1]) is True
    await bench.pass_time(1.0)
    assert places[1].signal.is_set()
    granted(await clients[1].turn(places[1]))


@simulated
async def test_a_permit_that_cannot_be_marked_is_granted_all_the_same_and_renewed(bench: Bench) -> None:
    first, second = bench.client(), bench.client()
    held = [granted(await first.join(bench.claim(mode=Mode.PERMIT, capacity=2))) for _ in range(2)]
    place = waiting(await second.join(bench.claim(mode=Mode.PERMIT, capacity=2)))
    assert await first.release(held[0]) is True
    bench.plan(Method.TXN, None, "lost")
    grant = granted(await second.turn(place))
    assert second._claims.by_owner[place.claim.owner].written == 0
    granted((await second.renew([grant]))[0])
    granted((await second.renew([grant]))[0])
    assert await second.release(grant) is True


@simulated
async def test_a_waiter_gets_the_floor_that_was_raised_while_it_waited(bench: Bench) -> None:
    first, second, operator = (bench.client() for _ in range(3))
    held = granted(await first.join(bench.claim()))
    place = waiting(await second.join(bench.claim()))
    assert await operator.raise_fence("ns:x", 5000) == 5000
    assert await first.release(held) is True
    grant = granted(await second.turn(place))
    assert grant.fence > 5000
    state = await operator.inspect("ns:x")
    assert state.holdings[0].fence == grant.fence, "all others see the same"
    granted((await second.renew([grant]))[0])
    again = granted(await second.turn(place))
    assert again.fence == grant.fence


@simulated
async def test_a_grant_keeps_its_fence_when_the_floor_is_raised_and_it_is_asked_for_again(bench: Bench) -> None:
    client, operator = bench.client(), bench.client()
    grant = granted(await client.join(bench.claim()))
    await operator.raise_fence("ns:x", 5000)
    assert granted(await client.join(grant.claim)).fence == grant.fence
