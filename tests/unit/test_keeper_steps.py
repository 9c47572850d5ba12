"""The keeper, look by look, in one thread: what it starts at each look, when it looks again, and how it ends."""

from __future__ import annotations

import math
import warnings
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import BackendUnavailable, ClientClosed, OutcomeUnknown, events
from leasehold._core.events import Events
from leasehold._core.keeper import BUNDLE, CLOSE_PATIENCE, LINGER, LONGEST_SLEEP, Keeper
from leasehold._core.states import State
from leasehold._core.tenure import Tenure
from leasehold._runtimes.threads import run
from leasehold.testing.clock import ManualClock
from leasehold.testing.runtimes import ManualThreadRuntime
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_000.0
LOSS = Loss(LossReason.TAKEN)


class Tasks(ManualThreadRuntime):
    """Runs nothing by itself: what is spawned is kept, by its name."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.spawned: list[tuple[str, Any]] = []
        self.joined: list[float | None] = []

    def spawn(self, work: Any, name: str) -> Any:
        self.spawned.append((name.removeprefix("leasehold "), work))
        return self

    async def join(self, deadline: float | None = None) -> bool:
        self.joined.append(deadline)
        return True

    def perform(self) -> list[str]:
        """Run what was spawned but the worker, whose looks are the test's; the names."""
        names = []
        while self.spawned:
            name, work = self.spawned.pop(0)
            names.append(name)
            if name == "keeper":
                work.close()
            else:
                run(work)
        return names


class Store:
    """Answers renewals as it is told, and notes them."""

    def __init__(self) -> None:
        self.renewed: list[list[str]] = []
        self.untils: list[float] = []
        self.released: list[Grant] = []
        self.answer: Any = None
        self.takes = 0.0
        self.keeps: str | None = None  # a release of this key gets no answer
        self.clock: ManualClock | None = None

    async def renew(self, grants: list[Grant], until: float = math.inf, /) -> Any:
        self.renewed.append([grant.claim.key for grant in grants])
        self.untils.append(until)
        if self.clock is not None:
            self.clock.advance(self.takes)
        if isinstance(self.answer, BaseException):
            raise self.answer
        if isinstance(self.answer, list):
            return [one or grant for one, grant in zip(self.answer, grants, strict=True)]
        return [self.answer or grant for grant in grants]

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool:
        self.released.append(grant)
        if grant.claim.key == self.keeps:
            raise OutcomeUnknown("no answer")
        return True


class Looks:
    """A keeper whose looks are made by the test."""

    def __init__(self) -> None:
        self.clock, self.store, self.seen = ManualClock(autojump=None), Store(), list[events.Event]()
        self.store.clock = self.clock
        self.runtime = Tasks(self.clock)
        news = Events()
        news.subscribe(self.seen.append)
        self.keeper = Keeper(self.runtime, self.store, news)  # type: ignore[arg-type]

    def lease(self, name: str, ttl: float = 30.0, fence: int = 7, **options: Any) -> Tenure:
        claim = Claim(name, f"owner of {name}", ttl, Mode.EXCLUSIVE, 1, 0.0, Holder("h", 1))
        given = {"renew": True, "max_hold": None, **options}
        tenure = Tenure(name, Grant(claim, fence, ttl), self.clock.now(), **given)
        self.keeper.admit(tenure)
        return tenure

    def look(self, after: float = 0.0) -> tuple[float, list[str]]:
        """Turn the clock and look; in how many seconds to look again, and what was started."""
        self.clock.advance(after)
        wake = self.keeper._wake = self.keeper._attend(self.clock.now())
        return round(wake - self.clock.now(), 6), self.runtime.perform()


@pytest.fixture
def looks() -> Iterator[Looks]:
    made = Looks()
    yield made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.runtime.perform()


def test_the_worker_is_started_once_and_looks_again_after_a_second_at_most(looks: Looks) -> None:
    kept = [looks.lease("a"), looks.lease("b")]
    assert [name for name, _ in looks.runtime.spawned] == ["keeper"]
    assert looks.look() == (LONGEST_SLEEP, ["keeper"])
    assert len(kept) == looks.keeper.held


