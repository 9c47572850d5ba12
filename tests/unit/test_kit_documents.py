"""A store of documents: conflicts, lost answers, notifications, cleaning, and stores without a clock."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.kit import ClocklessBackend, DocumentBackend, documents, turns
from leasehold.spi import Place
from leasehold.values import Capability, Claim, Grant, Holder, LossReason, Mode, Record, Refusal
from tests.unit.kit_support import DictDocuments, HandClock, NotifyingDocuments
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

DAY = 86_400.0


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(clock: HandClock) -> DictDocuments:
    return DictDocuments(clock.now)


def open_backend(store: DictDocuments, clock: HandClock) -> DocumentBackend:
    return DocumentBackend(store, ThreadRuntime(clock), "documents", pause=0)


def claim(number: int = 1, ttl: float = 10.0, key: str = "ns:name", min_hold: float = 0.0) -> Claim:
    return Claim(key, f"owner-{number}", ttl, Mode.EXCLUSIVE, 1, min_hold, Holder("host", number))


def granted(answer: object) -> Grant:
    assert isinstance(answer, Grant), answer
    return answer


# --- conflicts and lost answers


def test_a_conflict_is_tried_again_with_what_the_document_says_by_then(store: DictDocuments, clock: HandClock) -> None:
    first, second = open_backend(store, clock), open_backend(store, clock)
    store.conflicts = 3
    granted(run(first.try_acquire(claim(1))))
    store.conflicts = 1
    assert isinstance(run(second.try_acquire(claim(2))), Refusal)


def test_a_process_that_stood_still_does_not_grant_by_the_clock_of_then(
    store: DictDocuments, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one had the lock meanwhile, and the store was emptied: there is no version that would tell."""
    slow, other = open_backend(store, clock), open_backend(store, clock)
    fences: list[int] = []

    async def stand_still(backend: DocumentBackend, document: str, until: float) -> Any:
        answer = await load(backend, document, until)
        if backend is slow and not fences:
            clock.instant += 5
            grant = granted(await other.try_acquire(claim(2)))
            fences.append(grant.fence)
            await other.release(grant)
            store.stored.clear()
        return answer

    load = DocumentBackend._load
    monkeypatch.setattr(DocumentBackend, "_load", stand_still)
    with pytest.raises(BackendUnavailable):
        run(slow.try_acquire(claim(1)))
    assert store.stored == {}
    clock.instant += 1
    assert granted(run(slow.try_acquire(claim(1)))).fence > fences[0]


def test_a_call_that_meets_nothing_but_conflicts_ends_by_its_limit_and_did_nothing(
    store: DictDocuments, clock: HandClock
) -> None:
    backend = open_backend(store, clock)
    store.conflicts = 10**9
    with pytest.raises(BackendUnavailable, match="again and again"):
        run(backend.try_acquire(claim(), clock.instant))
    assert store.stored == {}


@pytest.mark.parametrize("verb", ["try_acquire", "join"])
def test_a_grant_whose_answer_was_lost_is_unknown_and_then_recognised(
    verb: str, store: DictDocuments, clock: HandClock
) -> None:
    backend: Any = open_backend(store, clock)
    store.lost_answers = 1
    with pytest.raises(OutcomeUnknown):
        run(getattr(backend, verb)(claim()))
    swaps = store.swaps
    assert swaps == 1, "a request without an answer is not repeated behind the caller's back"
    again = granted(run(getattr(backend, verb)(claim())))
    assert granted(run(open_backend(store, clock).renew([again]))[0]).fence == again.fence
    assert isinstance(run(backend.try_acquire(claim(2))), Refusal)


def test_a_request_that_got_lost_is_unknown_and_then_granted(store: DictDocuments, clock: HandClock) -> None:
    backend = open_backend(store, clock)
    store.lost_requests = 1
    with pytest.raises(OutcomeUnknown):
        run(backend.try_acquire(claim()))
    granted(run(backend.try_acquire(claim())))


def test_a_claim_withdrawn_in_doubt_is_refused_when_it_arrives_late(store: DictDocuments, clock: HandClock) -> None:
    backend = open_backend(store, clock)
    store.lost_requests = 1
    with pytest.raises(OutcomeUnknown):
        run(backend.try_acquire(claim()))
    run(backend.withdraw(claim()))
    assert isinstance(run(backend.try_acquire(claim())), Refusal)
    granted(run(backend.try_acquire(claim(2))))


