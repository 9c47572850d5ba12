"""What a lock file forgets, and what it must not: cleaning, and the change of boots."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from leasehold._backends.sqlite import maintenance
from leasehold._runtimes.threads import run
from leasehold.values import UNLIMITED, Grant, Holder, Loss, Mode, Pause, Record
from tests.stores.sqlite.sqlite_support import FakeHost, Verbs, claim, granted, placed, refused
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86_400.0


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (number,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(number)


def test_idle_names_are_forgotten_after_a_day_and_fences_still_rise(tmp_path: Path) -> None:
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    first = granted(store.try_acquire(claim()))
    store.release(first)
    host.pass_time(DAY - 60)
    store.clean()
    assert rows(tmp_path / "locks.db", "lock") == 1  # the clock could be set back by almost a day
    host.pass_time(120)
    store.clean()
    assert rows(tmp_path / "locks.db", "lock") == 0
    host.wall_time -= DAY - 120
    assert granted(store.try_acquire(claim())).fence > first.fence
    store.close()


def test_fence_that_ran_ahead_of_the_clock_is_not_forgotten(tmp_path: Path) -> None:
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    ahead = granted(store.try_acquire(claim()))
    store.release(ahead)
    host.wall_time -= 30 * DAY  # it had been set wrong
    host.pass_time(2 * DAY)
    store.clean()
    assert granted(store.try_acquire(claim())).fence > ahead.fence
    store.close()


def test_cleaning_removes_leftovers_of_the_dead_but_nothing_that_is_in_use(tmp_path: Path) -> None:
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    for number in range(600):  # more than one slice
        granted(store.try_acquire(claim(f"ns:dead {number}", ttl=10)))
    store.withdraw(claim("ns:withdrawn", ttl=10))
    store.write(Record("ns:record", b"", 1, 10.0))
    host.pass_time(11)
    store.clean()
    held = granted(store.try_acquire(claim("ns:held", ttl=3 * DAY)))
    shared = granted(store.try_acquire(claim("ns:shared", ttl=3 * DAY, mode=Mode.SHARED)))
    store.write(Record("ns:kept", b"", 1, 3 * DAY))
    host.pass_time(2 * DAY)  # also longer than an abandonment is remembered
    store.clean()
    store.clean()
    path = tmp_path / "locks.db"
    assert (rows(path, "lock"), rows(path, "claim"), rows(path, "record")) == (2, 1, 1)
    assert all(isinstance(answer, Grant) for answer in store.renew(held, shared))
    store.close()


def clean_at_once(store: Verbs) -> None:
    """Clean where the worker would be started, so that the test knows when it is done."""
    store.backend._cleaner._start = lambda: run(store.backend._clean())


def test_a_worker_cleans_beside_the_requests_and_ends_with_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "EVERY", 8)
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    for number in range(20):
        store.release(granted(store.try_acquire(claim(f"ns:{number}"))))
    host.pass_time(2 * DAY)

    def is_clean() -> bool:
        store.release(granted(store.try_acquire(claim("ns:again"))))
        return rows(tmp_path / "locks.db", "lock") == 1

    eventually(is_clean)
    store.close()
    assert not [thread for thread in threading.enumerate() if "cleaning" in thread.name]


def test_use_alone_keeps_the_file_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "EVERY", 8)
    monkeypatch.setattr(maintenance, "SLICE", 32)
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    clean_at_once(store)
    for number in range(2_000):
        store.release(granted(store.try_acquire(claim(f"ns:{number}"))))
        host.pass_time(600)
    assert rows(tmp_path / "locks.db", "lock") < 400  # a day has 144 of them
    store.close()


def test_lease_of_another_boot_is_dead_and_counts_as_abandoned(tmp_path: Path) -> None:
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    plain = granted(store.try_acquire(claim("ns:plain", ttl=10_000)))
    contended = granted(store.try_acquire(claim("ns:contended", ttl=10_000)))
    placed(store.join(claim("ns:contended")))
    released = granted(store.try_acquire(claim("ns:released")))
    store.release(released)
    store.close()
    rebooted = Verbs(tmp_path / "locks.db", host.reboot())
    assert rebooted.list("") == []
    assert all(isinstance(answer, Loss) for answer in rebooted.renew(plain, contended))
    for key, before in (("ns:plain", plain), ("ns:contended", contended)):
        after = granted(rebooted.try_acquire(claim(key)))
        assert after.fence > before.fence
        assert after.abandoned is True
    assert granted(rebooted.try_acquire(claim("ns:released"))).abandoned is False
    rebooted.close()


def test_same_boot_keeps_leases_when_the_file_is_opened_again(tmp_path: Path) -> None:
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    grant = granted(store.try_acquire(claim()))
    store.close()
    again = Verbs(tmp_path / "locks.db", host)
    refused(again.try_acquire(claim()))
    assert isinstance(again.renew(grant)[0], Grant)
    again.close()


def test_lease_that_begins_in_the_future_gives_an_unnamed_boot_away(tmp_path: Path) -> None:
    store = Verbs(tmp_path / "locks.db", FakeHost(boot="", now=50_000))
    granted(store.try_acquire(claim(ttl=10)))
    store.close()
    rebooted = Verbs(tmp_path / "locks.db", FakeHost(boot="", now=5))
    granted(rebooted.try_acquire(claim()))
    rebooted.close()


def test_records_outlive_a_boot_by_the_wall_clock(tmp_path: Path) -> None:
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    store.write(Record("ns:long", b"kept", 7, 1_000.0))
    store.write(Record("ns:short", b"gone", 7, 30.0))
    store.close()
    rebooted = Verbs(tmp_path / "locks.db", host.reboot())  # which takes a minute
    record = rebooted.read("ns:long")
    assert record is not None
    assert record.ttl == pytest.approx(940)
    assert rebooted.read("ns:short") is None
    rebooted.close()


def test_deleted_file_is_noticed_and_made_anew(tmp_path: Path) -> None:
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    grant = granted(store.try_acquire(claim()))
    for path in tmp_path.glob("locks.db*"):
        path.unlink()
    host.pass_time(1)
    assert isinstance(store.renew(grant)[0], Loss)
    other = Verbs(tmp_path / "locks.db", host)
    assert granted(other.try_acquire(claim())).fence > grant.fence
    refused(store.try_acquire(claim()))
    store.close()
    other.close()


def test_fence_of_a_record_that_ran_out_is_kept_for_a_day(tmp_path: Path) -> None:
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    fence = int(host.wall() * 1_000_000)
    assert store.write(Record("ns:k", b"value", fence, 10.0))
    host.pass_time(DAY - 60)
    store.clean()
    assert not store.write(Record("ns:k", b"late", fence - 1, 10.0))
    host.pass_time(120)
    store.clean()
    assert rows(tmp_path / "locks.db", "record") == 0
    store.close()


def test_use_alone_cleans_also_what_sorts_behind_the_first_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "EVERY", 2)
    monkeypatch.setattr(maintenance, "SLICE", 4)
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    clean_at_once(store)
    for number in range(20):
        assert store.release(granted(store.try_acquire(claim(f"ns:{number:02}"))))
    kept = [granted(store.try_acquire(claim(f"ns:!{number}", ttl=10 * DAY))) for number in range(4)]
    host.pass_time(2 * DAY)
    for _ in range(60):  # four names in use fill the first slice for ever
        store.release(granted(store.try_acquire(claim("ns:z"))))
        host.pass_time(0.001)
    assert rows(tmp_path / "locks.db", "lock") <= len(kept) + 1
    store.close()


def test_pause_outlives_a_boot(tmp_path: Path) -> None:
    """It belongs to no process; what was left of its time is not known, so it lasts as long again."""
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    granted(store.try_acquire(claim("ns:paused")))
    for key, seconds in (("ns:paused", UNLIMITED), ("ns:hour", 3600.0)):
        run(store.backend.pause(key, Holder("ops", 1, "ana", "moving"), seconds))
    store.close()
    rebooted_host = host.reboot()
    rebooted = Verbs(tmp_path / "locks.db", rebooted_host)
    hour, paused = rebooted.list("ns:")
    assert (hour.name, paused.name) == ("ns:hour", "ns:paused")
    assert not paused.holdings
    assert paused.paused == Pause("moving", "ana", None, 0.0)
    assert hour.paused == Pause("moving", "ana", 3600.0, 0.0)
    assert refused(rebooted.try_acquire(claim("ns:paused"))).paused is not None
    assert run(rebooted.backend.resume("ns:paused"))
    assert granted(rebooted.try_acquire(claim("ns:paused"))).abandoned is True
    rebooted_host.pass_time(3601)
    granted(rebooted.try_acquire(claim("ns:hour")))
    rebooted.close()


def test_use_alone_forgets_records_that_are_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "EVERY", 2)
    monkeypatch.setattr(maintenance, "SLICE", 5)
    host = FakeHost()
    store = Verbs(tmp_path / "locks.db", host)
    clean_at_once(store)
    for number in range(10):  # the first slices are still in use
        store.write(Record(f"ns:a{number}", b"", 1, 9 * DAY))
        store.write(Record(f"ns:b{number}", b"", 1, 10.0))
    host.pass_time(2 * DAY)
    for _ in range(20):
        store.release(granted(store.try_acquire(claim())))
    assert rows(tmp_path / "locks.db", "record") == 10
    store.close()
