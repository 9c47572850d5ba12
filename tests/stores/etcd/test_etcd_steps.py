"""Claims of etcd clients step by step on a simulated cluster: asked for, refused, counted, granted."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._backends.etcd import acquire
from leasehold._backends.etcd.claims import ClaimState, recheck
from leasehold._backends.etcd.queue import MOST_IN_STORE
from leasehold._backends.etcd.rpc import Method
from leasehold.errors import BackendRejected, BackendUnavailable, ModeConflict, OutcomeUnknown
from leasehold.values import Mode, Refusal
from tests.stores.etcd.etcd_bench import DENIED, GONE, LABEL, REFUSED, Bench, granted, same_suffixes, waiting
from tests.stores.etcd.etcd_histories import simulated

# --- asking


@simulated
async def test_an_acquire_and_a_release_are_one_call_each_once_there_is_a_session(bench: Bench) -> None:
    client = bench.client()
    assert await client.release(granted(await client.join(bench.claim("ns:warm")))) is True
    bench.methods()
    for verb in (client.join, client.try_acquire):
        assert await client.release(granted(await verb(bench.claim()))) is True
    assert bench.methods() == [Method.TXN] * 4
    assert bench.stored() == []


@simulated
async def test_a_refusal_names_the_holder_and_how_many_wait(bench: Bench) -> None:
    holder, client = bench.client(), bench.client()
    held = granted(await holder.join(bench.claim()))
    assert await client.try_acquire(bench.claim()) == Refusal("ns:x", held.claim.holder, None, 0)
    for _ in range(2):
        waiting(await holder.join(bench.claim()))
    assert await client.try_acquire(bench.claim()) == Refusal("ns:x", held.claim.holder, None, 2)
    assert client._claims.by_owner == {}, "nothing is remembered of a claim that was refused"


@pytest.mark.parametrize("mode", Mode)
@simulated
async def test_a_place_says_how_many_are_before_it_and_who_holds(bench: Bench, mode: Mode) -> None:
    holder, client = bench.client(), bench.client()
    held = granted(await holder.join(bench.claim(mode=Mode.PERMIT if mode is Mode.PERMIT else Mode.EXCLUSIVE)))
    capacity = 1
    places = [waiting(await client.join(bench.claim(mode=mode, capacity=capacity))) for _ in range(3)]
    expected = [0, 0, 0] if mode is Mode.SHARED else [0, 1, 2]  # readers do not wait for each other
    assert [place.ahead for place in places] == expected
    assert {place.holder for place in places} == {held.claim.holder}


@simulated
async def test_the_places_before_a_waiter_become_fewer(bench: Bench) -> None:
    holder, client = bench.client(), bench.client()
    held = granted(await holder.join(bench.claim()))
    first, second, third = [waiting(await client.join(bench.claim())) for _ in range(3)]
    assert await holder.release(held) is True
    granted(await client.turn(first))
    assert waiting(await client.turn(third)).ahead in (1, 2), "it watches the one before it"
    await client.withdraw(second.claim)
    place = waiting(await client.turn(third))
    assert (place.ahead, place.holder) == (0, first.claim.holder)
    assert len(client._claims.notifications._watches) == 1, "the earlier watches are over"


@pytest.mark.parametrize(("ttl", "seconds"), [(3.0, 1.0), (30.0, 10.0), (600.0, 10.0)])
@simulated
async def test_a_waiter_asks_again_within_a_third_of_its_ttl(bench: Bench, ttl: float, seconds: float) -> None:
    assert recheck(bench.claim(ttl=ttl)) == seconds
    client = bench.client()
    granted(await client.join(bench.claim()))
    assert waiting(await client.join(bench.claim(ttl=ttl))).recheck == seconds


@simulated
async def test_permits_are_granted_up_to_their_number_also_one_by_one(bench: Bench) -> None:
    clients = [bench.client(), bench.client()]
    claims = [bench.claim(mode=Mode.PERMIT, capacity=3) for _ in range(5)]
    grants = [granted(await clients[place % 2].try_acquire(claims[place])) for place in range(3)]
    assert isinstance(await clients[0].try_acquire(claims[3]), Refusal)
    assert await clients[0].release(grants[0]) is True
    granted(await clients[1].try_acquire(claims[4]))


@simulated
async def test_a_permit_that_is_taken_in_between_is_not_granted_twice(bench: Bench) -> None:
    first, second = bench.client(), bench.client()
    same_suffixes(first, second)
    granted(await first.join(bench.claim(mode=Mode.PERMIT, capacity=2)))
    took: list[Any] = []
    claim = bench.claim(mode=Mode.PERMIT, capacity=2)

    async def take() -> None:
        took.append(await first.try_acquire(bench.claim(mode=Mode.PERMIT, capacity=2)))

    task = bench.main.start(take(), "takes")
    answer = await second.try_acquire(claim)
    assert await task.join(bench.main.now() + 60)
    assert sorted(type(each).__name__ for each in (answer, *took)) == ["Grant", "Refusal"]


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ((Mode.PERMIT, 2), (Mode.PERMIT, 3)),
        ((Mode.SHARED, 1), (Mode.PERMIT, 2)),
        ((Mode.PERMIT, 2), (Mode.EXCLUSIVE, 1)),
    ],
)
@pytest.mark.parametrize("verb", ["join", "try_acquire"])
@simulated
async def test_a_name_that_is_another_kind_of_lock_is_refused_and_nothing_is_remembered(
    bench: Bench, held: tuple[Mode, int], wanted: tuple[Mode, int], verb: str
) -> None:
    holder, client = bench.client(), bench.client()
    grant = granted(await holder.join(bench.claim(mode=held[0], capacity=held[1])))
    claim = bench.claim(mode=wanted[0], capacity=wanted[1])
    with pytest.raises(ModeConflict):
        await getattr(client, verb)(claim)
    assert client._claims.by_owner == {}
    assert client._claims.local_queue._in_store == {}
    assert client._claims.suffixes._used == {}
    assert await holder.release(grant) is True
    granted(await getattr(client, verb)(claim))


@pytest.mark.parametrize("verb", ["join", "try_acquire"])
@simulated
async def test_clients_that_begin_at_the_same_number_move_to_others(bench: Bench, verb: str) -> None:
    first, second = bench.client(), bench.client()
    same_suffixes(first, second)
    held = granted(await first.join(bench.claim(mode=Mode.SHARED)))
    shared = granted(await getattr(second, verb)(bench.claim(mode=Mode.SHARED)))
    assert len(bench.claims_stored()) == 2
    assert [await first.release(held), await second.release(shared)] == [True, True]
    assert bench.stored() == []
    assert second._claims.suffixes._used == {}


@pytest.mark.parametrize("failures", [[REFUSED] * 3, [DENIED]], ids=["refused", "denied"])
@pytest.mark.parametrize("verb", ["join", "try_acquire"])
@simulated
async def test_nothing_is_remembered_of_a_claim_that_surely_was_not_applied(
    bench: Bench, failures: list[Any], verb: str
) -> None:
    client = bench.client()
    bench.plan(Method.TXN, *failures)
    with pytest.raises((BackendUnavailable, BackendRejected)):
        await getattr(client, verb)(bench.claim())
    claims = client._claims
    assert (claims.by_owner, claims.local_queue._in_store, claims.suffixes._used) == ({}, {}, {})
    assert not any(session.is_used for session in claims.sessions._by_lease.values())


@simulated
async def test_a_claim_that_may_have_a_key_is_remembered_until_it_is_withdrawn(bench: Bench) -> None:
    client, claim = bench.client(), bench.claim()
    bench.plan(Method.TXN, "lost")
    with pytest.raises(OutcomeUnknown):
        await client.join(claim)
    local = client._claims.by_owner[claim.owner]
    assert local.state is ClaimState.UNCONFIRMED
    assert local in local.session.claims
    assert client._claims.local_queue._in_store == {}, "it takes no place of those that wait"
    bench.plan(Method.TXN, REFUSED, REFUSED, REFUSED)
    with pytest.raises(BackendUnavailable):
        await client.join(claim)
    assert claim.owner in client._claims.by_owner, "the first request may have made a key all the same"
    await client.withdraw(claim)
    assert bench.claims_stored() == []
    assert client._claims.by_owner == {}
    assert local not in local.session.claims
    assert client._claims.suffixes._used == {}


@simulated
async def test_the_number_of_a_claim_that_was_withdrawn_is_used_again(bench: Bench) -> None:
    client = bench.client()
    granted(await client.join(bench.claim(mode=Mode.SHARED)))
    withdrawn = granted(await client.join(bench.claim(mode=Mode.SHARED)))
    before = bench.claims_stored()
    await client.withdraw(withdrawn.claim, doubt=False)
    granted(await client.join(bench.claim(mode=Mode.SHARED)))
    assert bench.claims_stored() == before


@pytest.mark.parametrize("verb", ["join", "try_acquire"])
@simulated
async def test_a_claim_whose_answer_was_lost_keeps_the_key_that_it_got(bench: Bench, verb: str) -> None:
    client, claim = bench.client(), bench.claim()
    bench.plan(Method.TXN, "lost")
    with pytest.raises(OutcomeUnknown):
        await getattr(client, verb)(claim)
    (key,) = bench.claims_stored()
    grant = granted(await getattr(client, verb)(claim))
    assert bench.claims_stored() == [key]
    assert grant.fence == bench.server.keys[key].created
    assert await client.release(grant) is True


@simulated
async def test_a_claim_whose_lease_vanished_on_the_way_is_sent_again_on_a_new_one(bench: Bench) -> None:
    client = bench.client()
    granted(await client.join(bench.claim("ns:warm")))
    (lease,) = bench.server.leases
    bench.before[Method.TXN] = lambda: bench.server.revoke(lease)
    granted(await client.join(bench.claim()))
    assert list(bench.server.leases) != [lease]


@simulated
async def test_a_claim_that_others_are_in_the_way_of_again_and_again_is_given_up(bench: Bench) -> None:
    client = bench.client()
    bench.plan(Method.TXN, *[GONE] * acquire.ROUNDS)
    with pytest.raises(BackendUnavailable, match="8 times") as refused:
        await client.join(bench.claim())
    assert refused.value.backend == LABEL
    assert client._claims.by_owner == {}
    granted(await client.join(bench.claim()))


@simulated
async def test_a_claim_of_seven_failures_is_still_granted(bench: Bench) -> None:
    bench.plan(Method.TXN, *[GONE] * (acquire.ROUNDS - 1))
    granted(await bench.client().join(bench.claim()))


@simulated
async def test_a_grant_under_a_fence_that_was_given_before_is_given_back_at_once(bench: Bench) -> None:
    client = bench.client()
    granted(await client.join(bench.claim("ns:warm")))
    fences, keys = client._claims.fences, client._claims.keys
    fences._highest[keys.floor("ns:x")] = 1000  # as it was before a restore from a backup
    with pytest.raises(BackendRejected, match="gone back"):
        await client.join(bench.claim())
    assert [key for key in bench.claims_stored() if b"warm" not in key] == []


@simulated
async def test_the_fence_of_a_claim_is_above_a_floor_that_was_raised_meanwhile(bench: Bench) -> None:
    client, operator = bench.client(), bench.client()
    assert await client.release(granted(await client.join(bench.claim()))) is True
    assert await operator.raise_fence("ns:x", 5000) == 5000
    for verb in (client.join, client.try_acquire):
        grant = granted(await verb(bench.claim()))
        assert grant.fence > 5000
        assert await client.release(grant) is True


@pytest.mark.parametrize("verb", ["join", "try_acquire"])
@simulated
async def test_one_client_may_hold_more_than_it_may_have_waiting(bench: Bench, verb: str) -> None:
    client = bench.client()
    grants = [granted(await getattr(client, verb)(bench.claim(mode=Mode.SHARED))) for _ in range(MOST_IN_STORE + 9)]
    assert len(bench.claims_stored()) == len(grants)
    assert client._claims.local_queue._in_store == {}
    for grant in grants:
        assert await client.release(grant) is True
    assert client._claims.suffixes._used == {}


@simulated
async def test_a_cluster_that_has_gone_back_is_noticed_by_a_refusal_too(bench: Bench) -> None:
    client, holder = bench.client(), bench.client()
    granted(await holder.join(bench.claim()))
    client._claims.fences._highest[client._claims.keys.floor("ns:x")] = 1000
    with pytest.raises(BackendRejected, match="gone back"):
        await client.try_acquire(bench.claim())


@simulated
async def test_a_refusal_names_the_holder_and_not_the_waiter_that_has_our_number(bench: Bench) -> None:
    holder, other, client = (bench.client() for _ in range(3))
    same_suffixes(other, client)
    holder._claims.suffixes._first = 3
    held = granted(await holder.join(bench.claim()))
    waiting(await other.join(bench.claim()))
    assert await client.try_acquire(bench.claim()) == Refusal("ns:x", held.claim.holder, None, 1)
    claims = client._claims
    assert (claims.by_owner, claims.suffixes._used) == ({}, {}), "neither its first number nor its second"
    assert not any(session.is_used for session in claims.sessions._by_lease.values())


@simulated
async def test_a_single_try_of_a_claim_that_waits_already_says_how_many_are_before_it(bench: Bench) -> None:
    holder, client = bench.client(), bench.client()
    held = granted(await holder.join(bench.claim()))
    waiting(await holder.join(bench.claim()))
    waiting(await holder.join(bench.claim()))
    place = waiting(await client.join(bench.claim()))
    assert await client.try_acquire(place.claim) == Refusal("ns:x", held.claim.holder, None, 2)


@simulated
async def test_a_withdrawal_that_kept_its_session_alive_counts_as_its_renewal(bench: Bench) -> None:
    client = bench.client()
    claim, other = bench.claim("ns:y"), bench.claim()
    kept = granted(await client.join(other))
    granted(await client.join(claim))
    await bench.pass_time(20.0)
    (session,) = client._claims.sessions._by_lease.values()
    before = session.sent
    bench.methods()
    await client.withdraw(claim)
    assert Method.LEASE_KEEP_ALIVE in bench.methods()
    assert session.sent >= before + 20.0
    bench.methods()
    await client.join(bench.claim("ns:z"))
    assert Method.LEASE_KEEP_ALIVE not in bench.methods(), "it is fresh"
    assert await client.release(kept) is True


@simulated
async def test_a_claim_without_a_session_takes_no_place_of_its_client(bench: Bench) -> None:
    client = bench.client()
    bench.plan(Method.LEASE_GRANT, REFUSED, REFUSED, REFUSED)
    with pytest.raises(BackendUnavailable):
        await client.join(bench.claim())
    assert client._claims.local_queue._in_store == {}


@simulated
async def test_a_reader_counts_the_writers_before_it(bench: Bench) -> None:
    holder, client = bench.client(), bench.client()
    granted(await holder.join(bench.claim()))
    waiting(await holder.join(bench.claim()))
    assert waiting(await client.join(bench.claim(mode=Mode.SHARED))).ahead == 1


@simulated
async def test_a_claim_whose_key_went_with_its_session_lives_on_the_next_one_when_it_is_sent_again(
    bench: Bench,
) -> None:
    client = bench.client()
    claim = bench.claim()
    granted(await client.join(claim))
    bench.lose_lease()
    old = client._claims.by_owner[claim.owner].session
    grant = granted(await client.join(claim))
    local = client._claims.by_owner[claim.owner]
    assert local.session is not old
    assert (local in local.session.claims, local in old.claims) == (True, False)
    granted((await client.renew([grant]))[0])


@simulated
async def test_a_claim_whose_session_is_given_up_is_not_granted_again_and_its_key_goes(bench: Bench) -> None:
    client, claim = bench.client(), bench.claim()
    granted(await client.join(claim))
    local = client._claims.by_owner[claim.owner]
    local.session.end()
    client._claims.by_owner.clear()
    client._claims.suffixes._used.clear()
    assert isinstance(await client.join(claim), Refusal)
    assert bench.claims_stored() == []
