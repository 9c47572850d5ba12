"""What the SQLite store answers, verb by verb, on a host whose clocks are turned by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold._backends.sqlite import rows
from leasehold.errors import BackendRejected, ModeConflict
from leasehold.values import MAX_FENCE, Capability, Grant, Loss, LossReason, Mode, Record
from tests.stores.sqlite.sqlite_support import FakeHost, Verbs, claim, granted, placed, refused

if TYPE_CHECKING:
    from pathlib import Path

    from leasehold.values import Claim


def test_every_capability_but_sessions_is_declared(store: Verbs) -> None:
    assert store.backend.capabilities == frozenset(Capability) - {Capability.SESSION}


def test_second_claim_is_refused_and_told_who_and_how_long(store: Verbs, host: FakeHost) -> None:
    first = granted(store.try_acquire(claim(ttl=30)))
    host.pass_time(10)
    refusal = refused(store.try_acquire(claim()))
    assert refusal.holder == first.claim.holder
    assert refusal.retry_after == pytest.approx(20)
    assert refusal.queue == 0


def test_same_claim_asked_twice_is_one_grant_with_a_new_expiry(store: Verbs, host: FakeHost) -> None:
    wanted = claim(ttl=30)
    first = granted(store.try_acquire(wanted))
    host.pass_time(20)
    again = granted(store.try_acquire(wanted))
    assert again.fence == first.fence
    host.pass_time(20)
    assert isinstance(store.renew(again)[0], Grant)
    assert store.release(again)
    assert store.inspect() is None


def test_late_release_does_not_free_the_next_holder(store: Verbs, host: FakeHost) -> None:
    stale = granted(store.try_acquire(claim(ttl=1)))
    host.pass_time(1)
    current = granted(store.try_acquire(claim()))
    assert not store.release(stale)
    assert store.renew(stale) == [Loss(LossReason.TAKEN, "the store does not know this grant any more")]
    assert isinstance(store.renew(current)[0], Grant)


def test_repeated_release_does_not_free_the_next_holder_of_a_quiet_name(store: Verbs, host: FakeHost) -> None:
    first = granted(store.try_acquire(claim()))
    assert store.release(first)
    host.pass_time(0.001)  # so that the clock alone gives the next fence, which is the common case
    second = granted(store.try_acquire(claim()))
    assert not store.release(first)
    assert store.renew(first) == [Loss(LossReason.TAKEN, "the store does not know this grant any more")]
    assert isinstance(store.renew(second)[0], Grant)


def test_expired_holder_is_gone_at_its_ttl_and_not_before(store: Verbs, host: FakeHost) -> None:
    granted(store.try_acquire(claim(ttl=10)))
    host.pass_time(9.999)
    refused(store.try_acquire(claim()))
    host.pass_time(0.001)
    assert granted(store.try_acquire(claim())).abandoned is True


def test_expired_grant_cannot_be_renewed_even_if_nobody_took_it(store: Verbs, host: FakeHost) -> None:
    grant = granted(store.try_acquire(claim(ttl=10)))
    host.pass_time(10)
    (loss,) = store.renew(grant)
    assert isinstance(loss, Loss)
    assert not store.release(grant)


def test_release_after_the_ttl_frees_nothing_and_says_so(store: Verbs, host: FakeHost) -> None:
    grant = granted(store.try_acquire(claim(ttl=10)))
    host.pass_time(10)
    assert store.release(grant) is False
    assert granted(store.try_acquire(claim())).abandoned is True


def test_abandonment_is_told_once_and_forgotten_after_a_release(store: Verbs, host: FakeHost) -> None:
    assert granted(store.try_acquire(claim(ttl=1))).abandoned is False
    host.pass_time(2)
    second = granted(store.try_acquire(claim()))
    assert second.abandoned is True
    assert store.release(second)
    assert granted(store.try_acquire(claim())).abandoned is False


def test_withdrawn_grant_that_knew_of_an_abandonment_passes_it_on(store: Verbs, host: FakeHost) -> None:
    granted(store.try_acquire(claim(ttl=1)))
    host.pass_time(2)
    wanted = claim(ttl=5)
    assert granted(store.try_acquire(wanted)).abandoned is True
    store.withdraw(wanted)
    assert granted(store.try_acquire(claim())).abandoned is True


def test_late_copy_of_a_withdrawn_claim_is_refused_for_one_ttl(store: Verbs, host: FakeHost) -> None:
    wanted = claim(ttl=10)
    store.withdraw(wanted)
    refused(store.try_acquire(wanted))
    refused(store.join(wanted))
    other = granted(store.try_acquire(claim()))  # it is in nobody else's way
    assert store.release(other)
    host.pass_time(9.9)
    refused(store.join(wanted))
    host.pass_time(0.2)
    granted(store.join(wanted))


def test_withdraw_frees_a_grant_and_leaves_a_queue(store: Verbs) -> None:
    first, second = claim(), claim()
    granted(store.try_acquire(first))
    place = placed(store.join(second))
    store.withdraw(second)
    refused(store.turn(place))
    store.withdraw(first)
    assert store.inspect() is None


def test_queue_is_first_come_first_served(store: Verbs) -> None:
    grant = granted(store.join(claim()))
    first, second = placed(store.join(claim())), placed(store.join(claim()))
    assert (first.ahead, second.ahead) == (0, 1)
    assert second.holder == grant.claim.holder
    assert store.release(grant)
    placed(store.turn(second))
    refused(store.try_acquire(claim()))  # never overtakes
    next_grant = granted(store.turn(first))
    assert store.release(next_grant)
    granted(store.turn(second))


def test_release_raises_the_signal_of_the_next_and_only_of_the_next(store: Verbs) -> None:
    grant = granted(store.join(claim()))
    first, second = placed(store.join(claim())), placed(store.join(claim()))
    assert not first.signal.is_set()
    store.release(grant)
    assert first.signal.is_set()
    assert not second.signal.is_set()


def test_waiter_that_stops_asking_loses_its_place(store: Verbs, host: FakeHost) -> None:
    grant = granted(store.join(claim(ttl=100)))
    dead, alive = placed(store.join(claim())), placed(store.join(claim()))
    for _ in range(3):
        host.pass_time(1)
        alive = placed(store.turn(alive))
    assert alive.ahead == 0
    refused(store.turn(dead))
    store.release(grant)
    granted(store.turn(alive))


def test_first_in_line_looks_again_when_the_holder_runs_out(store: Verbs, host: FakeHost) -> None:
    granted(store.join(claim(ttl=10)))
    first = placed(store.join(claim()))
    assert first.recheck == pytest.approx(1)
    for _ in range(9):
        host.pass_time(1)
        first = placed(store.turn(first))
    host.pass_time(0.75)
    assert placed(store.turn(first)).recheck == pytest.approx(0.25)


def test_readers_share_and_a_waiting_writer_is_not_overtaken(store: Verbs) -> None:
    readers = [granted(store.join(claim(mode=Mode.SHARED))) for _ in range(3)]
    writer = placed(store.join(claim()))
    late = placed(store.join(claim(mode=Mode.SHARED)))
    refused(store.try_acquire(claim(mode=Mode.SHARED)))
    for reader in readers:
        placed(store.turn(writer))
        store.release(reader)
    writing = granted(store.turn(writer))
    placed(store.turn(late))
    store.release(writing)
    granted(store.turn(late))


def test_one_release_of_a_writer_lets_all_readers_at_the_head_in(store: Verbs) -> None:
    writer = granted(store.join(claim()))
    readers = [placed(store.join(claim(mode=Mode.SHARED))) for _ in range(3)]
    behind = placed(store.join(claim()))
    store.release(writer)
    assert [place.signal.is_set() for place in [*readers, behind]] == [True, True, True, False]
    for place in readers:
        granted(store.turn(place))


@pytest.mark.parametrize("few", [rows.FEW, 0], ids=["few", "many"])
def test_a_reader_is_kept_back_by_a_writer_ahead_of_it_and_by_none_behind(
    store: Verbs, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(rows, "FEW", few)
    writer = granted(store.join(claim()))
    reader, behind = placed(store.join(claim(mode=Mode.SHARED))), placed(store.join(claim()))
    late = placed(store.join(claim(mode=Mode.SHARED)))
    store.release(writer)
    reading = granted(store.turn(reader))
    placed(store.turn(late))
    placed(store.turn(behind))
    store.release(reading)
    granted(store.turn(behind))


def test_permits_are_counted(store: Verbs) -> None:
    holders = [granted(store.join(claim(mode=Mode.PERMIT, capacity=2))) for _ in range(2)]
    assert holders[0].fence < holders[1].fence
    waiting = placed(store.join(claim(mode=Mode.PERMIT, capacity=2)))
    store.release(holders[1])
    granted(store.turn(waiting))
    refused(store.try_acquire(claim(mode=Mode.PERMIT, capacity=2)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (claim(), claim(mode=Mode.PERMIT, capacity=2)),
        (claim(mode=Mode.PERMIT, capacity=3), claim(mode=Mode.PERMIT, capacity=2)),
        (claim(mode=Mode.PERMIT, capacity=1), claim()),
    ],
)
def test_another_kind_of_lock_is_a_conflict_while_in_use(store: Verbs, first: Claim, second: Claim) -> None:
    grant = granted(store.try_acquire(first))
    for ask in (store.try_acquire, store.join):
        with pytest.raises(ModeConflict, match="in use as a"):
            ask(second)
    assert isinstance(store.renew(grant)[0], Grant)  # nothing was changed by the refused ones
    store.release(grant)
    granted(store.try_acquire(second))


def test_min_hold_keeps_the_name_after_the_release(store: Verbs, host: FakeHost) -> None:
    grant = granted(store.try_acquire(claim(ttl=30, min_hold=10)))
    host.pass_time(4)
    assert store.release(grant)
    assert not store.release(grant)
    state = store.inspect()
    assert state is not None
    assert state.holdings[0].cooling
    assert refused(store.try_acquire(claim())).retry_after == pytest.approx(6)
    host.pass_time(6)
    assert granted(store.try_acquire(claim())).abandoned is False


def test_broken_lock_is_kept_until_its_ttl_and_its_holder_is_told(store: Verbs, host: FakeHost) -> None:
    grant = granted(store.try_acquire(claim(ttl=10)))
    assert not store.break_("ns:name", grant.fence + 1)
    assert store.break_("ns:name", grant.fence)
    assert store.renew(grant) == [Loss(LossReason.BROKEN, "by hand")]
    refused(store.try_acquire(claim()))
    refused(store.try_acquire(grant.claim))
    host.pass_time(10)
    assert granted(store.try_acquire(claim())).abandoned is True


def test_lock_broken_at_once_is_free_and_its_holder_is_told(store: Verbs) -> None:
    grant = granted(store.try_acquire(claim(ttl=10)))
    waiting = placed(store.join(claim()))
    assert store.break_("ns:name", grant.fence, now=True)
    assert waiting.signal.is_set()
    assert granted(store.turn(waiting)).abandoned is True
    assert store.renew(grant) == [Loss(LossReason.BROKEN, "by hand")]


def test_release_of_a_broken_grant_answers_the_break_and_lets_the_next_waiter_in(store: Verbs) -> None:
    grant = granted(store.try_acquire(claim(ttl=10)))
    waiting = placed(store.join(claim()))
    assert store.break_("ns:name", grant.fence)
    placed(store.turn(waiting))
    assert not waiting.signal.is_set()
    assert store.release(grant) == Loss(LossReason.BROKEN, "by hand")
    assert waiting.signal.is_set()
    assert granted(store.turn(waiting)).abandoned is False  # its holder has obeyed
    assert store.release(grant) is False


def test_release_of_a_grant_broken_at_once_answers_the_break_and_keeps_the_next_holder(store: Verbs) -> None:
    grant = granted(store.try_acquire(claim(ttl=10)))
    assert store.break_("ns:name", grant.fence, now=True)
    following = granted(store.try_acquire(claim()))
    for _ in range(2):  # also when the first answer was lost
        assert store.release(grant) == Loss(LossReason.BROKEN, "by hand")
    assert isinstance(store.renew(following)[0], Grant)
    assert store.release(following) is True


def test_release_of_a_broken_grant_still_keeps_its_min_hold(store: Verbs, host: FakeHost) -> None:
    grant = granted(store.try_acquire(claim(ttl=30, min_hold=10)))
    assert store.break_("ns:name", grant.fence)
    host.pass_time(4)
    assert store.release(grant) == Loss(LossReason.BROKEN, "by hand")
    assert refused(store.try_acquire(claim())).retry_after == pytest.approx(6)
    host.pass_time(6)
    assert granted(store.try_acquire(claim())).abandoned is False


def test_late_copy_of_a_broken_claim_is_refused_and_its_holder_still_learns_of_the_break(
    store: Verbs, host: FakeHost
) -> None:
    grant = granted(store.try_acquire(claim(ttl=10)))
    assert store.break_("ns:name", grant.fence, now=True)
    refused(store.try_acquire(grant.claim))
    refused(store.join(grant.claim))
    heir = granted(store.try_acquire(claim(ttl=100)))
    assert store.renew(grant) == [Loss(LossReason.BROKEN, "by hand")]
    assert store.release(grant) == Loss(LossReason.BROKEN, "by hand")
    assert store.release(grant) == Loss(LossReason.BROKEN, "by hand")  # the first answer may have been lost
    assert store.release(heir) is True
    host.pass_time(11)
    assert granted(store.try_acquire(grant.claim)).fence > heir.fence


def test_withdrawal_without_doubt_leaves_no_row(store: Verbs) -> None:
    never_seen, holding, waiting = claim("ns:other"), claim(), claim()
    store.withdraw(never_seen, doubt=False)
    assert store.rows("lock") == store.rows("claim") == 0
    granted(store.try_acquire(holding))
    place = placed(store.join(waiting))
    store.withdraw(waiting, doubt=False)
    assert store.rows("claim") == 1  # the holder's
    refused(store.turn(place))
    store.withdraw(holding, doubt=False)
    assert store.rows("claim") == 0
    granted(store.try_acquire(holding))  # nothing refuses it


def test_withdrawal_without_doubt_wakes_the_next_in_line(store: Verbs) -> None:
    granted(store.try_acquire(first := claim()))
    waiting = placed(store.join(claim()))
    store.withdraw(first, doubt=False)
    assert waiting.signal.is_set()
    granted(store.turn(waiting))


def test_fences_rise_also_when_the_wall_clock_is_set_back(store: Verbs, host: FakeHost) -> None:
    fences = []
    for step in (0, -3600, -7200, 1, 1):
        host.wall_time += step
        grant = granted(store.try_acquire(claim()))
        fences.append(grant.fence)
        store.release(grant)
    assert fences == sorted(set(fences))
    assert fences[0] == int(1_700_000_000 * 1e6)


def test_fence_beyond_what_json_keeps_exact_is_refused(store: Verbs, host: FakeHost) -> None:
    host.wall_time = (MAX_FENCE + 2) / 1e6
    with pytest.raises(BackendRejected, match="clock of this host"):
        store.try_acquire(claim())
    assert store.inspect() is None


def test_fence_floor_lifts_fences_above_those_of_another_store(tmp_path: Path, host: FakeHost) -> None:
    floor = 2_000_000_000_000_000
    store = Verbs(tmp_path / "lifted.db", host, fence_floor=floor)
    fences = []
    for _ in range(3):
        grant = granted(store.try_acquire(claim()))
        fences.append(grant.fence)
        store.release(grant)
    store.close()
    assert fences == [floor + 1, floor + 2, floor + 3]


def test_inspect_and_list_show_holders_and_waiters_of_a_prefix(store: Verbs, host: FakeHost) -> None:
    for key in ("ns:b", "ns:a%_", "ns:a\U0010ffffz", "other:a"):
        granted(store.try_acquire(claim(key)))
    waiting = claim("ns:b")
    placed(store.join(waiting))
    host.pass_time(2)
    assert [state.name for state in store.list("ns:")] == ["ns:a%_", "ns:a\U0010ffffz", "ns:b"]
    assert [state.name for state in store.list("ns:a")] == ["ns:a%_", "ns:a\U0010ffffz"]
    plain = store.list("ns:a%")[0]
    assert (plain.mode, plain.capacity, plain.waiting) == (Mode.EXCLUSIVE, 1, ())
    assert plain.holdings[0].held_for == pytest.approx(2)
    assert plain.holdings[0].expires_in == pytest.approx(28)
    state = store.list("ns:b")[0]
    assert state.waiting == (waiting.holder,)
    assert state.holdings[0].held_for == pytest.approx(2)
    assert state.holdings[0].expires_in == pytest.approx(28)


def test_record_is_written_unless_a_higher_fence_was_seen(store: Verbs, host: FakeHost) -> None:
    assert store.read("ns:k") is None
    assert store.write(Record("ns:k", b"\x00one", 5, 10.0))
    assert not store.write(Record("ns:k", b"old", 4, 10.0))
    assert store.write(Record("ns:k", b"two", 5, 10.0))
    host.pass_time(4)
    record = store.read("ns:k")
    assert record is not None
    assert (record.value, record.fence) == (b"two", 5)
    assert record.ttl == pytest.approx(6)
    host.pass_time(6)
    assert store.read("ns:k") is None
    assert not store.write(Record("ns:k", b"old", 4, 10.0)), "the fence outlives the record"
    assert store.write(Record("ns:k", b"new life", 5, 10.0))


def test_place_that_runs_out_lets_the_next_in_line_know(store: Verbs, host: FakeHost) -> None:
    grant = granted(store.join(claim(ttl=100)))
    dead, following = placed(store.join(claim())), placed(store.join(claim()))
    store.release(grant)
    assert dead.signal.is_set()  # it was called, and does not come
    host.pass_time(2)
    following = placed(store.turn(following))
    assert not following.signal.is_set()
    host.pass_time(1.5)
    refused(store.try_acquire(claim()))  # anybody's request finds that the place has run out
    assert following.signal.is_set()


def test_renewal_that_finds_another_holder_expired_wakes_the_next_in_line(store: Verbs, host: FakeHost) -> None:
    living = granted(store.join(claim(mode=Mode.PERMIT, capacity=2, ttl=100)))
    granted(store.join(claim(mode=Mode.PERMIT, capacity=2, ttl=1)))
    waiting = placed(store.join(claim(mode=Mode.PERMIT, capacity=2)))
    host.pass_time(1)
    assert isinstance(store.renew(living)[0], Grant)
    assert waiting.signal.is_set()
    granted(store.turn(waiting))


def test_waiter_whose_client_has_another_pipe_by_now_is_called_through_that(store: Verbs) -> None:
    grant = granted(store.join(claim()))
    waiting = placed(store.join(claim()))
    store.backend._notifications.close()  # as after a fork, or after a time without waiters
    waiting.signal.clear()
    waiting = placed(store.turn(waiting))
    store.release(grant)
    assert waiting.signal.is_set()


def test_synchronous_is_what_the_url_says(tmp_path: Path) -> None:
    for word, number in (("off", 0), ("normal", 1), ("full", 2)):
        with leasehold.connect(f"sqlite:///{tmp_path}/{word}.db?synchronous={word}") as client:
            client.lock("name").acquire().release()
            connection = client._twin._opened.backend._file._connection  # type: ignore[union-attr]
            assert connection.execute("PRAGMA synchronous").fetchone() == (number,)
