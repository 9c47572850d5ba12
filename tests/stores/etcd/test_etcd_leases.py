"""Sessions of an etcd client on a simulated cluster: found, opened once, kept, swept, given up, closed."""

from __future__ import annotations

import math
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold._backends.etcd import sessions as sessions_module
from leasehold._backends.etcd.protobuf import fields
from leasehold._backends.etcd.rpc import Method
from leasehold._backends.etcd.sessions import Sessions, _Opening
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, ClientClosed
from leasehold.values import Grant, Loss, LossReason, Refusal
from tests.stores.etcd.etcd_bench import LOST, REFUSED, RESET, Bench, granted, local, session, waiting
from tests.stores.etcd.etcd_histories import simulated
from verification.simulation import SimRuntime, World


async def held_with(bench: Bench, client: Any, ttls: range) -> list[Grant]:
    """A lock for each of these ttls, and so a session for each."""
    return [granted(await client.join(bench.claim(f"ns:{ttl}", ttl=float(ttl)))) for ttl in ttls]


def alone() -> tuple[World, SimRuntime, Any]:
    """Sessions without a cluster: nothing must be sent."""
    world = World(1)
    runtime = SimRuntime(world.process("alone"))
    connection: Any = SimpleNamespace(answer_timeout=3.0, label="etcd://x")
    return world, runtime, Sessions(connection, runtime)


# --- is it over, is it due


@pytest.mark.parametrize(
    ("share", "kept", "due"),
    [(0.2, False, False), (0.3, False, True), (0.3, True, False), (0.45, True, False), (0.55, True, True)],
)
def test_a_waiter_keeps_its_session_alive_after_a_quarter_of_the_ttl(share: float, kept: bool, due: bool) -> None:
    kept_alive = session()
    kept_alive.is_kept_alive = kept
    assert kept_alive.is_due(100.0 + 10 * share) is due


def test_a_session_that_was_given_up_is_over_at_once_and_remembers_no_key() -> None:
    over = session()
    local(over).keep_for_a_ttl(100.0)
    over.marks[b"mark"] = 1e9
    assert over.is_used
    over.end()
    assert over.is_over(100.0)
    assert not over.is_used


def test_a_session_with_a_mark_alone_is_used() -> None:
    marked = session()
    marked.marks[b"mark"] = 1e9
    assert marked.is_used


def test_a_session_that_stops_short_of_its_last_hundredth_is_not_over() -> None:
    assert not session().is_over(109.89)
    assert session().is_over(109.9)
    assert not session(ttl=1000).is_over(1089.0)
    assert session(ttl=1000).is_over(1090.0)


@pytest.mark.parametrize(("ttl", "patience"), [(1, 0.3), (4, 1.0), (8, 2.0), (60, 3.0)])
def test_a_request_that_keeps_a_session_leaves_time_for_another_one(ttl: int, patience: float) -> None:
    _, _, sessions = alone()
    assert sessions.patience(session(ttl=ttl)) == patience


def test_an_answer_without_a_keep_alive_proves_nothing() -> None:
    one = session()
    assert not one.prove(None, sessions_module.KeepAlive(1.0, None).header)  # type: ignore[arg-type]
    assert one.sent == 100.0


def test_a_keep_alive_that_is_proven_late_does_not_date_a_session_back() -> None:
    one = session(sent=200.0)
    header = sessions_module.KeepAlive(0.0, SimpleNamespace(member=1, term=2)).header  # type: ignore[arg-type]
    assert one.prove(sessions_module.KeepAlive(150.0, header), header)
    assert one.sent == 200.0


# --- opening one


@simulated
async def test_hundred_claims_at_once_open_one_session(bench: Bench) -> None:
    client = bench.client()
    await bench.together(*[client.join(bench.claim(f"ns:{number}")) for number in range(100)])
    assert bench.methods().count(Method.LEASE_GRANT) == 1
    assert len(bench.server.leases) == 1


