"""What the core does in the background and at the edges of a call; a scripted store, a clock turned by hand."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import (
    AcquireTimeout,
    BackendRejected,
    BackendUnavailable,
    ClientClosed,
    LeaseLost,
    OutcomeUnknown,
    events,
)
from leasehold._core.backoff import GRACE
from leasehold._core.waiting_calls import WaitingCalls
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.testing import ManualStore
from leasehold.values import LossReason, Refusal
from tests.unit.test_core_time import Script, Turning, fails
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable


class Interrupted(BaseException):
    """What a signal handler raises."""


def test_an_interrupted_call_without_a_timeout_gives_its_withdrawal_a_second() -> None:
    store = ManualStore()
    with store.connect() as client:
        Script(client, "join", lambda *_: fails(Interrupted()))
        withdrawal = Script(client, "withdraw", lambda claim, until, plain: plain())
        with pytest.raises(Interrupted):
            client.lock("x").acquire(None)
        assert withdrawal.untils == [store.clock.now() + GRACE]
        assert withdrawal.options == [{"doubt": True}]


def test_a_call_that_gives_up_in_doubt_leaves_its_withdrawal_to_the_cleanup() -> None:
    store = ManualStore()
    threads: list[str] = []

    def note(claim: object, until: float, plain: Callable[[], Any]) -> Any:
        threads.append(threading.current_thread().name)
        return plain()

    with store.connect() as client:
        Script(client, "join", lambda *_: fails(OutcomeUnknown("no answer")))
        Script(client, "withdraw", note)
        assert isinstance(Turning(store, lambda: client.lock("x").acquire(0.1)).result, OutcomeUnknown)
        eventually(lambda: threads == ["leasehold cleanup"])


def test_the_last_pause_of_a_call_whose_store_is_away_ends_at_its_deadline() -> None:
    store = ManualStore()
    with store.connect() as client:
        for _ in range(9):
            store.faults.refuse_next("join")
        failed: list[BaseException] = []

        def call() -> None:
            with pytest.raises(BackendUnavailable) as raised:
                client.lock("x").acquire(0.05)
            failed.append(raised.value)

        thread = threading.Thread(target=call)
        thread.start()
        signals = client._twin._open().waiting_calls._signals
        for tries, pause in ((1, 0.021), (2, 0.03)):  # the second one would be of 50 ms at least
            eventually(lambda tries=tries: store.faults.calls.count("join") == tries and signals)  # type: ignore[misc]
            store.clock.advance(pause)
        eventually(lambda: failed)
        thread.join()


def test_the_cleanup_stops_when_the_ttl_has_done_its_work() -> None:
    store = ManualStore()
    with store.connect() as client:
        store.faults.cut()
        assert isinstance(Turning(store, lambda: client.lock("x", ttl=4).acquire(0.1)).result, OutcomeUnknown)
        store.pass_time(5)
        tries = store.faults.calls.count("withdraw")
        assert tries > 1
        store.pass_time(20)
        assert store.faults.calls.count("withdraw") == tries


def test_a_chore_that_is_refused_for_good_does_not_keep_the_others_from_being_done() -> None:
    store = ManualStore()
    with store.connect() as client:
        Script(client, "try_acquire", lambda *_: fails(OutcomeUnknown("no answer")))
        away, done = [True], []

        def withdraw(claim: Any, until: float, plain: Callable[[], Any]) -> Any:
            if away[0]:
                raise OutcomeUnknown("no answer")
            if claim.key.endswith("a"):
                raise BackendRejected("no rights")
            done.append(claim.key)
            return plain()

        Script(client, "withdraw", withdraw)
        for name in ("a", "b"):
            assert isinstance(Turning(store, client.lock(name).try_acquire).result, OutcomeUnknown)
        away[0] = False
        store.pass_time(3)
        assert len(done) == 1


def test_a_chore_that_keeps_failing_does_not_keep_the_others_from_being_done() -> None:
    store = ManualStore()
    with store.connect() as client:
        Script(client, "try_acquire", lambda *_: fails(OutcomeUnknown("no answer")))
        tries: list[str] = []

        def withdraw(claim: Any, until: float, plain: Callable[[], Any]) -> Any:
            tries.append(claim.key[-1])
            return fails(OutcomeUnknown("no answer")) if claim.key.endswith("a") else plain()

        Script(client, "withdraw", withdraw)
        for name in ("a", "b"):
            assert isinstance(Turning(store, client.lock(name, ttl=60).try_acquire).result, OutcomeUnknown)
        store.pass_time(5)
        assert tries.count("a") > 1
        assert tries.count("b") == 1


def test_closing_tries_to_clean_up_with_pauses() -> None:
    store = ManualStore()
    client = store.connect()
    client._twin._close_patience = 2.0
    tries: list[float] = []

    def withdraw(claim: Any, until: float, plain: Callable[[], Any]) -> Any:
        tries.append(store.clock.now())
        return fails(OutcomeUnknown("no answer"))

    Script(client, "try_acquire", lambda *_: fails(OutcomeUnknown("no answer")))
    Script(client, "withdraw", withdraw)
    assert isinstance(Turning(store, client.lock("a", ttl=60).try_acquire).result, OutcomeUnknown)
    assert Turning(store, client.close).result is None
    closed = len(tries)
    store.clock.advance(100)  # the ttl has done the rest
    assert 5 < closed < 100, "ten times a second"


def test_closing_cleans_up_before_it_lets_go_of_the_connections() -> None:
    store = ManualStore()
    done: list[str] = []
    client = store.connect()
    client._twin._close_patience = 60.0
    away = [True]

    def withdraw(claim: Any, until: float, plain: Callable[[], Any]) -> Any:
        if away[0]:
            raise OutcomeUnknown("no answer")
        done.append("withdrawn")
        return plain()

    async def closed() -> None:
        done.append("closed")

    Script(client, "try_acquire", lambda *_: fails(OutcomeUnknown("no answer")))
    Script(client, "withdraw", withdraw)
    backend: Any = client._twin._open().backend
    backend.close = closed
    assert isinstance(Turning(store, client.lock("x", ttl=3600).try_acquire).result, OutcomeUnknown)
    away[0] = False
    Turning(store, client.close)
    assert done == ["withdrawn", "closed"]


def test_a_call_does_not_begin_to_wait_in_a_client_that_is_closed() -> None:
    """Nobody would wake it: it comes after those that were woken."""

    class NoWaiting(ThreadRuntime):
        async def wait(self, signal: Any, deadline: float | None) -> bool:
            raise AssertionError("it waits")

    calls = WaitingCalls(NoWaiting())
    calls.close()
    with pytest.raises(ClientClosed):
        run(calls.wait(calls, ThreadRuntime().signal(), math.inf))
    with pytest.raises(ClientClosed):
        run(calls.pause(calls, 3600))


def test_a_forked_child_leaves_what_is_to_be_cleaned_up_to_its_parent() -> None:
    store = ManualStore()
    with store.connect() as client:
        store.faults.cut()
        assert isinstance(Turning(store, lambda: client.lock("x", ttl=60).acquire(0.1)).result, OutcomeUnknown)
        opened = client._twin._opened
        assert opened is not None
        eventually(opened.cleanup.is_quiet)
        opened.bury()
        tries = store.faults.calls.count("withdraw")
        store.clock.advance(5)
        store.pass_time(10)
        assert store.faults.calls.count("withdraw") <= tries + 1


def test_one_batch_of_renewals_is_of_use_as_long_as_one_of_its_leases() -> None:
    store = ManualStore()
    with store.connect() as client:
        short, long = client.lock("a", ttl=2.9).acquire(), client.lock("b", ttl=3).acquire()
        ends = store.clock.now() + long.remaining()
        renewals = Script(client, "renew", lambda grants, until, plain: plain())
        store.clock.advance(0.98)
        eventually(lambda: bool(renewals.untils))
        assert renewals.untils == [pytest.approx(ends)]
        short.release()
        long.release()


def test_a_break_that_comes_after_the_loss_does_not_change_its_reason() -> None:
    store = ManualStore()
    with store.connect() as client:
        lease = client.lock("x", ttl=60, max_hold=1).acquire()
        assert client.break_lock("x", fence=lease.fence, reason="stuck")
        store.clock.advance(2)
        assert lease.release() is False
        assert lease.loss is not None
        assert lease.loss.reason is LossReason.MAX_HOLD


def test_a_holder_that_releases_a_broken_lock_inside_its_block_is_not_interrupted() -> None:
    """It learns of the break at the end of its block, as one that has done its work."""
    store = ManualStore()
    lost: list[object] = []
    went_on: list[bool] = []

    async def program() -> None:
        async with store.connect_async() as client, client.lock("x", ttl=60).hold(on_lost=lost.append) as lease:
            assert await client.break_lock("x", fence=lease.fence, reason="stuck")
            assert await lease.release() is False
            await asyncio.sleep(0)  # where an interruption would arrive
            went_on.append(True)

    with pytest.raises(LeaseLost) as raised:
        asyncio.run(program())
    assert went_on
    assert raised.value.completed
    assert raised.value.reason is LossReason.BROKEN
    assert lost == []


def test_a_client_that_is_closed_at_the_end_of_a_block_is_a_warning() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect() as client:
        client.on_event(seen.append)
        Script(client, "release", lambda *_: fails(ClientClosed()))
        with client.lock("x").hold():
            pass
        assert [type(event) for event in seen if isinstance(event, events.ReleaseFailed)] == [events.ReleaseFailed]


def test_a_client_does_not_wait_for_a_call_of_its_own_thread_when_a_signal_handler_closes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leasehold._core.open_client.GRACE", 60.0)
    store = ManualStore()
    with store.connect() as other, other.lock("x", ttl=3600).hold():
        client = store.connect()
        client._twin._close_patience = 60.0

        def handler(place: object, until: float, plain: Callable[[], Any]) -> Any:
            client.close()
            return plain()

        Script(client, "turn", handler)
        began = store.clock.now()
        assert isinstance(Turning(store, lambda: client.lock("x").acquire(None)).result, ClientClosed)
        assert store.clock.now() < began + 30


def test_doubt_about_one_claim_is_not_doubt_about_the_next() -> None:
    store = ManualStore()
    with store.connect() as other, other.lock("x", ttl=3600).hold(), store.connect() as client:
        joins, turns = [0], [0]

        def join(claim: Any, until: float, plain: Callable[[], Any]) -> Any:
            joins[0] += 1
            return fails(OutcomeUnknown("no answer")) if joins[0] == 1 else plain()

        def turn(place: Any, until: float, plain: Callable[[], Any]) -> Any:
            turns[0] += 1
            return Refusal(place.claim.key) if turns[0] == 1 else plain()

        Script(client, "join", join)
        Script(client, "turn", turn)
        withdrawals = Script(client, "withdraw", lambda claim, until, plain: plain())
        assert isinstance(Turning(store, lambda: client.lock("x").acquire(5)).result, AcquireTimeout)
        assert withdrawals.options == [{"doubt": True}, {"doubt": False}]


def test_a_call_that_waits_for_ever_outlasts_an_outage_once_the_store_has_answered() -> None:
    store = ManualStore()
    with store.connect() as client, store.connect() as other:
        lease = other.lock("x", ttl=3600).acquire()
        away = [False]

        def turn(place: Any, until: float, plain: Callable[[], Any]) -> Any:
            if store.clock.now() > 1005 and not away[0]:
                away[0] = True
            if away[0] and store.clock.now() < 1040:
                raise OutcomeUnknown("no answer")
            if store.clock.now() >= 1040 and lease.remaining():
                lease.release()
            return plain()

        Script(client, "turn", turn)
        call = Turning(store, lambda: client.lock("x", ttl=3600).acquire(None))
        call.result.release()
        assert away == [True]