def test_a_release_whose_answer_was_lost_has_released_and_a_repeat_frees_no_one_else(
    store: DictDocuments, clock: HandClock
) -> None:
    backend = open_backend(store, clock)
    grant = granted(run(backend.try_acquire(claim())))
    store.lost_answers = 1
    with pytest.raises(OutcomeUnknown):
        run(backend.release(grant))
    heir = granted(run(backend.try_acquire(claim(2))))
    assert run(backend.release(grant)) is False
    granted(run(backend.renew([heir]))[0])


@pytest.mark.parametrize(
    ("failure", "error"),
    [("refused", BackendUnavailable), ("lost_requests", OutcomeUnknown), ("lost_answers", OutcomeUnknown)],
)
def test_a_renewal_that_fails_is_the_answer_for_its_grant_alone(
    failure: str, error: type[Exception], store: DictDocuments, clock: HandClock
) -> None:
    backend = open_backend(store, clock)
    grants = [granted(run(backend.try_acquire(claim(number, key=f"ns:{number}")))) for number in range(3)]
    clock.instant += 1
    setattr(store, failure, 1)
    answers = run(backend.renew(grants))
    assert [type(answer) for answer in answers] == [error, Grant, Grant]


def test_a_refusal_and_a_look_write_nothing(store: DictDocuments, clock: HandClock) -> None:
    backend = open_backend(store, clock)
    granted(run(backend.try_acquire(claim())))
    swaps = store.swaps
    assert isinstance(run(backend.try_acquire(claim(2))), Refusal)
    assert run(backend.inspect("ns:name")) is not None
    assert len(run(backend.list("ns:"))) == 1
    assert run(backend.inspect("ns:other")) is None
    assert store.swaps == swaps


def test_a_name_that_nobody_uses_gets_no_document(store: DictDocuments, clock: HandClock) -> None:
    backend = open_backend(store, clock)
    run(backend.withdraw(claim(), doubt=False))
    run(backend.release(Grant(claim(), 7, 10.0)))
    run(backend.renew([Grant(claim(), 7, 10.0)]))
    assert run(backend.break_("ns:name", 7, "stuck", now=True)) is False
    assert run(backend.resume("ns:name")) is False
    assert store.stored == {}


def test_calls_of_one_client_take_turns_instead_of_conflicting() -> None:
    class Slow(DictDocuments):
        async def load(self, key: str, until: float, /) -> tuple[bytes | None, Any]:
            found = await super().load(key, until)
            await asyncio.sleep(0.001)
            return found

    async def main() -> None:
        store = Slow(time.time)
        backend = DocumentBackend(store, AsyncioRuntime(), "documents")
        await asyncio.gather(*(backend.join(claim(number)) for number in range(20)))
        assert store.swaps == 20
        assert not backend._turns._queues, "nothing is left over"  # type: ignore[union-attr]
        await backend.close()

    asyncio.run(main())


def test_a_turn_that_is_never_ended_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    backend = DocumentBackend(DictDocuments(time.time), ThreadRuntime(), "documents")
    assert backend._turns is not None
    runtime = ThreadRuntime()
    run(backend._turns.wait("lock:ns:name", runtime.signal(), 1e9))  # interrupted before it could leave
    granted(run(backend.try_acquire(claim(1), runtime.now() + 2)))
    assert not backend._turns._queues


def test_a_call_waits_for_its_turn_no_longer_than_its_caller_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 600.0)
    backend = DocumentBackend(DictDocuments(time.time), ThreadRuntime(), "documents")
    assert backend._turns is not None
    runtime = ThreadRuntime()
    run(backend._turns.wait("lock:ns:name", runtime.signal(), 1e9))
    started = runtime.now()
    run(backend.try_acquire(claim(1), started + 0.05))
    assert runtime.now() - started < 300


def test_the_clock_that_comes_with_a_document_saves_a_request(clock: HandClock) -> None:
    class Timed(DictDocuments):
        async def load_with_time(self, key: str, until: float, /) -> tuple[bytes | None, Any, float]:
            value, version = await self.load(key, until)
            return value, version, clock.now()

        async def now(self) -> float | None:
            raise AssertionError("asked for the time once more")

    backend = DocumentBackend(Timed(clock.now), ThreadRuntime(clock), "documents", pause=0)
    grant = granted(run(backend.try_acquire(claim(1))))
    assert run(backend.inspect("ns:name")) is not None
    assert run(backend.release(grant)) is True


# --- the stored form


