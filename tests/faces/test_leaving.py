"""`close(release=True)` and `release_on_signals` inside one process."""

from __future__ import annotations

import asyncio
import signal
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import ConfigurationError, LeaseLost, LossReason, connect_async, events

if TYPE_CHECKING:
    from types import FrameType

    from leasehold import Loss


def test_a_lock_whose_callback_has_not_returned_is_left_to_its_ttl_and_the_others_are_given_back() -> None:
    client, other = leasehold.connect("memory://leaving 1"), leasehold.connect("memory://leaving 1")
    seen: list[events.Event] = []
    client.on_event(seen.append)
    over = threading.Event()
    leases = [client.lock("plain").acquire()]
    hold = client.lock("stubborn").hold(on_lost=lambda _: over.wait(60))
    hold.__enter__()
    client.close(release=True, timeout=0.4)
    assert other.lock("plain").try_acquire() is not None
    assert other.lock("stubborn").try_acquire() is None
    over.set()
    failed = [event for event in seen if isinstance(event, events.ReleaseFailed)]
    assert [(event.name, event.is_final) for event in failed] == [("stubborn", True)]
    assert "its ttl will free it" in str(failed[0])
    assert leases[0].loss is not None
    other.close()


def test_holders_learn_the_reason_and_nothing_warns_of_leases_left_open() -> None:
    client = leasehold.connect("memory://")
    losses: list[Loss] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with (
            pytest.raises(LeaseLost, match="given back") as lost,
            client.lock("x").hold(on_lost=losses.append) as lease,
        ):
            client.close(release=True)
            with pytest.raises(LeaseLost):
                lease.check()
            assert lease.release() is False
    assert lost.value.reason is LossReason.GIVEN_BACK
    assert [loss.reason for loss in losses] == [LossReason.GIVEN_BACK]


def test_a_re_entered_lock_and_a_set_are_given_back_whole() -> None:
    client, other = leasehold.connect("memory://leaving 2"), leasehold.connect("memory://leaving 2")
    lock = client.lock("x", reentrant=True)
    leases = [lock.acquire(), lock.acquire()]
    locks = client.lock_all(["a", "b"]).acquire()
    client.close(release=True)
    assert other.lock_all(["a", "b", "x"]).try_acquire() is not None
    assert all(lease.loss for lease in leases)
    assert locks.loss
    client.close(release=True)  # may be called again
    other.close()


def test_a_task_may_close_the_client_of_its_own_block() -> None:
    async def main() -> None:
        client, other = connect_async("memory://leaving 3"), connect_async("memory://leaving 3")
        with pytest.raises(LeaseLost) as lost:
            async with client.lock("x").hold():
                await client.close(release=True)
        assert lost.value.reason is LossReason.GIVEN_BACK
        await (await other.lock("x").acquire(0)).release()
        await other.close()

    asyncio.run(main())


def test_a_wrong_timeout_closes_nothing() -> None:
    with leasehold.connect("memory://") as client:
        lease = client.lock("x").acquire()
        with pytest.raises(ConfigurationError):
            client.close(release=True, timeout=-1)
        lease.check()
        lease.release()


# --- handlers


def test_handlers_are_put_back() -> None:
    with leasehold.connect("memory://") as client:
        before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        with client.release_on_signals() as leaving:
            assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGINT) != before[0]
            assert "SIGTERM" in repr(leaving)
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
        undo = client.release_on_signals([signal.SIGUSR1])
        assert signal.getsignal(signal.SIGTERM) == before[0]
        undo()
        undo()
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with leasehold.connect("memory://") as client, client.release_on_signals([signal.SIGUSR1]):
            assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_on_top_that_calls_us_after_undo_reaches_the_one_before() -> None:
    seen: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append("before"))
    try:
        with leasehold.connect("memory://") as client:
            lease = client.lock("x").acquire()
            undo = client.release_on_signals([signal.SIGUSR1])
            ours = signal.getsignal(signal.SIGUSR1)
            assert callable(ours)

            def top(number: int, frame: FrameType | None) -> None:
                seen.append("top")
                ours(number, frame)

            signal.signal(signal.SIGUSR1, top)
            undo()
            signal.raise_signal(signal.SIGUSR1)
            assert seen == ["top", "before"]
            lease.check()
            lease.release()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_program_may_go_on_after_its_own_handler() -> None:
    seen: list[bool] = []
    client = leasehold.connect("memory://")
    lease = client.lock("x").acquire()
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(lease.lost.is_set()))
    try:
        client.release_on_signals([signal.SIGUSR1])
        signal.raise_signal(signal.SIGUSR1)
        assert seen == [True], "the locks are given back first"
        assert lease.loss is not None
        with pytest.raises(leasehold.ClientClosed):
            client.lock("x").acquire()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_it_is_refused_where_there_can_be_no_handlers() -> None:
    errors: list[Exception] = []

    def elsewhere() -> None:
        try:
            leasehold.connect("memory://").release_on_signals()
        except ConfigurationError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(30)
    assert "main thread" in str(errors[0])
    with pytest.raises(ConfigurationError):
        leasehold.connect("memory://").release_on_signals(timeout=-1)


@pytest.mark.parametrize("is_set", [False, True])
def test_an_async_client_has_no_handlers_for_a_loop_that_does_not_run(is_set: bool) -> None:
    loop, before = asyncio.new_event_loop(), signal.getsignal(signal.SIGTERM)
    asyncio.set_event_loop(loop if is_set else None)
    try:
        with pytest.raises(ConfigurationError, match="on its running event loop"):
            connect_async("memory://").release_on_signals()
        assert signal.getsignal(signal.SIGTERM) == before
    finally:
        asyncio.set_event_loop(None)
        loop.close()
