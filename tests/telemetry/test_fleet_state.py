"""The locks of a fleet as the exporter reads and groups them."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.cli.exporter import FLEET_METRICS, metrics_page
from leasehold.fleet import FleetReader, Groups, summary
from leasehold.testing.manual import ManualStore
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.values import LockState


def test_the_figures_are_those_of_the_store() -> None:
    with leasehold.connect("memory://") as client:
        leases = [client.lock(f"order:{number}").acquire() for number in range(3)]
        leases += [client.semaphore("pool/a", 5).acquire() for _ in range(2)]
        leases.append(client.lock("nightly").acquire())
        waiter = threading.Thread(target=lambda: client.lock("order:0").acquire(30).release())
        waiter.start()
        eventually(lambda: (state := client.inspect("order:0")) is not None and state.waiting)
        client.pause("order:9", reason="moving")
        found = summary(FleetReader(client, max_age=0).read(), Groups())
        assert {group: (facts.held, facts.waiters, facts.paused) for group, facts in found.items()} == {
            "order": (3, 1, 1),
            "pool": (2, 0, 0),
            "ungrouped": (1, 0, 0),
        }
        assert found["order"].longest_hold > 0
        for lease in leases:
            lease.release()
        waiter.join()


def test_a_group_that_is_empty_again_is_a_zero() -> None:
    with leasehold.connect("memory://") as client:
        reader, groups = FleetReader(client, max_age=0), Groups()
        with client.lock("order:1").hold():
            assert summary(reader.read(), groups)["order"].held == 1
        assert summary(reader.read(), groups)["order"].held == 0


def test_groups_are_bounded_and_prefixes_can_be_given() -> None:
    groups = Groups(most=2)
    assert [groups.of(name) for name in ("a:1", "b/1", "c:1", "a:2", "plain", ":x")] == [
        "a", "b", "other", "a", "ungrouped", "ungrouped",
    ]  # fmt: skip
    given = Groups(["order:", "order:eu:"])
    assert [given.of(name) for name in ("order:1", "order:eu:1", "x")] == ["order:", "order:eu:", "other"]


def test_a_queue_that_stands_still_is_timed_until_it_moves() -> None:
    url = "memory://stands-still"
    with leasehold.connect(url) as client, leasehold.connect(url) as another:  # calls of one client share a place
        reader, lock = FleetReader(client, max_age=0), client.lock("x")
        lease = lock.acquire()
        taken = threading.Event()

        def second() -> None:
            with lock.hold(30):
                taken.wait(30)

        threads = [
            threading.Thread(target=second),
            threading.Thread(target=lambda: another.lock("x").acquire(30).release()),
        ]

        def is_in_line(waiters: int) -> bool:
            state = client.inspect("x")
            return state is not None and len(state.waiting) == waiters

        for number, thread in enumerate(threads, 1):  # one after the other, so that `second` is the first in line
            thread.start()
            eventually(partial(is_in_line, number))
        assert reader.read().stalled == {"x": 0.0}
        eventually(lambda: reader.read().stalled["x"] > 0.02)
        lease.release()
        eventually(partial(is_in_line, 1))
        assert reader.read().stalled == {"x": 0.0}
        taken.set()
        for thread in threads:
            thread.join()
        assert reader.read().stalled == {}


class SlowClient:
    """A client whose store takes its time."""

    def __init__(self) -> None:
        self.asked = 0
        self.go_on = threading.Event()

    def locks(self, prefix: str = "") -> Sequence[LockState]:
        self.asked += 1
        self.go_on.wait(60)
        return []


def test_the_store_is_asked_once_by_many_and_again_only_when_the_answer_is_old() -> None:
    client = SlowClient()
    reader = FleetReader(client, max_age=3600, patience=60)  # type: ignore[arg-type]
    threads = [threading.Thread(target=reader.read) for _ in range(8)]
    for thread in threads:
        thread.start()
    client.go_on.set()
    for thread in threads:
        thread.join()
    assert reader.read().error is None
    assert client.asked == 1


def test_a_store_that_hangs_is_away_for_those_who_ask_and_is_not_asked_twice() -> None:
    client = SlowClient()
    reader = FleetReader(client, max_age=0, patience=0.05)  # type: ignore[arg-type]
    for _ in range(3):
        assert "did not answer" in (reader.read().error or "")
    assert client.asked == 1
    client.go_on.set()
    eventually(lambda: reader.read().error is None)


def test_a_store_that_is_away_shows_no_figures_and_comes_back() -> None:
    store = ManualStore()
    with store.connect() as client:
        reader, groups = FleetReader(client, max_age=0), Groups()
        with client.lock("order:1").hold():
            store.faults.refuse_next("list")
            store.faults.refuse_next("list")
            page = metrics_page(reader.read(), groups, time.monotonic())
            assert "leasehold_up 0.0" in page
            assert "fleet" not in page
            assert reader.failures == 1
            page = metrics_page(reader.read(), groups, time.monotonic())
            assert "leasehold_up 1.0" in page
            assert 'leasehold_fleet_locks_held{group="order"} 1' in page


def test_the_page_is_read_by_prometheus_own_parser_whatever_a_group_is_called() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    with leasehold.connect("memory://") as client:
        with client.lock('a"b\\c\nd:1').hold():
            page = metrics_page(FleetReader(client).read(), Groups(), time.monotonic())
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert set(families) == set(FLEET_METRICS)
    (sample,) = families["leasehold_fleet_locks_held"].samples
    assert sample.labels == {"group": 'a"b\\c\nd'}
    assert sample.value == 1


@pytest.mark.parametrize(("when", "good"), [("never", True), ("before", True), ("during", False), ("after", False)])
def test_an_order_makes_what_was_read_before_it_or_meanwhile_out_of_date(when: str, good: bool) -> None:
    with leasehold.connect("memory://") as client:

        class Watched:
            def locks(self, prefix: str) -> Sequence[LockState]:
                if when == "during":
                    reader.outdate()
                return client.locks(prefix)

        watched: Any = Watched()
        reader = FleetReader(watched, max_age=60)
        if when == "before":
            reader.outdate()
        reader.read()
        eventually(lambda: reader._reading is None)
        if when == "after":
            reader.outdate()
        assert (reader.begin() is None) is good
