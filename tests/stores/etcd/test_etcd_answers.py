"""What a release and a withdrawal leave in etcd, and what they answer; and how many leases a client may have."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.etcd import acquire
from leasehold._backends.etcd.sessions import Session
from leasehold._urls import find_store
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode, Record, Refusal
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from leasehold.spi import Runtime
    from leasehold.testing import contract
    from verification.lab.etcd import EtcdServer

BROKEN = Loss(LossReason.BROKEN, "stuck since noon")


def claim(
    runtime: Runtime, key: str = "answers:x", *, ttl: float = 30.0, mode: Mode = Mode.EXCLUSIVE, min_hold: float = 0.0
) -> Claim:
    capacity = 2 if mode is Mode.PERMIT else 1
    return Claim(key, runtime.owner(), ttl, mode, capacity, min_hold, Holder("host", 1))


def backends(url: str, runtime: Runtime, number: int = 2) -> list[Any]:
    return [find_store(url).open_backend(runtime) for _ in range(number)]


@asynccontextmanager
async def opened(driver: contract.Driver, server: EtcdServer, number: int = 2) -> AsyncIterator[Any]:
    """The runtime and so many backends, which are closed in the end."""
    runtime = driver.runtime()
    made = backends(server.url, runtime, number)
    yield (runtime, *made)
    for backend in made:
        await backend.close()


# --- withdrawals without doubt


@pytest.mark.parametrize("fate", ["granted", "waiting", "refused", "never asked"])
@pytest.mark.parametrize("mode", Mode)
def test_claim_that_is_withdrawn_without_doubt_leaves_no_key(
    driver: contract.Driver, own_etcd: EtcdServer, fate: str, mode: Mode
) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd) as (runtime, first, second):
            held = [] if fate == "granted" else [await first.join(claim(runtime)) for _ in range(1)]
            if mode is Mode.PERMIT and held:
                await first.release(held.pop())
                held = [await first.join(claim(runtime, mode=mode)) for _ in range(2)]
            before = set(own_etcd.stored_keys())
            wanted = claim(runtime, mode=mode)
            if fate in ("granted", "waiting"):
                assert isinstance(await second.join(wanted), Grant if fate == "granted" else Place)
                assert len(own_etcd.stored_keys()) == len(before) + 1
            elif fate == "refused":
                assert isinstance(await second.try_acquire(wanted), Refusal)
            await second.withdraw(wanted, doubt=False)
            assert set(own_etcd.stored_keys()) == before
            assert isinstance(await second.join(claim(runtime, mode=mode)), Place if held else Grant)

    driver.run(history())


def test_claim_of_another_client_is_withdrawn_without_doubt_and_leaves_no_key(
    driver: contract.Driver, own_etcd: EtcdServer
) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd) as (runtime, first, second):
            grant = await first.join(claim(runtime))
            await second.withdraw(grant.claim, doubt=False)
            assert own_etcd.stored_keys() == []
            assert await first.release(grant) is False

    driver.run(history())


def test_claim_that_was_broken_is_withdrawn_without_doubt_and_leaves_no_key(
    driver: contract.Driver, own_etcd: EtcdServer
) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd) as (runtime, first, operator):
            grant = await first.join(claim(runtime))
            assert await operator.break_("answers:x", grant.fence, BROKEN.detail, now=False)
            await first.withdraw(grant.claim, doubt=False)
            assert own_etcd.stored_keys() == []

    driver.run(history())


def test_claim_that_is_withdrawn_in_doubt_is_refused_for_a_ttl(driver: contract.Driver, own_etcd: EtcdServer) -> None:
    async def history() -> None:
        runtime = driver.runtime()
        first, second = backends(own_etcd.url, runtime)
        grant = await first.join(claim(runtime))
        await first.withdraw(grant.claim)
        assert len(own_etcd.stored_keys()) == 1
        for backend in (first, second):
            assert isinstance(await backend.join(grant.claim), Refusal)
            assert isinstance(await backend.try_acquire(grant.claim), Refusal)
            await backend.close()

    driver.run(history())


# --- a release of what an operator has broken


@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("by", ["its client", "another client", "a client that knows"])
def test_release_of_a_broken_grant_returns_the_break_and_frees_it_at_once(
    driver: contract.Driver, own_etcd: EtcdServer, by: str, now: bool
) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd) as (runtime, first, operator):
            grant = await first.join(claim(runtime))
            place = await operator.join(claim(runtime))
            assert isinstance(place, Place)
            assert await operator.break_("answers:x", grant.fence, BROKEN.detail, now=now)
            if not now:
                assert isinstance(await operator.turn(place), Place), "a broken grant is kept for its ttl"
            if by == "a client that knows":
                assert await first.renew([grant]) == [BROKEN]
            place.signal.clear()
            assert await (operator if by == "another client" else first).release(grant) == BROKEN
            if not now:
                assert await runtime.wait(place.signal, runtime.now() + 20), "the next one is not woken"
            assert isinstance(await operator.turn(place), Grant)
            assert await first.renew([grant]) != [grant]

    driver.run(history())


@pytest.mark.parametrize("by", ["its client", "another client", "a client that knows"])
def test_broken_grant_is_kept_for_its_min_hold_after_its_release(
    driver: contract.Driver, own_etcd: EtcdServer, by: str
) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd) as (runtime, first, operator):
            started = runtime.now()
            grant = await first.join(claim(runtime, min_hold=4.0))
            place = await operator.join(claim(runtime))
            assert await operator.break_("answers:x", grant.fence, BROKEN.detail, now=False)
            if by == "a client that knows":
                assert await first.renew([grant]) == [BROKEN]
            assert await (operator if by == "another client" else first).release(grant) == BROKEN
            state = await operator.inspect("answers:x")
            if runtime.now() < started + 4.0:
                assert [(holding.broken, holding.cooling) for holding in state.holdings] == [(BROKEN.detail, True)]
                assert time_left(own_etcd, key=grant.fence) <= 4, "it is not kept for the rest of its ttl"
            again = await first.release(grant)
            if runtime.now() < started + 4.0:
                assert again == BROKEN, "the same answer for as long as the reason is kept"
            answer = place
            while isinstance(answer, Place):
                assert runtime.now() < started + 60
                await runtime.wait(place.signal, runtime.now() + 0.3)
                answer = await operator.turn(place)
            assert isinstance(answer, Grant)
            assert runtime.now() >= started + 4.0

    driver.run(history())


def test_late_copy_of_a_claim_that_was_broken_at_once_is_refused(driver: contract.Driver, own_etcd: EtcdServer) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd) as (runtime, first, operator):
            grant = await first.join(claim(runtime))
            assert await operator.break_("answers:x", grant.fence, BROKEN.detail, now=True)
            for backend in (first, operator):
                assert isinstance(await backend.join(grant.claim), Refusal)
                assert isinstance(await backend.try_acquire(grant.claim), Refusal)
            assert await first.release(grant) == BROKEN
            assert isinstance(await operator.join(claim(runtime)), Grant)

    driver.run(history())


def test_broken_at_once_is_free_in_spite_of_its_min_hold(driver: contract.Driver, own_etcd: EtcdServer) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd) as (runtime, first, operator):
            grant = await first.join(claim(runtime, min_hold=20.0))
            assert await operator.break_("answers:x", grant.fence, BROKEN.detail, now=True)
            assert isinstance(await operator.join(claim(runtime)), Grant)
            assert await first.release(grant) == BROKEN

    driver.run(history())


@pytest.mark.parametrize("min_hold", [0.0, 20.0])
def test_release_that_races_with_a_break_releases_all_the_same(
    driver: contract.Driver, own_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch, min_hold: float
) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd) as (runtime, first, operator):
            grant = await first.join(claim(runtime, min_hold=min_hold))
            connection = first._connection
            txn = connection.txn

            async def break_first(request: bytes, *given: Any, **options: Any) -> Any:
                monkeypatch.undo()
                assert await operator.break_("answers:x", grant.fence, BROKEN.detail, now=False)
                return await txn(request, *given, **options)

            monkeypatch.setattr(connection, "txn", break_first)
            assert await first.release(grant) == BROKEN
            state = await operator.inspect("answers:x")
            assert (state is None) == (min_hold == 0.0)
            assert state is None or state.holdings[0].cooling

    driver.run(history())


def test_release_of_what_was_lost_otherwise_is_no_break(driver: contract.Driver, own_etcd: EtcdServer) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd) as (runtime, first, second):
            for backend in (first, second):
                grant = await first.join(claim(runtime))
                (key,) = own_etcd.stored_keys()
                own_etcd.delete(key)
                assert await backend.release(grant) is False

    driver.run(history())


def time_left(server: EtcdServer, key: int | None = None) -> int:
    """Seconds of the lease that the only key lives on, or the one that this revision created."""
    found = server.ask("/kv/range", {"key": "AA==", "range_end": "AA=="})["kvs"]
    (kept,) = [each for each in found if key is None or int(each["create_revision"]) == key]
    return int(server.ask("/lease/timetolive", {"ID": kept["lease"]})["TTL"])


def test_broken_grant_is_kept_for_the_rest_of_its_ttl_and_a_repeated_claim_does_not_extend_it(
    driver: contract.Driver, own_etcd: EtcdServer
) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd) as (runtime, first, operator):
            grant = await first.join(claim(runtime))
            assert await operator.break_("answers:x", grant.fence, BROKEN.detail, now=False)
            assert time_left(own_etcd) >= 27, "its holder may believe in it for so long"
            await runtime.sleep(3.2)
            before = time_left(own_etcd)
            assert isinstance(await first.join(grant.claim), Refusal)
            assert time_left(own_etcd) <= before

    driver.run(history())


# --- how many leases


def test_client_has_no_more_leases_than_it_may_however_its_ttls_rise(
    driver: contract.Driver, own_etcd: EtcdServer
) -> None:
    async def history() -> None:
        runtime = driver.runtime()
        (backend,) = backends(own_etcd.url, runtime, 1)
        for ttl in range(60, 90):
            grant = await backend.join(claim(runtime, ttl=float(ttl)))
            assert grant.ttl == ttl
            assert await backend.release(grant) is True
            assert len(own_etcd.leases()) <= 8
        await backend.close()
        assert own_etcd.leases() == []

    driver.run(history())


def test_ninth_ttl_that_is_longer_than_all_others_in_use_is_refused_and_a_shorter_one_shares(
    driver: contract.Driver, own_etcd: EtcdServer
) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd, 1) as (runtime, backend):
            held = [await backend.join(claim(runtime, f"answers:{ttl}", ttl=float(ttl))) for ttl in range(60, 68)]
            with pytest.raises(BackendRejected, match="8 different ttls at the same time"):
                await backend.join(claim(runtime, ttl=90.0))
            shorter = await backend.join(claim(runtime, "answers:shorter", ttl=59.0))
            assert shorter.ttl == 60
            assert await backend.release(held.pop()) is True
            longer = await backend.join(claim(runtime, ttl=90.0))
            assert longer.ttl == 90
            assert len(own_etcd.leases()) == 8
            assert len(await backend.renew([*held, shorter, longer])) == 9

    driver.run(history())


def test_ttls_that_come_all_at_once_are_limited_too(driver: contract.Driver, own_etcd: EtcdServer) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd, 1) as (runtime, backend):
            ends: list[object] = []

            async def ask(ttl: float) -> None:
                try:
                    ends.append(await backend.join(claim(runtime, f"answers:{ttl}", ttl=ttl)))
                except BackendRejected as error:
                    ends.append(error)

            tasks = [runtime.spawn(ask(60.0 + number), "one of many") for number in range(20)]
            for task in tasks:
                assert await task.join(runtime.now() + 60)
            assert len(ends) == 20
            assert sum(isinstance(end, Grant) for end in ends) >= 8
            assert len(own_etcd.leases()) <= 8

    driver.run(history())


# --- for how long a session is believed


def test_new_claim_on_an_older_session_has_nine_tenths_of_its_ttl(
    driver: contract.Driver, own_etcd: EtcdServer
) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd, 1) as (runtime, backend):
            await backend.join(claim(runtime, "answers:old", ttl=10.0))
            await runtime.sleep(1.2)
            asked = runtime.now()
            grant = await backend.join(claim(runtime, ttl=10.0))
            assert grant.since is None or grant.since >= asked - 1.0

    driver.run(history())


def test_keep_alive_counts_from_its_sending_and_not_from_its_answer(
    driver: contract.Driver, own_etcd: EtcdServer
) -> None:
    async def history(proxy: FaultProxy) -> None:
        runtime = driver.runtime()
        (backend,) = backends(f"etcd://127.0.0.1:{proxy.port}", runtime, 1)
        grant = await backend.join(claim(runtime))
        proxy.delay(0.0, 1.0)
        sent = runtime.now()
        assert isinstance((await backend.renew([grant]))[0], Grant)
        (session,) = backend._claims.sessions._by_lease.values()
        assert sent <= session.sent < sent + 0.9
        proxy.delay(0.0, 0.0)
        await backend.close()

    with FaultProxy(("127.0.0.1", own_etcd.port)) as proxy:
        driver.run(history(proxy))


def test_keep_alive_that_is_not_proven_is_no_renewal(
    driver: contract.Driver, own_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd, 1) as (runtime, backend):
            grant = await backend.join(claim(runtime))
            with monkeypatch.context() as patch:
                patch.setattr(Session, "prove", lambda *_: False)  # as when the leader has changed in between
                with pytest.raises(BackendUnavailable, match="leader"):
                    await backend.renew([grant])
            assert isinstance((await backend.renew([grant]))[0], Grant)

    driver.run(history())


def test_session_that_cannot_be_renewed_is_the_answer_for_its_own_grants_alone(
    driver: contract.Driver, own_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was an error of the whole call: leases that were renewed counted as not renewed."""

    async def history() -> None:
        async with opened(driver, own_etcd, 1) as (runtime, backend):
            grants = [await backend.join(claim(runtime, f"answers:{ttl}", ttl=ttl)) for ttl in (60.0, 90.0)]
            plain = backend._connection.keep_alive
            failing = {backend._claims.of_grant(grants[0]).session.lease}

            async def keep_alive(lease: int, timeout: float | None = None) -> Any:
                if lease in failing:
                    raise BackendUnavailable("not this one")
                return await plain(lease, timeout)

            with monkeypatch.context() as patch:
                patch.setattr(backend._connection, "keep_alive", keep_alive)
                answers = await backend.renew(grants)
                assert [type(answer) for answer in answers] == [BackendUnavailable, Grant]
                failing.add(backend._claims.of_grant(grants[1]).session.lease)
                with pytest.raises(BackendUnavailable):
                    await backend.renew(grants)
            assert [type(answer) for answer in await backend.renew(grants)] == [Grant, Grant]
            for grant in grants:
                await backend.release(grant)

    driver.run(history())


