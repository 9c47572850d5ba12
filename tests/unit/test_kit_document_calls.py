"""A store of documents, call by call: what it writes, waits for, promises and cleans; no failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendUnavailable
from leasehold.kit import ClocklessBackend, DocumentBackend, documents
from leasehold.spi import Place
from leasehold.values import Capability, Holder, Pause, Record, Refusal
from tests.unit.kit_support import DictDocuments, HandClock, NotifyingDocuments
from tests.unit.test_kit_documents import DAY, claim, granted, open_backend
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(clock: HandClock) -> DictDocuments:
    return DictDocuments(clock.now)


def test_the_floor_of_the_fences_is_that_of_the_url(store: DictDocuments, clock: HandClock) -> None:
    high = int(clock.instant * 1_000_000) + 10**15
    for floor, expected in ((high, high + 1), (5, int(clock.instant * 1_000_000))):
        backend = DocumentBackend(store, ThreadRuntime(clock), "documents", fence_floor=floor, pause=0)
        assert granted(run(backend.try_acquire(claim(key=f"ns:{floor}")))).fence == expected
    clockless = ClocklessBackend(store, ThreadRuntime(clock), "clockless", fence_floor=70, pause=0)
    assert granted(run(clockless.try_acquire(claim(key="ns:clockless")))).fence == 71


def test_a_waiter_looks_often_only_where_nobody_wakes_it(store: DictDocuments, clock: HandClock) -> None:
    for documents_of, recheck in (
        (store, documents.RECHECK_WITHOUT_NOTIFICATIONS),
        (NotifyingDocuments(clock.now), 1.0),
    ):
        backend = open_backend(documents_of, clock)
        granted(run(backend.join(claim(1))))
        place = run(backend.join(claim(2)))
        assert isinstance(place, Place)
        again = run(backend.turn(place))
        assert isinstance(again, Place)
        assert place.recheck == again.recheck == recheck
        assert again.signal is place.signal
        assert place.holder == Holder("host", 1)
        run(backend.close())


def test_a_waiter_is_told_who_is_in_the_way_how_many_and_until_when(store: DictDocuments, clock: HandClock) -> None:
    backend = open_backend(store, clock)
    granted(run(backend.join(claim(1, ttl=30.0))))
    clock.instant += 4
    ahead = []
    for number in (2, 3, 4):
        place = run(backend.join(claim(number)))
        assert isinstance(place, Place)
        assert (place.holder, place.retry_after, place.paused) == (Holder("host", 1), 26.0, None)
        ahead.append(place.ahead)
    assert ahead == [0, 1, 2]
    refusal = run(backend.try_acquire(claim(5)))
    assert refusal == Refusal("ns:name", Holder("host", 1), 26.0, 3)


def test_a_pause_lasts_for_as_long_as_it_was_asked_for_and_a_later_one_takes_its_place(
    store: DictDocuments, clock: HandClock
) -> None:
    backend = open_backend(store, clock)
    run(backend.pause("ns:name", Holder("h", 1, "bea", "too early"), 900.0))
    run(backend.pause("ns:name", Holder("h", 1, "ana", "moving"), 40.0))
    clock.instant += 15
    pause = Pause("moving", "ana", 25.0, 15.0)
    state = run(backend.inspect("ns:name"))
    assert state is not None
    assert (state.paused, state.holdings) == (pause, ())
    place = run(backend.join(claim(1)))
    assert isinstance(place, Place)
    assert (place.paused, place.retry_after, place.holder) == (pause, 25.0, None)
    refused = run(backend.try_acquire(claim(2)))
    assert isinstance(refused, Refusal)
    assert (refused.paused, refused.retry_after, refused.queue) == (pause, 25.0, 1)
    clock.instant += 25
    granted(run(backend.try_acquire(claim(3))))
    run(backend.pause("ns:other", Holder("h", 1, "ana", "moving"), 40.0))
    assert run(backend.resume("ns:other")) is True
    assert run(backend.resume("ns:other")) is False


def test_all_who_wait_are_woken_when_their_client_is_closed(store: DictDocuments, clock: HandClock) -> None:
    backend = open_backend(store, clock)
    places = []
    for key in ("ns:a", "ns:b", "ns:c"):
        granted(run(backend.join(claim(1, key=key))))
        places.append(run(backend.join(claim(2, key=key))))
    assert not any(place.signal.is_set() for place in places if isinstance(place, Place))
    run(backend.close())
    assert [isinstance(place, Place) and place.signal.is_set() for place in places] == [True] * 3


def test_every_round_trip_of_a_call_ends_when_its_caller_has_no_use_for_it(clock: HandClock) -> None:
    class Timing(NotifyingDocuments):
        untils: ClassVar[list[float]] = []

        async def load(self, key: str, until: float, /) -> tuple[bytes | None, Any]:
            self.untils.append(until)
            return await super().load(key, until)

        async def swap(self, key: str, value: bytes | None, seen: Any, until: float, /) -> bool:
            self.untils.append(until)
            return await super().swap(key, value, seen, until)

    documents_of = Timing(clock.now)
    backend = open_backend(documents_of, clock)
    until = clock.instant + 7.0
    grant = granted(run(backend.join(claim(1), until)))
    place = run(backend.join(claim(2), until))
    assert isinstance(place, Place)
    run(backend.turn(place, until))
    run(backend.renew([grant], until))
    run(backend.withdraw(claim(2), until))
    run(backend.release(grant, until))
    assert len(documents_of.untils) >= 10
    assert set(documents_of.untils) == {until}
    run(backend.close())


def test_a_store_promises_what_its_documents_can(store: DictDocuments, clock: HandClock) -> None:
    assert open_backend(store, clock).capabilities == frozenset(Capability) - {Capability.SESSION, Capability.PUSH}
    notifying = open_backend(NotifyingDocuments(clock.now), clock)
    assert notifying.capabilities == frozenset(Capability) - {Capability.SESSION}


def test_names_are_listed_by_their_prefix_in_order_and_records_are_no_names(
    store: DictDocuments, clock: HandClock
) -> None:
    backend = open_backend(store, clock)
    for number, key in enumerate(["ns:b", "ns:a", "other:a", "ns:lock:c"]):
        granted(run(backend.try_acquire(claim(number, key=key))))
    run(backend.write(Record("ns:record", b"x", 5, 10.0)))
    run(backend.release(granted(run(backend.try_acquire(claim(9, key="ns:idle"))))))
    assert [state.name for state in run(backend.list("ns:"))] == ["ns:a", "ns:b", "ns:lock:c"]


def test_a_name_and_a_record_of_the_same_key_are_two_documents(store: DictDocuments, clock: HandClock) -> None:
    backend = open_backend(store, clock)
    grant = granted(run(backend.try_acquire(claim())))
    assert run(backend.write(Record("ns:name", b"x", 5, 10.0)))
    assert set(store.stored) == {"lock:ns:name", "record:ns:name"}
    granted(run(backend.renew([grant]))[0])
    reading = run(backend.read("ns:name"))
    assert reading.record is not None
    assert (reading.record.value, reading.record.ttl, reading.time) == (b"x", 10.0, clock.instant)


def test_a_look_at_a_record_that_was_never_written_makes_no_document(store: DictDocuments, clock: HandClock) -> None:
    backend = open_backend(store, clock)
    assert run(backend.read("ns:record")).record is None
    assert store.stored == {}
    assert run(backend.read("ns:record", 7)).fence == 7
    assert list(store.stored) == ["record:ns:record"]
    assert run(backend.write(Record("ns:record", b"x", 6, 10.0))) is False


def test_a_store_that_gives_no_time_is_unavailable(store: DictDocuments, clock: HandClock) -> None:
    silent = DictDocuments(lambda: None)
    with pytest.raises(BackendUnavailable, match="gave no time") as raised:
        run(open_backend(silent, clock).try_acquire(claim()))
    assert raised.value.backend == "documents"


class Sleepy(ThreadRuntime):
    """Notes how long it is to sleep, and turns the clock."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.hand = clock
        self.slept: list[float] = []

    def random(self) -> float:
        return 0.5

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.hand.instant += seconds


