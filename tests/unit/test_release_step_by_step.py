"""A release, step by step, in one thread: how often it is sent, what it answers, what it leaves to the background."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown, events
from leasehold._core.backoff import GRACE
from leasehold._core.release import give_back
from leasehold._core.states import State
from leasehold._runtimes.threads import run
from leasehold.testing import ManualStore
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

NOW = 1_000.0
AWAY, SILENT = BackendUnavailable("away", backend="the store"), OutcomeUnknown("no answer")


class Interrupted(BaseException):
    """What a signal handler raises."""


class Steps:
    """A client whose store answers releases by a script, and whose pauses turn the clock."""

    def __init__(self) -> None:
        self.store = ManualStore(autojump=None)
        self.client = self.store.connect()
        self.opened = self.client._twin._open()
        self.untils: list[float] = []
        self.pauses: list[float] = []
        self.withdrawn: list[float] = []
        self.background: list[tuple[str, Callable[[float], Coroutine[Any, Any, None]], float]] = []
        self.seen: list[events.Event] = []
        self.script: list[Any] = []
        self.client.on_event(self.seen.append)
        self.opened.cleanup.add = lambda *chore: self.background.append(chore)  # type: ignore[method-assign]
        runtime: Any = self.opened.runtime
        runtime.sleep = self._sleep
        backend: Any = self.opened.backend
        backend.release, backend.withdraw = self._release, self._withdraw

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 6))
        self.store.clock.advance(seconds)

    async def _release(self, grant: object, until: float = math.inf, /) -> Any:
        self.untils.append(until)
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _withdraw(self, claim: object, until: float = math.inf, /, **_: object) -> None:
        self.withdrawn.append(until)

    def release(self, *answers: Any, **options: Any) -> Any:
        """Acquire, and release with these answers; the last one is given again and again."""
        lease = self.client.lock("x", **options).acquire()
        self.lease, self.fence, self.tenure = lease, lease.fence, lease._twin._tenure
        del self.seen[:]
        self.script = list(answers)
        try:
            return lease.release()
        except (Exception, Interrupted) as error:
            return error


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    monkeypatch.setattr("leasehold._runtimes.threads.ThreadRuntime.random", lambda _: 1.0)  # pauses of full length
    made = Steps()
    yield made
    made.store.close()


@pytest.mark.parametrize(
    ("answers", "freed"),
    [
        ([True], True),
        ([False], False),
        ([AWAY, True], True),
        ([AWAY, False], False),
        ([SILENT, True], True),
        ([SILENT, False], True),  # "gone" after doubt: the first request has freed it
        ([SILENT, AWAY, False], True),
    ],
)
def test_what_a_release_answers_by_what_the_store_says(steps: Steps, answers: list[Any], freed: bool) -> None:
    assert steps.release(*answers) is freed
    assert steps.seen == [events.Released("x", steps.fence, freed)]
    assert steps.tenure.state is State.RELEASED
    assert steps.background == []
    assert steps.lease.release() is False, "a second call has nothing to do"
    assert len(steps.untils) == len(answers)


def test_every_try_has_the_same_end_and_the_last_one_leaves_time_for_its_pause(steps: Steps) -> None:
    assert steps.release(AWAY) is AWAY
    assert steps.untils == [NOW + GRACE] * 4
    assert steps.pauses == [0.02, 0.1, 0.5]
    assert steps.seen == [events.ReleaseFailed("x", str(AWAY), fence=steps.fence)]


def test_a_release_is_not_tried_beyond_the_end_of_its_lease(steps: Steps) -> None:
    assert steps.release(AWAY, ttl=0.4) is AWAY
    assert steps.pauses == [0.02, 0.1]


def test_a_release_that_failed_goes_on_in_the_background_until_the_lease_ends(steps: Steps) -> None:
    assert steps.release(AWAY, ttl=60) is AWAY
    ((name, perform, ends),) = steps.background
    assert (name, ends) == ("x", steps.tenure.kept_until)
    assert ends == steps.tenure.deadline
    del steps.seen[:]
    steps.script = [True]
    run(perform(NOW + 7))
    assert steps.untils[-1] == NOW + 7
    assert steps.seen == [events.Released("x", steps.fence, True)]
    assert steps.lease.release() is True, "the call that asks afterwards hears of it"
    assert steps.lease.release() is False
    run(perform(NOW + 8))
    assert len(steps.untils) == 5, "it is done"


def test_a_release_in_the_background_that_found_nothing_says_so(steps: Steps) -> None:
    steps.release(AWAY, ttl=60)
    del steps.seen[:]
    steps.script = [False]
    run(steps.background[0][1](NOW + 7))
    assert steps.seen == [events.Released("x", steps.fence, False)]
    assert steps.lease.release() is False


def test_doubt_outlives_a_later_failure_that_was_surely_not_applied(steps: Steps) -> None:
    error = steps.release(SILENT, AWAY)
    assert type(error) is OutcomeUnknown
    assert error.__cause__ is AWAY
    assert (error.name, error.backend) == ("x", "the store")


def test_gone_after_doubt_means_nothing_once_the_lease_is_over(steps: Steps) -> None:
    assert steps.release(SILENT, ttl=0.4) is SILENT
    steps.store.clock.advance(1)
    steps.script = [False]
    assert steps.lease.release() is False


def test_a_break_that_the_release_finds_is_a_loss_and_frees_nothing(steps: Steps) -> None:
    broken = Loss(LossReason.BROKEN, "stuck")
    assert steps.release(broken) is False
    assert steps.seen == [events.Lost("x", steps.fence, broken), events.Released("x", steps.fence, False)]
    assert steps.lease.loss is broken


def test_a_break_after_doubt_was_not_freed_by_the_first_request(steps: Steps) -> None:
    assert steps.release(SILENT, Loss(LossReason.BROKEN)) is False


@pytest.mark.parametrize("error", [BackendRejected("no rights"), ClientClosed()], ids=["rejected", "closed"])
def test_what_fails_for_good_is_raised_at_once_and_announced(steps: Steps, error: Exception) -> None:
    assert steps.release(error) is error
    assert (len(steps.untils), steps.pauses, steps.background) == (1, [], [])
    (failed,) = steps.seen
    assert isinstance(failed, events.ReleaseFailed)
    assert (failed.fence, failed.is_final) == (steps.fence, False)
    assert failed.error


def test_an_interrupted_release_is_announced_as_long_as_it_is_not_done(steps: Steps) -> None:
    assert isinstance(steps.release(Interrupted()), Interrupted)
    assert steps.seen == [events.ReleaseFailed("x", "Interrupted", fence=steps.fence)]
    assert steps.tenure.state is State.RELEASING
    steps.script = [True]
    assert steps.lease.release() is True


def test_an_interrupted_release_of_a_lease_that_is_over_is_not_announced(steps: Steps) -> None:
    lease = steps.client.lock("x", ttl=2, renew=False).acquire()
    steps.store.clock.advance(5)
    assert lease.loss is not None
    steps.script = [Interrupted()]
    with pytest.raises(Interrupted):
        lease.release()
    assert [event for event in steps.seen if isinstance(event, events.ReleaseFailed)] == []


@pytest.mark.parametrize("doubtful", [True, False])
def test_a_claim_in_doubt_is_withdrawn_with_its_release(steps: Steps, doubtful: bool) -> None:
    """A copy of its request may still be under way, and would take the lock without a holder."""
    lease = steps.client.lock("x").acquire()
    lease._twin._tenure.doubtful = doubtful
    steps.script = [True]
    assert lease.release() is True
    assert steps.withdrawn == ([NOW + GRACE] if doubtful else [])


def test_a_withdrawal_that_fails_does_not_undo_what_the_release_has_freed(steps: Steps) -> None:
    lease = steps.client.lock("x").acquire()
    lease._twin._tenure.doubtful = True
    failures = [SILENT]

    async def withdraw(claim: object, until: float = math.inf, /, **_: object) -> None:
        if failures:
            raise failures.pop()

    backend: Any = steps.opened.backend
    backend.withdraw = withdraw
    steps.script = [True, False]
    assert lease.release() is True


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        (True, False),
        (False, False),
        (AWAY, True),
        (SILENT, True),  # the request may be lost: nobody holds the lock, and it would stay taken for its ttl
        (BackendRejected("no right"), False),
        (ClientClosed(backend="x"), False),
    ],
)
def test_what_no_caller_got_is_given_back_once_and_goes_on_in_the_background_where_that_helps(
    steps: Steps, answer: Any, goes_on: bool
) -> None:
    lease = steps.client.lock("x", ttl=60).acquire()
    del steps.seen[:]
    steps.script = [answer]
    run(give_back(steps.opened, lease._twin._tenure))
    assert len(steps.untils) == 1
    assert len(steps.background) == goes_on
    assert steps.seen == [], "nobody has got it, so nobody has lost it"


@pytest.mark.parametrize("late", [-0.001, 0.0, 0.001])
def test_a_release_that_comes_after_the_end_of_the_lease_says_that_it_was_lost(steps: Steps, late: float) -> None:
    lease = steps.client.lock("x", ttl=10, renew=False).acquire()
    steps.script = [True]  # the store keeps it for a little longer than its holder may believe in it
    steps.store.clock.advance(lease._twin._tenure.deadline - steps.store.clock.now() + late)
    assert lease.release()
    assert (lease.loss and lease.loss.reason) == (LossReason.EXPIRED if late >= 0 else None)


@pytest.mark.parametrize("answer", [False, True, Loss(LossReason.BROKEN, "by hand")], ids=["gone", "freed", "broken"])
def test_a_release_that_the_background_overtakes_says_that_it_was_freed_and_says_so_once(
    steps: Steps, answer: bool | Loss
) -> None:
    assert isinstance(steps.release(AWAY), BackendUnavailable)
    del steps.seen[:]

    async def overtaken(*_: object) -> bool | Loss:
        steps.tenure.freed = True  # by the background, while this request was under way
        return answer

    backend: Any = steps.opened.backend
    backend.release = overtaken
    assert steps.lease.release() is True
    assert steps.seen[-1] == events.Released("x", steps.fence, True)
    assert steps.tenure.freed is (answer is True), "it is reported by one call"


@pytest.mark.parametrize("is_parked", [True, False])
def test_what_goes_back_in_the_background_is_announced_unless_the_program_had_released_it_before(
    steps: Steps, is_parked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps.release(AWAY)
    del steps.seen[:]
    monkeypatch.setattr("leasehold._core.tenure.Tenure.is_parked", is_parked)
    ((name, perform, _),) = steps.background
    steps.script = [True]
    run(perform(NOW + 3))
    assert name == "x"
    assert steps.seen == [events.Released("x", steps.fence, True)] * (not is_parked)
    assert steps.untils[-1] == NOW + 3