def test_read_that_is_answered_after_the_end_of_its_session_grants_nothing(
    driver: contract.Driver, own_etcd: EtcdServer
) -> None:
    async def history(proxy: FaultProxy) -> None:
        runtime = driver.runtime()
        (slow,) = backends(f"etcd://127.0.0.1:{proxy.port}", runtime, 1)
        (other,) = backends(own_etcd.url, runtime, 1)
        grant = await other.join(claim(runtime))
        place = await slow.join(claim(runtime, ttl=2.0))
        assert await other.release(grant) is True
        proxy.delay(0.0, 2.1)
        answer = await slow.turn(place)
        assert isinstance(answer, Refusal)
        proxy.delay(0.0, 0.0)
        for backend in (slow, other):
            await backend.close()

    with FaultProxy(("127.0.0.1", own_etcd.port)) as proxy:
        driver.run(history(proxy))


def test_copy_of_a_withdrawn_claim_is_refused_for_longer_than_its_ttl(
    driver: contract.Driver, own_etcd: EtcdServer
) -> None:
    """It was not: a member that stood still meanwhile wrote a key that stayed for as long as the session."""

    async def history() -> None:
        async with opened(driver, own_etcd, 1) as (runtime, backend):
            held = await backend.join(claim(runtime, "answers:held", ttl=2.0))
            given_up = claim(runtime, ttl=2.0)
            await backend.withdraw(given_up)
            later = runtime.now() + 3.0
            while runtime.now() < later:
                assert isinstance((await backend.renew([held]))[0], Grant)
                await runtime.sleep(0.3)
            assert not isinstance(await backend.try_acquire(given_up), Grant)
            assert isinstance(await backend.try_acquire(claim(runtime, ttl=2.0)), Grant)

    driver.run(history())