def test_conflicts_are_tried_again_in_growing_pauses_for_a_second(store: DictDocuments, clock: HandClock) -> None:
    runtime = Sleepy(clock)
    backend = DocumentBackend(store, runtime, "documents")
    store.conflicts = 10**9
    started = clock.instant
    with pytest.raises(BackendUnavailable) as raised:
        run(backend.try_acquire(claim()))
    assert raised.value.backend == "documents"
    assert clock.instant - started == pytest.approx(documents.PATIENCE)
    growing = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05]
    assert runtime.slept[: len(growing)] == pytest.approx(growing)
    runtime.slept.clear()
    with pytest.raises(BackendUnavailable):
        run(backend.try_acquire(claim(), clock.instant + 0.0025))
    assert runtime.slept == pytest.approx([0.001, 0.0015], rel=0.01)


def test_the_way_is_cleaned_after_so_many_changes_and_not_after_looks(
    store: DictDocuments, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "CLEAN_EVERY", 4)
    started: list[str] = []
    for backend in (open_backend(store, clock), ClocklessBackend(store, ThreadRuntime(clock), "clockless", pause=0)):
        monkeypatch.setattr(backend._cleaner, "start", lambda backend=backend: started.append(backend.label))
        key = f"ns:{backend.label}"
        for _ in range(3):
            granted(run(backend.try_acquire(claim(key=key))))
            clock.instant += 1
        for _ in range(5):
            assert isinstance(run(backend.try_acquire(claim(2, key=key))), Refusal)
        assert started == []
        granted(run(backend.try_acquire(claim(key=key))))
        granted(run(backend.try_acquire(claim(key=f"{key}2"))))
        assert started == ["documents"] * (backend.label == "documents")
        started.clear()


