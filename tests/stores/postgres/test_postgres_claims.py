"""Claims in the tables of PostgreSQL: when they run out, when a name is looked at again, and which fences they get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold._runtimes.threads import run
from leasehold._urls import find_store
from leasehold.errors import BackendRejected
from leasehold.spi import Place
from leasehold.values import MAX_FENCE, Grant, Holder, Mode, Refusal
from tests.stores.postgres.tables import KEY, RUNTIME, Tables, claim, crowd
from tests.stores.support import eventually

if TYPE_CHECKING:
    pass


# --- what has run out


@pytest.mark.parametrize(("state", "abandoned"), [(1, True), (2, False), (3, False), (4, False), (5, False)])
def test_what_has_run_out_goes_and_only_a_holder_is_told_of(
    backend: Any, tables: Tables, state: int, abandoned: bool
) -> None:
    async def story() -> None:
        await backend.try_acquire(claim(mode=Mode.SHARED))
        await backend.try_acquire(claim(mode=Mode.SHARED))
        tables.change(f"state = {state}, expires = '-infinity'", "number = (SELECT max(number) FROM leasehold.claim)")
        tables.change("look = '-infinity'", table="lock")
        tables.ask("SELECT leasehold.enter_3(%s)", KEY.encode())
        assert tables.ask("SELECT state FROM leasehold.claim") == [(1,)]
        ((news,),) = tables.ask("SELECT abandoned_until > now() + interval '23 h' FROM leasehold.lock")
        assert news is abandoned

    run(story())


@pytest.mark.parametrize("state", [1, 2, 3, 4, 5])
def test_a_name_is_looked_at_again_when_the_first_of_its_rows_runs_out(
    backend: Any, tables: Tables, state: int
) -> None:
    async def story() -> None:
        await backend.try_acquire(claim(mode=Mode.SHARED))
        await backend.try_acquire(claim(mode=Mode.SHARED))
        tables.change(
            f"state = {state}, expires = now() + interval '20 s'",
            "number = (SELECT max(number) FROM leasehold.claim)",
        )
        tables.change("look = '-infinity'", table="lock")
        tables.ask("SELECT leasehold.enter_3(%s)", KEY.encode())
        assert 10 < tables.in_seconds("look", table="lock") <= 20
        assert tables.ask("SELECT count(*) FROM leasehold.claim") == [(2,)]

    run(story())


def test_a_name_whose_holder_vanished_is_remembered_for_a_day_and_then_forgotten(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        await backend.try_acquire(claim())
        tables.change("expires = '-infinity'", table="lock")
        tables.ask("SELECT leasehold.enter_3(%s)", KEY.encode())
        assert 86_000 < tables.in_seconds("look", table="lock") <= 86_400
        tables.ask("SELECT leasehold.settle_3(%s, clock_timestamp())", KEY.encode())
        assert tables.ask("SELECT shape FROM leasehold.lock") == [(2,)]
        tables.ask("SELECT leasehold.settle_3(%s, clock_timestamp() + interval '1 day 1 s')", KEY.encode())
        assert tables.ask("SELECT shape, look::text FROM leasehold.lock") == [(0, "infinity")]

    run(story())


def test_readers_behind_a_writer_that_died_in_line_are_let_in(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        await backend.try_acquire(claim(mode=Mode.SHARED))
        writer = await backend.join(claim())
        await backend.join(claim(mode=Mode.SHARED))
        tables.change("expires = '-infinity'", f"owner = '{writer.claim.owner}'")
        tables.change("look = '-infinity'", table="lock")
        tables.ask("SELECT leasehold.enter_3(%s)", KEY.encode())
        assert tables.ask("SELECT state FROM leasehold.claim") == [(1,), (1,)]

    run(story())


def test_marks_of_withdrawn_claims_go_a_hundred_at_a_time_until_none_is_left(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        await backend.try_acquire(claim(mode=Mode.SHARED))
        tables.change("expires = now() + interval '1 h'")
        tables.connection.execute(
            "INSERT INTO leasehold.claim (key, owner, state, mode, capacity, ttl, min_hold, holder, since, expires) "
            "SELECT 'leasehold:job', 'owner ' || n, 4, 'exclusive', 1, 60, 0, '{}', now(), "
            "now() + (CASE WHEN n > 160 THEN n - 140 ELSE -1 END) * interval '1 s' FROM generate_series(1, 200) AS n"
        )
        marks = "SELECT count(*) FROM leasehold.claim WHERE state = 4"
        tables.change("look = '-infinity'", table="lock")
        left = []
        for _ in range(4):
            tables.ask("SELECT leasehold.enter_3(%s)", KEY.encode())
            left += [tables.ask(marks)[0][0]]
        assert left == [100, 40, 40, 40]
        assert 40 < tables.in_seconds("look", table="lock") <= 60, "when the last one of them has run out"

    run(story())


def test_a_name_is_looked_at_again_when_the_news_of_a_vanished_holder_is_old(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        await backend.try_acquire(claim(mode=Mode.SHARED))
        tables.change("expires = now() + interval '2 h'")
        tables.change("look = '-infinity', abandoned_until = now() + interval '1 h'", table="lock")
        tables.ask("SELECT leasehold.enter_3(%s)", KEY.encode())
        assert 3000 < tables.in_seconds("look", table="lock") <= 3600

    run(story())


@pytest.mark.parametrize("ttls", [(60.0, 20.0), (20.0, 60.0)])
def test_a_name_is_looked_at_again_when_the_first_of_two_holders_runs_out(
    backend: Any, tables: Tables, ttls: tuple[float, float]
) -> None:
    async def story() -> None:
        for ttl in ttls:
            await backend.try_acquire(claim(mode=Mode.SHARED, ttl=ttl))
        assert 10 < tables.in_seconds("look", table="lock") <= 20

    run(story())


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SHARED])
def test_a_grant_of_a_session_is_looked_at_each_time_and_keeps_its_session(
    emptied: str, tables: Tables, mode: Mode
) -> None:
    """Its end has no instant that is known before."""
    held: Any = find_store(f"{emptied}?mode=session").open_backend(RUNTIME)
    other: Any = find_store(emptied).open_backend(RUNTIME)
    session = (
        "SELECT session FROM leasehold.lock WHERE shape = 1 "
        "UNION ALL SELECT session FROM leasehold.claim WHERE state = 1"
    )

    async def story() -> None:
        grant = await held.try_acquire(claim(mode=mode))
        ((number,),) = tables.ask(session)
        assert number is not None
        place = await other.join(claim())
        assert tables.ask(session) == [(number,)]
        assert tables.ask("SELECT look::text FROM leasehold.lock") == [("-infinity",)]
        assert isinstance((await held.renew([grant]))[0], Grant)
        assert isinstance(await held.try_acquire(grant.claim), Grant), "sent again, as its answer was lost"
        assert tables.ask(session) == [(number,)]
        assert isinstance(await other.turn(place), Place)
        tables.ask("SELECT leasehold.enter_3(%s)", KEY.encode())
        assert tables.ask("SELECT look::text FROM leasehold.lock") == [("-infinity",)]
        await held.close()
        eventually(lambda: isinstance(run(other.turn(place)), Grant), "the end of the session does not free it")
        assert (await other.turn(place)).abandoned is True
        assert tables.ask(session) == [(None,)]
        await other.close()

    run(story())


# --- claims


def test_a_claim_that_is_sent_again_is_found_whatever_became_of_it(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        for kind in ({}, {"mode": Mode.SHARED}, {"min_hold": 1.0}):
            again = claim(key=f"leasehold:{kind}", **kind)
            first = await backend.try_acquire(again)
            tables.change("expires = clock_timestamp() + interval '1 s'", table="lock", which="shape = 1")
            tables.change("expires = clock_timestamp() + interval '1 s'")
            second = await backend.try_acquire(again)
            assert (second.fence, second.abandoned) == (first.fence, first.abandoned)
            assert tables.in_seconds("max(expires)") > 50
            assert len((await backend.inspect(again.key)).holdings) == 1
            await backend.release(second)

    run(story())


def test_a_name_in_use_as_another_kind_of_lock_is_told_as_what(backend: Any) -> None:
    async def story() -> None:
        await backend.try_acquire(claim(mode=Mode.PERMIT, capacity=3))
        for other in ({"mode": Mode.PERMIT, "capacity": 2}, {}, {"mode": Mode.SHARED}):
            with pytest.raises(Exception, match="3") as error:
                await backend.try_acquire(claim(**other))
            assert type(error.value).__name__ == "ModeConflict"
        assert isinstance(await backend.try_acquire(claim(mode=Mode.PERMIT, capacity=3)), Grant)

    run(story())


def test_a_refusal_tells_how_many_wait_and_until_when_the_first_holder_has_time(backend: Any) -> None:
    async def story() -> None:
        await backend.try_acquire(claim(mode=Mode.SHARED, ttl=50.0, holder=Holder("first", 1)))
        await backend.try_acquire(claim(mode=Mode.SHARED, ttl=30.0, holder=Holder("second", 2)))
        for number in range(3):
            assert (await backend.join(claim())).ahead == number
        refusal = await backend.try_acquire(claim())
        assert isinstance(refusal, Refusal)
        assert (refusal.queue, refusal.holder) == (3, Holder("first", 1))
        assert refusal.retry_after is not None
        assert 20 < refusal.retry_after <= 30, "whoever ends first"

    run(story())


@pytest.mark.parametrize("kind", [{}, {"min_hold": 0.000001}, {"mode": Mode.SHARED}, {"spare": 3}])
def test_fences_start_above_the_floor_and_end_at_the_highest(emptied: str, kind: dict[str, Any]) -> None:
    floor = 2_000_000_000_000_000
    backend: Any = find_store(f"{emptied}?fence_floor={floor}").open_backend(RUNTIME)

    async def story() -> None:
        wanted = claim(**kind)
        grant = await backend.try_acquire(wanted)
        assert grant.fence > floor
        await backend.release(grant)
        used = await backend.try_acquire(claim(**kind))
        assert used.fence > grant.fence
        await backend.release(used)
        await backend.withdraw(wanted, doubt=False)
        key = "leasehold:high"
        await backend.raise_fence(key, MAX_FENCE - 1)
        last = await backend.try_acquire(claim(key=key, **kind))
        assert (last.fence, last.spare) == (MAX_FENCE, 0)
        assert isinstance((await backend.renew([last]))[0], Grant)
        await backend.withdraw(last.claim, doubt=False)
        with pytest.raises(BackendRejected, match="largest number"):
            await backend.try_acquire(claim(key=key, **kind))
        await backend.close()

    run(story())


def test_a_hand_over_above_the_highest_fence_is_refused(backend: Any) -> None:
    """Two holders in a row had the same fence there, one that JSON does not keep exact."""

    async def story() -> None:
        held, _ = await crowd(backend)
        await backend.raise_fence(KEY, MAX_FENCE)
        with pytest.raises(BackendRejected, match="largest number"):
            await backend.release(held)
        with pytest.raises(BackendRejected, match="largest number"):
            await backend.break_(KEY, held.fence, "stuck", now=True)
        assert (await backend.inspect(KEY)).holdings[0].fence == held.fence

    run(story())


def test_raising_a_fence_never_lowers_it_and_keeps_the_holder(backend: Any) -> None:
    async def story() -> None:
        held = await backend.try_acquire(claim())
        assert await backend.raise_fence(KEY, 5) == held.fence
        assert await backend.raise_fence(KEY, held.fence + 7) == held.fence + 7
        assert isinstance((await backend.renew([held]))[0], Grant)
        assert await backend.release(held) is True
        assert (await backend.try_acquire(claim())).fence > held.fence + 7

    run(story())


def test_a_refusal_at_a_paused_name_is_about_the_pause(backend: Any) -> None:
    async def story() -> None:
        await backend.try_acquire(claim())
        place = await backend.join(claim())
        await backend.pause(KEY, Holder("h", 1, "ana", "moving"), 300.0)
        for answer in (await backend.try_acquire(claim()), await backend.turn(place), await backend.join(place.claim)):
            assert answer.paused is not None
            assert (answer.paused.reason, answer.paused.by) == ("moving", "ana")
            assert 200 < answer.paused.expires_in <= 300
        assert (await backend.turn(place)).holder is None

    run(story())


def test_a_claim_does_not_overtake_those_who_wait_and_room_is_given_in_order(backend: Any) -> None:
    async def story() -> None:
        reader = await backend.try_acquire(claim(mode=Mode.SHARED))
        writer = await backend.join(claim())
        assert isinstance(await backend.try_acquire(claim(mode=Mode.SHARED)), Refusal)
        late = await backend.join(claim(mode=Mode.SHARED))
        assert (writer.ahead, late.ahead) == (0, 1)
        await backend.release(reader)
        assert isinstance(await backend.turn(late), Place)
        assert isinstance(await backend.turn(writer), Grant)

    run(story())


def test_readers_behind_a_writer_that_gives_up_are_let_in_beside_those_that_read(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        await backend.try_acquire(claim(mode=Mode.SHARED))
        writer = await backend.join(claim())
        readers = [await backend.join(claim(mode=Mode.SHARED)) for _ in range(2)]
        await backend.withdraw(writer.claim, doubt=False)
        for reader in readers:
            ((state,),) = tables.ask(f"SELECT state FROM leasehold.claim WHERE owner = '{reader.claim.owner}'")
            assert state == 1, "it is let in by the one that leaves"
            assert isinstance(await backend.turn(reader), Grant)

    run(story())


def test_of_several_that_wait_for_a_holder_that_vanishes_the_first_one_learns_of_it(
    backend: Any, tables: Tables
) -> None:
    async def story() -> None:
        await backend.try_acquire(claim())
        first, second, third = [await backend.join(claim()) for _ in range(3)]
        tables.change("expires = now() - interval '1 s'", "state = 1")
        tables.change("look = '-infinity'", table="lock")
        heir = await backend.turn(first)
        assert heir.abandoned is True
        assert await backend.release(heir) is True
        heir = await backend.turn(second)
        assert heir.abandoned is False
        assert await backend.release(heir) is True
        heir = await backend.turn(third)
        assert heir.abandoned is False
        assert await backend.release(heir) is True
        assert (await backend.try_acquire(claim())).abandoned is False

    run(story())


@pytest.mark.parametrize("facts", [{"min_hold": 0.000001}, {"mode": Mode.SHARED}, {"spare": 2}, {}])
def test_the_first_holder_after_one_that_vanished_learns_of_it_and_the_next_does_not(
    backend: Any, tables: Tables, facts: dict[str, Any]
) -> None:
    async def story() -> None:
        await backend.try_acquire(claim())
        tables.change("expires = '-infinity'", table="lock")
        told = claim(**facts)
        first = await backend.try_acquire(told)
        again = await backend.try_acquire(told)
        assert (first.abandoned, again.abandoned) == (True, True), "also if the answer was lost"
        assert await backend.release(first) is True
        assert (await backend.try_acquire(claim())).abandoned is False

    run(story())


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SHARED])
def test_a_claim_that_is_sent_again_or_renewed_in_another_session_lives_there(
    emptied: str, tables: Tables, mode: Mode
) -> None:
    first, second = (find_store(f"{emptied}?mode=session").open_backend(RUNTIME) for _ in range(2))

    async def story() -> None:
        mine = claim(mode=mode)
        grant: Any = await first.try_acquire(mine)
        if mode is Mode.SHARED:
            assert isinstance(await second.try_acquire(mine), Grant)
        else:
            (renewed,) = await second.renew([grant])
            assert isinstance(renewed, Grant)
        await first.close()
        over = (
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        eventually(lambda: tables.ask(over) == [(1,)], "the first session does not end")
        assert isinstance((await second.renew([grant]))[0], Grant)
        await second.close()

    run(story())


def test_a_mark_beside_a_grant_that_is_kept_hides_nothing(backend: Any, tables: Tables) -> None:
    """A withdrawal after the release, for a copy that may be under way: the claim is refused, the min_hold kept."""

    async def story() -> None:
        mine = claim(min_hold=60.0)
        grant = await backend.try_acquire(mine)
        assert await backend.release(grant) is True
        await backend.withdraw(mine)
        assert tables.ask("SELECT state FROM leasehold.claim ORDER BY state") == [(2,), (4,)]
        for other in (mine, claim(), claim(mode=Mode.SHARED)):
            assert isinstance(await backend.try_acquire(other), Refusal)
        assert isinstance(await backend.join(mine), Refusal)
        ((cooling,),) = [(holding.cooling,) for holding in (await backend.inspect(KEY)).holdings]
        assert cooling is True

    run(story())


def test_a_withdrawal_that_finds_another_holder_leaves_the_name_as_it_is(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        held = await backend.try_acquire(claim())
        before = tables.dump()
        await backend.withdraw(claim(), doubt=False)
        assert tables.dump() == before, "it is one row still, and the release one write"
        late = claim(ttl=45.0)
        await backend.withdraw(late)
        assert 30 < tables.in_seconds("expires", "state = 4") <= 45, "copies are refused for a ttl"
        assert isinstance(await backend.join(late), Refusal)
        assert await backend.release(held) is True

    run(story())


def test_a_break_of_what_is_not_held_changes_nothing(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        assert await backend.break_(KEY, 5, "stuck", now=True) is False
        assert tables.ask("SELECT shape FROM leasehold.lock") == [(0,)]
        waiting = await backend.try_acquire(claim())
        await backend.join(claim())
        assert await backend.break_(KEY, 0, "stuck", now=True) is False, "one that waits is not held"
        assert (await backend.renew([waiting]))[0].ttl == 60.0

    run(story())


def test_a_name_that_is_kept_is_looked_at_when_its_min_hold_is_over_and_not_a_ttl_later(
    backend: Any, tables: Tables
) -> None:
    async def story() -> None:
        grant = await backend.try_acquire(claim(min_hold=9.0))
        assert await backend.release(grant) is True
        assert tables.in_seconds("look", table="lock") <= 9
        assert tables.in_seconds("expires") <= 9

    run(story())


@pytest.mark.parametrize("verb", ["release", "withdraw", "resume"])
def test_a_name_that_nobody_uses_any_more_is_one_row_again(backend: Any, tables: Tables, verb: str) -> None:
    async def story() -> None:
        grant = await backend.try_acquire(claim(mode=Mode.SHARED))
        if verb == "release":
            assert await backend.release(grant) is True
        elif verb == "withdraw":
            await backend.withdraw(grant.claim, doubt=False)
        else:
            await backend.pause(KEY, Holder("h", 1), 60.0)
            await backend.release(grant)
            assert await backend.resume(KEY) is True
        assert tables.ask("SELECT shape, look::text, abandoned_until::text FROM leasehold.lock") == [
            (0, "infinity", "-infinity")
        ]
        assert tables.ask("SELECT count(*) FROM leasehold.claim") == [(0,)]

    run(story())


def test_a_name_that_was_used_before_has_the_session_of_its_present_holder(emptied: str, tables: Tables) -> None:
    """One that is missing blocks for a ttl after a crash; one that is left over frees what is held."""
    held: Any = find_store(f"{emptied}?mode=session").open_backend(RUNTIME)
    plain: Any = find_store(emptied).open_backend(RUNTIME)

    async def story() -> None:
        await plain.release(await plain.try_acquire(claim()))
        first = await held.try_acquire(claim())
        ((session,),) = tables.ask("SELECT session FROM leasehold.lock")
        assert session is not None
        await held.release(first)
        mine = await plain.try_acquire(claim())
        assert tables.ask("SELECT session FROM leasehold.lock") == [(None,)]
        await plain.release(mine)
        await held.try_acquire(claim())
        assert isinstance(await plain.try_acquire(claim()), Refusal)
        assert tables.ask("SELECT session FROM leasehold.lock") == [(session,)]
        await held.close()
        eventually(lambda: isinstance(run(plain.try_acquire(claim())), Grant), "a session that has ended still holds")
        await plain.close()

    run(story())