@simulated
async def test_an_opener_that_vanished_keeps_the_others_waiting_for_a_moment_only(bench: Bench) -> None:
    """A signal handler that raised has left its entry: nobody will ever set its signal."""
    client = bench.client()
    sessions = client._claims.sessions
    vanished = _Opening(bench.main.signal(), object(), bench.main.now() + sessions_module.OPEN_PATIENCE)
    sessions._opening[60] = vanished
    before = bench.main.now()
    granted(await client.join(bench.claim(), before + 50.0))
    assert bench.main.now() >= vanished.until, "it is believed for that long"
    assert sessions._opening == {}


@simulated
async def test_an_interrupted_call_that_asks_again_does_not_wait_for_itself(bench: Bench) -> None:
    client = bench.client()
    sessions = client._claims.sessions
    before = bench.main.now()
    sessions._opening[60] = _Opening(bench.main.signal(), bench.main.current(), before + 1e6)
    granted(await client.join(bench.claim()))
    assert bench.main.now() < before + 1.0


@simulated
async def test_a_call_that_waits_for_a_session_of_another_one_ends_by_its_instant(bench: Bench) -> None:
    client = bench.client()
    before = bench.main.now()
    client._claims.sessions._opening[60] = _Opening(bench.main.signal(), object(), before + 3.0)
    with pytest.raises(BackendUnavailable, match="no time left"):
        await client.join(bench.claim(), before + 0.5)
    assert bench.main.now() < before + 1.0


@simulated
async def test_a_session_is_valid_from_before_its_lease_was_asked_for(bench: Bench) -> None:
    client, asked = bench.client(), bench.main.now()
    bench.plan(Method.LEASE_GRANT, "slow")
    grant = granted(await client.join(bench.claim()))
    (made,) = client._claims.sessions._by_lease.values()
    assert made.sent < asked + 0.5
    assert grant.since is None or grant.since < asked + 0.5


@simulated
async def test_two_claims_of_the_last_ttl_that_there_is_room_for_share_its_session(bench: Bench) -> None:
    client = bench.client()
    await held_with(bench, client, range(60, 67))
    ends: list[Grant] = []

    async def ask(name: str) -> None:
        ends.append(granted(await client.join(bench.claim(name, ttl=90.0))))

    await bench.together(ask("ns:a"), ask("ns:b"))
    assert [end.ttl for end in ends] == [90, 90]


@simulated
async def test_a_client_that_lives_for_long_remembers_few_sessions(bench: Bench) -> None:
    client = bench.client()
    for _ in range(5):
        assert await client.release(granted(await client.join(bench.claim(ttl=10.0)))) is True
        await bench.pass_time(200.0)
    assert len(client._claims.sessions._by_lease) <= 2


@simulated
async def test_a_claim_that_waits_for_a_session_of_another_is_told_when_that_failed(bench: Bench) -> None:
    client, ends = bench.client(), list[object]()

    async def ask() -> None:
        try:
            ends.append(await client.join(bench.claim("ns:second")))
        except BackendError as error:
            ends.append(error)

    bench.plan(Method.LEASE_GRANT, REFUSED, REFUSED, REFUSED)
    before = bench.main.now()
    await bench.together(ask(), ask())
    assert bench.main.now() < before + 1.0, "it waited although the other one had failed"
    assert {type(end) for end in ends} == {BackendUnavailable, Grant}


@simulated
async def test_a_session_that_could_not_be_made_for_certain_is_not_used(bench: Bench) -> None:
    """The lease may be there, without keys: it expires by itself, and a new one is made."""
    client = bench.client()
    bench.plan(Method.LEASE_GRANT, "lost")
    with pytest.raises(BackendUnavailable):
        await client.join(bench.claim())
    assert bench.claims_stored() == []
    granted(await client.join(bench.claim()))
    assert len(bench.server.leases) == 2


@pytest.mark.parametrize(("ttl", "whole"), [(0.2, 2), (3.0, 3), (3.2, 4)])
@simulated
async def test_a_ttl_is_rounded_up_to_whole_seconds(bench: Bench, ttl: float, whole: int) -> None:
    assert granted(await bench.client().join(bench.claim(ttl=ttl))).ttl == whole


# --- finding one


