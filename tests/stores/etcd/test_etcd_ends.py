"""Grants of etcd clients on a simulated cluster: renewed, released, withdrawn, and what is remembered of a claim."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leasehold._backends.etcd import acquire
from leasehold._backends.etcd.claims import ClaimState, encode_claim, read_claim
from leasehold._backends.etcd.rpc import KeyValue, Method
from leasehold.errors import BackendUnavailable
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode, Refusal
from tests.stores.etcd.etcd_bench import BROKEN, LABEL, Bench, granted, local, same_suffixes, session
from tests.stores.etcd.etcd_histories import simulated

# --- renewals


@simulated
async def test_many_grants_of_one_session_are_renewed_with_one_keep_alive_in_transactions_of_a_hundred(
    bench: Bench,
) -> None:
    client = bench.client()
    grants = [granted(await client.join(bench.claim(f"ns:{number}"))) for number in range(230)]
    bench.methods()
    renewed = await client.renew(grants)
    assert [each.claim for each in renewed] == [grant.claim for grant in grants]
    assert bench.methods() == [Method.LEASE_KEEP_ALIVE, Method.TXN, Method.TXN, Method.TXN]


@simulated
async def test_renewals_are_answered_in_order_and_each_by_its_own_fate(bench: Bench) -> None:
    client, operator, other = (bench.client() for _ in range(3))
    kept = granted(await client.join(bench.claim("ns:kept", ttl=30.0)))
    stuck = granted(await client.join(bench.claim("ns:stuck")))
    cooling = granted(await client.join(bench.claim("ns:cooling", min_hold=50.0)))
    gone = granted(await client.join(bench.claim("ns:gone")))
    foreign = granted(await other.join(bench.claim("ns:foreign")))
    foreign_stuck = granted(await other.join(bench.claim("ns:foreign stuck")))
    foreign_cooling = granted(await other.join(bench.claim("ns:foreign cooling", min_hold=50.0)))
    noted = granted(await client.join(bench.claim("ns:noted")))
    assert await operator.break_("ns:stuck", stuck.fence, "stuck", now=False)
    assert await operator.break_("ns:foreign stuck", foreign_stuck.fence, "stuck", now=False)
    assert await operator.break_("ns:noted", noted.fence, "stuck", now=True)
    assert await operator.release(cooling) is True
    assert await operator.release(foreign_cooling) is True
    assert await operator.release(gone) is True
    taken = Loss(LossReason.TAKEN, "the store does not know this grant any more")
    answers = await client.renew([gone, kept, stuck, foreign, cooling, noted, foreign_stuck, foreign_cooling])
    assert [getattr(each, "claim", each) for each in answers] == [
        taken, kept.claim, BROKEN, foreign.claim, taken, BROKEN, BROKEN, taken,
    ]  # fmt: skip
    assert set(client._claims.by_owner) == {kept.claim.owner, foreign.claim.owner}


@simulated
async def test_a_renewal_of_a_grant_with_another_fence_is_a_loss(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    grant = granted(await client.join(bench.claim()))
    earlier = Grant(grant.claim, grant.fence - 1, grant.ttl)
    for backend in (client, other):
        (loss,) = await backend.renew([earlier])
        assert isinstance(loss, Loss)
        assert loss.reason is LossReason.TAKEN
        assert await backend.release(earlier) is False
    assert len(bench.claims_stored()) == 1


@simulated
async def test_a_renewal_across_an_election_does_not_count_and_the_next_one_does(bench: Bench) -> None:
    client = bench.client()
    grant = granted(await client.join(bench.claim()))
    await bench.pass_time(5.0)
    bench.before[Method.TXN] = bench.server.elect
    with pytest.raises(BackendUnavailable, match="leader") as refused:
        await client.renew([grant])
    assert refused.value.backend == LABEL
    asked = bench.main.now()
    renewed = granted((await client.renew([grant]))[0])
    assert renewed.since is None or renewed.since >= asked


@simulated
async def test_a_key_that_another_client_has_written_is_known_after_one_renewal(bench: Bench) -> None:
    client = bench.client()
    grant = granted(await client.join(bench.claim()))
    (key,) = bench.claims_stored()
    bench.rewrite(key)
    for _ in range(2):
        granted((await client.renew([grant]))[0])
    assert client._claims.by_owner[grant.claim.owner].written == bench.server.keys[key].written
    bench.methods()
    assert await client.release(grant) is True
    assert bench.methods() == [Method.TXN]


@pytest.mark.parametrize("renews", [True, False])
@pytest.mark.parametrize("min_hold", [0.0, 20.0])
@simulated
async def test_a_key_that_was_deleted_and_made_by_another_claim_is_a_loss(
    bench: Bench, renews: bool, min_hold: float
) -> None:
    client, other = bench.client(), bench.client()
    same_suffixes(client, other)
    grant = granted(await client.join(bench.claim(min_hold=min_hold)))
    bench.delete(bench.claims_stored()[0])
    theirs = granted(await other.join(bench.claim()))
    assert len(bench.claims_stored()) == 1
    if renews:
        (loss,) = await client.renew([grant])
        assert isinstance(loss, Loss)
    assert await client.release(grant) is False
    granted((await other.renew([theirs]))[0])


@simulated
async def test_the_key_of_a_grant_that_is_not_renewed_goes_although_its_session_is_kept(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    kept = granted(await client.join(bench.claim("ns:kept")))
    dropped = granted(await client.join(bench.claim()))
    for _ in range(5):
        await bench.pass_time(14.0)
        granted((await client.renew([kept]))[0])
    assert [key for key in bench.claims_stored() if b"kept" not in key] == []
    granted(await other.try_acquire(bench.claim()))
    (loss,) = await client.renew([dropped])
    assert isinstance(loss, Loss)


@simulated
async def test_a_grant_that_is_renewed_by_another_client_outlives_the_session_of_the_first(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    grant = granted(await client.join(bench.claim()))
    for _ in range(8):
        await bench.pass_time(14.0)
        granted((await other.renew([grant]))[0])
    assert await other.release(grant) is True


# --- releases


@pytest.mark.parametrize(("held", "kept"), [(0.0, 20), (12.0, 8), (19.5, 1), (21.0, None)])
@simulated
async def test_a_lock_is_kept_for_what_is_left_of_its_min_hold(bench: Bench, held: float, kept: int | None) -> None:
    client = bench.client()
    grant = granted(await client.join(bench.claim(min_hold=20.0)))
    await bench.pass_time(held)
    assert await client.release(grant) is True
    if kept is None:
        assert bench.claims_stored() == []
        return
    (key,) = bench.claims_stored()
    assert bench.server.keys[key].value.startswith(b"~")
    assert bench.seconds_of(key) == max(2, kept)  # etcd's shortest lease
    assert await client.release(grant) is False
    assert client._claims.by_owner == {}


@pytest.mark.parametrize("renewed", [False, True], ids=["as it was", "renewed by that one"])
@simulated
async def test_a_lock_of_another_client_is_kept_for_its_whole_min_hold(bench: Bench, renewed: bool) -> None:
    client, other = bench.client(), bench.client()
    grant = granted(await client.join(bench.claim(min_hold=20.0)))
    await bench.pass_time(12.0)
    if renewed:
        granted((await other.renew([grant]))[0])
    assert await other.release(grant) is True
    (key,) = bench.claims_stored()
    assert bench.seconds_of(key) == 20
    assert await other.release(grant) is False


@pytest.mark.parametrize("min_hold", [0.0, 20.0])
@simulated
async def test_a_release_that_meets_other_writers_again_and_again_gives_up_and_may_be_repeated(
    bench: Bench, min_hold: float
) -> None:
    client = bench.client()
    grant = granted(await client.join(bench.claim(min_hold=min_hold)))
    (key,) = bench.claims_stored()
    with (
        bench.interference(client, lambda: bench.rewrite(key)),
        pytest.raises(BackendUnavailable, match="at the same time"),
    ):
        await client.release(grant)
    assert len(bench.server.leases) == 1 + (min_hold > 0), "one lease for the cool-down"
    assert client._claims.by_owner[grant.claim.owner].keep_until <= bench.main.now(), "it goes with the next sweep"
    assert await client.release(grant) is True
    assert client._claims.by_owner == {}


@pytest.mark.parametrize("min_hold", [0.0, 20.0])
@simulated
async def test_a_release_that_meets_another_writer_once_is_done(bench: Bench, min_hold: float) -> None:
    client = bench.client()
    grant = granted(await client.join(bench.claim(min_hold=min_hold)))
    (key,) = bench.claims_stored()
    bench.before[Method.TXN] = lambda: bench.rewrite(key)
    assert await client.release(grant) is True


# --- withdrawals


@simulated
async def test_a_withdrawal_on_a_lease_that_vanished_is_sent_again_on_a_new_one(bench: Bench) -> None:
    client = bench.client()
    granted(await client.join(bench.claim("ns:warm")))
    claim = bench.claim()
    bench.before[Method.TXN] = bench.lose_lease
    await client.withdraw(claim)
    assert [key for key in bench.stored() if b"/x/" in key] == [f"leasehold/1/x/ns:x/{claim.owner}".encode()]
    assert isinstance(await client.join(claim), Refusal)


@pytest.mark.parametrize("doubt", [True, False])
@pytest.mark.parametrize("by", ["its client", "another client"])
@simulated
async def test_a_withdrawal_deletes_the_key_also_where_another_client_has_changed_it(
    bench: Bench, doubt: bool, by: str
) -> None:
    client, other = bench.client(), bench.client()
    grant = granted(await client.join(bench.claim()))
    assert await other.break_("ns:x", grant.fence, "stuck", now=False)
    await (client if by == "its client" else other).withdraw(grant.claim, doubt=doubt)
    assert bench.claims_stored() == []
    assert len([key for key in bench.stored() if b"/x/" in key]) == doubt


@simulated
async def test_the_mark_of_a_withdrawal_outlives_the_latest_copy(bench: Bench) -> None:
    client, claim = bench.client(), bench.claim(ttl=900.0)
    now = bench.main.now()
    await client.withdraw(claim)
    (session,) = client._claims.sessions._by_lease.values()
    ((_, until),) = session.marks.items()
    assert until == pytest.approx(now + 900.0, abs=1.0)
    await client.withdraw(bench.claim(ttl=10.0))
    short = client._claims.sessions._by_ttl[10]
    assert next(iter(short.marks.values())) == pytest.approx(now + acquire.LATEST_COPY, abs=1.0)


# --- what is remembered of a claim


def test_a_claim_that_is_given_up_is_not_kept_any_longer_than_it_was() -> None:
    first, second = session(), session()
    listed, unlisted = local(first), local(second)
    listed.keep_for_a_ttl(50.0)
    listed.give_up(100.0)
    unlisted.keep_until = 1.0
    unlisted.give_up(100.0)
    assert (listed.keep_until, unlisted.keep_until) == (60.0, 100.0)
    assert (listed in first.claims, unlisted in second.claims) == (True, True)
    kept = local(session())
    kept.keep_for_a_ttl(100.0)
    kept.give_up(105.0)
    assert kept.keep_until == 105.0


@pytest.mark.parametrize("state", ClaimState)
def test_a_successor_forgets_its_forerunner_only_where_that_has_no_key_in_doubt(state: ClaimState) -> None:
    old, new = session(lease=7), session(lease=8)
    first = local(old)
    first.keep_for_a_ttl(100.0)
    first.state, first.ahead, first.first = state, 5, Holder("h", 2)
    signal: Any = object()
    first.signal = signal
    second = first.successor(new, b"other", 4)
    in_doubt = state in (ClaimState.UNCONFIRMED, ClaimState.DELETING)
    assert (first in old.claims) == in_doubt
    assert second.state is (ClaimState.UNCONFIRMED if in_doubt else ClaimState.ASKED)
    assert (second.signal, second.ahead, second.first) == (signal, 5, Holder("h", 2))
    assert (second.key, second.suffix, second.session) == (b"other", 4, new)


@pytest.mark.parametrize(
    ("mode", "capacity", "seen"), [(Mode.EXCLUSIVE, 1, 1), (Mode.SHARED, 1, 1), (Mode.PERMIT, 3, 4)]
)
def test_a_waiter_sees_as_many_of_those_before_it_as_it_needs(mode: Mode, capacity: int, seen: int) -> None:
    assert local(session(), Claim("k", "o", 10.0, mode, capacity, 0.0, Holder("h", 1))).limit == seen


def test_a_claim_that_is_held_keeps_the_instant_of_its_first_grant_and_a_new_key_a_new_one() -> None:
    held = local(session())
    held.got_key(KeyValue(b"key", 40, 41, b"value"), 5)
    assert (held.created, held.written, held.value, held.floor, held.granted_at) == (40, 41, b"value", 5, None)
    assert held.hold(101.0, 102.0)
    assert held.fence == 45
    held.got_key(KeyValue(b"key", 50, 51, b"value"), 5)
    assert held.granted_at is None


def test_the_value_of_a_claim_is_json_with_three_places_of_its_time() -> None:
    claim = Claim("ns:x", 'o"w', 10.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
    value = encode_claim(claim, 5, 1000.0625)
    assert b'"since":1000.06' in value
    assert json.loads(value)["owner"] == 'o"w'
    stored = read_claim(KeyValue(b"k", 40, 41, b"~" + value, 1))
    assert stored.cooling
    assert not stored.with_().startswith(b"~")
    assert json.loads(stored.with_(broken="why"))["broken"] == "why"
