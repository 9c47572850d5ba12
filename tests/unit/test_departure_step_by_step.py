"""Leaving in order, step by step, in one thread: who is told, what is given back, until when, and what is reported."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown, events
from leasehold._core.states import State
from leasehold._face.departure import AT_ONCE, depart
from leasehold._runtimes.threads import run
from leasehold.testing import ManualStore
from leasehold.values import LossReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold import Lease, Loss

NOW = 1_000.0
AWAY, SILENT = BackendUnavailable("away"), OutcomeUnknown("no answer")


class Watcher:
    """A block that hears of its loss."""

    def __init__(self) -> None:
        self.heard: list[Loss | None] = []

    def on_end(self, loss: Loss | None) -> None:
        self.heard.append(loss)

    def loss_is_raised(self) -> None:
        """Nothing to remember."""


class Steps:
    """A client with leases, whose store answers releases by a script; tasks run where they are started."""

    def __init__(self) -> None:
        self.store = ManualStore(autojump=None)
        self.client = self.store.connect()
        self.opened = self.client._twin._open()
        self.released: list[tuple[str, float]] = []
        self.withdrawn: list[float] = []
        self.pauses: list[float] = []
        self.spawned: list[str] = []
        self.joined: list[float | None] = []
        self.script: list[Any] = [True]
        self.seen: list[events.Event] = []
        self.ends_tasks = True
        self.leases: list[Lease] = []
        backend: Any = self.opened.backend
        backend.release, backend.withdraw = self._release, self._withdraw

    def hold(self, *names: str, **options: Any) -> list[Any]:
        """Leases of these names; their tenures."""
        self.leases += [self.client.lock(name, **options).acquire() for name in names]
        return [lease._twin._tenure for lease in self.leases]

    def leave(self, after: float, **options: Any) -> None:
        """Leave within so many seconds."""
        runtime: Any = self.opened.runtime
        runtime.sleep, runtime.spawn = self._sleep, self._spawn
        self.client.on_event(self.seen.append)
        run(depart(self.opened, NOW + after, **options))
        del runtime.sleep, runtime.spawn

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 6))
        self.store.clock.advance(seconds)

    def _spawn(self, work: Any, name: str) -> Any:
        self.spawned.append(name)
        if self.ends_tasks:
            run(work)
        else:
            work.close()
        return self

    async def join(self, deadline: float | None = None) -> bool:
        self.joined.append(deadline)
        return True

    async def _release(self, grant: Any, until: float = math.inf, /) -> Any:
        self.released.append((grant.claim.key.partition(":")[2], until))
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _withdraw(self, claim: object, until: float = math.inf, /, **_: object) -> None:
        self.withdrawn.append(until)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    monkeypatch.setattr("leasehold._runtimes.threads.ThreadRuntime.random", lambda _: 1.0)  # pauses of full length
    made = Steps()
    yield made
    made.store.close()


def test_leases_are_over_for_their_holders_and_then_given_back(steps: Steps) -> None:
    (tenure,) = steps.hold("a")
    steps.leave(5)
    assert tenure.state is State.LOST
    assert tenure.loss.reason is LossReason.GIVEN_BACK
    assert steps.released == [("a", NOW + 5)]
    assert steps.seen == [events.Released("a", tenure.grant.fence, True)]
    with pytest.raises(ClientClosed):
        steps.client.lock("b").acquire(0)


@pytest.mark.parametrize(
    ("answers", "freed"),
    [([True], True), ([False], False), ([SILENT, False], True), ([AWAY, False], False), ([SILENT, True], True)],
)
def test_what_was_freed_is_said_as_in_every_release(steps: Steps, answers: list[Any], freed: bool) -> None:
    (tenure,) = steps.hold("a")
    steps.script = answers
    steps.leave(5)
    assert steps.seen == [events.Released("a", tenure.grant.fence, freed)]


def test_a_store_that_does_not_answer_is_tried_until_the_deadline(steps: Steps) -> None:
    (tenure,) = steps.hold("a")
    steps.script = [AWAY]
    steps.leave(2)
    assert steps.pauses == [0.02, 0.1, 0.5, 1.0, 0.38]
    assert steps.seen == [events.ReleaseFailed("a", str(AWAY), is_final=True, fence=tenure.grant.fence)]


def test_a_store_that_does_not_answer_is_not_tried_beyond_the_end_of_the_lease(steps: Steps) -> None:
    steps.hold("a", ttl=0.4, renew=False)
    steps.script = [AWAY]
    steps.leave(60)
    assert steps.pauses == [0.02, 0.1, pytest.approx(0.271)]


@pytest.mark.parametrize("error", [BackendRejected("no rights"), ClientClosed()], ids=["rejected", "closed"])
def test_what_fails_for_good_is_reported_and_the_others_are_given_back(steps: Steps, error: Exception) -> None:
    first, second = steps.hold("a", "b")
    steps.script = [error, True]
    steps.leave(5)
    failed, released = steps.seen
    assert isinstance(failed, events.ReleaseFailed)
    assert failed == events.ReleaseFailed("a", str(error), is_final=True, fence=first.grant.fence)
    assert released == events.Released("b", second.grant.fence, True)
    assert steps.pauses == []


def test_what_there_is_no_time_for_is_reported(steps: Steps) -> None:
    steps.hold("a")
    steps.leave(0)
    assert steps.released == []
    (failed,) = steps.seen
    assert isinstance(failed, events.ReleaseFailed)
    assert (failed.is_final, failed.error) == (True, "there was no time left for it")


def test_holders_are_told_before_their_locks_are_given_back(steps: Steps) -> None:
    (tenure,) = steps.hold("a")
    watcher = Watcher()
    steps.leases[0]._twin._watch(watcher)
    heard_first: list[bool] = []
    steps.script = [True]
    plain = steps._release

    async def release(grant: Any, until: float = math.inf, /) -> Any:
        heard_first.append(bool(watcher.heard))
        return await plain(grant, until)

    backend: Any = steps.opened.backend
    backend.release = release
    steps.leave(5)
    assert heard_first == [True]
    assert watcher.heard == [tenure.loss]
    assert steps.joined[0] == NOW + 2.5, "half of the time is for those that are told"


def test_a_lock_whose_holder_could_not_be_told_is_not_given_back(steps: Steps) -> None:
    """Its holder may still be at work."""
    told, untold = steps.hold("told", "untold")
    watcher = Watcher()
    steps.leases[1]._twin._watch(watcher)
    steps.ends_tasks = False  # its on_lost hangs
    steps.leave(5)
    assert [name for name, _ in steps.released] == ["told"]
    failed, released = steps.seen
    assert isinstance(failed, events.ReleaseFailed)
    assert (failed.name, failed.fence, failed.is_final) == ("untold", untold.grant.fence, True)
    assert released == events.Released("told", told.grant.fence, True)


@pytest.mark.parametrize(("leases", "helpers"), [(1, 0), (2, 1), (AT_ONCE, AT_ONCE - 1), (9, AT_ONCE - 1)])
def test_several_locks_are_given_back_at_a_time_but_not_too_many(steps: Steps, leases: int, helpers: int) -> None:
    steps.hold(*(f"n{number}" for number in range(leases)))
    steps.leave(5)
    assert steps.spawned == ["leasehold leaving"] * helpers
    assert steps.joined == [NOW + 5] * helpers
    assert sorted(name for name, _ in steps.released) == [f"n{number}" for number in range(leases)]


@pytest.mark.parametrize("doubtful", [True, False])
def test_a_claim_in_doubt_is_withdrawn_as_well(steps: Steps, doubtful: bool) -> None:
    (tenure,) = steps.hold("a")
    tenure.doubtful = doubtful
    steps.leave(5)
    assert steps.withdrawn == ([NOW + 5] if doubtful else [])


@pytest.mark.parametrize(("freeze", "within", "until"), [(True, 5, 2.5), (False, 5, 0.7), (False, 1, 0.5)])
def test_calls_that_wait_are_ended_or_leave_their_queues_for_good(
    steps: Steps, freeze: bool, within: float, until: float
) -> None:
    left: list[float] = []
    finished: list[float] = []

    async def leave(deadline: float) -> None:
        left.append(deadline)

    async def finish(deadline: float) -> None:
        finished.append(deadline)

    calls = steps.opened.waiting_calls
    calls.leave, calls.finish = leave, finish  # type: ignore[method-assign]
    steps.opened.close_patience = 0.7
    steps.leave(within, freeze=freeze)
    assert calls.is_frozen is freeze
    assert calls._closed is not freeze
    assert left == ([NOW + until] if freeze else [])
    assert finished == ([] if freeze else [NOW + until])


def test_a_departure_that_is_interrupted_goes_on_where_it_was(steps: Steps) -> None:
    class Interrupted(BaseException):
        pass

    first, second = steps.hold("a", "b")
    watcher = Watcher()
    steps.leases[0]._twin._watch(watcher)
    steps.script = [Interrupted(), True]
    with pytest.raises(Interrupted):
        steps.leave(5)
    assert sorted(name for name, _ in steps.released) == ["a", "b", "b"]
    assert len(watcher.heard) == 1
    assert {event.name for event in steps.seen} == {"a", "b"}
    assert first.state is second.state is State.LOST
