"""The keeper: starts with the first lease, ends when idle, knows leases weakly, survives errors."""

from __future__ import annotations

import gc
import math
import threading
import time
import warnings
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import events
from leasehold.errors import LeaseLost
from leasehold.testing import ManualStore
from tests.waiting import eventually

if TYPE_CHECKING:
    pass


def keepers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "leasehold keeper"}


def test_the_worker_starts_with_the_first_lease_and_ends_when_idle() -> None:
    before = keepers()  # of other tests; they may end meanwhile
    client = leasehold.connect("memory://")
    assert not keepers() - before
    lease = client.lock("x").acquire()
    eventually(lambda: len(keepers() - before) == 1)
    lease.release()
    eventually(lambda: not keepers() - before)
    lease = client.lock("x").acquire()
    eventually(lambda: len(keepers() - before) == 1)
    lease.release()
    client.close()
    assert not keepers() - before


def test_a_dropped_lease_is_reported_and_not_renewed() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with store.connect() as client:
            client.on_event(seen.append)
            client.lock("x").acquire()
            gc.collect()
            store.clock.advance(1.5)
            eventually(lambda: any(isinstance(event, events.Dropped) for event in seen))
            eventually(lambda: any(issubclass(w.category, ResourceWarning) for w in caught))
            store.pass_time(31)
            assert client.inspect("x") is None
    assert "renew" not in store.faults.calls


def test_a_lease_is_collected_at_once_and_not_by_the_garbage_collector() -> None:
    """Otherwise an orphan would be renewed until the collector happens to run."""
    store = ManualStore()
    gc.disable()
    try:
        client = store.connect()
        hold = client.lock("x").hold(on_lost=lambda loss: None)
        hold.__enter__()
        opened = client._twin._opened
        assert opened is not None
        (known,) = opened.keeper._known.values()
        assert known() is not None
        del hold
        assert known() is None
    finally:
        gc.enable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client.close()


def test_an_error_in_on_lost_does_not_end_the_keeper(caplog: pytest.LogCaptureFixture) -> None:
    store = ManualStore()
    told = threading.Event()

    def broken(loss: leasehold.Loss) -> None:
        told.set()
        raise ZeroDivisionError

    with store.connect() as client:
        with pytest.raises(LeaseLost), client.lock("x").hold(on_lost=broken) as lease:
            store.lose(lease)
            assert told.wait(10)
        other = client.lock("y").acquire()
        store.pass_time(60)
        other.check()
        other.release()
    assert "on_lost failed" in caplog.text


def test_on_lost_is_called_exactly_once() -> None:
    store = ManualStore()
    losses: list[leasehold.Loss] = []
    with store.connect() as client:
        with pytest.raises(LeaseLost), client.lock("x").hold(on_lost=losses.append) as lease:
            store.clock.advance(31)
            assert lease.lost.is_set()
            eventually(lambda: bool(losses))
            store.clock.advance(31)
            time.sleep(0.02)
        assert len(losses) == 1


def test_a_store_that_hangs_does_not_delay_the_news_of_the_loss() -> None:
    """The renewal is a task of its own: the keeper never waits for it."""
    store = ManualStore()
    told = threading.Event()
    with store.connect() as client, pytest.raises(LeaseLost) as lost:
        with client.lock("x").hold(on_lost=lambda loss: told.set()):
            for _ in range(10):
                store.faults.delay_next_reply(10_000, "renew")
            for _ in range(64):
                store.clock.advance(0.5)
                time.sleep(0.002)
            assert told.wait(10)
    assert lost.value.reason is leasehold.LossReason.UNCONFIRMED
    store.clock.advance(20_000)


def test_closing_inside_on_lost_does_not_wait_for_itself() -> None:
    store = ManualStore()
    client = store.connect()
    closed = threading.Event()

    def close(loss: leasehold.Loss) -> None:
        client.close()
        closed.set()

    with pytest.raises(LeaseLost), client.lock("x").hold(on_lost=close) as lease:
        store.lose(lease)
        assert closed.wait(10)


def test_when_the_store_has_reason_to_doubt_every_lease_is_renewed_at_once() -> None:
    store = ManualStore()
    with store.connect() as client:
        leases = [client.lock(name).acquire() for name in ("x", "y")]
        client._twin._open().keeper.renew_soon()
        eventually(lambda: all(lease._twin._tenure.confirmed > -math.inf for lease in leases))
        for lease in leases:
            lease.release()


def test_a_fence_that_a_resource_has_seen_is_repaired_before_the_lock_is_tried() -> None:
    with ManualStore().connect() as client:
        with client.lock("x").hold() as lease:
            seen = lease.fence + 1000
        client._twin._open().note_fence("leasehold:x", seen)
        with client.lock("x").try_acquire() as lease:  # type: ignore[union-attr]
            assert lease.fence > seen


def test_another_lease_does_not_suffer_when_one_is_lost() -> None:
    store = ManualStore()
    with store.connect() as client:
        lost, kept = client.lock("lost").acquire(), client.lock("kept").acquire()
        store.lose(lost)
        store.pass_time(90)
        kept.check()
        assert kept.release()
        with pytest.raises(LeaseLost):
            lost.check()


def test_a_program_that_ends_while_holding_neither_hangs_nor_prints() -> None:
    import subprocess
    import sys

    code = "import leasehold\nlease = leasehold.connect('memory://').lock('x').acquire()\n"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (result.returncode, result.stderr) == (0, "")