@simulated
async def test_a_fresh_session_is_used_as_it_is_and_an_older_one_is_kept_alive_first(bench: Bench) -> None:
    client = bench.client()
    granted(await client.join(bench.claim("ns:a")))
    await bench.pass_time(5.0)
    bench.methods()
    granted(await client.join(bench.claim("ns:b")))
    assert bench.methods() == [Method.TXN]
    await bench.pass_time(2.0)
    asked = bench.main.now()
    grant = granted(await client.join(bench.claim("ns:c")))
    assert bench.methods() == [Method.LEASE_KEEP_ALIVE, Method.TXN]
    assert grant.since is None or grant.since >= asked
    granted(await client.join(bench.claim("ns:d")))
    assert bench.methods() == [Method.TXN], "that keep-alive counts for the next one, too"


@pytest.mark.parametrize("after", [0.0, 10.0, 70.0], ids=["fresh", "due", "over"])
@simulated
async def test_a_session_whose_lease_is_gone_is_replaced_by_the_next_claim(bench: Bench, after: float) -> None:
    client = bench.client()
    granted(await client.join(bench.claim("ns:a")))
    lease = bench.lose_lease()
    await bench.pass_time(after)
    granted(await client.join(bench.claim("ns:b")))
    assert lease not in bench.server.leases
    assert len(bench.server.leases) == 1
    assert len(bench.claims_stored()) == 1


@simulated
async def test_a_session_whose_time_has_passed_is_never_kept_alive_again(bench: Bench) -> None:
    client = bench.client()
    grant = granted(await client.join(bench.claim(ttl=10.0)))
    await bench.pass_time(9.95)  # the lease is there, and may go at any moment
    bench.methods()
    assert await client.renew([grant]) == [
        Loss(LossReason.SESSION_ENDED, "the etcd lease expired, or its expiry could not be ruled out")
    ]
    assert Method.LEASE_KEEP_ALIVE not in bench.methods()


@simulated
async def test_when_there_are_too_many_ttls_the_next_longer_one_serves_and_no_longer_one(bench: Bench) -> None:
    client = bench.client()
    await held_with(bench, client, range(60, 68))
    assert granted(await client.join(bench.claim("ns:shorter", ttl=50.0))).ttl == 60
    with pytest.raises(BackendRejected, match="8 different ttls"):
        await client.join(bench.claim("ns:longer", ttl=90.0))
    assert len(bench.server.leases) == 8


@simulated
async def test_while_there_is_room_a_shorter_ttl_gets_a_session_of_its_own(bench: Bench) -> None:
    client = bench.client()
    for ttl in (60.0, 30.0):
        assert granted(await client.join(bench.claim(f"ns:{ttl}", ttl=ttl))).ttl == ttl


@simulated
async def test_room_for_a_new_ttl_is_made_at_the_cost_of_an_idle_one(bench: Bench) -> None:
    client = bench.client()
    grants = await held_with(bench, client, range(60, 68))
    assert await client.release(grants[3]) is True
    bench.plan(Method.LEASE_REVOKE, RESET)  # it expires, then
    assert granted(await client.join(bench.claim("ns:longer", ttl=90.0))).ttl == 90
    renewed = await client.renew([grant for grant in grants if grant is not grants[3]])
    assert {type(each) for each in renewed} == {Grant}


@simulated
async def test_sessions_that_are_just_being_opened_count(bench: Bench) -> None:
    client = bench.client()
    ends: list[object] = []

    async def ask(ttl: float) -> None:
        try:
            ends.append(await client.join(bench.claim(f"ns:{ttl}", ttl=ttl)))
        except BackendRejected as error:
            ends.append(error)

    await bench.together(*[ask(60.0 + number) for number in range(12)])
    assert len(bench.server.leases) <= 8
    assert len(ends) == 12


@simulated
async def test_sessions_that_are_over_take_no_place(bench: Bench) -> None:
    client = bench.client()
    await held_with(bench, client, range(10, 18))
    await bench.pass_time(30.0)
    assert granted(await client.join(bench.claim("ns:longer", ttl=90.0))).ttl == 90


# --- keeping one


