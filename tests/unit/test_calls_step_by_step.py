"""One call, step by step, in one thread: what it asks for, until when, how long it waits, and what it leaves behind.

The store's answers come from a script, and every wait turns the clock to its end: nothing takes real time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import (
    AcquireTimeout,
    BackendRejected,
    BackendUnavailable,
    Backoff,
    ClientClosed,
    OutcomeUnknown,
    Paused,
    events,
)
from leasehold._core.backoff import GRACE
from leasehold._core.validity import believed_until
from leasehold.spi import Place
from leasehold.testing import ManualStore
from leasehold.values import Grant, Holder, Loss, LossReason, Pause, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Answer = Callable[[Any], Any] | BaseException

NOW = 1_000.0  # where a manual clock begins
THEM = Holder("elsewhere", 7, "them")


class Steps:
    """A client whose store follows a script; `calls` has each request as verb and limit, `waits` each wait."""

    def __init__(self, *, queue: bool = True) -> None:
        self.store = ManualStore(autojump=None)
        self.client = self.store.connect()
        self.opened = self.client._twin._open()
        self.opened.has_queue = queue
        self.calls: list[tuple[str, float]] = []
        self.waits: list[float] = []
        self.seen: list[events.Event] = []
        self.withdrawn: list[bool] = []  # whether in doubt
        self.claims: list[Any] = []
        self.chores: list[tuple[str, float]] = []
        self.script: dict[str, list[Answer]] = {}
        self.client.on_event(self.seen.append)
        calls: Any = self.opened.waiting_calls
        cleanup: Any = self.opened.cleanup
        calls.wait = self._wait
        cleanup.add = lambda name, _, ends: self.chores.append((name, ends))
        backend: Any = self.opened.backend
        for verb in ("try_acquire", "join", "turn", "renew"):
            setattr(backend, verb, self._verb(verb))
        backend.withdraw = self._withdraw

    @property
    def now(self) -> float:
        return self.store.clock.now()

    def answers(self, verb: str, *answers: Answer) -> None:
        """The last one is given again and again."""
        self.script[verb] = list(answers)

    def _verb(self, verb: str) -> Callable[[Any, float], Any]:
        async def scripted(subject: Any, until: float = math.inf, /) -> Any:
            self.calls.append((verb, until))
            self.claims.append(getattr(subject, "claim", subject))
            answers = self.script[verb]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, BaseException):
                raise answer
            return answer(subject)

        return scripted

    async def _withdraw(self, claim: Any, until: float = math.inf, /, *, doubt: bool = True) -> None:
        self.calls.append(("withdraw", until))
        self.withdrawn.append(doubt)

    async def _wait(self, _: object, signal: Any, deadline: float) -> None:
        self.waits.append(round(deadline - self.now, 6))
        self.store.clock.advance(max(0.0, deadline - self.now))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    monkeypatch.setattr("leasehold._runtimes.threads.ThreadRuntime.random", lambda _: 1.0)  # pauses of full length
    made = Steps()
    yield made
    made.store.close()


@pytest.fixture
def polling(steps: Steps) -> Steps:
    steps.opened.has_queue = False
    return steps


def granted(ttl: float = 30.0, **more: Any) -> Callable[[Any], Grant]:
    return lambda subject: Grant(getattr(subject, "claim", subject), 7, ttl, **more)


def refused(**more: Any) -> Callable[[Any], Refusal]:
    return lambda claim: Refusal(claim.key, THEM, **more)


def placed(recheck: float, ahead: int = 0, **more: Any) -> Callable[[Any], Place]:
    from leasehold._runtimes.threads import ThreadRuntime

    signal = ThreadRuntime().signal()
    return lambda subject: Place(getattr(subject, "claim", subject), signal, recheck, ahead, THEM, **more)


# Asking again, where the store has no queue


@pytest.mark.parametrize(
    ("retry_after", "pauses"),
    [
        (None, [0.01, 0.05, 0.2, 0.5, 0.5]),
        (9.0, [0.01, 0.05, 0.2, 0.5, 0.5]),
        (0.03, [0.01, 0.03, 0.03, 0.03, 0.03]),
        (0.0, [0.001] * 5),
        (-5.0, [0.001] * 5),
    ],
)
def test_without_a_queue_a_call_asks_again_after_growing_pauses_or_when_the_holder_ends(
    polling: Steps, retry_after: float | None, pauses: list[float]
) -> None:
    polling.answers("try_acquire", *[refused(retry_after=retry_after)] * 5, granted())
    polling.client.lock("x", slow_wait=None).acquire(None).release()
    assert polling.waits == pauses
    assert len({claim.owner for claim in polling.claims}) == 6, "an attempt has an owner value of its own"


def test_a_backoff_of_the_users_is_kept_whatever_the_store_says(steps: Steps) -> None:
    steps.answers("try_acquire", *[refused(retry_after=0.001)] * 3, granted())
    lock = steps.client.lock("x", slow_wait=None)
    lock.acquire(None, backoff=Backoff((0.3, 0.4), longest=0.4, jitter="none")).release()
    assert steps.waits == [0.3, 0.4, 0.4]


def test_the_last_pause_between_two_questions_ends_at_the_deadline(polling: Steps) -> None:
    polling.answers("try_acquire", refused())
    with pytest.raises(AcquireTimeout) as late:
        polling.client.lock("x", slow_wait=None).acquire(0.1)
    assert polling.waits == [0.01, 0.05, 0.04]
    assert len(polling.calls) == 4, "it asks once more at the deadline: else the last pause would be for nothing"
    assert late.value.waited == pytest.approx(0.1)
    assert {verb for verb, _ in polling.calls} == {"try_acquire"}
    assert polling.withdrawn == [], "a store that refused keeps nothing"


@pytest.mark.parametrize(("timeout", "asked"), [(0, 1), (0.05, 2), (0.3, 2), (0.31, 3), (0.75, 4)])
def test_a_call_with_a_backoff_says_how_often_it_asked(steps: Steps, timeout: float, asked: int) -> None:
    steps.answers("try_acquire", refused())
    with pytest.raises(AcquireTimeout) as late:
        steps.client.lock("x", slow_wait=None).acquire(timeout, backoff=Backoff((0.3, 0.4), longest=0.4, jitter="none"))
    assert len(steps.calls) == asked
    assert str(late.value).count(f" and {asked} tries") == (timeout > 0), "a call that cannot wait speaks of no tries"


def test_a_lock_that_is_freed_during_the_last_pause_is_got_at_the_deadline(polling: Steps) -> None:
    polling.answers("try_acquire", *[refused()] * 3, granted())
    polling.client.lock("x", slow_wait=None).acquire(0.1).release()
    assert polling.waits == [0.01, 0.05, 0.04]


@pytest.mark.parametrize("tries", [1, 2, 3])
def test_a_backoff_with_so_many_tries_asks_so_many_times(steps: Steps, tries: int) -> None:
    steps.answers("try_acquire", refused(retry_after=5.0))
    with pytest.raises(AcquireTimeout) as late:
        steps.client.lock("x").acquire(None, backoff=Backoff((0.1,), longest=0.1, jitter="none", tries=tries))
    assert len(steps.calls) == tries
    assert len(steps.waits) == tries - 1
    assert f"{tries} tries" in str(late.value)
    assert (late.value.retry_after, late.value.holder) == (5.0, THEM)


@pytest.mark.parametrize(("slow_wait", "waited"), [(0.3, 0.76), (1.0, 1.26), (5.0, None)])
def test_without_a_queue_a_slow_wait_is_told_of_once_as_well(
    polling: Steps, slow_wait: float, waited: float | None
) -> None:
    polling.answers("try_acquire", *[refused()] * 7, granted())
    polling.client.lock("x", slow_wait=slow_wait).acquire(None).release()
    warnings = [event for event in polling.seen if isinstance(event, events.Waiting)]
    assert [(event.holder, event.ahead) for event in warnings] == ([] if waited is None else [(THEM, None)])
    assert [event.waited for event in warnings] == ([] if waited is None else [pytest.approx(waited)])


@pytest.mark.parametrize(("answer", "told"), [("granted", events.Acquired), ("refused", events.Refused)])
def test_a_call_that_does_not_wait_is_told_of_by_one_event(steps: Steps, answer: str, told: type[events.Event]) -> None:
    steps.answers("try_acquire", granted() if answer == "granted" else refused())
    lease = steps.client.lock("x", group="g").try_acquire()
    assert [(type(event), event.name) for event in steps.seen] == [(told, "x")]
    assert (lease is not None) == (answer == "granted")


# Waiting for a turn


def test_a_waiter_asks_when_its_place_has_to_be_kept_alive_and_not_after_its_deadline(steps: Steps) -> None:
    steps.answers("join", placed(0.4))
    steps.answers("turn", placed(0.3), placed(0.5))
    with pytest.raises(AcquireTimeout):
        steps.client.lock("x", slow_wait=None).acquire(1.0)
    assert steps.waits == [0.4, 0.3, 0.3]
    assert steps.withdrawn == [False]
    assert steps.calls[-1] == ("withdraw", NOW + 1.0 + GRACE)


@pytest.mark.parametrize("after", [None, 0.1])
def test_a_waiter_that_gives_up_is_told_when_to_ask_again_and_waits_no_other_way(
    steps: Steps, after: float | None
) -> None:
    steps.answers("join", placed(0.4, retry_after=7.0))
    steps.answers("turn", placed(0.4, retry_after=after))
    with pytest.raises(AcquireTimeout) as late:
        steps.client.lock("x", slow_wait=None).acquire(1.0)
    assert late.value.retry_after == after, "as the last answer has it"
    assert steps.waits == pytest.approx([0.4, 0.4, 0.2])


def test_a_waiter_looks_up_when_its_wait_becomes_slow_and_is_told_of_once(steps: Steps) -> None:
    steps.answers("join", placed(5.0, ahead=2))
    steps.answers("turn", placed(5.0, ahead=1), placed(5.0), placed(5.0), granted())
    steps.client.lock("x", slow_wait=1.5).acquire(None).release()
    assert steps.waits == [1.5, 5.0, 5.0, 5.0]
    (warning,) = [event for event in steps.seen if isinstance(event, events.Waiting)]
    assert (warning.waited, warning.ahead, warning.holder) == (1.5, 1, THEM)


def test_whoever_waits_is_told_of_at_once_and_every_second_with_its_place(steps: Steps) -> None:
    told: list[tuple[int | None, Holder | None, float]] = []
    steps.answers("join", placed(2.5, ahead=1))
    steps.answers("turn", placed(0.5, ahead=0), granted())
    steps.client.lock("x", slow_wait=None).acquire(None, on_wait=lambda *facts: told.append(facts)).release()
    assert told == [(2, THEM, 0.0), (2, THEM, 1.0), (2, THEM, 2.0), (1, THEM, 2.5)]
    assert steps.waits == [1.0, 1.0, 0.5, 0.5]


def test_without_a_queue_whoever_waits_has_no_place(polling: Steps) -> None:
    told: list[tuple[int | None, Holder | None, float]] = []
    polling.answers("try_acquire", refused(), granted())
    polling.client.lock("x").acquire(None, on_wait=lambda *facts: told.append(facts)).release()
    assert told == [(None, THEM, 0.0)]


def test_a_place_that_is_gone_is_taken_again_under_a_new_claim(steps: Steps) -> None:
    steps.answers("join", placed(1.0), granted())
    steps.answers("turn", lambda place: Refusal(place.claim.key))
    steps.client.lock("x", slow_wait=None).acquire(None).release()
    assert [verb for verb, _ in steps.calls] == ["join", "turn", "join"]
    assert steps.claims[0].owner == steps.claims[1].owner != steps.claims[2].owner


def test_what_keeps_a_waiter_is_in_its_timeout(steps: Steps) -> None:
    for verb in ("join", "turn"):
        steps.answers(verb, placed(9.0, retry_after=4.0, why="the node sits out"))
    with pytest.raises(AcquireTimeout, match="the node sits out") as late:
        steps.client.lock("x", slow_wait=None).acquire(0.5)
    assert (late.value.retry_after, late.value.holder, late.value.name) == (4.0, THEM, "x")
    assert not isinstance(late.value, Paused)


def test_a_name_that_is_paused_is_another_error(steps: Steps) -> None:
    pause = Pause("moving", "ana", 60.0)
    for verb in ("join", "turn"):
        steps.answers(verb, placed(9.0, retry_after=60.0, paused=pause))
    with pytest.raises(Paused) as late:
        steps.client.lock("x", slow_wait=None).acquire(0.5)
    assert (late.value.pause, late.value.retry_after, late.value.name) == (pause, 60.0, "x")


@pytest.mark.parametrize("queue", [True, False], ids=["queue", "polling"])
def test_a_pause_that_is_over_is_not_what_a_call_has_waited_for(steps: Steps, queue: bool) -> None:
    steps.opened.has_queue = queue
    paused = Pause("moving", "ana")
    steps.answers("join", placed(0.4, ahead=3, paused=paused, retry_after=60.0))
    steps.answers("turn", placed(0.4, ahead=3))
    steps.answers("try_acquire", refused(paused=paused, retry_after=60.0), refused())
    with pytest.raises(AcquireTimeout, match="it is held by them on elsewhere") as late:
        steps.client.lock("x", slow_wait=None).acquire(1.0)
    assert not isinstance(late.value, Paused)
    assert late.value.retry_after is None


def test_a_slow_wait_for_a_name_that_is_paused_says_so(steps: Steps) -> None:
    pause = Pause("moving", "ana", 60.0)
    steps.answers("join", placed(5.0, ahead=2, paused=pause))
    steps.answers("turn", placed(5.0, ahead=1, paused=pause), granted())
    steps.client.lock("x", slow_wait=1.5).acquire(None).release()
    assert [event for event in steps.seen if isinstance(event, events.Waiting)] == [
        events.Waiting("x", 1.5, THEM, 1, None, pause)
    ]


def test_the_timeout_of_a_paused_name_has_who_holds_it_and_how_long_it_was_waited_for(steps: Steps) -> None:
    for verb in ("join", "turn"):
        steps.answers(verb, placed(9.0, paused=Pause("moving", "ana", 60.0)))
    with pytest.raises(Paused, match=r"within 0\.500 s; it is paused by ana for another 60 s: moving") as late:
        steps.client.lock("x", slow_wait=None).acquire(0.5)
    assert (late.value.holder, late.value.waited, late.value.backend) == (THEM, 0.5, steps.client.store)


def test_a_call_is_known_to_wait_before_whoever_waits_is_told(steps: Steps) -> None:
    """What is told may take its time, and the client be closed meanwhile: closing waits for this call too."""
    known: list[int] = []
    steps.answers("join", placed(0.5))
    steps.answers("turn", granted())
    steps.client.lock("x").acquire(9, on_wait=lambda *_: known.append(steps.opened.waiting_calls.number)).release()
    assert known == [1]
    assert steps.opened.waiting_calls.number == 0


def test_a_call_that_ends_long_after_its_deadline_takes_no_further_grace_to_withdraw(steps: Steps) -> None:
    def takes_long(*_: object) -> None:
        steps.store.clock.advance(20)
        raise LookupError

    steps.answers("join", placed(0.5))
    with pytest.raises(LookupError):
        steps.client.lock("x").acquire(3, on_wait=takes_long)
    assert steps.calls[-1] == ("withdraw", NOW + 3 + GRACE)


@pytest.mark.parametrize(
    ("error", "chores"),
    [
        (ClientClosed(), 0),
        (BackendRejected("no rights"), 0),
        (BackendUnavailable("away"), 1),
        (OutcomeUnknown("no answer"), 1),
    ],
    ids=["closed", "rejected", "away", "silent"],
)
def test_a_withdrawal_that_fails_does_not_cover_why_the_call_ended(steps: Steps, error: Exception, chores: int) -> None:
    async def withdraw(*_: object, **__: object) -> None:
        raise error

    backend: Any = steps.opened.backend
    backend.withdraw = withdraw
    for verb in ("join", "turn"):
        steps.answers(verb, placed(0.5))
    with pytest.raises(AcquireTimeout):
        steps.client.lock("x", ttl=20, slow_wait=None).acquire(0.5)
    assert steps.chores == [("x", NOW + 0.5 + 20)] * chores


# What a request may take


@pytest.mark.parametrize(
    ("timeout", "limit"),
    [(0, NOW + GRACE), (0.4, NOW + GRACE), (GRACE, NOW + GRACE), (7.0, NOW + 7.0), (None, NOW + 10.0)],
)
def test_a_request_may_take_the_time_of_its_call_and_at_least_the_grace(
    steps: Steps, timeout: float | None, limit: float
) -> None:
    for verb in ("join", "try_acquire"):
        steps.answers(verb, granted())
    steps.client.lock("x").acquire(timeout).release()
    assert [until for _, until in steps.calls] == [pytest.approx(limit)]


def test_once_the_store_has_answered_a_call_without_end_has_no_limit_any_more(steps: Steps) -> None:
    steps.answers("join", placed(1.0))
    steps.answers("turn", granted())
    steps.client.lock("x", slow_wait=None).acquire(None).release()
    assert steps.calls == [("join", NOW + 10.0), ("turn", math.inf)]


# A store that does not answer


@pytest.mark.parametrize("error", [BackendUnavailable("away"), OutcomeUnknown("no answer")], ids=["away", "silent"])
@pytest.mark.parametrize("timeout", [2.0, None])
def test_a_store_that_is_away_is_tried_with_growing_pauses_until_the_end(
    steps: Steps, error: BackendUnavailable | OutcomeUnknown, timeout: float | None
) -> None:
    steps.answers("join", error)
    with pytest.raises(type(error)) as raised:
        steps.client.lock("x").acquire(timeout)
    ends = 2.0 if timeout else 10.0
    assert steps.waits[:4] == [0.02, 0.1, 0.5, 1.0]
    assert max(steps.waits) <= 1.0
    within = steps.now - NOW
    assert ends <= within < ends + GRACE
    (outage,) = [event for event in steps.seen if isinstance(event, events.StoreUnreachable)]
    assert (outage.remaining, outage.back_in) == (ends, None)
    assert raised.value.name == "x"


@pytest.mark.parametrize(
    ("timeout", "back_in", "ends"),
    [(None, 30.0, 40.0), (None, 4.0, 14.0), (None, None, 10.0), (12.0, 30.0, 12.0), (60.0, 4.0, 60.0)],
)
def test_a_store_that_says_when_it_is_back_is_tried_for_that_long_and_the_usual_time_but_not_beyond_the_timeout(
    steps: Steps, timeout: float | None, back_in: float | None, ends: float
) -> None:
    sits_out = BackendUnavailable("it sits out")
    sits_out.back_in = back_in
    steps.answers("join", sits_out, BackendUnavailable("away"))
    with pytest.raises(BackendUnavailable, match="away"):
        steps.client.lock("x").acquire(timeout)
    assert ends <= steps.now - NOW < ends + GRACE
    assert [event for event in steps.seen if isinstance(event, events.StoreUnreachable)] == [
        events.StoreUnreachable("x", ends, "it sits out", back_in)
    ]


def test_a_store_that_says_late_that_it_is_back_at_once_gets_the_usual_time_from_then(steps: Steps) -> None:
    back = BackendUnavailable("it is back")
    back.back_in = 0.0

    def slow(_: Any) -> Any:
        steps.store.clock.advance(6.0)
        raise back

    steps.answers("join", slow, BackendUnavailable("away"))
    with pytest.raises(BackendUnavailable, match="away"):
        steps.client.lock("x").acquire()
    assert 16.0 <= steps.now - NOW < 16.0 + GRACE


def test_what_is_in_doubt_is_left_to_the_cleanup_for_a_ttl_and_what_is_not_is_left_alone(steps: Steps) -> None:
    steps.answers("try_acquire", BackendUnavailable("away"))
    with pytest.raises(BackendUnavailable):
        steps.client.lock("x", ttl=30).try_acquire()
    assert (steps.chores, steps.withdrawn) == ([], [])
    steps.answers("try_acquire", OutcomeUnknown("no answer"))
    with pytest.raises(OutcomeUnknown):
        steps.client.lock("x", ttl=30).try_acquire()
    ((name, ends),) = steps.chores
    assert name == "x"
    assert ends == pytest.approx(steps.now + 30)
    assert steps.withdrawn == [], "the store is silent: nobody waits for another answer"


def test_a_rejected_request_is_withdrawn_only_if_an_earlier_one_may_have_arrived(steps: Steps) -> None:
    steps.answers("join", BackendRejected("no rights"))
    with pytest.raises(BackendRejected):
        steps.client.lock("x").acquire(5)
    assert (steps.withdrawn, steps.chores) == ([], [])
    steps.answers("join", OutcomeUnknown("no answer"), BackendRejected("no rights"))
    with pytest.raises(BackendRejected):
        steps.client.lock("x").acquire(5)
    assert len(steps.withdrawn) + len(steps.chores) == 1


def test_a_refusal_after_doubt_is_followed_by_a_withdrawal(polling: Steps) -> None:
    polling.answers("try_acquire", OutcomeUnknown("no answer"), refused())
    assert polling.client.lock("x").try_acquire() is None
    assert polling.withdrawn == [True]


def test_a_store_that_is_back_is_announced_with_the_number_of_failures(steps: Steps) -> None:
    steps.answers("join", BackendUnavailable("away"), OutcomeUnknown("no answer"), granted())
    lease = steps.client.lock("x").acquire(5)
    assert [event for event in steps.seen if isinstance(event, events.StoreReached)] == [events.StoreReached("x", 2)]
    assert lease._twin._tenure.doubtful
    lease.release()
    assert steps.withdrawn == [True]


def test_a_grant_without_doubt_is_not_withdrawn_when_it_is_released(steps: Steps) -> None:
    steps.answers("join", BackendUnavailable("away"), granted())
    lease = steps.client.lock("x").acquire(5)
    assert not lease._twin._tenure.doubtful
    lease.release()
    assert steps.withdrawn == []


# What a grant is worth


def test_a_grant_counts_from_before_its_last_request_or_from_when_the_store_says(steps: Steps) -> None:
    steps.answers("join", placed(2.0))
    steps.answers("turn", granted())
    lock = steps.client.lock("x", slow_wait=None)
    lease = lock.acquire(None)
    assert lease._twin._tenure.deadline == believed_until(NOW + 2.0, 30.0)
    lease.release()
    steps.answers("turn", granted(since=NOW + 3.0))
    lease = lock.acquire(None)
    assert lease._twin._tenure.deadline == believed_until(NOW + 3.0, 30.0)
    lease.release()


@pytest.mark.parametrize("late", [0.0, 0.5])
def test_a_grant_that_arrives_at_its_deadline_or_later_is_withdrawn_and_asked_for_again(
    steps: Steps, late: float
) -> None:
    def slow(claim: Any) -> Grant:
        steps.store.clock.advance(believed_until(0.0, 30.0) + late)
        return Grant(claim, 7, 30.0)

    steps.answers("join", slow, granted())
    lease = steps.client.lock("x").acquire(None)
    assert steps.withdrawn == [False]
    assert len({claim.owner for claim in steps.claims}) == 2
    lease.check()
    lease.release()


def test_a_grant_that_ran_out_on_the_way_ends_a_call_that_has_no_time_left(steps: Steps) -> None:
    def slow(claim: Any) -> Grant:
        steps.store.clock.advance(40.0)
        return Grant(claim, 7, 30.0)

    steps.answers("join", slow)
    with pytest.raises(AcquireTimeout) as late:
        steps.client.lock("x").acquire(20)
    assert late.value.waited == pytest.approx(40.0)
    assert late.value.holder is None
    assert steps.withdrawn == [False]


@pytest.mark.parametrize("renew", [True, False])
def test_a_short_first_ttl_is_confirmed_at_once_where_no_renewal_would_follow(steps: Steps, renew: bool) -> None:
    steps.answers("join", granted(2.0))
    steps.answers("renew", lambda grants: [Grant(grants[0].claim, 7, 30.0)])
    lease = steps.client.lock("x", renew=renew).acquire(5)
    verbs = [verb for verb, _ in steps.calls]
    if renew:
        assert lease._twin._tenure.deadline <= believed_until(NOW, 30.0)
    else:
        assert verbs == ["join", "renew"]
        assert lease.ttl == 30.0
    lease.release()


@pytest.mark.parametrize("granted_ttl", [30.0, 31.0])
def test_a_whole_ttl_is_not_confirmed_again(steps: Steps, granted_ttl: float) -> None:
    steps.answers("join", granted(granted_ttl))
    steps.client.lock("x", renew=False).acquire(5).release()
    assert [verb for verb, _ in steps.calls] == ["join"]


def test_a_short_first_ttl_that_is_not_confirmed_is_withdrawn_and_asked_for_again(steps: Steps) -> None:
    steps.answers("join", granted(2.0), granted())
    steps.answers("renew", lambda _: [Loss(LossReason.TAKEN)])
    steps.client.lock("x", renew=False).acquire(5).release()
    assert [verb for verb, _ in steps.calls] == ["join", "renew", "withdraw", "join"]


def test_a_confirmation_that_the_store_rejects_is_an_error_and_leaves_nothing(steps: Steps) -> None:
    steps.answers("join", granted(2.0))
    steps.answers("renew", lambda _: [BackendRejected("no rights")])
    with pytest.raises(BackendRejected):
        steps.client.lock("x", renew=False).acquire(5)
    assert steps.withdrawn == [False]