def test_it_looks_again_when_the_next_renewal_is_due(looks: Looks) -> None:
    kept = looks.lease("a", ttl=1.5)
    looks.runtime.perform()
    assert looks.look() == (0.5, [])
    assert looks.look(0.5)[1] == ["renewal", "events"]
    assert looks.store.renewed == [["a"]]
    assert kept.confirmed == NOW + 0.5
    assert looks.seen == [events.Renewed("a", 7)]


def test_a_lease_that_is_not_renewed_is_looked_at_when_it_ends(looks: Looks) -> None:
    kept = looks.lease("a", ttl=0.5, renew=False)
    looks.runtime.perform()
    assert looks.look()[0] == pytest.approx(kept.deadline - NOW)


@pytest.mark.parametrize("apart", [BUNDLE * 0.9, BUNDLE * 1.1])
def test_what_is_due_within_a_thirtieth_of_its_ttl_goes_along_and_nothing_else(looks: Looks, apart: float) -> None:
    first = looks.lease("a")
    looks.clock.advance(30.0 * apart)
    second = looks.lease("b")
    looks.runtime.perform()
    looks.look(10.0 - 30.0 * apart)
    assert looks.store.renewed == [["a", "b"] if apart < BUNDLE else ["a"]]
    assert first.state is second.state is State.HELD


def test_nothing_is_renewed_ahead_of_its_time_while_nothing_is_due(looks: Looks) -> None:
    kept = looks.lease("a")
    looks.runtime.perform()
    looks.look(10.0 - 30.0 * BUNDLE / 2)
    assert looks.store.renewed == []
    assert kept.state is State.HELD


def test_an_answer_is_of_use_until_the_latest_deadline_of_its_batch(looks: Looks) -> None:
    kept = [looks.lease("a", ttl=30.0), looks.lease("b", ttl=30.5)]
    looks.runtime.perform()
    looks.look(10.2)
    assert looks.store.renewed == [["a", "b"]]
    assert looks.store.untils == [pytest.approx(NOW + 30.5 - 0.305 - 0.005)]
    assert all(tenure.confirmed == NOW + 10.2 for tenure in kept)


def test_a_loss_is_notified_and_announced_once(looks: Looks) -> None:
    kept = looks.lease("a", ttl=3.0, renew=False)
    looks.runtime.perform()
    assert looks.look(2.9)[1] == []
    assert looks.look(0.1)[1] == ["loss", "events"]
    assert looks.look(1.0)[1] == []
    assert looks.keeper.held == 0
    assert [event for event in looks.seen if isinstance(event, events.Lost)] == [events.Lost("a", 7, kept.loss)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("late", "is_told"), [(0.9, False), (1.2, True)])
def test_a_look_that_is_late_by_more_than_a_third_of_a_ttl_is_announced_once(
    looks: Looks, late: float, is_told: bool
) -> None:
    kept = [looks.lease("a", ttl=3.3), looks.lease("b", ttl=3.3)]
    looks.runtime.perform()
    looks.look()
    looks.look(1.0 + late)
    told = [event for event in looks.seen if isinstance(event, events.KeeperLate)]
    assert [event.late for event in told] == ([pytest.approx(late)] if is_told else [])
    assert len(kept) == 2


def test_a_late_look_means_nothing_to_leases_that_are_not_renewed(looks: Looks) -> None:
    kept = looks.lease("a", ttl=3.0, renew=False)
    looks.runtime.perform()
    looks.look()
    looks.look(2.5)
    assert [event for event in looks.seen if isinstance(event, events.KeeperLate)] == []
    assert kept.state is State.HELD


def test_a_lease_that_was_dropped_is_announced_with_its_fence_and_not_renewed(looks: Looks) -> None:
    kept = looks.lease("a")
    looks.runtime.perform()
    del kept
    with pytest.warns(ResourceWarning):
        assert looks.look(10)[1] == ["events"]
    assert looks.seen == [events.Dropped("a", 7)]
    assert looks.store.renewed == []
    assert looks.keeper.held == 0


def test_an_idle_worker_stays_for_a_while_and_then_ends(looks: Looks) -> None:
    kept = looks.lease("a")
    retire = looks.keeper._retire
    assert not retire(NOW)
    looks.keeper.begin_release(kept)
    assert looks.keeper.held == 0
    assert not retire(NOW + 1)
    assert not retire(NOW + 1 + LINGER * 0.99)
    again = looks.lease("b")
    assert not retire(NOW + 1 + LINGER)
    looks.keeper.begin_release(again)
    assert not retire(NOW + 9)
    assert retire(NOW + 9 + LINGER)
    looks.runtime.perform()
    last = looks.lease("c")
    assert looks.runtime.perform() == ["keeper"], "the next lease starts another"
    assert last.state is State.HELD