@pytest.mark.parametrize("failures", [[LOST], [RESET] * 3], ids=["no answer", "no member"])
@simulated
async def test_a_keep_alive_that_fails_is_no_renewal_and_the_next_one_is_sent(
    bench: Bench, failures: list[Any]
) -> None:
    client = bench.client()
    grant = granted(await client.join(bench.claim()))
    await bench.pass_time(10.0)
    bench.plan(Method.LEASE_KEEP_ALIVE, *failures)
    with pytest.raises(BackendUnavailable):
        await client.renew([grant])
    (kept,) = client._claims.sessions._by_lease.values()
    assert not kept.is_kept_alive
    assert isinstance((await client.renew([grant]))[0], Grant)


@pytest.mark.parametrize(("ttl", "given"), [(2.0, 0.5), (8.0, 2.0), (60.0, 3.0)])
@simulated
async def test_keep_alive_and_read_of_a_renewal_have_a_part_of_the_ttl_each(
    bench: Bench, ttl: float, given: float
) -> None:
    client = bench.client()
    grant = granted(await client.join(bench.claim(ttl=ttl)))
    bench.calls.clear()
    granted((await client.renew([grant]))[0])
    assert [call.method for call in bench.calls] == [Method.LEASE_KEEP_ALIVE, Method.TXN]
    assert [call.timeout for call in bench.calls] == pytest.approx([given, given])


@simulated
async def test_a_lease_that_etcd_does_not_know_ends_the_session_at_once(bench: Bench) -> None:
    client = bench.client()
    grant = granted(await client.join(bench.claim()))
    bench.lose_lease()
    (loss,) = await client.renew([grant])
    assert isinstance(loss, Loss)
    assert loss.reason is LossReason.SESSION_ENDED
    assert client._claims.by_owner == {}


@simulated
async def test_the_key_of_a_waiter_that_stopped_asking_is_deleted_before_its_session_is_kept_alive(
    bench: Bench,
) -> None:
    client = bench.client()
    grant = granted(await client.join(bench.claim()))
    silent = waiting(await client.join(bench.claim()))
    for _ in range(6):
        await bench.pass_time(14.0)
        assert isinstance((await client.renew([grant]))[0], Grant)
    assert len(bench.claims_stored()) == 1
    assert isinstance(await client.turn(silent), Refusal)


@simulated
async def test_a_key_is_kept_for_its_ttl_and_not_deleted_before(bench: Bench) -> None:
    client = bench.client()
    grant = granted(await client.join(bench.claim()))
    await client.join(bench.claim())
    await bench.pass_time(50.0)
    assert isinstance((await client.renew([grant]))[0], Grant)
    assert len(bench.claims_stored()) == 2


@simulated
async def test_a_sweep_deletes_no_key_that_has_another_owner_by_now(bench: Bench) -> None:
    client = bench.client()
    given_up = granted(await client.join(bench.claim()))
    (key,) = bench.claims_stored()
    mine = client._claims.by_owner[given_up.claim.owner]
    mine.give_up(bench.main.now())
    mine.created = 0  # as for a claim whose answer was lost
    bench.delete(key)
    client._claims.forget(mine)
    mine.give_up(bench.main.now())
    granted(await client.join(bench.claim()))
    assert bench.claims_stored() == [key], "the number is used again, on the same session"
    await client._claims.sessions.keep_alive(mine.session)
    assert bench.claims_stored() == [key]


@simulated
async def test_a_key_whose_revision_is_not_known_is_found_and_deleted(bench: Bench) -> None:
    client = bench.client()
    given_up = granted(await client.join(bench.claim()))
    mine = client._claims.by_owner[given_up.claim.owner]
    mine.give_up(bench.main.now())
    mine.created = 0
    await client._claims.sessions.sweep(mine.session)
    assert bench.claims_stored() == []
    assert not mine.session.is_used


@simulated
async def test_deletions_that_fail_for_a_whole_ttl_end_the_session_and_sooner_ones_do_not(bench: Bench) -> None:
    client = bench.client()
    granted(await client.join(bench.claim("ns:kept")))
    mine = client._claims.by_owner[granted(await client.join(bench.claim())).claim.owner]
    mine.give_up(bench.main.now())
    await bench.pass_time(30.0)
    bench.plan(Method.TXN, RESET)
    await client._claims.sessions.sweep(mine.session)
    assert not mine.session.ended
    await bench.pass_time(29.0)  # the session itself is not over: it was opened later than that
    mine.session.sent = bench.main.now()
    await bench.pass_time(2.0)
    bench.plan(Method.TXN, RESET)
    with pytest.raises(sessions_module.SessionEnded):
        await client._claims.sessions.sweep(mine.session)
    assert mine.session.ended


