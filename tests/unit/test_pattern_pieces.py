"""Pieces of the patterns, step by step: calls that are repeated, builds that are shared, runs that are recorded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import (
    AttemptExpired,
    BackendError,
    BackendRejected,
    BackendUnavailable,
    ConfigurationError,
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
    events,
)
from leasehold._patterns.cache import _found
from leasehold._patterns.cache_entry import Entry, Freshness
from leasehold._patterns.idempotency import MAX_KEY_BYTES
from leasehold._patterns.retry import retry_until
from leasehold._patterns.single_flight import GAVE_UP, Outcome, SharedBuild, finish, join_or_start, wait_for
from leasehold._runtimes.threads import run
from leasehold.testing import ManualStore
from tests.unit.test_core_time import Script, fails

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

NOW = 1_000.0
AWAY, SILENT, REJECTED = BackendUnavailable("away"), OutcomeUnknown("no answer"), BackendRejected("no rights")


class Steps:
    """An open client whose pauses turn the clock."""

    def __init__(self) -> None:
        self.store = ManualStore(autojump=None)
        self.client = self.store.connect()
        self.opened = self.client._twin._open()
        self.pauses: list[float] = []
        runtime: Any = self.opened.runtime
        runtime.sleep = self._sleep

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 6))
        self.store.clock.advance(seconds)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    monkeypatch.setattr("leasehold._runtimes.threads.ThreadRuntime.random", lambda _: 1.0)  # pauses of full length
    made = Steps()
    yield made
    made.store.close()


# Calls that are repeated


@pytest.mark.parametrize(
    ("answers", "time", "outcome", "pauses"),
    [
        (["answer"], 5, "answer", []),
        ([AWAY, "answer"], 5, "answer", [0.02]),
        ([SILENT, AWAY, SILENT, "answer"], 5, "answer", [0.02, 0.1, 0.5]),
        ([REJECTED, "answer"], 5, REJECTED, []),
        ([AWAY, AWAY, AWAY, AWAY], 0.3, AWAY, [0.02, 0.1]),
        ([SILENT, "answer"], 0.02, SILENT, []),
        ([SILENT, "answer"], 0.021, "answer", [0.02]),
    ],
)
def test_a_call_is_repeated_until_there_is_an_answer_or_no_time_for_its_pause(
    steps: Steps, answers: list[Any], time: float, outcome: Any, pauses: list[float]
) -> None:
    async def call() -> Any:
        answer = answers.pop(0)
        return fails(answer) if isinstance(answer, Exception) else answer

    if isinstance(outcome, BackendError):
        with pytest.raises(type(outcome)) as raised:
            run(retry_until(NOW + time, steps.opened, "x", call))
        assert raised.value is outcome
        assert getattr(raised.value, "name") == "x"  # noqa: B009 - which every error of ours has
    else:
        assert run(retry_until(NOW + time, steps.opened, "x", call)) == outcome
    assert steps.pauses == pauses


# Builds that are shared


def test_the_first_leads_and_the_others_share_what_comes_of_it(steps: Steps) -> None:
    opened = steps.opened
    first, second = SharedBuild("k", "a"), SharedBuild("k", "b")
    assert join_or_start(opened, first) is first
    assert join_or_start(opened, second) is first
    assert join_or_start(opened, SharedBuild("other", "c")) is not first
    signal = opened.runtime.signal()
    first.signals.append(signal)
    outcome = Outcome(b"value")
    finish(opened, first, outcome)
    assert signal.is_set()
    assert run(wait_for(opened, first, NOW)) is outcome
    assert join_or_start(opened, second) is second, "the next one builds anew"


@pytest.mark.parametrize(("own", "seen", "joins"), [(None, 9, True), (5, 0, True), (5, 5, True), (5, 6, False)])
def test_who_has_seen_a_later_fence_does_not_share_an_older_build(
    steps: Steps, own: int | None, seen: int, joins: bool
) -> None:
    first, mine = SharedBuild("k", "a"), SharedBuild("k", "b")
    join_or_start(steps.opened, first)
    first.fence = own
    assert join_or_start(steps.opened, mine, seen) is (first if joins else mine)
    finish(steps.opened, first, GAVE_UP)
    assert (steps.opened.builds.get("k") is mine) is not joins, "the end of the old one does not end the new one"


def test_a_wait_for_a_build_ends_at_its_deadline_and_leaves_nothing(steps: Steps) -> None:
    build = SharedBuild("k", "a")
    waits: list[float] = []

    async def wait(_: object, __: object, deadline: float) -> None:
        waits.append(deadline)
        steps.store.clock.advance(deadline - steps.store.clock.now())

    calls: Any = steps.opened.waiting_calls
    calls.wait = wait
    assert run(wait_for(steps.opened, build, NOW + 3)) is None
    assert waits == [NOW + 3]
    assert build.signals == []
    assert not list(calls._calls)


# Runs of jobs


def ended(steps: Steps, **options: Any) -> tuple[Any, list[Any]]:
    """A job whose runs are listened to."""
    seen: list[Any] = []
    steps.client.on_event(lambda event: seen.append(event) if isinstance(event, events.RunEnded) else None)
    return steps.client.once("job", slot="monday", **options), seen


@pytest.mark.parametrize(
    ("how", "failed"), [("well", False), ("fail", True), ("error", True)], ids=["well", "fail()", "error"]
)
@pytest.mark.parametrize("on_failure", ["close", "open"])
def test_how_a_run_ended_is_told_and_remembered(steps: Steps, how: str, failed: bool, on_failure: str) -> None:
    job, seen = ended(steps, on_failure=on_failure, group="nightly")

    def attempt() -> bool:
        with job.attempt() as run_:
            if run_:
                steps.store.clock.advance(2.5)
                if how == "fail":
                    run_.fail()
                if how == "error":
                    raise ZeroDivisionError
            return bool(run_)

    if how == "error":
        with pytest.raises(ZeroDivisionError):
            attempt()
    else:
        assert attempt()
    (event,) = seen
    assert (event.name, event.job, event.slot) == ("job", "nightly", "monday")
    assert (event.took, event.failed, event.recorded) == (2.5, failed, True)
    last = steps.client.last_run("job")
    assert last is not None
    assert last.began is not None
    assert (last.slot, last.failed, last.fence) == ("monday", failed, event.fence)
    assert last.finished - (last.began or 0.0) == pytest.approx(2.5)
    if how != "error":
        runs_again = attempt()
        assert runs_again is (failed and on_failure == "open")


def test_a_run_that_is_interrupted_is_not_recorded_and_may_run_again(steps: Steps) -> None:
    job, seen = ended(steps)
    with pytest.raises(KeyboardInterrupt), job.attempt():
        raise KeyboardInterrupt
    assert [(event.failed, event.recorded) for event in seen] == [(True, False)]
    with job.attempt() as again:
        assert again


def test_a_run_whose_lease_was_lost_is_not_recorded(steps: Steps) -> None:
    job, seen = ended(steps)
    with pytest.raises(LeaseLost), job.attempt() as run_:
        steps.store.lose(run_.lease)
    assert [event.recorded for event in seen] == [False]


def test_a_store_that_stays_away_is_waited_for_as_long_as_a_connection_and_not_as_a_lock(steps: Steps) -> None:
    job, _ = ended(steps, timeout=1_000, on_conflict="standby")
    Script(steps.client, "read", lambda *_: fails(AWAY))
    with pytest.raises(BackendUnavailable), job.attempt():
        """Never entered."""
    assert steps.pauses
    assert sum(steps.pauses) < steps.opened.connect_timeout


def test_the_end_of_a_run_is_written_again_for_as_long_as_its_lease_is_sure(steps: Steps) -> None:
    job, _ = ended(steps, ttl=100)
    Script(steps.client, "write", lambda *_: fails(AWAY))
    with pytest.raises(BackendUnavailable), job.attempt() as run_:
        left = run_.lease.remaining()
    assert steps.opened.connect_timeout < 50 < left - 5 < sum(steps.pauses) < left


@pytest.mark.parametrize(("ttl", "longest"), [(2, 10.0), (100, 100.0)])
def test_a_result_is_written_again_for_as_long_as_its_lease_and_at_least_as_a_connection(
    steps: Steps, ttl: float, longest: float
) -> None:
    assert steps.opened.connect_timeout == 10.0
    with pytest.raises(BackendUnavailable), steps.client.idempotency("pay", ttl=ttl).attempt("k") as attempt:
        Script(steps.client, "write", lambda *_: fails(AWAY))
        attempt.complete(1)
    assert 0.8 * longest < sum(steps.pauses) < longest


@pytest.mark.parametrize("error", [None, ZeroDivisionError()], ids=["well", "failed"])
def test_a_run_that_could_not_be_recorded_says_that_it_may_run_again(
    steps: Steps, error: ZeroDivisionError | None
) -> None:
    job, seen = ended(steps, on_failure="close")
    Script(steps.client, "write", lambda *_: fails(BackendRejected("no rights")))
    with pytest.raises((BackendRejected, ZeroDivisionError)) as raised, job.attempt():
        if error is not None:
            raise error
    assert type(raised.value) is (BackendRejected if error is None else ZeroDivisionError)
    assert any("may run again" in note for note in raised.value.__notes__)
    assert steps.client.inspect("job") is None, "the lock is given back"
    assert [event.recorded for event in seen] == [False]


def test_a_failure_that_could_not_be_written_down_is_not_told_to_be(steps: Steps) -> None:
    job, seen = ended(steps)
    Script(steps.client, "write", lambda *_: fails(AWAY))
    with pytest.raises(ZeroDivisionError), job.attempt():
        raise ZeroDivisionError
    assert [(event.failed, event.recorded) for event in seen] == [(True, False)]


@pytest.mark.parametrize("options", [{}, {"max_hold": 5}], ids=["ttl", "max_hold"])
def test_a_run_does_not_begin_when_its_lease_is_lost_before(steps: Steps, options: dict[str, Any]) -> None:
    job, seen = ended(steps, ttl=10, **options)

    async def slow(_: str, fence: float, read: Callable[[], Awaitable[Any]]) -> Any:
        reading = await read()
        if fence:
            steps.store.clock.advance(20)
        return reading

    Script(steps.client, "read", slow)
    with pytest.raises(LeaseLost) as lost, job.attempt():
        pytest.fail("began without a lease")
    assert not lost.value.completed
    assert seen == []


@pytest.mark.parametrize("options", [{}, {"max_hold": 5}], ids=["ttl", "max_hold"])
def test_a_grant_that_ran_out_before_it_arrived_is_not_the_lock_of_another(
    steps: Steps, options: dict[str, Any]
) -> None:
    job, _ = ended(steps, ttl=10, **options)

    async def slow(_: object, __: float, acquire: Callable[[], Awaitable[Any]]) -> Any:
        answer = await acquire()
        if len(script.untils) == 1:
            steps.store.clock.advance(6 if options else 11)
        return answer

    script = Script(steps.client, "try_acquire", slow)
    with job.attempt() as run_:
        assert run_


def test_a_lock_that_another_has_is_asked_for_once_however_long_that_took(steps: Steps) -> None:
    job, _ = ended(steps, ttl=10)

    async def slow(_: object, __: float, acquire: Callable[[], Awaitable[Any]]) -> Any:
        answer = await acquire()
        steps.store.clock.advance(11)
        return answer

    with steps.store.connect() as other, other.lock("job", ttl=60).hold():
        script = Script(steps.client, "try_acquire", slow)
        with job.attempt() as skipped:
            assert not skipped
            assert skipped.runner is not None
    assert len(script.untils) == 1


def test_on_an_event_loop_a_cancelled_run_gives_its_lock_back_and_may_run_again() -> None:
    store = ManualStore()

    async def program() -> None:
        async with store.connect_async() as client:
            job = client.once("job", slot="monday")

            async def attempt() -> None:
                async with job.attempt():
                    await asyncio.sleep(60)

            task = asyncio.create_task(attempt())
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await client.inspect("job") is None
            async with job.attempt() as again:
                assert again

    asyncio.run(asyncio.wait_for(program(), 30))


# What listeners hear of caches and keys


@pytest.mark.parametrize(
    ("has_entry", "freshness", "time", "word"),
    [
        (False, Freshness.GONE, 0.0, "miss"),
        (False, Freshness.FRESH, 0.0, "miss"),
        (True, Freshness.GONE, 0.0, "miss"),
        (True, Freshness.FRESH, 0.0, "hit"),
        (True, Freshness.DUE, 99.9, "early"),
        (True, Freshness.DUE, 100.0, "stale"),
    ],
)
def test_what_a_reader_of_a_cache_found(has_entry: bool, freshness: Freshness, time: float, word: str) -> None:
    assert _found(Entry(b"1", 1, 100.0, 2.0) if has_entry else None, freshness, time) == word


def test_every_refusal_of_a_key_is_told_with_its_reason(steps: Steps) -> None:
    seen: list[str] = []
    steps.client.on_event(lambda event: seen.append(event.why) if isinstance(event, events.KeyRefused) else None)
    keys = steps.client.idempotency("pay", on_expired="refuse")
    with keys.attempt("k", "a") as attempt:
        attempt.complete(1)
    with pytest.raises(KeyReused), keys.attempt("k", "b"):
        pass
    with pytest.raises(BaseException), keys.attempt("gone", "a") as attempt:  # noqa: B017 - as if the process ended
        assert attempt.lease is not None
        steps.store.lose(attempt.lease)
        raise KeyboardInterrupt
    with pytest.raises((AttemptExpired, LeaseLost)), keys.attempt("gone", "a"):
        pass
    assert seen == ["mismatch", "expired"]


@pytest.mark.parametrize(("size", "is_allowed"), [(MAX_KEY_BYTES, True), (MAX_KEY_BYTES + 1, False)])
def test_how_long_a_key_may_be(steps: Steps, size: int, is_allowed: bool) -> None:
    keys = steps.client.idempotency("pay")
    if is_allowed:
        assert keys.inspect("k" * size) is None
    else:
        with pytest.raises(ConfigurationError):
            keys.inspect("k" * size)


@pytest.mark.parametrize(
    ("key", "is_allowed"),
    [("\xe9" * 127 + "k", True), ("\xe9" * 128, False), ("\u20ac" * 85, True), ("\u20ac" * 86, False)],
)
def test_a_key_is_measured_in_bytes(steps: Steps, key: str, is_allowed: bool) -> None:
    keys = steps.client.idempotency("pay")
    if is_allowed:
        assert keys.inspect(key) is None
    else:
        with pytest.raises(ConfigurationError, match=f"{len(key.encode())} bytes"):
            keys.inspect(key)


@pytest.mark.parametrize(("scope", "is_allowed"), [("\xe9" * 64, True), ("\xe9" * 64 + "s", False), ("s" * 129, False)])
def test_a_scope_is_measured_in_bytes(steps: Steps, scope: str, is_allowed: bool) -> None:
    if is_allowed:
        assert steps.client.idempotency(scope).scope == scope
    else:
        with pytest.raises(ConfigurationError, match="has 129 bytes"):
            steps.client.idempotency(scope)


def test_a_cache_that_cannot_be_written_gives_its_lock_back(steps: Steps) -> None:
    cache = steps.client.cache("c", ttl="1m")
    for error in (BackendRejected("no rights"), KeyboardInterrupt()):
        Script(steps.client, "write", lambda *_, error=error: fails(error))
        with pytest.raises(type(error)):
            cache.put("k", 1)
        assert steps.client.locks() == []