@pytest.mark.parametrize("way", ["close", "end_all", "abandon", "bury"])
def test_a_keeper_that_has_ended_admits_no_lease_and_keeps_none(looks: Looks, way: str) -> None:
    """It would be renewed by nobody, or, in a forked child, for its parent."""
    kept = looks.lease("a")
    looks.runtime.perform()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        match way:
            case "close":
                run(looks.keeper.close())
            case "end_all":
                assert looks.keeper.end_all(LOSS) == [kept]
            case _:
                getattr(looks.keeper, way)()
    assert kept.state is State.LOST
    assert kept.loss is not None
    assert (
        kept.loss.reason
        is {
            "close": LossReason.CLOSED,
            "end_all": LossReason.TAKEN,
            "abandon": LossReason.CLOSED,
            "bury": LossReason.FORKED,
        }[way]
    )
    with pytest.raises(ClientClosed) as closed:
        looks.lease("b")
    assert closed.value.name == "b"
    assert looks.keeper._retire(looks.clock.now())
    if way != "close":  # there the worker reports the loss
        assert looks.keeper.held == 0


def test_an_event_loop_that_ended_is_told_of_for_each_lease(looks: Looks) -> None:
    kept = [looks.lease("a"), looks.lease("b")]
    looks.runtime.perform()
    with pytest.warns(ResourceWarning, match="'a', 'b'"):
        looks.keeper.abandon()
    assert looks.seen == [events.Dropped("a", 7), events.Dropped("b", 7)]
    assert all(tenure.state is State.LOST for tenure in kept)


def test_without_leases_the_end_of_an_event_loop_is_silent(looks: Looks) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        looks.keeper.abandon()
    assert looks.seen == []


def test_a_forked_child_announces_nothing_of_its_parents_leases(looks: Looks) -> None:
    kept = looks.lease("a")
    looks.runtime.perform()
    del kept
    looks.keeper.bury()
    assert looks.look(1.0)[1] == []
    assert looks.seen == []


@pytest.mark.parametrize("way", ["close", "end_all"])
def test_a_lease_that_ended_by_itself_is_not_ended_again(looks: Looks, way: str) -> None:
    kept = looks.lease("a", ttl=3.0, renew=False)
    looks.runtime.perform()
    looks.clock.advance(5.0)
    if way == "close":
        run(looks.keeper.close())
    else:
        assert looks.keeper.end_all(LOSS) == []
    assert kept.loss is not None
    assert kept.loss.reason is LossReason.EXPIRED


# Releases


@pytest.mark.parametrize(
    ("reason", "is_sent"),
    [
        (LossReason.EXPIRED, True),
        (LossReason.UNCONFIRMED, True),
        (LossReason.MAX_HOLD, True),
        (LossReason.RELEASED, True),
        (LossReason.TAKEN, False),
        (LossReason.BROKEN, False),
        (LossReason.CLOSED, False),
        (LossReason.FORKED, False),
    ],
)
def test_what_is_lost_is_released_only_if_the_store_may_still_keep_it(
    looks: Looks, reason: LossReason, is_sent: bool
) -> None:
    kept = looks.lease("a")
    looks.keeper.lose(kept, Loss(reason))
    assert looks.keeper.begin_release(kept) is is_sent
    assert kept.state is State.LOST


def test_a_release_is_sent_once_it_is_begun_until_it_is_confirmed(looks: Looks) -> None:
    kept = looks.lease("a")
    assert looks.keeper.begin_release(kept)
    assert looks.keeper.begin_release(kept), "the first try may have failed"
    assert looks.keeper.finish_release(kept) is False
    assert looks.keeper.begin_release(kept) is False
    assert kept.state is State.RELEASED
    assert kept.loss is None


def test_a_break_is_news_only_to_a_holder_that_did_not_lose_it_before(looks: Looks) -> None:
    broken = Loss(LossReason.BROKEN)
    kept, lost = looks.lease("a"), looks.lease("b")
    looks.keeper.begin_release(kept)
    assert looks.keeper.finish_release(kept, broken) is True
    assert kept.loss is broken
    looks.keeper.lose(lost, LOSS)
    looks.keeper.begin_release(lost)
    assert looks.keeper.finish_release(lost, broken) is False
    assert lost.loss is LOSS


