"""The end of a block, the wait for a loss, a set of leases and a mutex, step by step: a lease that follows a script."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import (
    AcquireTimeout,
    BackendRejected,
    BackendUnavailable,
    ClientClosed,
    ConfigurationError,
    LeaseLost,
    Loss,
    LossReason,
    OutcomeUnknown,
)
from leasehold._face.hold import AsyncHold, Block, wait_lost
from leasehold._face.lease import AsyncLeaseSet
from leasehold._face.lock import AsyncMutex
from leasehold._runtimes.threads import run
from leasehold.testing import ManualStore
from tests.unit.planned_waits import PlannedWaits

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_000.0
EXPIRED, MAX_HOLD = Loss(LossReason.EXPIRED, "too late"), Loss(LossReason.MAX_HOLD, "long enough")
BROKEN = Loss(LossReason.BROKEN, "stuck")
AWAY, SILENT, REJECTED = BackendUnavailable("away"), OutcomeUnknown("no answer"), BackendRejected("no rights")


class Interrupted(BaseException):
    """What a signal handler raises."""


class Scope:
    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes
        self.interrupts = False

    def cancel(self) -> None:
        self.notes.append("cancel")

    def loss_is_raised(self) -> None:
        self.notes.append("raised")

    async def leave(self, error: BaseException | None) -> bool:
        self.notes.append(("leave", error))
        return self.interrupts


class Lease:
    """Answers as it is told; `notes` has what was asked of it, in order."""

    def __init__(self, name: str = "x", **facts: Any) -> None:
        self.name = name
        self.notes: list[Any] = facts.pop("notes", [])
        self.runtime = PlannedWaits()
        self.scope = Scope(self.notes)
        runtime: Any = self.runtime
        runtime.scope = lambda: self.scope
        self._opened: Any = SimpleNamespace(
            runtime=runtime, backend=SimpleNamespace(label="store:"), require_home=lambda _: self.notes.append("home")
        )
        self.loss: Loss | None = None
        self.later: Loss | None = None  # what a release finds
        self.kept = True
        self.ends = math.inf
        self.fence = 7
        self.answer: Any = True
        self.watchers: list[object] = []
        for fact, value in facts.items():
            setattr(self, fact, value)

    def remaining(self) -> float:
        return max(0.0, self.ends - self.runtime.now())

    def check(self, need: float = 0) -> None:
        self.notes.append(("check", self.name, need))

    def _is_kept(self) -> bool:
        return self.kept

    def _watch(self, watcher: object) -> None:
        self.watchers.append(watcher)

    def _unwatch(self, watcher: object) -> None:
        self.watchers.remove(watcher)
        self.notes.append("unwatch")

    async def renew(self) -> float:
        self.notes.append(("renew", self.name))
        return self.remaining()

    async def release(self) -> bool:
        self.notes.append(("release", self.name))
        self.loss = self.loss or self.later
        if isinstance(self.answer, BaseException):
            raise self.answer
        return bool(self.answer)


def left(lease: Any, error: BaseException | None, *more: Any) -> BaseException | None:
    """What leaving a block under this lease raises."""
    block = Block(lease)
    try:
        run(block.leave(lease, error, *more))
    except BaseException as raised:
        return raised
    return None


# The end of a block


@pytest.mark.parametrize(
    ("facts", "reason", "released"),
    [
        ({}, None, True),
        ({"answer": False}, LossReason.TAKEN, True),
        ({"answer": False, "ends": NOW}, None, True),  # it ran out meanwhile, and nobody has lost anything
        ({"answer": False, "later": BROKEN}, LossReason.BROKEN, True),
        ({"answer": AWAY}, None, True),
        ({"answer": SILENT}, None, True),
        ({"answer": REJECTED}, None, True),
        ({"answer": ClientClosed()}, None, True),
        ({"loss": EXPIRED, "kept": False}, LossReason.EXPIRED, False),
        ({"loss": MAX_HOLD}, LossReason.MAX_HOLD, True),
        ({"loss": MAX_HOLD, "answer": False, "ends": NOW}, LossReason.MAX_HOLD, True),
        ({"loss": MAX_HOLD, "answer": AWAY}, LossReason.MAX_HOLD, True),
    ],
)
def test_a_block_that_ran_to_its_end_raises_the_loss_and_nothing_else(
    facts: dict[str, Any], reason: LossReason | None, released: bool
) -> None:
    lease = Lease(**facts)
    raised = left(lease, None)
    assert ("release", "x") in lease.notes or not released
    assert lease.notes[:2] == ["unwatch", ("leave", None)], "a loss that comes now must not interrupt the release"
    if reason is None:
        assert raised is None
    else:
        assert isinstance(raised, LeaseLost)
        assert (raised.reason, raised.completed, raised.name, raised.backend) == (reason, True, "x", "store:")
        assert str(raised).endswith("; the block had already run to its end")


@pytest.mark.parametrize(
    ("facts", "note"),
    [
        ({}, None),
        ({"answer": False}, "lost as well (taken)"),
        ({"answer": AWAY}, "'x' could not be released either: away"),
        ({"answer": ClientClosed()}, "'x' could not be released either: this client is closed"),
        ({"loss": EXPIRED, "kept": False}, "'x' was lost as well (expired): too late"),
        ({"loss": MAX_HOLD}, "'x' was lost as well (max_hold)"),
    ],
)
def test_an_error_of_the_block_is_never_hidden_and_has_a_note_of_what_else_went_wrong(
    facts: dict[str, Any], note: str | None
) -> None:
    error = ValueError("of the block")
    assert left(Lease(**facts), error) is None, "the error itself is passed on by whoever called"
    notes = getattr(error, "__notes__", [])
    assert len(notes) == (note is not None)
    assert all(note in each for each in notes if note is not None)


def test_a_loss_that_the_block_has_raised_itself_is_not_noted_again() -> None:
    error = LeaseLost("over")
    assert left(Lease(loss=EXPIRED, kept=False), error) is None
    assert not hasattr(error, "__notes__")


def test_an_interruption_by_the_loss_becomes_the_loss() -> None:
    lease, error = Lease(loss=EXPIRED, kept=False), Interrupted()
    lease.scope.interrupts = True
    raised = left(lease, error)
    assert isinstance(raised, LeaseLost)
    assert (raised.reason, raised.completed, raised.__cause__) == (LossReason.EXPIRED, False, error)
    assert "run to its end" not in str(raised)


@pytest.mark.parametrize(
    ("facts", "found", "outcome", "done"),
    [
        ({}, None, None, ["before", "release"]),
        ({}, BROKEN, LossReason.BROKEN, ["before", "release"]),
        ({"answer": False}, None, LossReason.TAKEN, ["before", "release"]),
        ({"answer": False}, BROKEN, LossReason.BROKEN, ["before", "release"]),
        ({"answer": AWAY}, None, None, ["before", "release"]),
        ({}, ValueError("x"), ValueError, ["before", "release"]),
        ({}, Interrupted(), Interrupted, ["before", "release"]),
        ({}, GeneratorExit(), GeneratorExit, ["before"]),
        ({"loss": EXPIRED, "kept": False}, None, LossReason.EXPIRED, []),
        ({"loss": MAX_HOLD}, None, LossReason.MAX_HOLD, ["release"]),
    ],
)
def test_what_has_to_be_done_under_the_lease_comes_before_its_release_which_comes_in_any_case(
    facts: dict[str, Any], found: Any, outcome: Any, done: list[str]
) -> None:
    lease = Lease(**facts)

    async def before() -> Any:
        lease.notes.append("before")
        if isinstance(found, BaseException):
            raise found
        return found

    raised = left(lease, None, before)
    assert [note if isinstance(note, str) else note[0] for note in lease.notes[2:]] == done
    if isinstance(outcome, LossReason):
        assert isinstance(raised, LeaseLost)
        assert raised.reason is outcome
    else:
        assert type(raised) is (type(None) if outcome is None else outcome)


def test_a_release_that_fails_after_a_failure_under_the_lease_is_noted_there() -> None:
    async def before() -> Any:
        raise ValueError("x")

    raised = left(Lease(answer=AWAY), None, before)
    assert isinstance(raised, ValueError)
    assert raised.__notes__ == ["leasehold: 'x' could not be released either: away"]


def test_a_block_is_interrupted_before_its_callback_which_may_take_its_time_and_never_by_a_release() -> None:
    lease = Lease()
    block = Block(lease, lease.notes.append)
    block.on_end(None)
    assert lease.notes == []
    block.on_end(EXPIRED)
    block.loss_is_raised()
    assert lease.notes == ["cancel", EXPIRED, "raised"]
    Block(lease).on_end(EXPIRED)


# Taking a lock for a block


def test_a_block_has_the_timeout_and_the_callback_that_it_was_given_and_is_good_for_once() -> None:
    with ManualStore(autojump=None).connect(timeout=5) as client:
        untils: list[float | None] = []
        lost: list[Loss] = []
        lease = Lease()

        async def acquire(until: float | None) -> Any:
            untils.append(until)
            return lease

        for timeout in (..., None, 0, 3):
            hold = AsyncHold(client._twin, acquire, timeout, lost.append)
            assert run(hold.__aenter__()) is lease
            with pytest.raises(TypeError, match="in use or used up"):
                run(hold.__aenter__())
            hold._block.on_end(EXPIRED)  # type: ignore[union-attr]
            run(hold.__aexit__(None, None, None))
            with pytest.raises(TypeError, match="in use or used up"):
                run(hold.__aenter__())
        assert untils == [NOW + 5, None, NOW, NOW + 3]
        assert lost == [EXPIRED] * 4
        assert lease.watchers == []


def test_the_callback_for_a_busy_lock_hears_of_no_other_error_and_does_not_hide_that_it_is_busy() -> None:
    with ManualStore(autojump=None).connect() as client:
        heard: list[object] = []
        busy = AcquireTimeout("busy")

        def holding(error: BaseException, on_busy: Any) -> Any:
            async def acquire(_: float | None) -> Any:
                raise error

            return run(AsyncHold(client._twin, acquire, 1, None, on_busy).__aenter__())

        for error in (busy, AWAY, Interrupted()):
            with pytest.raises(type(error)):
                holding(error, heard.append)
        assert heard == [busy]
        with pytest.raises(ZeroDivisionError):
            holding(busy, lambda _: 1 / 0)


@pytest.mark.parametrize(
    ("callbacks", "complaint"),
    [
        ({"on_lost": 7}, "on_lost must be a function, not 7"),
        ({"on_lost": False}, "on_lost must be a function"),
        ({"on_busy": 7}, "on_busy must be a function, not 7"),
        ({"on_busy": False}, "on_busy must be a function"),
    ],
)
def test_a_callback_that_cannot_be_called_is_refused_before_the_lock_is_taken(
    callbacks: dict[str, Any], complaint: str
) -> None:
    with ManualStore(autojump=None).connect() as client:
        for lock in (client.lock("x"), client.lock_all(["x", "y"])):
            with pytest.raises(ConfigurationError, match=complaint):
                lock.hold(**callbacks)


# Waiting for the loss


@pytest.mark.parametrize(
    ("ends", "limit", "waits"),
    [
        (30.0, None, [30.0]),
        (30.0, 50.0, [30.0]),
        (30.0, 10.0, [10.0]),
        (30.0, 0.0, []),
        (0.0, None, []),
    ],
)
def test_a_wait_for_the_loss_ends_with_its_limit_or_the_lease(
    ends: float, limit: float | None, waits: list[float]
) -> None:
    lease: Any = Lease(ends=NOW + ends)
    lease.loss = None
    assert run(wait_lost(lease, limit)) is False, "it was not lost, as far as the lease knows"
    assert lease.runtime.waits == [NOW + wait for wait in waits]
    assert lease.watchers == []
    assert lease.notes[0] == "home"


def test_a_wait_for_the_loss_goes_on_after_a_renewal_and_ends_with_the_news() -> None:
    lease: Any = Lease(ends=NOW + 30)

    def is_renewed() -> None:
        lease.runtime.clock.advance(30)
        lease.ends = NOW + 60

    def is_over(loss: Loss | None) -> Callable[[], None]:
        def end() -> None:
            lease.loss, lease.ends = loss, NOW
            lease.watchers[0].on_end(loss)
            assert lease.watchers[0]._signal.is_set(), "it wakes who waits"

        return end

    lease.runtime.plan = [is_renewed, is_over(EXPIRED)]
    assert run(wait_lost(lease, None)) is True
    assert lease.runtime.waits == [NOW + 30, NOW + 60]

    def is_woken() -> None:
        lease.watchers[0].on_end(None)  # of one of several leases

    lease = Lease(ends=NOW + 30)
    lowered: list[bool] = []
    lease.runtime.plan = [is_woken, lambda: lowered.append(not lease.watchers[0]._signal.is_set()), is_over(EXPIRED)]
    assert run(wait_lost(lease, None)) is True
    assert lowered == [True], "it waits again, and does not spin"
    lease = Lease(ends=NOW + 30)
    lease.runtime.plan = [is_over(None)]
    assert run(wait_lost(lease, None)) is False


def test_a_wait_for_the_loss_that_is_interrupted_is_forgotten() -> None:
    def interrupt() -> None:
        raise Interrupted

    lease: Any = Lease(ends=NOW + 30)
    lease.runtime.plan = [interrupt]
    with pytest.raises(Interrupted):
        run(wait_lost(lease, None))
    assert lease.watchers == []


# Several leases


def several(**facts: list[Any]) -> tuple[Any, list[Any]]:
    """A set of three leases, each with its own of these facts; and the notes of all."""
    notes: list[Any] = []
    leases: list[Any] = [
        Lease(name, notes=notes, **{fact: values[place] for fact, values in facts.items()})
        for place, name in enumerate("abc")
    ]
    return AsyncLeaseSet(leases), notes


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([True, True, True], True),
        ([False, True, True], False),
        ([True, True, False], False),
        ([AWAY, True, True], AWAY),
        ([True, SILENT, AWAY], AWAY),
        ([AWAY, Interrupted(), SILENT], Interrupted),
        ([Interrupted(), True, AWAY], Interrupted),
        ([True, False, AWAY], AWAY),
    ],
)
def test_all_of_several_locks_are_released_the_last_one_first(answers: list[Any], outcome: Any) -> None:
    leases, notes = several(answer=answers)
    if isinstance(outcome, bool):
        assert run(leases.release()) is outcome
    else:
        with pytest.raises(BaseException) as raised:
            run(leases.release())
        assert raised.value is outcome or type(raised.value) is outcome
    assert notes == [("release", "c"), ("release", "b"), ("release", "a")]


def test_several_leases_are_as_good_as_the_worst_of_them() -> None:
    leases, notes = several(
        ends=[NOW + 9, NOW + 3, NOW + 6],
        loss=[None, EXPIRED, BROKEN],
        kept=[False, True, False],
        fence=[11, 13, 12],
    )
    assert leases.remaining() == 3
    assert leases.loss is EXPIRED
    assert leases.lost.is_set()
    assert leases._is_kept()
    assert (leases.name, leases.fences) == ("a, b, c", {"a": 11, "b": 13, "c": 12})
    assert {name: lease.fence for name, lease in leases.leases.items()} == leases.fences
    leases.check(5)
    assert notes == [("check", "a", 5), ("check", "b", 5), ("check", "c", 5)]
    del notes[:]
    assert run(leases.renew()) == 3
    assert notes == [("renew", "a"), ("renew", "b"), ("renew", "c")]
    assert not several(kept=[False] * 3)[0]._is_kept()
    assert several()[0].loss is None


def test_a_watcher_of_several_leases_hears_of_each() -> None:
    leases, _ = several()
    watcher = object()
    leases._watch(watcher)
    assert [lease.watchers for lease in leases._leases] == [[watcher]] * 3
    leases._unwatch(watcher)
    assert [lease.watchers for lease in leases._leases] == [[]] * 3


# A mutex


class Lock:
    """Gives the leases that it is told; `asked` has how long each call would have waited."""

    def __init__(self, *leases: Any) -> None:
        self.leases = list(leases)
        self.asked: list[Any] = []
        self.name = "x"
        self.runtime = PlannedWaits()
        self._client = SimpleNamespace(_runtime=self.runtime)

    async def try_acquire(self) -> Any:
        self.asked.append("try")
        return self._next()

    async def acquire(self, timeout: float | None) -> Any:
        self.asked.append(timeout)
        lease = self._next()
        if lease is None:
            raise AcquireTimeout("busy")
        return lease

    def _next(self) -> Any:
        lease = self.leases.pop(0) if self.leases else None
        if lease is not None:
            lease.runtime.me = self.runtime.me
        return lease


@pytest.mark.parametrize(
    ("given", "asked"),
    [((), None), ((True,), None), ((True, -1), None), ((True, 0), 0.0), ((True, 2.5), 2.5), ((False,), "try")],
)
def test_a_mutex_waits_as_a_lock_of_the_standard_library_would(given: tuple[Any, ...], asked: Any) -> None:
    lock: Any = Lock(Lease())
    mutex = AsyncMutex(lock)
    assert run(mutex.acquire(*given)) is True
    assert mutex.locked()
    assert run(mutex.acquire(*given)) is False
    assert lock.asked == [asked] * 2
    run(mutex.release())
    assert not mutex.locked()
    with pytest.raises(ConfigurationError, match="timeout"):
        run(mutex.acquire(True, 1e9))


@pytest.mark.parametrize(
    ("facts", "reason", "again"),
    [
        ({}, None, False),
        ({"answer": False}, LossReason.TAKEN, False),
        ({"answer": False, "later": BROKEN}, LossReason.BROKEN, False),
        ({"answer": False, "ends": NOW}, None, False),
        ({"loss": EXPIRED, "ends": NOW}, LossReason.EXPIRED, False),
        ({"answer": AWAY}, AWAY, True),
        ({"answer": REJECTED}, REJECTED, True),
        ({"answer": Interrupted()}, Interrupted, False),
    ],
)
def test_the_release_of_a_mutex_raises_the_loss_and_is_tried_again_only_after_an_error_of_the_store(
    facts: dict[str, Any], reason: Any, again: bool
) -> None:
    lease = Lease(**facts)
    lock: Any = Lock(lease)
    mutex = AsyncMutex(lock)
    run(mutex.acquire())
    if reason is None:
        run(mutex.release())
    else:
        with pytest.raises(BaseException) as raised:
            run(mutex.release())
        if isinstance(reason, LossReason):
            assert isinstance(raised.value, LeaseLost)
            facts_of = (raised.value.reason, raised.value.completed, raised.value.name, raised.value.backend)
            assert facts_of == (reason, True, "x", "store:")
        else:
            assert raised.value is reason or type(raised.value) is reason
    assert (("release", "x") in lease.notes) is (lease.loss is not EXPIRED)
    lease.answer = True
    if again:
        run(mutex.release())
    with pytest.raises(RuntimeError, match="release unlocked lock"):
        run(mutex.release())


def test_a_mutex_releases_what_this_thread_acquired_last() -> None:
    notes: list[Any] = []
    first, second, third = (Lease(name, notes=notes) for name in "abc")
    lock: Any = Lock(first, second, third)
    mutex = AsyncMutex(lock)
    run(mutex.acquire())
    run(mutex.acquire())
    lock.runtime.me = "another"
    with pytest.raises(RuntimeError, match="held by another thread or task"):
        run(mutex.release())
    run(mutex.acquire())
    lock.runtime.me = "me"
    run(mutex.release())
    run(mutex.release())
    assert notes == [("release", "b"), ("release", "a")]
    assert mutex.locked()
    lock.runtime.me = "another"
    run(mutex.release())
    assert not mutex.locked()


@pytest.mark.parametrize("error", [None, ValueError("of the block")])
def test_the_end_of_a_mutex_block_raises_the_loss_or_notes_it(error: Exception | None) -> None:
    lock: Any = Lock(Lease(loss=EXPIRED, ends=NOW))
    mutex = AsyncMutex(lock)
    assert run(mutex.__aenter__()) is True
    if error is None:
        with pytest.raises(LeaseLost):
            run(mutex.__aexit__(None, None, None))
    else:
        run(mutex.__aexit__(ValueError, error, None))
        assert "lost before release (expired)" in error.__notes__[0]


def test_a_mutex_whose_leases_are_over_is_not_locked_although_it_was_not_released() -> None:
    first, second = Lease("a"), Lease("b")
    lock: Any = Lock(first, second)
    mutex = AsyncMutex(lock)
    run(mutex.acquire())
    run(mutex.acquire())
    first.ends = NOW
    assert mutex.locked(), "one of the two is held"
    second.ends = NOW
    assert not mutex.locked()