def test_mark_of_a_withdrawn_claim_goes_although_its_session_is_kept(
    driver: contract.Driver, own_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acquire, "LATEST_COPY", 0.0)

    async def history() -> None:
        async with opened(driver, own_etcd, 1) as (runtime, backend):
            held = await backend.join(claim(runtime, "answers:held", ttl=2.0))
            await backend.withdraw(claim(runtime, ttl=2.0))
            assert len(own_etcd.stored_keys()) == 2
            deadline = runtime.now() + 30
            while len(own_etcd.stored_keys()) > 1:
                assert runtime.now() < deadline, "the mark is kept alive with its session"
                assert isinstance((await backend.renew([held]))[0], Grant)
                await runtime.sleep(0.3)

    driver.run(history())


def test_key_whose_withdrawal_failed_goes_before_its_session_is_kept_alive_again(
    driver: contract.Driver, own_etcd: EtcdServer
) -> None:
    async def history(proxy: FaultProxy) -> None:
        runtime = driver.runtime()
        (backend,) = backends(f"etcd://127.0.0.1:{proxy.port}", runtime, 1)
        held = await backend.join(claim(runtime, "answers:held", ttl=60.0))
        given_up = await backend.join(claim(runtime, ttl=60.0))
        proxy.refuse()
        with pytest.raises(BackendError):
            await backend.withdraw(given_up.claim, runtime.now() + 2)
        proxy.accept()
        assert len(own_etcd.stored_keys()) == 2
        await _left_alone(backend, held, runtime, own_etcd)
        await backend.close()

    with FaultProxy(("127.0.0.1", own_etcd.port)) as proxy:
        driver.run(history(proxy))