@simulated
async def test_marks_are_deleted_a_hundred_at_a_time_and_only_when_they_are_due(bench: Bench) -> None:
    """etcd refuses a transaction of more than 128 operations."""
    client = bench.client()
    for number in range(250):
        await client.withdraw(bench.claim(f"ns:{number}"))
    (kept,) = client._claims.sessions._by_lease.values()
    marks = bench.stored()
    assert set(marks) == set(kept.marks)
    await client._claims.sessions.sweep(kept)
    assert bench.stored() == marks, "none is due"
    kept.marks = dict.fromkeys(marks, bench.main.now()) | {marks[7]: bench.main.now() + 10}
    bench.calls.clear()
    await client._claims.sessions.sweep(kept)
    assert [len(fields(call.request)) for call in bench.calls] == [100, 100, 49]
    assert bench.stored() == list(kept.marks) == [marks[7]]


# --- the end


@simulated
async def test_a_closed_client_revokes_the_leases_without_keys_and_leaves_the_others(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    idle = granted(await client.join(bench.claim("ns:idle", ttl=30.0)))
    assert await client.release(idle) is True
    granted(await client.join(bench.claim("ns:held", ttl=60.0)))
    foreign = granted(await other.join(bench.claim("ns:foreign", ttl=90.0)))
    granted(await other.join(bench.claim("ns:held by the other", ttl=90.0)))
    (renewed,) = await client.renew([foreign])  # it borrows the session of the other
    assert granted(renewed).ttl == 90
    assert await client.release(foreign) is True
    await client.close()
    assert sorted(lease.ttl for lease in bench.server.leases.values()) == [60, 90]
    assert len(bench.claims_stored()) == 2


@pytest.mark.parametrize("failure", [RESET, LOST])
@simulated
async def test_a_client_is_closed_although_its_leases_cannot_be_revoked(bench: Bench, failure: Any) -> None:
    client = bench.client()
    assert await client.release(granted(await client.join(bench.claim()))) is True
    bench.plan(Method.LEASE_REVOKE, failure, failure, failure)
    await client.close()
    with pytest.raises(ClientClosed):
        await client.join(bench.claim())


@simulated
async def test_a_lease_that_is_gone_does_not_keep_the_others_from_being_revoked(bench: Bench) -> None:
    client = bench.client()
    for ttl in (30.0, 60.0, 90.0):
        assert await client.release(granted(await client.join(bench.claim(ttl=ttl)))) is True
    bench.server.revoke(next(iter(bench.server.leases)))
    await client.close()
    assert bench.server.leases == {}


@simulated
async def test_a_client_that_is_closed_gives_each_lease_a_second(bench: Bench) -> None:
    client = bench.client()
    assert await client.release(granted(await client.join(bench.claim()))) is True
    bench.calls.clear()
    await client.close()
    (revoked,) = bench.calls
    assert revoked.method is Method.LEASE_REVOKE
    assert 0.9 < revoked.timeout <= 1.0


@simulated
async def test_a_session_that_was_borrowed_is_never_used_for_new_claims(bench: Bench) -> None:
    first, second = bench.client(), bench.client()
    grant = granted(await first.join(bench.claim("ns:a")))
    assert isinstance((await second.renew([grant]))[0], Grant)
    granted(await second.join(bench.claim("ns:b")))
    assert len(bench.server.leases) == 2
    granted(await second.join(bench.claim("ns:c")))
    assert len(bench.server.leases) == 2, "its own is used again"


def test_the_same_lease_is_borrowed_once() -> None:
    _, _, sessions = alone()
    first = sessions.borrow(5)
    assert sessions.borrow(5) is first
    assert first.borrowed
    assert first.sent == -math.inf


def test_a_borrowed_session_that_nobody_uses_is_forgotten() -> None:
    _, _, sessions = alone()
    sessions.borrow(5)
    with suppress(KeyError):
        sessions._note_ended(1000.0)
    assert sessions._by_lease == {}