def test_cleaning_goes_on_behind_the_last_key_and_ends_with_its_client(
    store: DictDocuments, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "CLEAN_AT_ONCE", 2)
    backend = open_backend(store, clock)
    for number in range(5):
        run(backend.release(granted(run(backend.try_acquire(claim(number, key=f"ns:{number}"))))))
    clock.instant += 2 * DAY
    for left in (3, 1, 0):
        run(backend._clean())
        assert len(store.stored) == left
    run(backend.release(granted(run(backend.try_acquire(claim())))))
    clock.instant += 2 * DAY
    backend._closed = True
    run(backend._clean())
    assert len(store.stored) == 1


def test_a_watch_ends_when_nobody_waits_there_any_more(clock: HandClock) -> None:
    store = NotifyingDocuments(clock.now)
    holder, waiter = open_backend(store, clock), open_backend(store, clock)
    grant = granted(run(holder.join(claim(1))))
    place = run(waiter.join(claim(2)))
    assert isinstance(place, Place)
    assert len(store.watches["lock:ns:name"]) == 1
    other = run(waiter.join(claim(3)))
    assert len(store.watches["lock:ns:name"]) == 1, "one for all waiters of a client"
    del other
    run(waiter.withdraw(claim(3), doubt=False))
    run(holder.release(grant))
    eventually(place.signal.is_set)
    del place

    def is_over() -> bool:
        waiter._notifications._worker.wake()  # type: ignore[union-attr]
        return store.watches["lock:ns:name"] == []

    eventually(is_over)
    assert waiter._notifications._signals == {}  # type: ignore[union-attr]
    run(waiter.close())


def test_of_two_watches_that_begin_at_once_one_is_ended(clock: HandClock) -> None:
    store = NotifyingDocuments(clock.now)
    backend = open_backend(store, clock)
    granted(run(backend.join(claim(1))))
    watch = store.watch
    notifications = backend._notifications
    assert notifications is not None

    async def slow_watch(key: str, changed: Callable[[], None], /) -> Callable[[], None]:
        if not notifications._ends:
            notifications._ends["ns:name"] = await watch(key, changed)  # by another task
        return await watch(key, changed)

    store.watch = slow_watch  # type: ignore[method-assign]
    assert isinstance(run(backend.join(claim(2))), Place)
    assert len(store.watches["lock:ns:name"]) == 1
    run(backend.close())
    assert store.watches["lock:ns:name"] == []


