"""The calls of a client that wait: who is woken, who is known, and what closing waits for."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import ClientClosed
from leasehold._core.waiting_calls import RECHECK, WaitingCalls
from leasehold._runtimes.threads import run
from leasehold.testing import ManualStore
from tests.unit.planned_waits import PlannedWaits

if TYPE_CHECKING:
    pass

NOW = 1_000.0


class Call:
    """One that has a place in a queue."""

    def __init__(self) -> None:
        self.left = 0

    async def leave_queue(self) -> None:
        self.left += 1


@pytest.fixture
def runtime() -> PlannedWaits:
    return PlannedWaits()


@pytest.fixture
def calls(runtime: PlannedWaits) -> WaitingCalls:
    return WaitingCalls(runtime)


def test_a_wait_is_known_while_it_lasts_and_forgotten_with_its_signal(
    runtime: PlannedWaits, calls: WaitingCalls
) -> None:
    call, signal = Call(), runtime.signal()
    known: list[object] = []
    runtime.plan = [lambda: known.extend(calls._signals)]
    run(calls.wait(call, signal, NOW + 5))
    assert known == [signal]
    assert calls._signals == set()
    assert list(calls._calls) == [call]
    calls.ended(call)
    assert list(calls._calls) == []


def test_a_wait_that_is_interrupted_leaves_no_signal_behind(runtime: PlannedWaits, calls: WaitingCalls) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    runtime.plan = [interrupt]
    with pytest.raises(KeyboardInterrupt):
        run(calls.wait(Call(), runtime.signal(), NOW + 5))
    assert calls._signals == set()


def test_a_pause_takes_its_time(runtime: PlannedWaits, calls: WaitingCalls) -> None:
    run(calls.pause(Call(), 2.5))
    assert runtime.waits == [NOW + 2.5]


def test_closing_wakes_every_wait_and_each_ends_with_an_error(runtime: PlannedWaits, calls: WaitingCalls) -> None:
    signals = [runtime.signal(), runtime.signal()]
    calls._signals.update(signals)
    runtime.plan = [calls.close]
    with pytest.raises(ClientClosed):
        run(calls.wait(Call(), runtime.signal(), math.inf))
    assert all(signal.is_set() for signal in signals)
    with pytest.raises(ClientClosed):
        run(calls.wait(Call(), runtime.signal(), math.inf))
    assert len(runtime.waits) == 1


def test_a_frozen_call_waits_on_without_an_end_until_the_client_is_closed(
    runtime: PlannedWaits, calls: WaitingCalls
) -> None:
    """Were it woken, the program might end by its error instead of by its signal."""
    runtime.plan = [calls.freeze, calls.close]
    with pytest.raises(ClientClosed):
        run(calls.wait(Call(), runtime.signal(), NOW + 5))
    assert runtime.waits == [NOW + 5, None]
    assert calls._thawed.is_set()


def test_without_being_frozen_a_call_waits_once(runtime: PlannedWaits, calls: WaitingCalls) -> None:
    run(calls.wait(Call(), runtime.signal(), NOW + 5))
    assert runtime.waits == [NOW + 5]
    assert not calls.is_frozen


def test_queues_are_left_on_behalf_of_all_calls_that_have_a_place_until_the_time_is_up(
    runtime: PlannedWaits, calls: WaitingCalls
) -> None:
    class Slow(Call):
        async def leave_queue(self) -> None:
            await super().leave_queue()
            runtime.clock.advance(1.0)

    class Plain:
        """It has none."""

    queued = [Slow(), Slow(), Slow()]
    plain = Plain()
    for call in (plain, *queued):
        calls.begins(call)
    run(calls.leave(NOW + 1.5))
    assert [call.left for call in queued] == [1, 1, 0]


def test_closing_waits_for_the_calls_of_others_and_not_for_its_own(runtime: PlannedWaits, calls: WaitingCalls) -> None:
    mine, theirs = Call(), Call()
    calls.begins(mine)
    run(calls.finish(NOW + 5))
    assert runtime.waits == []
    runtime.me = "another"
    calls.begins(theirs)
    runtime.me = "me"
    runtime.plan = [lambda: None, lambda: calls.ended(theirs)]
    run(calls.finish(NOW + 5))
    assert runtime.waits == [NOW + RECHECK] * 2


def test_closing_waits_for_others_until_its_deadline(runtime: PlannedWaits, calls: WaitingCalls) -> None:
    theirs = Call()
    runtime.me = "another"
    calls.begins(theirs)
    runtime.me = "me"
    run(calls.finish(NOW + 0.12))
    assert runtime.waits == [pytest.approx(NOW + one) for one in (0.05, 0.1, 0.12)]
    calls.freeze()
    run(calls.finish(NOW + 60))
    assert len(runtime.waits) == 3, "frozen calls do not end"


def test_the_end_of_a_call_wakes_who_waits_for_it(runtime: PlannedWaits, calls: WaitingCalls) -> None:
    call = Call()
    calls.begins(call)
    calls._ended.clear()
    calls.ended(call)
    assert calls._ended.is_set()
    calls.ended(call)  # once more does no harm


@pytest.mark.parametrize(
    ("patience", "limit", "calls_until", "cleanup_until"),
    [(5.0, math.inf, 1.0, 5.0), (0.5, math.inf, 0.5, 0.5), (5.0, 0.3, 0.3, 0.3), (5.0, 2.0, 1.0, 2.0)],
)
def test_how_long_closing_waits_for_calls_and_for_the_clean_up(
    patience: float, limit: float, calls_until: float, cleanup_until: float
) -> None:
    store = ManualStore(autojump=None)
    opened = store.connect()._twin._open()
    opened.close_patience = patience
    order: list[tuple[str, float]] = []

    async def note(what: str, deadline: float = 0.0) -> None:
        order.append((what, round(deadline - NOW, 6)))

    parts: Any = opened
    parts.waiting_calls.finish = lambda deadline: note("calls", deadline)
    parts.cleanup.close = lambda deadline: note("clean-up", deadline)
    parts.backend.close = lambda: note("connections", NOW)
    run(opened.close(NOW + limit))
    assert order == [("calls", calls_until), ("clean-up", cleanup_until), ("connections", 0.0)]


def test_connections_are_closed_also_when_the_warning_of_a_held_lease_is_raised() -> None:
    store = ManualStore(autojump=None)
    client = store.connect()
    lease = client.lock("x").acquire()
    opened = client._twin._open()
    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    backend: Any = opened.backend
    backend.close = close
    with pytest.raises(ResourceWarning):  # as every warning is raised in these tests
        run(opened.close(NOW + 5))
    assert closed == [True]
    assert lease.loss is not None


def test_what_was_opened_where_no_loop_runs_is_used_by_the_first_loop() -> None:
    """A client that was asked for its store's capabilities at import must not connect twice."""
    store = ManualStore()
    opened: list[object] = []
    plain = store.open_backend

    def counted(runtime: Any) -> Any:
        opened.append(runtime)
        return plain(runtime)

    store.open_backend = counted  # type: ignore[method-assign]
    client = store.connect_async()
    assert client.capabilities

    async def program() -> None:
        async with client, client.lock("x").hold():
            pass

    asyncio.run(program())
    assert len(opened) == 1