def test_fields_that_are_not_known_are_ignored(store: DictDocuments, clock: HandClock) -> None:
    backend = open_backend(store, clock)
    grant = granted(run(backend.try_acquire(claim())))
    version, value = store.stored["lock:ns:name"]
    fields = json.loads(value)
    fields["colour"] = "red"
    fields["rows"][0]["shape"] = "round"
    store.stored["lock:ns:name"] = (version, json.dumps(fields).encode())
    granted(run(backend.renew([grant]))[0])


@pytest.mark.parametrize(
    ("value", "message"),
    [(b"not ours", "not written by leasehold"), (b"[1]", "not written by"), (b'{"v":1}', "not written by"),
     (b'{"v":2,"fence":1}', "newer leasehold")],
)  # fmt: skip
def test_a_document_of_another_kind_is_refused_and_left_alone(
    value: bytes, message: str, store: DictDocuments, clock: HandClock
) -> None:
    store.stored["lock:ns:name"] = (1, value)
    with pytest.raises(BackendRejected, match=message):
        run(open_backend(store, clock).try_acquire(claim()))
    assert store.stored["lock:ns:name"] == (1, value)


# --- fences and cleaning


def test_fences_rise_over_idle_times_a_clock_set_back_and_a_raised_fence(
    store: DictDocuments, clock: HandClock
) -> None:
    backend = open_backend(store, clock)
    fences = []
    for change in (0.0, 100.0, -3600.0):
        clock.instant += change
        grant = granted(run(backend.try_acquire(claim())))
        fences.append(grant.fence)
        run(backend.release(grant))
    raised = run(backend.raise_fence("ns:name", fences[-1] + 10**9))
    fences += [raised, granted(run(backend.try_acquire(claim()))).fence]
    assert fences == sorted(set(fences))


def test_cleaning_deletes_what_is_idle_for_a_day_and_nothing_else(
    store: DictDocuments, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "CLEAN_EVERY", 4)
    monkeypatch.setattr(documents, "CLEAN_AT_ONCE", 3)
    backend = open_backend(store, clock)
    held = granted(run(backend.try_acquire(claim(1, ttl=9 * DAY, key="ns:held"))))
    for number in range(9):
        run(backend.release(granted(run(backend.try_acquire(claim(number, key=f"ns:{number}"))))))
    far = run(backend.raise_fence("ns:raised", int((clock.instant + 30 * DAY) * 1_000_000)))
    run(backend.write(Record("ns:record", b"x", 5, 10.0)))
    run(backend.write(Record("ns:kept", b"x", 5, 9 * DAY)))
    clock.instant += 2 * DAY
    store.stored["foreign"] = (1, b"whatever")

    def is_clean() -> bool:
        run(backend.release(granted(run(backend.try_acquire(claim(99, key="ns:new"))))))
        left = {"lock:ns:held", "lock:ns:new", "record:ns:kept", "foreign"}
        return set(store.stored) - {"lock:ns:raised"} == left

    eventually(is_clean)
    assert granted(run(backend.try_acquire(claim(1, key="ns:raised")))).fence > far
    granted(run(backend.renew([held]))[0])
    run(backend.close())


def test_a_name_whose_holder_vanished_is_cleaned_away_a_day_after_that_was_noticed(
    store: DictDocuments, clock: HandClock
) -> None:
    backend = open_backend(store, clock)
    granted(run(backend.try_acquire(claim(1, ttl=1.0))))
    clock.instant += 2 * DAY
    run(backend._clean())
    assert granted(run(backend.try_acquire(claim(2, ttl=1.0)))).abandoned
    for _ in range(2):
        clock.instant += 2 * DAY
        run(backend._clean())
    assert store.stored == {}


# --- notifications


def test_a_waiter_is_notified_when_its_turn_comes_and_only_then(clock: HandClock) -> None:
    store = NotifyingDocuments(clock.now)
    holder, waiter = open_backend(store, clock), open_backend(store, clock)
    assert Capability.PUSH in waiter.capabilities
    grant = granted(run(holder.join(claim(1))))
    places = [run(waiter.join(claim(number))) for number in (2, 3)]
    first, second = (place for place in places if isinstance(place, Place))
    run(holder.release(grant))
    eventually(first.signal.is_set)
    assert not second.signal.is_set()
    grant = granted(run(waiter.turn(first)))
    run(waiter.release(grant))
    eventually(second.signal.is_set)
    run(waiter.close())
    assert store.watches["lock:ns:name"] == []


