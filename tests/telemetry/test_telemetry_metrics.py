"""What the metrics say about locks, in both libraries and both faces."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import ConfigurationError, telemetry
from leasehold.telemetry.instruments import INSTRUMENTS
from leasehold.testing.manual import ManualStore
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.telemetry.reports import Report

ACQUIRE, HOLD = "leasehold.lock.acquire.duration", "leasehold.lock.hold.duration"
HELD, WAITERS, LOST = "leasehold.lock.held", "leasehold.lock.waiters", "leasehold.lock.lost"
GROUP = "order:{id}"
MANUAL = "manual"


def test_a_pair_is_one_acquire_and_one_hold_and_the_gauge_comes_back(report: Report) -> None:
    with leasehold.connect("memory://") as client:
        report.switch_on(client)
        with client.lock("order:1", group=GROUP).hold():
            assert report.value(HELD, "memory", GROUP) == 1
        assert report.value(HELD, "memory", GROUP) == 0
        assert report.value(ACQUIRE, "memory", GROUP, "exclusive", "acquired") == 1
        assert report.value(HOLD, "memory", GROUP, "released") == 1


def test_the_async_face_is_counted_as_well(report: Report) -> None:
    async def main() -> None:
        async with leasehold.connect_async("memory://") as client:
            report.switch_on(client)
            async with client.semaphore("pool", 2, group="pool").hold():
                assert report.value(HELD, "memory", "pool") == 1
            assert report.value(ACQUIRE, "memory", "pool", "permit", "acquired") == 1

    asyncio.run(main())


def test_calls_that_do_not_get_the_lock_are_counted_by_what_became_of_them(report: Report) -> None:
    store = ManualStore()
    with store.connect() as client, store.connect() as other:
        report.switch_on(other)
        lock = other.lock("x", group="g")
        with client.lock("x").hold():
            assert lock.try_acquire() is None
            with pytest.raises(leasehold.AcquireTimeout):
                lock.acquire(0)
        store.faults.reject_next("join")
        store.faults.reject_next("try_acquire")
        with pytest.raises(leasehold.BackendError):
            lock.acquire(5)
        assert report.value(ACQUIRE, MANUAL, "g", "exclusive", "busy") == 2
        assert report.value(ACQUIRE, MANUAL, "g", "exclusive", "error") == 1


def test_a_call_that_waits_is_a_waiter_until_it_ends(report: Report) -> None:
    with leasehold.connect("memory://") as client:
        report.switch_on(client)
        lock = client.lock("x", group="g")
        lease = lock.acquire()
        with pytest.raises(leasehold.AcquireTimeout):
            lock.acquire(0.01)
        assert report.value(ACQUIRE, "memory", "g", "exclusive", "timeout") == 1
        assert report.value(WAITERS, "memory", "g") == 0
        waiter = threading.Thread(target=lambda: lock.acquire(30).release())
        waiter.start()
        eventually(lambda: report.value(WAITERS, "memory", "g") == 1)
        lease.release()
        waiter.join()
        assert report.value(WAITERS, "memory", "g") == 0
        assert report.value(HELD, "memory", "g") == 0


def test_a_cancelled_wait_is_no_waiter_any_more(report: Report) -> None:
    async def main() -> None:
        async with leasehold.connect_async("memory://") as client:
            report.switch_on(client)
            lock = client.lock("x", group="g")
            async with lock.hold():
                task = asyncio.create_task(lock.acquire())
                while report.value(WAITERS, "memory", "g") != 1:
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert report.value(WAITERS, "memory", "g") == 0
                assert report.value(ACQUIRE, "memory", "g", "exclusive", "cancelled") == 1

    asyncio.run(main())


def test_a_cancelled_release_ends_the_hold(report: Report) -> None:
    async def main() -> None:
        async with leasehold.connect_async("memory://") as client:
            report.switch_on(client)
            lease = await client.lock("x", group="g").acquire()
            task = asyncio.create_task(lease.release())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            if report.value(HELD, "memory", "g"):
                await lease.release()
            assert report.value(HELD, "memory", "g") == 0

    asyncio.run(main())


def test_a_loss_has_its_reason_and_ends_the_hold_once(report: Report) -> None:
    store = ManualStore()
    with store.connect() as client:
        report.switch_on(client)
        lease = client.lock("x", group="g", renew=False).acquire()
        store.pass_time(40)
        assert lease.loss is not None
        eventually(lambda: report.value(LOST, MANUAL, "g", "expired") == 1)
        lease.release()
        assert report.value(HOLD, MANUAL, "g", "lost") == 1
        assert report.value(HOLD, MANUAL, "g", "released") == 0
        assert report.value(HELD, MANUAL, "g") == 0


def test_a_broken_lock_ends_as_forced(report: Report) -> None:
    with leasehold.connect("memory://", ttl=0.3) as client:
        report.switch_on(client)
        lease = client.lock("x", group="g").acquire()
        client.break_lock("x", fence=lease.fence, reason="stuck")
        eventually(lambda: report.value(LOST, "memory", "g", "broken") == 1)
        assert report.value(HOLD, "memory", "g", "forced") == 1
        lease.release()


def test_renewals_are_counted_and_failed_ones_apart(report: Report) -> None:
    store = ManualStore()
    with store.connect() as client:
        report.switch_on(client)
        lease = client.lock("x").acquire()
        store.faults.refuse_next("renew")
        store.pass_time(11)
        eventually(lambda: report.value("leasehold.lock.renewals", MANUAL, "failed") == 1)
        store.pass_time(5)
        eventually(lambda: report.value("leasehold.lock.renewals", MANUAL, "ok") == 1)
        lease.release()


def test_a_release_without_an_answer_ends_the_hold(report: Report) -> None:
    store = ManualStore()
    with store.connect() as client:
        report.switch_on(client)
        lease = client.lock("x", group="g").acquire()
        store.faults.reject_next("release")
        with pytest.raises(leasehold.BackendError):
            lease.release()
        assert report.value(HELD, MANUAL, "g") == 0
        assert report.value(HOLD, MANUAL, "g", "unconfirmed") == 1


def test_a_dropped_lease_is_held_no_longer(report: Report) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with leasehold.connect("memory://") as client:
            report.switch_on(client)
            client.lock("x", group="g").acquire()
            gc.collect()
            eventually(lambda: report.value(HELD, "memory", "g") == 0)
            assert report.value(HOLD, "memory", "g", "dropped") == 1


def test_after_close_nothing_is_held(report: Report) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        client = leasehold.connect("memory://")
        report.switch_on(client)
        lease = client.lock("x", group="g").acquire()
        client.close()
        assert report.value(HELD, "memory", "g") == 0
        assert report.value(LOST, "memory", "g", "closed") == 1
        del lease


def test_a_client_is_reported_once_and_two_clients_share_the_metrics(report: Report) -> None:
    with leasehold.connect("memory://") as client, leasehold.connect("memory://") as other:
        switch_off = report.switch_on(client)
        with pytest.raises(ConfigurationError, match="counted twice"):
            report.switch_on(client)
        report.switch_on(other)
        for each in (client, other):
            with each.lock("x", group="g").hold():
                pass
        assert report.value(ACQUIRE, "memory", "g", "exclusive", "acquired") == 2
        switch_off()
        switch_off()
        report.switch_on(client)


def test_switching_off_takes_back_what_is_open(report: Report) -> None:
    with leasehold.connect("memory://") as client:
        switch_off = report.switch_on(client)
        with client.lock("x", group="g").hold():
            switch_off()
            assert report.value(HELD, "memory", "g") == 0
        assert report.value(HELD, "memory", "g") == 0
        with client.lock("x", group="g").hold():
            assert report.value(HELD, "memory", "g") == 0


def test_switching_on_late_never_shows_less_than_nothing(report: Report) -> None:
    with leasehold.connect("memory://") as client:
        lock = client.lock("x", group="g")
        lease = lock.acquire()
        waiter = threading.Thread(target=lambda: lock.acquire(30).release())
        waiter.start()
        eventually(lambda: (state := client.inspect("x")) is not None and state.waiting)
        report.switch_on(client)
        lease.release()
        waiter.join()
        assert report.value(HELD, "memory", "g") == 0
        assert report.value(WAITERS, "memory", "g") == 0


def test_names_are_in_no_label_and_groups_are_bounded(report: Report, caplog: pytest.LogCaptureFixture) -> None:
    with leasehold.connect("memory://") as client:
        report.switch_on(client, max_groups=3)
        with caplog.at_level(logging.WARNING, "leasehold"):
            for number in range(50):
                with client.lock(f"secret-name-{number}", group=f"group-{number}").hold():
                    pass
                with client.lock(f"secret-name-{number}").hold():
                    pass
        groups = {labels[1] for labels in report.series(ACQUIRE)}
        assert groups == {"group-0", "group-1", "group-2", "other", "ungrouped"}
        assert report.value(ACQUIRE, "memory", "other", "exclusive", "acquired") == 47
        assert len([record for record in caplog.records if "more than 3 groups" in record.getMessage()]) == 1
        assert not any(
            "secret-name" in label for name in INSTRUMENTS for labels in report.series(name) for label in labels
        )


def test_groups_that_are_known_show_a_zero_from_the_start(report: Report) -> None:
    with leasehold.connect("memory://") as client:
        report.switch_on(client, groups=[GROUP])
        assert report.series(HELD)["memory", GROUP] == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_groups": 0}, "max_groups"),
        ({"groups": "one"}, "several"),
        ({"groups": list("abc"), "max_groups": 2}, "raise"),
    ],
)
def test_bad_options_are_refused(report: Report, options: dict[str, object], text: str) -> None:
    with leasehold.connect("memory://") as client:
        with pytest.raises(ConfigurationError, match=text):
            report.switch_on(client, **options)
        with client.lock("x").hold():
            pass
        report.switch_on(client)


def test_what_is_no_client_and_no_registry_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs a client"):
        telemetry.prometheus("redis://")  # type: ignore[arg-type]
    with leasehold.connect("memory://") as client, pytest.raises(ConfigurationError, match="CollectorRegistry"):
        telemetry.prometheus(client, registry=object())