# Renewals


def test_a_renewal_that_is_confirmed_after_the_end_is_given_back(looks: Looks) -> None:
    kept = looks.lease("a", ttl=3.0)
    looks.runtime.perform()
    looks.store.takes = 5.0
    looks.look(1.0)
    assert looks.store.released == [kept.grant]
    assert kept.state is State.LOST
    assert [event for event in looks.seen if isinstance(event, events.Renewed)] == []


def test_a_renewal_that_is_refused_is_a_loss_and_nothing_is_given_back(looks: Looks) -> None:
    kept = looks.lease("a", ttl=3.0)
    looks.runtime.perform()
    looks.store.answer = LOSS
    looks.look(1.0)
    assert kept.loss is LOSS
    assert looks.look()[1] == ["loss", "events"]
    assert looks.store.released == []


def test_how_long_a_store_usually_takes_follows_its_answers_but_not_a_single_late_one(looks: Looks) -> None:
    kept = looks.lease("a")
    looks.runtime.perform()
    usual = []
    for takes in (0.2, 0.3, 9.0, 0.1):
        looks.store.takes = takes
        looks.look(max(0.0, kept.due - looks.clock.now()))
        usual.append(round(looks.keeper.renewals.usual, 6))
    assert usual == [0.2, 0.3, 0.6, 0.1]


def test_when_the_store_has_doubts_all_leases_are_renewed_at_the_next_look(looks: Looks) -> None:
    kept = [looks.lease("a"), looks.lease("b")]
    looks.runtime.perform()
    looks.keeper._signal.clear()
    looks.keeper.renew_soon()
    assert looks.keeper._signal.is_set()
    looks.look()
    assert looks.store.renewed == [["a", "b"]]
    assert len(kept) == 2


def test_a_lease_that_needs_an_earlier_look_wakes_the_worker_and_others_do_not(looks: Looks) -> None:
    first = looks.lease("a", ttl=1.5)
    looks.runtime.perform()
    looks.look()
    looks.keeper._signal.clear()
    second = looks.lease("b", ttl=30)
    assert not looks.keeper._signal.is_set()
    third = looks.lease("c", ttl=0.3)
    assert looks.keeper._signal.is_set()
    looks.keeper._signal.clear()
    fourth = looks.lease("d", ttl=0.3, renew=False)
    assert looks.keeper._signal.is_set()
    looks.keeper._signal.clear()
    fifth = looks.lease("e", ttl=1.2)  # it ends later, but is to be renewed before
    assert looks.keeper._signal.is_set()
    assert looks.keeper.tenures() == [first, second, third, fourth, fifth]


def test_of_a_batch_each_lease_gets_its_own_answer(looks: Looks) -> None:
    a, b, c = [looks.lease(name) for name in "abc"]
    looks.runtime.perform()
    looks.store.answer = [BackendUnavailable("away"), None, LOSS]
    looks.look(10)
    assert (a.failure, a.confirmed, a.under_way, a.state) == ("away", -math.inf, 0, State.HELD)
    assert (b.failure, b.confirmed, b.under_way) == (None, NOW + 10, 0)
    assert (c.loss, c.under_way) == (LOSS, 0)
    left = a.deadline - looks.clock.now()
    assert looks.seen == [events.RenewalFailed("a", left, "away", 7), events.Renewed("b", 7)]


@pytest.mark.parametrize("answer", [OutcomeUnknown("no answer"), ValueError("a defect")], ids=["silent", "defect"])
def test_a_batch_that_fails_is_tried_again_soon_and_announced_once(looks: Looks, answer: Exception) -> None:
    kept = [looks.lease(name) for name in "ab"]
    looks.runtime.perform()
    looks.store.answer = answer
    for after in (10.0, 2.0, 2.0):
        looks.look(after)
    assert looks.store.renewed == [["a", "b"]] * 3
    assert [type(event) for event in looks.seen] == [events.RenewalFailed] * 2
    looks.store.answer = None
    looks.look(2.0)
    assert all(tenure.confirmed == NOW + 16 and tenure.failure is None for tenure in kept)


