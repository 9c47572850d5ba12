from __future__ import annotations

import logging
import math
import threading
import time

import pytest

from leasehold import events
from leasehold.errors import AcquireTimeout, BackendUnavailable, LeaseLost
from leasehold.testing import ManualStore
from leasehold.values import Holder, Loss, LossReason, Pause, Skipped
from tests.waiting import eventually


def test_normal_life_is_quiet_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    store = ManualStore()
    with store.connect() as client, caplog.at_level(logging.INFO, "leasehold"):
        with client.lock("x").hold():
            assert client.lock("x").try_acquire() is None
    assert caplog.records == []


def test_listeners_see_the_life_of_a_lock() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect() as client:
        stop = client.on_event(seen.append)
        with client.lock("x").hold() as lease:
            pass
        stop()
        client.lock("x").acquire().release()
    assert [type(event) for event in seen] == [events.Acquired, events.Released]
    assert seen[0] == events.Acquired("x", lease.fence, seen[0].waited)  # type: ignore[attr-defined]


def test_a_listener_that_fails_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = ManualStore()
    with store.connect() as client:
        client.on_event(lambda event: 1 / 0)
        with client.lock("x").hold() as lease:
            lease.check()
    assert "a listener of on_event failed" in caplog.text


class Spoilt:
    """A recorder that fails on everything."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def acquired(self, name: str, *_: object) -> None:
        self.calls.append(f"acquired {name}")
        raise ValueError("of the recorder")

    def released(self, name: str, *_: object) -> None:
        self.calls.append(f"released {name}")
        raise ValueError("of the recorder")

    def record(self, event: events.Event) -> None:
        self.calls.append(f"heard {type(event).__name__}")
        raise ValueError("of the recorder")


def test_a_recorder_gets_a_pair_once_and_its_failure_breaks_neither_lock_nor_listener(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, recorder = ManualStore(), Spoilt()
    seen: list[events.Event] = []
    with store.connect() as client:
        detach = client._twin._events.attach(recorder)
        client.on_event(seen.append)
        with client.lock("x").hold():
            assert client.lock("x").try_acquire() is None
        assert recorder.calls == ["acquired x", "heard Refused", "released x"]
        assert [type(event) for event in seen] == [events.Acquired, events.Refused, events.Released]
        detach()
        client.lock("x").acquire().release()
    assert len(recorder.calls) == 3
    assert len(seen) == 5
    assert [record.levelname for record in caplog.records if "the lock is not affected" in record.message] == [
        "ERROR"
    ] * 3


def test_a_long_wait_is_one_warning_that_names_holder_and_queue(caplog: pytest.LogCaptureFixture) -> None:
    store = ManualStore()
    with store.connect(label="first") as client, store.connect() as other:
        lease = client.lock("x", ttl=300).acquire()
        thread = threading.Thread(target=lambda: other.lock("x", ttl=300).acquire().release())
        with caplog.at_level(logging.WARNING, "leasehold"):
            thread.start()
            for _ in range(2_000):
                time.sleep(0.005)  # the waiter looks at its clock every few milliseconds
                if store.memory.inspect("leasehold:x").waiting:  # type: ignore[union-attr]
                    store.pass_time(0.05)
                if caplog.records:
                    break
            store.pass_time(3)
            lease.release()
            thread.join()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "first on" in record.getMessage()
    assert "0 ahead" in record.getMessage()


def test_a_wait_is_slow_when_the_lock_says_so_and_not_when_it_asks_again(caplog: pytest.LogCaptureFixture) -> None:
    store = ManualStore()
    with store.connect() as client, store.connect() as other, caplog.at_level(logging.WARNING, "leasehold"):
        lease = client.lock("x", ttl=300).acquire()
        thread = threading.Thread(target=lambda: other.lock("x", ttl=300, slow_wait=0.2).acquire().release())
        thread.start()
        eventually(lambda: other._twin._open().waiting_calls._signals)
        store.clock.advance(0.21)  # it asks again after a second
        eventually(lambda: caplog.records)
        lease.release()
        thread.join()


def test_a_grant_says_how_long_it_was_waited_for() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect() as client, store.connect() as other:
        lease = client.lock("x", ttl=300).acquire()
        other.on_event(seen.append)
        thread = threading.Thread(target=lambda: other.lock("x", ttl=300, slow_wait=None).acquire().release())
        thread.start()
        eventually(lambda: other._twin._open().waiting_calls._signals)
        store.clock.advance(0.5)
        lease.release()
        thread.join()
    assert [event.waited for event in seen if isinstance(event, events.Acquired)] == [pytest.approx(0.5)]


def test_a_call_that_gets_nothing_is_an_event_and_its_error_says_when_to_come_back() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect() as client, store.connect() as other:
        lease = client.lock("x", ttl=30, renew=False).acquire()
        other.on_event(seen.append)
        store.clock.advance(12)
        with pytest.raises(AcquireTimeout) as raised:
            other.lock("x").acquire(0)
        lease.release()
    assert raised.value.retry_after == pytest.approx(18)
    (timed_out,) = [event for event in seen if isinstance(event, events.TimedOut)]
    assert (timed_out.name, timed_out.waited) == ("x", 0.0)


def test_an_outage_is_reported_when_it_begins_and_when_it_ends() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect() as client, store.clock.running():
        client.on_event(seen.append)
        for _ in range(3):
            store.faults.refuse_next("join")
        client.lock("x").acquire(60).release()
    assert [type(event) for event in seen] == [
        events.StoreUnreachable,
        events.WaitBegan,
        events.StoreReached,
        events.Acquired,
        events.Released,
    ]
    assert isinstance(seen[0], events.StoreUnreachable)
    assert 50 < seen[0].remaining <= 60
    assert seen[2] == events.StoreReached("x", 3)


def test_what_an_operator_does_is_an_event_with_who_and_why() -> None:
    seen: list[events.Event] = []
    with ManualStore().connect() as client:
        client.on_event(seen.append)
        lease = client.lock("x").acquire()
        assert not client.break_lock("x", fence=lease.fence + 1, reason="stuck", by="ana")
        assert client.break_lock("x", fence=lease.fence, reason="stuck", by="ana", now=True)
        client.raise_fence("x", lease.fence + 1000, reason="restored", by="ana")
        client.pause("x", reason="moving", by="ana", duration=90)
        assert client.resume("x", by="ana")
        assert not client.resume("x", by="ana")
        lease.release()
    assert [event for event in seen if not isinstance(event, (events.Acquired, events.Lost, events.Released))] == [
        events.Broken("x", lease.fence, "stuck", "ana"),
        events.FenceRaised("x", lease.fence + 1000, "restored", "ana"),
        events.NamePaused("x", "moving", "ana", 90.0),
        events.NameResumed("x", "ana"),
    ]


def test_a_client_that_is_closed_while_it_holds_many_names_the_first_and_counts_the_others() -> None:
    client = ManualStore().connect()
    leases = [client.lock(f"n{number}").acquire() for number in range(7)]
    with pytest.warns(ResourceWarning, match="while it held 'n0', 'n1', 'n2', 'n3', 'n4' and 2 more; release"):
        client.close()
    assert len(leases) == 7


def test_a_loss_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    store = ManualStore()
    told = threading.Event()
    with store.connect() as client, pytest.raises(LeaseLost):
        with client.lock("x").hold(on_lost=lambda loss: told.set()):
            opened = client._twin._opened
            while opened is None or opened.keeper._wake == math.inf:
                time.sleep(0.001)  # the keeper has just been started and has not planned yet
            store.clock.advance(31)
            assert told.wait(10)
    assert [record.levelname for record in caplog.records if "lost 'x'" in record.getMessage()] == ["ERROR"]
    assert any("woke up" in record.getMessage() for record in caplog.records), "the late keeper names the pause"


def test_a_renewal_that_fails_is_one_warning_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    store = ManualStore()
    with store.connect() as client:
        lease = client.lock("x").acquire()
        store.faults.refuse_next("renew")
        store.faults.refuse_next("renew")
        store.pass_time(20)
        lease.check()
        lease.release()
    warnings = [record for record in caplog.records if "could not renew" in record.getMessage()]
    assert len(warnings) == 1
    assert "s more before it is lost" in warnings[0].getMessage()


def test_a_failed_release_after_good_work_is_a_warning_and_an_event(caplog: pytest.LogCaptureFixture) -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect() as client:
        client.on_event(seen.append)
        with client.lock("x").hold():
            store.faults.reject_next("release")
    assert [type(event) for event in seen] == [events.Acquired, events.ReleaseFailed]
    assert "could not release 'x'" in caplog.text


def test_a_store_that_says_when_it_is_back_is_waited_for_also_by_a_call_without_a_limit() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect() as client:
        client.on_event(seen.append)
        begun = store.clock.now()
        for _ in range(40):
            store.faults.refuse_next("join", back_in=30)
        client.lock("x").acquire().release()
        assert store.clock.now() - begun > 10, "longer than a store that cannot be reached is tried"
        assert isinstance(seen[0], events.StoreUnreachable)
        assert seen[0].back_in == 30
        for _ in range(40):
            store.faults.refuse_next("join", back_in=30)
        with pytest.raises(BackendUnavailable):
            client.lock("x").acquire(5)


def test_every_event_reads_as_a_sentence() -> None:
    samples = [
        events.Acquired("x", 1, 0.1),
        events.Waiting("x", 1.2, Holder("h", 1), 3),
        events.Waiting("x", 1.2, None, None),
        events.StoreUnreachable("x", 8.0, "no route"),
        events.StoreReached("x", 3),
        events.TimedOut("x", 5.0),
        events.TtlDiffers("x", 30.0, 6.6),
        events.Renewed("x", 1),
        events.RenewalFailed("x", 20.0, "no route"),
        events.KeeperLate("x", 12.0),
        events.Lost("x", 1, Loss(LossReason.EXPIRED, "its time ran out")),
        events.Released("x", 1, True),
        events.Released("x", 1, False),
        events.ReleaseFailed("x", "no route"),
        events.Dropped("x", 1),
        events.Broken("x", 1, "stuck", "operator"),
        events.FenceRaised("x", 7, "restored", "operator"),
        events.Built("x", 7, 0.5),
        events.BuildFailed("x", ValueError("of the user"), True),
        events.BuildFailed("x", ValueError("of the user"), False),
        events.FillRefused("x", 7),
        events.FillFailed("x", "no route"),
        events.RunSkipped("x", Skipped("x", "2026-11-15", Holder("h", 1), 1_763_164_800.0)),
        events.Replayed("x"),
        events.Unprotected("x", "no route"),
        events.NotRecorded("x", "no route"),
        events.RunSkipped("x", Skipped("x", "2026-11-15", paused=Pause("moving", "ana", 60.0))),
        events.Waiting("x", 1.2, None, 0, paused=Pause("moving", "ana")),
        events.RunAgain("x", "2026-11-15", 7, "empty", "ana"),
        events.RunForgotten("x", "2026-11-15", "empty", "ana"),
        events.NamePaused("x", "moving", "ana", None),
        events.NameResumed("x", "ana"),
        events.WaitBegan("x", None, "exclusive", 1),
        events.Refused("x", 0.0),
        events.AcquireFailed("x", 0.5, "no route", False),
        events.Campaigning("x", None),
        events.Elected("x", 7, None),
        events.PartitionTaken("x/3", "x", 3, 7),
        events.RunEnded("x", "x", "2026-11-15", 7, 0.5, False, True),
        events.RunEnded("x", "x", "2026-11-15", 7, 0.5, True, False),
        events.Completed("x", 7),
        events.KeyRefused("x", "mismatch"),
        events.CacheRead("x", "x", "hit"),
    ]
    assert {type(sample) for sample in samples} == {getattr(events, name) for name in events.__all__ if name != "Event"}
    for sample in samples:
        assert "'x'" in str(sample)
        assert "object at" not in str(sample)


LONG = "it is tried again until its ttl is over: no route"


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (events.Acquired("x", 7, 1.23456), "acquired 'x' with fence 7 after 1.235 s"),
        (
            events.Waiting("x", 61.26, Holder("db-3", 4711, "nightly"), 3),
            "waiting for 'x' (61.3 s so far), held by nightly on db-3, pid 4711, 3 ahead in the queue",
        ),
        (
            events.Waiting("x", 1.5, Holder("db-3", 4711), 0, "this process"),
            "waiting for 'x' (1.5 s so far), held by db-3, pid 4711 (this process), 0 ahead in the queue",
        ),
        (events.Waiting("x", 1.5, None, None), "waiting for 'x' (1.5 s so far), held by another holder"),
        (
            events.Waiting("x", 1.5, Holder("db-3", 4711), 2, paused=Pause("moving", "ana", 60.0)),
            "waiting for 'x' (1.5 s so far), paused by ana for another 60 s: moving, 2 ahead in the queue",
        ),
        (
            events.StoreUnreachable("x", 8.26, "no route"),
            "the store did not answer for 'x'; trying for 8.3 s more: no route",
        ),
        (events.StoreReached("x", 3), "the store answers again for 'x', after 3 failed tries"),
        (events.TimedOut("x", 5.0625), "gave up waiting for 'x' after 5.062 s"),
        (events.WaitBegan("x", "g", "shared", 7), "a call begins to wait for 'x'"),
        (events.Refused("x", 0.5, "g", "shared", 7), "'x' is not free"),
        (
            events.AcquireFailed("x", 0.5, "no route", False, "g", "shared", 7),
            "did not get 'x' after 0.500 s: no route",
        ),
        (events.Renewed("x", 7), "renewed 'x' with fence 7"),
        (
            events.RenewalFailed("x", 19.96, "no route", 7),
            "could not renew 'x'; trying for 20.0 s more before it is lost: no route",
        ),
        (
            events.RenewalFailed("x", -0.4, "no route", 7),
            "could not renew 'x'; trying for 0.0 s more before it is lost: no route",
        ),
        (
            events.KeeperLate("x", 12.34),
            (
                "the keeper of 'x' woke up 12.3 s late: the process was paused, the host suspended, or the event loop "
                "blocked by a call that should run in a thread"
            ),
        ),
        (
            events.Lost("x", 7, Loss(LossReason.SESSION_ENDED, "the session is over")),
            "lost 'x' with fence 7 (session ended): the session is over",
        ),
        (
            events.TtlDiffers("x", 30.0, 6.6667),
            "'x' was made with a ttl of 30 s, and its store gives 6.67 s; lease.ttl is what counts",
        ),
        (events.Released("x", 7, True), "released 'x' with fence 7"),
        (events.Released("x", 7, False), "released 'x' with fence 7, which was already gone"),
        (events.ReleaseFailed("x", "no route", fence=7), f"could not release 'x' yet; {LONG}"),
        (
            events.ReleaseFailed("x", "no route", is_final=True, fence=7),
            "could not release 'x' before the client was closed; its ttl will free it: no route",
        ),
        (
            events.Dropped("x", 7),
            (
                "the lease of 'x' with fence 7 was dropped without release; its ttl will free it. Keep a reference to "
                "the lease while you need the lock, and release it"
            ),
        ),
        (events.FenceRaised("x", 7, "restored", "ana"), "ana raised the fence of 'x' to 7: restored"),
        (events.Broken("x", 7, "stuck", "ana"), "ana broke 'x' with fence 7: stuck"),
        (
            events.RunAgain("x", "2026-11-15", 7, "empty", "ana"),
            "ana runs 'x' again for slot 2026-11-15, with fence 7: empty",
        ),
        (
            events.RunForgotten("x", "2026-11-15", "empty", "ana"),
            "ana made 'x' forget its run for slot 2026-11-15: empty",
        ),
        (events.NamePaused("x", "moving", "ana", 90.0), "ana paused 'x' for 90 s: moving"),
        (events.NameResumed("x", "ana"), "ana resumed 'x'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, events.Event) else "",
)
def test_what_the_log_says_of_an_event_has_each_of_its_facts(event: events.Event, sentence: str) -> None:
    assert str(event) == sentence