def test_key_whose_release_failed_goes_before_its_session_is_kept_alive_again(
    driver: contract.Driver, own_etcd: EtcdServer
) -> None:
    async def history(proxy: FaultProxy) -> None:
        runtime = driver.runtime()
        (backend,) = backends(f"etcd://127.0.0.1:{proxy.port}", runtime, 1)
        held = await backend.join(claim(runtime, "answers:held", ttl=60.0))
        freed = await backend.join(claim(runtime, ttl=60.0))
        proxy.refuse()
        with pytest.raises(BackendError):
            await backend.release(freed, runtime.now() + 2)
        proxy.accept()
        assert len(own_etcd.stored_keys()) == 2
        await _left_alone(backend, held, runtime, own_etcd)
        await backend.close()

    with FaultProxy(("127.0.0.1", own_etcd.port)) as proxy:
        driver.run(history(proxy))


def test_withdrawal_after_a_release_whose_answer_was_lost_does_not_end_the_min_hold(
    driver: contract.Driver, own_etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd) as (runtime, first, other):
            grant = await first.join(claim(runtime, min_hold=600.0))
            plain = first._connection.txn

            async def applied_and_lost(request: bytes, *given: Any, **options: Any) -> Any:
                await plain(request, *given, **options)
                raise OutcomeUnknown("no answer")

            with monkeypatch.context() as patch, pytest.raises(OutcomeUnknown):
                patch.setattr(first._connection, "txn", applied_and_lost)
                await first.release(grant)
            await first.withdraw(grant.claim)
            assert isinstance(await other.try_acquire(claim(runtime)), Refusal)

    driver.run(history())