def test_what_was_released_while_its_renewal_was_under_way_is_neither_renewed_nor_released_again(looks: Looks) -> None:
    kept = looks.lease("a")
    looks.runtime.perform()
    looks.clock.advance(10.0)
    looks.keeper._attend(looks.clock.now())
    looks.keeper.begin_release(kept)
    looks.keeper.finish_release(kept)
    looks.runtime.perform()
    assert kept.state is State.RELEASED
    assert looks.store.released == []
    assert looks.seen == []


def test_what_was_dropped_while_its_renewal_was_under_way_is_not_reported_as_renewed(looks: Looks) -> None:
    kept = looks.lease("a")
    looks.runtime.perform()
    looks.clock.advance(10.0)
    looks.keeper._attend(looks.clock.now())
    del kept
    looks.runtime.perform()
    assert looks.seen == []


def test_a_renewal_by_hand_counts_from_its_sending_and_is_announced(looks: Looks) -> None:
    kept = looks.lease("a")
    looks.runtime.perform()
    looks.clock.advance(5)
    looks.store.takes = 1.0
    run(looks.keeper.renewals.renew_now(kept))
    assert kept.confirmed == NOW + 5
    assert looks.store.untils == [pytest.approx(NOW + 30 - 0.305)]
    looks.runtime.perform()
    assert looks.seen == [events.Renewed("a", 7)]


def test_a_renewal_by_hand_that_is_late_gives_the_lock_back_and_is_not_announced(looks: Looks) -> None:
    kept = looks.lease("a", ttl=3)
    looks.runtime.perform()
    looks.store.takes = 5.0
    run(looks.keeper.renewals.renew_now(kept))
    assert looks.store.released == [kept.grant]
    looks.runtime.perform()
    assert [event for event in looks.seen if isinstance(event, events.Renewed)] == []


def test_a_renewal_by_hand_that_is_refused_gives_nothing_back_and_one_that_fails_raises(looks: Looks) -> None:
    kept = looks.lease("a")
    looks.runtime.perform()
    looks.store.answer = BackendUnavailable("away")
    with pytest.raises(BackendUnavailable):
        run(looks.keeper.renewals.renew_now(kept))
    assert kept.state is State.HELD
    looks.store.answer = [LOSS]
    run(looks.keeper.renewals.renew_now(kept))
    assert kept.loss is LOSS
    assert looks.store.released == []


def test_a_late_look_at_a_lease_that_was_dropped_is_no_defect(looks: Looks, caplog: pytest.LogCaptureFixture) -> None:
    dropped, kept = looks.lease("a", ttl=3), looks.lease("b", ttl=3)
    looks.runtime.perform()
    looks.look()
    del dropped
    looks.keeper._dropped.clear()  # its finalizer comes after the look
    looks.look(2.5)
    assert "keeper failed" not in caplog.text
    assert [event.name for event in looks.seen if isinstance(event, events.KeeperLate)] == ["b"]
    assert kept.name == "b"


def test_a_loss_that_was_announced_is_not_kept_for_another_report(looks: Looks) -> None:
    kept = looks.lease("a", ttl=3.0, renew=False)
    looks.runtime.perform()
    looks.clock.advance(5.0)
    assert looks.keeper.decide(kept) is not None
    assert looks.keeper._decided == [kept]
    assert looks.look()[1] == ["loss", "events"]
    assert looks.keeper.decide(kept) is kept.loss
    assert looks.keeper._decided == []


@pytest.mark.parametrize(("max_hold", "is_woken"), [(0.2, True), (20.0, False), (None, False)])
def test_a_lease_that_was_passed_on_and_ends_before_the_next_look_wakes_the_worker(
    looks: Looks, max_hold: float | None, is_woken: bool
) -> None:
    before = looks.lease("a", fence=11)
    looks.runtime.perform()
    looks.look()
    looks.keeper._signal.clear()
    following = Tenure("a", Grant(before.grant.claim, 12, 30.0), NOW, renew=True, max_hold=max_hold)
    with looks.keeper.guard:
        looks.keeper.succeed(before, following)
    assert looks.keeper._signal.is_set() is is_woken
    assert looks.keeper.tenures() == [following]


