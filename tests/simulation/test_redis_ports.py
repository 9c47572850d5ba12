"""What the scripts promise to the core, each on a server of its own whose time passes on command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leasehold._backends.redis.calls import Call
from leasehold._backends.redis.scripts import script
from leasehold.errors import ModeConflict
from leasehold.spi import Place
from leasehold.values import Grant, Loss, LossReason, Mode, Refusal
from tests.simulation.redis_bench import Bench

OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'."
MODES = [Mode.EXCLUSIVE, Mode.SHARED, Mode.PERMIT]


def keys_of(bench: Bench, owner: str) -> list[bytes]:
    return [key for key in bench.server.database.present() if owner.encode() in key]


# --- withdrawals


@pytest.mark.parametrize("became", ["refused", "queued", "granted", "broken"])
def test_withdrawal_of_a_claim_whose_every_request_was_answered_leaves_nothing(became: str) -> None:
    """It left a key for a whole ttl, after every acquire that timed out."""
    bench = Bench()
    holder, client = bench.client(), bench.client()
    claim = bench.claim(ttl=3600.0)

    async def history() -> None:
        if became in ("refused", "queued"):
            await holder.try_acquire(bench.claim())
        answer = await (client.try_acquire if became == "refused" else client.join)(claim)
        if became == "broken":
            assert isinstance(answer, Grant)
            assert await holder.break_("k", answer.fence, "stuck", now=True)
        before = await holder.inspect("k")
        await client.withdraw(claim, doubt=False)
        assert keys_of(bench, claim.owner) == []
        after = await holder.inspect("k")
        assert after is None or after.waiting == ()
        assert before is None or became != "refused" or after is not None

    bench.run(history())


def test_withdrawal_after_doubt_refuses_what_comes_late_for_one_ttl() -> None:
    bench = Bench()
    client = bench.client()
    claim = bench.claim(ttl=5.0)

    async def history() -> None:
        await client.withdraw(claim, doubt=True)
        assert isinstance(await client.try_acquire(claim), Refusal)
        await bench.main.sleep(5.5)
        assert isinstance(await client.try_acquire(claim), Grant)

    bench.run(history())


def test_withdrawal_that_lets_the_next_in_tells_it_that_the_last_holder_vanished() -> None:
    bench = Bench()
    holder, first, second = bench.client(), bench.client(), bench.client()

    async def history() -> None:
        await holder.try_acquire(bench.claim(ttl=1.0))
        place = await first.join(bench.claim(ttl=60.0))
        leaving = bench.claim(ttl=60.0)
        assert isinstance(await second.join(leaving), Place)
        assert isinstance(place, Place)
        await bench.main.sleep(1.1)
        await second.withdraw(leaving, doubt=False)
        assert await bench.main.wait(place.signal, bench.main.now() + 0.5)
        place.signal.clear()
        grant = await first.turn(place)
        assert isinstance(grant, Grant)
        assert grant.abandoned is True

    bench.run(history())


# --- a release of what an operator has broken


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at_once", [False, True])
def test_release_of_a_broken_grant_answers_the_break_in_the_words_of_a_renewal(mode: Mode, at_once: bool) -> None:
    """It answered only that the grant was gone, and the reason was lost."""
    bench = Bench()
    holder, operator = bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim(ttl=60.0, mode=mode))
        assert isinstance(grant, Grant)
        assert await operator.break_("k", grant.fence, "stuck since noon", now=at_once)
        (renewed,) = await holder.renew([grant])
        assert renewed == Loss(LossReason.BROKEN, "stuck since noon")
        assert await holder.release(grant) == renewed
        assert await operator.inspect("k") is None, "its place is kept although it has obeyed"

    bench.run(history())


@pytest.mark.parametrize("mode", MODES)
def test_release_of_a_broken_grant_wakes_the_next_waiter_at_once(mode: Mode) -> None:
    bench = Bench()
    holder, waiter, operator = bench.client(), bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim(ttl=60.0, mode=mode))
        place = await waiter.join(bench.claim(ttl=60.0, mode=Mode.EXCLUSIVE if mode is Mode.SHARED else mode))
        assert isinstance(grant, Grant)
        assert isinstance(place, Place)
        assert await operator.break_("k", grant.fence, "stuck", now=False)
        assert not await bench.main.wait(place.signal, bench.main.now() + 1.0), "it is kept for the holder"
        assert isinstance(await holder.release(grant), Loss)
        assert await bench.main.wait(place.signal, bench.main.now() + 0.5)
        place.signal.clear()
        assert isinstance(await waiter.turn(place), Grant)

    bench.run(history())


def test_second_release_of_a_broken_grant_finds_nothing_and_frees_nothing() -> None:
    bench = Bench()
    holder, other = bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim())
        assert isinstance(grant, Grant)
        assert await other.break_("k", grant.fence, "stuck", now=False)
        assert isinstance(await holder.release(grant), Loss)
        assert isinstance(await other.try_acquire(bench.claim()), Grant)
        assert await holder.release(grant) is False
        assert await other.inspect("k") is not None

    bench.run(history())


@pytest.mark.parametrize("mode", MODES)
def test_broken_grant_that_is_kept_for_its_min_hold_is_answered_with_the_break_again(mode: Mode) -> None:
    bench = Bench()
    holder, operator = bench.client(), bench.client()
    broken = Loss(LossReason.BROKEN, "stuck\nsince noon")

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim(mode=mode, min_hold=5.0))
        assert isinstance(grant, Grant)
        assert await operator.break_("k", grant.fence, broken.detail, now=False)
        assert await holder.release(grant) == broken
        assert await holder.renew([grant]) == [broken]
        assert await holder.release(grant) == broken
        state = await operator.inspect("k")
        assert state is not None
        assert (state.holdings[0].cooling, state.holdings[0].broken) == (True, broken.detail)
        await bench.main.sleep(5.5)
        next_grant = await holder.try_acquire(bench.claim(mode=mode, min_hold=5.0))
        assert isinstance(next_grant, Grant)
        assert not next_grant.abandoned
        assert isinstance((await holder.renew([next_grant]))[0], Grant)
        assert await holder.release(grant) is False
        assert await holder.release(next_grant) is True
        assert (await holder.renew([next_grant]))[0] != broken, "the reason is the one of the grant before"

    bench.run(history())


def test_release_that_is_sent_again_after_a_withdrawal_is_answered_with_the_break() -> None:
    """A holder in doubt releases and then withdraws its claim; if that gets no answer, it repeats both."""
    bench = Bench()
    holder, operator = bench.client(), bench.client()
    claim = bench.claim(ttl=10.0)

    async def history() -> None:
        grant = await holder.try_acquire(claim)
        assert isinstance(grant, Grant)
        assert await operator.break_("k", grant.fence, "stuck", now=True)
        await bench.main.sleep(9.0)
        answer = await holder.release(grant)
        await holder.withdraw(claim)
        assert answer == await holder.release(grant) == Loss(LossReason.BROKEN, "stuck")
        await bench.main.sleep(9.0)
        assert isinstance(await holder.join(claim), Refusal), "a late copy is refused for one ttl"
        await bench.main.sleep(1.5)
        assert isinstance(await holder.join(claim), Grant)

    bench.run(history())


def test_grant_that_is_over_is_not_answered_with_the_break_of_a_later_one() -> None:
    bench = Bench()
    holder, operator = bench.client(), bench.client()
    claim = bench.claim(ttl=5.0)

    async def history() -> None:
        first = await holder.try_acquire(claim)
        await bench.main.sleep(5.5)
        second = await holder.try_acquire(claim)
        assert isinstance(first, Grant)
        assert isinstance(second, Grant)
        assert await operator.break_("k", second.fence, "stuck\n1", now=True)
        lost, broken = await holder.renew([first, second])
        assert isinstance(lost, Loss)
        assert lost.reason is LossReason.TAKEN
        assert broken == Loss(LossReason.BROKEN, "stuck\n1")
        assert await holder.release(first) is False
        assert await holder.release(second) == broken

    bench.run(history())


def test_note_of_a_break_by_an_earlier_version_is_read() -> None:
    bench = Bench()
    holder, operator = bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim())
        assert isinstance(grant, Grant)
        assert await operator.break_("k", grant.fence, "stuck", now=True)
        (note,) = keys_of(bench, grant.claim.owner)
        bench.server.database.run([b"SET", note, b"bstuck", b"PX", b"9000"])
        assert await holder.release(grant) == Loss(LossReason.BROKEN, "stuck")

    bench.run(history())


def test_release_by_an_earlier_version_does_not_show_the_break_of_the_grant_before() -> None:
    """Earlier versions do not write the field that has the grant which is kept."""
    bench = Bench()
    holder, operator = bench.client(), bench.client()
    run_command = bench.server.database.run

    async def history() -> None:
        broken = await holder.try_acquire(bench.claim(min_hold=5.0))
        assert isinstance(broken, Grant)
        assert await operator.break_("k", broken.fence, "stuck", now=False)
        assert isinstance(await holder.release(broken), Loss)
        await bench.main.sleep(5.5)
        grant = await holder.try_acquire(bench.claim(min_hold=5.0))
        assert isinstance(grant, Grant)
        run_command([b"HDEL", b"leasehold:{k}:s", b"o", b"b"])
        run_command([b"SET", b"leasehold:{k}", b"*cooling*", b"PX", b"5000"])
        state = await operator.inspect("k")
        assert state is not None
        assert (state.holdings[0].cooling, state.holdings[0].broken) == (True, None)
        assert await holder.release(broken) is False
        assert [loss.reason for loss in await holder.renew([broken]) if isinstance(loss, Loss)] == [LossReason.TAKEN]

    bench.run(history())


# --- late copies, and waiters that are dead


@pytest.mark.parametrize("mode", MODES)
def test_late_copy_of_a_claim_that_was_released_and_is_kept_is_refused(mode: Mode) -> None:
    """It got a place in the queue, and later a grant without a holder."""
    bench = Bench()
    holder, other = bench.client(), bench.client()
    claim = bench.claim(ttl=20.0, mode=mode, min_hold=5.0)

    async def history() -> None:
        grant = await holder.try_acquire(claim)
        assert isinstance(grant, Grant)
        assert await holder.release(grant) is True
        assert isinstance(await holder.join(claim), Refusal)
        assert isinstance(await holder.try_acquire(claim), Refusal)
        state = await other.inspect("k")
        assert state is not None
        assert state.waiting == ()
        await bench.main.sleep(5.5)
        assert await other.inspect("k") is None

    bench.run(history())


def test_waiters_that_are_dead_do_not_decide_what_a_name_is_used_for() -> None:
    """They did, for up to twenty seconds: a semaphore of this name was a ModeConflict."""
    bench = Bench()
    holder, waiter, other = bench.client(), bench.client(), bench.client()

    async def history() -> None:
        assert isinstance(await holder.try_acquire(bench.claim(ttl=5.0)), Grant)
        place = await waiter.join(bench.claim(ttl=60.0))
        assert isinstance(place, Place)
        with pytest.raises(ModeConflict):
            await other.try_acquire(bench.claim(mode=Mode.PERMIT, capacity=2))
        await bench.main.sleep(5.5)
        with pytest.raises(ModeConflict):  # it is alive
            await other.try_acquire(bench.claim(mode=Mode.PERMIT, capacity=2))
        await bench.main.sleep(5.0)
        assert isinstance(await other.try_acquire(bench.claim(mode=Mode.PERMIT, capacity=2)), Grant)
        with pytest.raises(ModeConflict):
            await waiter.join(bench.claim())

    bench.run(history())


# --- a server without memory


@pytest.mark.parametrize("mode", MODES)
def test_server_without_memory_keeps_the_place_of_a_waiter_and_hands_over(mode: Mode) -> None:
    """It kept it for six seconds: a waiter could not refresh its place."""
    bench = Bench()
    holder, waiter = bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim(ttl=60.0, mode=mode))
        answer = await waiter.join(bench.claim(ttl=60.0, mode=Mode.EXCLUSIVE if mode is Mode.SHARED else mode))
        bench.server.refuses = OUT_OF_MEMORY
        while bench.world.now < 20.0:
            assert isinstance(answer, Place)
            await bench.main.sleep(answer.recheck)
            answer = await waiter.turn(answer)
        assert isinstance(grant, Grant)
        assert isinstance(answer, Place)
        assert await holder.release(grant)
        assert await bench.main.wait(answer.signal, bench.main.now() + 0.5), "no waiter was notified"
        answer.signal.clear()
        assert isinstance(await waiter.turn(answer), Grant)

    bench.run(history())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("min_hold", [0.0, 5.0])
def test_server_without_memory_renews_withdraws_breaks_and_frees(mode: Mode, min_hold: float) -> None:
    """It ended what several share, because their renewal counted as one that needs memory; so did a withdrawal."""
    bench = Bench()
    holder, other = bench.client(), bench.client()

    async def history() -> None:
        claims = [bench.claim(ttl=10.0, mode=mode, min_hold=min_hold) for _ in range(3)]
        grants = []
        for place, claim in enumerate(claims):
            grant = await holder.try_acquire(replace(claim, key=f"k{place}"))
            assert isinstance(grant, Grant)
            grants.append(grant)
        bench.server.refuses = OUT_OF_MEMORY
        for _ in range(5):
            await bench.main.sleep(4.0)
            assert [isinstance(answer, Grant) for answer in await holder.renew(grants)] == [True] * 3
        assert isinstance(await holder.try_acquire(grants[0].claim), Grant), "asked again, it is the same grant"
        assert await holder.release(grants[0])
        await holder.withdraw(grants[1].claim)
        assert await other.break_("k2", grants[2].fence, "stuck", now=True)
        for name in ("k0", "k1", "k2"):
            assert await other.inspect(name) is None

    bench.run(history())


@pytest.mark.parametrize("mode", MODES)
def test_server_without_memory_takes_a_release_that_has_to_be_kept_for_min_hold(mode: Mode) -> None:
    bench = Bench()
    holder, other = bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim(ttl=10.0, mode=mode, min_hold=5.0))
        assert isinstance(grant, Grant)
        bench.server.refuses = OUT_OF_MEMORY
        assert await holder.release(grant)
        state = await other.inspect("k")
        assert state is not None
        assert state.holdings[0].cooling
        await bench.main.sleep(6.0)
        assert await other.inspect("k") is None

    bench.run(history())


# --- fences


def test_fence_that_was_raised_for_one_name_does_not_lift_those_of_others() -> None:
    bench = Bench()
    client = bench.client()
    far = bench.server.now_us + 10 * 86_400_000_000

    async def history() -> None:
        await client.raise_fence("k", far)
        raised = await client.try_acquire(bench.claim())
        assert isinstance(raised, Grant)
        assert raised.fence > far
        other = await client.try_acquire(replace(bench.claim(), key="other"))
        assert isinstance(other, Grant)
        assert other.fence < far

    bench.run(history())


def test_fences_of_a_client_rise_over_all_its_names_when_the_clock_is_set_back() -> None:
    bench = Bench()
    client = bench.client()

    async def history() -> None:
        first = await client.try_acquire(bench.claim())
        bench.server.step_clock(-600.0)
        bench.server.restart_empty()
        second = await client.try_acquire(bench.claim())
        assert isinstance(first, Grant)
        assert isinstance(second, Grant)
        assert second.fence > first.fence

    bench.run(history())


def test_clock_set_back_prolongs_the_lock_of_a_dead_holder_and_break_ends_it() -> None:
    """A limit of the store, and the way out of it: the server keeps the end of a key as a time of day."""
    bench = Bench()
    holder, other = bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim(ttl=10.0))
        assert isinstance(grant, Grant)
        bench.server.step_clock(-3600.0)
        await bench.main.sleep(60.0)
        refusal = await other.try_acquire(bench.claim())
        assert isinstance(refusal, Refusal)
        assert refusal.retry_after == pytest.approx(3550.0, abs=1.0)
        assert await other.break_("k", grant.fence, "its host is gone", now=True)
        assert isinstance(await other.try_acquire(bench.claim()), Grant)

    bench.run(history())


# --- strict mode


@pytest.mark.parametrize("age", [0, 3_600_000])
def test_strict_mode_holds_off_for_a_name_that_another_life_has_granted_however_old_the_server_is(age: int) -> None:
    """A server can be old and yet have just become the primary: its age proves nothing about this name."""
    bench = Bench()
    client = bench.client()
    keys = client._names.keys("k")

    async def ask(owner: str) -> int:
        words = ("0", owner, "10000", "x", "0", "0", "[]", "0", "6000", "", "30000")
        reply = await client._router.execute(Call.of(script("acquire"), keys, owner, *words), 1.0)
        return int(reply[0])

    async def history() -> None:
        await bench.main.sleep(1.0)
        await ask("o1")
        await bench.main.sleep(31.0)
        assert await ask("o1") == 1
        await client.withdraw(replace(bench.claim(), owner="o1"), doubt=False)
        bench.server.restart()
        bench.server._started -= age
        assert await ask("o2") == 0, "a lease of the first life may still run"
        await bench.main.sleep(31.0)
        assert await ask("o3") == 1

    bench.run(history())


# --- claim windows


@pytest.mark.parametrize(("silent_for", "whole"), [(1.0, True), (2.5, True), (3.5, False), (5.5, False)])
def test_waiter_that_missed_its_re_checks_is_handed_the_lock_for_a_window_only(silent_for: float, whole: bool) -> None:
    bench = Bench()
    holder, waiter = bench.client(), bench.client()

    async def history() -> None:
        grant = await holder.try_acquire(bench.claim(ttl=60.0))
        place = await waiter.join(bench.claim(ttl=60.0))
        assert isinstance(grant, Grant)
        assert isinstance(place, Place)
        await bench.main.sleep(silent_for)
        assert await holder.release(grant)
        state = await holder.inspect("k")
        assert state is not None
        (holding,) = state.holdings
        assert (holding.expires_in > 50.0) is whole
        assert whole or holding.expires_in <= 3.0, "a dead one would keep the lock for its whole ttl"

    bench.run(history())