def test_when_the_store_cannot_say_whose_turn_it_is_every_waiter_asks(clock: HandClock) -> None:
    store = NotifyingDocuments(clock.now)
    holder, waiter = open_backend(store, clock), open_backend(store, clock)
    grant = granted(run(holder.join(claim(1))))
    places = [place for number in (2, 3) if isinstance(place := run(waiter.join(claim(number))), Place)]

    async def away(key: str) -> list[str]:
        raise BackendUnavailable("away")

    waiter.waiters_to_notify = away  # type: ignore[method-assign]
    run(holder.release(grant))
    assert len(places) == 2
    eventually(lambda: all(place.signal.is_set() for place in places))
    run(waiter.close())


def test_a_release_before_the_watch_began_is_not_missed(clock: HandClock) -> None:
    store = NotifyingDocuments(clock.now)
    backend = open_backend(store, clock)
    grant = granted(run(backend.join(claim(1))))
    watch = store.watch

    async def late_watch(key: str, changed: Callable[[], None], /) -> Callable[[], None]:
        await backend.release(grant)
        return await watch(key, changed)

    store.watch = late_watch  # type: ignore[method-assign]
    granted(run(backend.join(claim(2))))
    run(backend.close())


def test_closing_wakes_the_waiters(store: DictDocuments, clock: HandClock) -> None:
    backend = open_backend(store, clock)
    granted(run(backend.join(claim(1))))
    place = run(backend.join(claim(2)))
    assert isinstance(place, Place)
    run(backend.close())
    assert place.signal.is_set()
    assert store.closed


# --- stores without a clock


def open_clockless(store: DictDocuments, instant: float) -> tuple[ClocklessBackend, HandClock]:
    clock = HandClock(instant)
    return ClocklessBackend(store, ThreadRuntime(clock), "clockless", pause=0), clock


def test_without_a_clock_there_are_no_records() -> None:
    backend, _ = open_clockless(DictDocuments(lambda: None), 0.0)
    assert Capability.RECORD not in backend.capabilities
    assert not hasattr(backend, "write")


def test_without_a_clock_a_grant_ends_a_ttl_after_it_was_first_seen_and_never_earlier() -> None:
    store = DictDocuments(lambda: None)
    holder, own_clock = open_clockless(store, 500.0)
    other, clock = open_clockless(store, 9_000_000.0)  # another clock altogether
    grant = granted(run(holder.try_acquire(claim(1))))
    clock.instant += 3600  # it has not looked yet, so nothing counts
    assert isinstance(run(other.try_acquire(claim(2))), Refusal)
    clock.instant += 9.9
    own_clock.instant += 9.85
    assert isinstance(run(other.try_acquire(claim(2))), Refusal)
    granted(run(holder.renew([grant]))[0])
    clock.instant += 9.9  # the renewal began a new count
    assert isinstance(run(other.try_acquire(claim(2))), Refusal)
    clock.instant += 9.9
    assert isinstance(run(other.try_acquire(claim(2))), Refusal)
    clock.instant += 0.2
    heir = granted(run(other.try_acquire(claim(2))))
    assert heir.abandoned
    assert heir.fence > grant.fence
    loss: Any = run(holder.renew([grant]))[0]
    assert loss.reason is LossReason.TAKEN


def test_without_a_clock_a_claim_that_is_made_again_begins_a_new_count() -> None:
    store = DictDocuments(lambda: None)
    holder, _ = open_clockless(store, 0.0)
    other, clock = open_clockless(store, 0.0)
    granted(run(holder.try_acquire(claim(1))))
    assert isinstance(run(other.try_acquire(claim(2))), Refusal)
    run(holder.withdraw(claim(1), doubt=False))
    granted(run(holder.try_acquire(claim(1))))  # the same owner again, while the other one did not look
    clock.instant += 10.5
    assert isinstance(run(other.try_acquire(claim(2))), Refusal)


def test_without_a_clock_a_min_hold_is_kept() -> None:
    store = DictDocuments(lambda: None)
    holder, clock = open_clockless(store, 0.0)
    grant = granted(run(holder.try_acquire(claim(1, min_hold=5.0))))
    clock.instant += 2
    assert run(holder.release(grant)) is True
    clock.instant += 2.9
    assert isinstance(run(holder.try_acquire(claim(2))), Refusal)
    clock.instant += 0.2
    assert granted(run(holder.try_acquire(claim(2)))).abandoned is False