@pytest.mark.parametrize(
    ("limit", "until"), [(math.inf, NOW + CLOSE_PATIENCE), (NOW + 2.0, NOW + 2.0), (NOW + 60.0, NOW + CLOSE_PATIENCE)]
)
def test_closing_waits_for_the_worker_for_a_callback_and_for_listeners_but_not_for_ever(
    looks: Looks, limit: float, until: float
) -> None:
    lost, held = looks.lease("a"), looks.lease("b")
    looks.keeper.lose(lost, LOSS)
    looks.keeper._notifier = looks.runtime
    looks.keeper._dispatcher.dispatch(events.Renewed("b", 7))
    with pytest.warns(ResourceWarning, match="while it held 'b'; release"):
        run(looks.keeper.close(limit))
    assert looks.runtime.joined == [until] * 3
    assert held.loss == Loss(LossReason.CLOSED, "its client was closed")


class Watching:
    """Notes how a lease ended."""

    def __init__(self, tenure: Tenure) -> None:
        self.heard: list[Loss | None] = []
        tenure.watchers.append(weakref.ref(self))

    def on_end(self, loss: Loss | None) -> None:
        self.heard.append(loss)

    def loss_is_raised(self) -> None: ...


def test_of_several_leases_that_end_at_one_look_each_has_its_own_reason_and_fence(looks: Looks) -> None:
    a = looks.lease("a", ttl=3.0, fence=11, renew=False)
    b = looks.lease("b", ttl=300.0, fence=12, max_hold=4.0)
    c = looks.lease("c", ttl=6.0, fence=13)
    d = looks.lease("d", ttl=300.0, fence=14, renew=False)
    watching = [Watching(each) for each in (a, b, c, d)]
    looks.runtime.perform()
    looks.store.answer = BackendUnavailable("no route")
    looks.look(2.0)
    looks.seen.clear()
    looks.look(6.0)
    losses = [
        Loss(LossReason.EXPIRED, "its time ran out before it was renewed"),
        Loss(LossReason.MAX_HOLD, "it was held for as long as max_hold allows"),
        Loss(LossReason.UNCONFIRMED, "the store did not confirm a renewal before the deadline (no route)"),
    ]
    assert [each.heard for each in watching] == [[losses[0]], [losses[1]], [losses[2]], []]
    assert [event for event in looks.seen if isinstance(event, events.Lost)] == [
        events.Lost("a", 11, losses[0]),
        events.Lost("b", 12, losses[1]),
        events.Lost("c", 13, losses[2]),
    ]
    assert looks.keeper.tenures() == [d]


def test_every_grant_that_was_confirmed_too_late_is_given_back_although_one_release_gets_no_answer(
    looks: Looks,
) -> None:
    kept = [looks.lease(name, ttl=3.0, fence=fence) for name, fence in (("a", 11), ("b", 12), ("c", 13))]
    looks.runtime.perform()
    looks.store.takes, looks.store.keeps = 5.0, "a"
    looks.look(1.0)
    assert [(grant.claim.key, grant.fence) for grant in looks.store.released] == [("a", 11), ("b", 12), ("c", 13)]
    assert {each.state for each in kept} == {State.LOST}
    assert not any(isinstance(event, events.Renewed) for event in looks.seen)


def test_each_lease_that_was_dropped_is_announced_with_its_own_fence_and_warned_of(looks: Looks) -> None:
    kept = [looks.lease(name, fence=fence) for name, fence in (("a", 11), ("b", 12), ("c", 13))]
    looks.runtime.perform()
    del kept[:2]
    with pytest.warns(ResourceWarning) as warned:
        looks.look(1.0)
    assert looks.seen == [events.Dropped("b", 12), events.Dropped("a", 11)] or looks.seen == [
        events.Dropped("a", 11),
        events.Dropped("b", 12),
    ]
    assert [str(each.message) for each in warned] == [str(event) for event in looks.seen]
    assert looks.keeper.tenures() == kept


def test_a_failure_without_words_is_told_by_its_kind(looks: Looks) -> None:
    kept = looks.lease("a", fence=11)
    looks.runtime.perform()
    looks.store.answer = TimeoutError()
    looks.look(10)
    assert kept.failure == "TimeoutError"
    assert looks.seen == [events.RenewalFailed("a", kept.deadline - looks.clock.now(), "TimeoutError", 11)]