async def _left_alone(backend: Any, grant: Grant, runtime: Runtime, server: EtcdServer) -> None:
    """Renew it until no other key is there: a deletion that meets a broken connection is left to the next renewal."""
    deadline = runtime.now() + 30
    await _renewed(backend, grant, runtime)
    while [key for key in server.stored_keys() if b"held" not in key]:
        assert runtime.now() < deadline, "the other key is never deleted"
        await _renewed(backend, grant, runtime)


async def _renewed(backend: Any, grant: Grant, runtime: Runtime) -> None:
    """Renew it, as soon as the way is free again."""
    deadline = runtime.now() + 30
    while True:
        try:
            assert isinstance((await backend.renew([grant]))[0], Grant)
        except BackendError:
            assert runtime.now() < deadline
            await runtime.sleep(0.1)
        else:
            return


# --- records


def test_fence_is_remembered_for_as_long_as_its_record(driver: contract.Driver, own_etcd: EtcdServer) -> None:
    async def history() -> None:
        async with opened(driver, own_etcd, 1) as (_, backend):
            day = 86_400
            await backend.read("answers:record", 7)
            (lease,) = own_etcd.leases()
            assert int(own_etcd.ask("/lease/timetolive", {"ID": lease})["TTL"]) > 0.9 * day
            assert await backend.write(Record("answers:record", b"value", 7, 3.0 * day)) is True
            left = [int(own_etcd.ask("/lease/timetolive", {"ID": each})["TTL"]) for each in own_etcd.leases()]
            assert [seconds > 2.9 * day for seconds in left] == [True, True]

    driver.run(history())