@pytest.mark.parametrize(("idle_for", "is_kept"), [(DAY / 2, True), (DAY - 1, True), (DAY + 1, False)])
def test_a_document_stays_until_a_clock_that_is_set_back_by_a_day_still_gives_higher_fences(
    store: DictDocuments, clock: HandClock, idle_for: float, is_kept: bool
) -> None:
    backend = open_backend(store, clock)
    run(backend.release(granted(run(backend.try_acquire(claim())))))
    clock.instant += idle_for
    run(backend._clean())
    assert bool(store.stored) is is_kept


def test_without_a_clock_a_grant_is_held_since_it_was_granted_whatever_is_written_later(
    store: DictDocuments, clock: HandClock
) -> None:
    backend = ClocklessBackend(store, ThreadRuntime(clock), "clockless", pause=0)
    grant = granted(run(backend.try_acquire(claim(1))))
    clock.instant += 3
    run(backend.renew([grant]))
    clock.instant += 4
    for number in (2, 3):  # which leaves the row of the holder as it is
        run(backend.join(claim(number)))
    state = run(backend.inspect("ns:name"))
    assert state is not None
    assert [(holding.held_for, holding.expires_in) for holding in state.holdings] == [(7.0, 6.0)]
    assert state.waiting == (Holder("host", 2), Holder("host", 3))


def test_an_empty_record_is_a_record(store: DictDocuments, clock: HandClock) -> None:
    backend = open_backend(store, clock)
    assert run(backend.write(Record("ns:record", b"", 5, 10.0)))
    clock.instant += 4
    reading = run(backend.read("ns:record"))
    assert (reading.record, reading.fence) == (Record("ns:record", b"", 5, 6.0), 5)


@pytest.mark.parametrize(("left", "recheck"), [(30.0, 0.2), (0.25, 0.2), (0.05, 0.05), (0.001, 0.01)])
def test_the_first_waiter_looks_when_the_holder_ends_if_that_is_sooner(
    store: DictDocuments, clock: HandClock, left: float, recheck: float
) -> None:
    backend = open_backend(store, clock)
    granted(run(backend.join(claim(1, ttl=30.0))))
    clock.instant += 30.0 - left
    first, second = run(backend.join(claim(2))), run(backend.join(claim(3)))
    assert isinstance(first, Place)
    assert isinstance(second, Place)
    assert first.recheck == pytest.approx(recheck, abs=1e-6)
    assert second.recheck == 0.2, "who is behind need not hurry"


def test_closing_ends_its_background_work_before_its_connections(clock: HandClock) -> None:
    order: list[str] = []

    class Closing(NotifyingDocuments):
        async def close(self) -> None:
            order.append("documents")

    backend = open_backend(Closing(clock.now), clock)
    notifications = backend._notifications
    assert notifications is not None

    def noting(name: str) -> Any:
        async def close() -> None:
            order.append(name)

        return close

    backend._cleaner.close = noting("cleaner")  # type: ignore[method-assign]
    notifications.close = noting("notifications")  # type: ignore[method-assign]
    run(backend.close())
    assert order == ["cleaner", "notifications", "documents"]


def test_closing_ends_the_watch_of_every_name(clock: HandClock) -> None:
    store = NotifyingDocuments(clock.now)
    backend = open_backend(store, clock)
    places = []
    for key in ("ns:a", "ns:b", "ns:c"):
        granted(run(backend.join(claim(1, key=key))))
        places.append(run(backend.join(claim(2, key=key))))
    assert [len(store.watches[f"lock:ns:{name}"]) for name in "abc"] == [1, 1, 1]
    run(backend.close())
    assert [store.watches[f"lock:ns:{name}"] for name in "abc"] == [[], [], []]
    assert len(places) == 3