def test_the_renewals_of_one_request_are_announced_with_the_fence_of_each(looks: Looks) -> None:
    kept = [looks.lease(name, fence=fence) for name, fence in (("a", 11), ("b", 12))]
    looks.runtime.perform()
    looks.look(10)
    assert looks.seen == [events.Renewed("a", 11), events.Renewed("b", 12)]
    assert [each.fence for each in looks.seen] == [each.grant.fence for each in kept]  # type: ignore[attr-defined]


def test_a_lease_that_was_passed_on_and_dropped_is_announced_with_its_own_fence_and_forgotten(looks: Looks) -> None:
    before = looks.lease("a", fence=11)
    looks.runtime.perform()
    looks.look()
    following = Tenure("a", Grant(before.grant.claim, 12, 30.0), NOW, renew=True, max_hold=None)
    with looks.keeper.guard:
        looks.keeper.succeed(before, following)
    assert looks.keeper.held == 1
    del following
    with pytest.warns(ResourceWarning, match="the lease of 'a' with fence 12 was dropped"):
        looks.look()
    assert looks.seen == [events.Dropped("a", 12)]
    assert looks.keeper.held == 0


class Parked(Tenure):
    """A lease that the program has released."""

    __slots__ = ()

    is_parked = True


@pytest.mark.parametrize("answer", [None, BackendUnavailable("away")], ids=["confirmed", "failed"])
@pytest.mark.parametrize("is_parked", [True, False])
def test_renewals_of_what_the_program_has_released_are_nobodys_news(
    looks: Looks, answer: Exception | None, is_parked: bool
) -> None:
    claim = Claim("a", "owner", 30.0, Mode.EXCLUSIVE, 1, 0.0, Holder("h", 1))
    kind = Parked if is_parked else Tenure
    tenure = kind("a", Grant(claim, 7, 30.0), NOW, renew=True, max_hold=None)
    looks.keeper.admit(tenure)
    tenure.batch = SimpleNamespace(until=math.inf)  # type: ignore[assignment]
    looks.runtime.perform()
    looks.store.answer = None if answer is None else [answer]
    looks.look(10.0)
    looks.runtime.perform()
    told = [type(event) for event in looks.seen]
    assert told == ([] if is_parked else [events.Renewed if answer is None else events.RenewalFailed])


def test_the_time_that_a_failed_renewal_leaves_is_told_as_of_its_failure(looks: Looks) -> None:
    tenure = looks.lease("a")
    looks.runtime.perform()
    looks.store.answer, looks.store.takes = BackendUnavailable("away"), 4.0
    looks.look(10.0)
    looks.runtime.perform()
    (failed,) = looks.seen
    assert isinstance(failed, events.RenewalFailed)
    assert failed == events.RenewalFailed("a", tenure.deadline - (NOW + 14), "away", 7)


@pytest.mark.parametrize("way", ["close", "abandon"])
def test_what_the_program_has_released_is_not_told_of_as_held_at_the_end(looks: Looks, way: str) -> None:
    claim = Claim("parked", "owner", 30.0, Mode.EXCLUSIVE, 1, 0.0, Holder("h", 1))
    parked, held = Parked("parked", Grant(claim, 8, 30.0), NOW, renew=True, max_hold=None), looks.lease("held")
    looks.keeper.admit(parked)
    looks.runtime.perform()
    with pytest.warns(ResourceWarning) as warned:
        run(looks.keeper.close()) if way == "close" else looks.keeper.abandon()
    assert ["'held'" in str(each.message) and "parked" not in str(each.message) for each in warned] == [True]
    assert looks.seen == ([] if way == "close" else [events.Dropped("held", 7)])
    assert parked.state is held.state is State.LOST


def test_what_was_released_before_the_keeper_learns_that_it_was_dropped_is_nobodys_news(looks: Looks) -> None:
    leases = [looks.lease(name, fence=fence) for name, fence in (("a", 11), ("b", 12), ("c", 13))]
    looks.runtime.perform()
    known = [looks.keeper._known[lease.number] for lease in leases]
    assert looks.keeper.begin_release(leases[0])
    looks.keeper._dropped.extend(known[:2])  # as their finalizers do, at whatever moment
    with pytest.warns(ResourceWarning, match="fence 12") as warned:
        looks.look()
    assert looks.seen == [events.Dropped("b", 12)]
    assert len(warned) == 1
    assert looks.keeper.tenures() == [leases[2]]
    assert not looks.keeper._dropped
