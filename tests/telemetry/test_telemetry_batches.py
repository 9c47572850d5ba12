"""Values are counted in batches: exactly, whoever adds them and whenever they are collected."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, enable_created_metrics

import leasehold
from leasehold import telemetry
from leasehold.telemetry import durations
from leasehold.telemetry.batch import CHANGING, Batch
from leasehold.telemetry.instruments import INSTRUMENTS
from leasehold.testing.manual import ManualStore
from tests.telemetry.reports import PrometheusReport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.telemetry.reports import Report

ACQUIRE, HOLD = "leasehold.lock.acquire.duration", "leasehold.lock.hold.duration"
BUILD = INSTRUMENTS["leasehold.cache.build.duration"]


def samples(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    return {
        (sample.name, str(sorted(sample.labels.items()))): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@pytest.mark.parametrize("number", [0, 1, durations.BATCH - 1, durations.BATCH, 3 * durations.BATCH + 7])
def test_a_histogram_shows_what_the_librarys_own_would(number: int) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    made = durations.Durations(BUILD)
    ours.register(made)
    plain = Histogram(BUILD.prometheus_name, BUILD.description, BUILD.labels, registry=theirs, buckets=BUILD.buckets)
    add, child = made.of(("redis",)).add, plain.labels("redis")
    chance = random.Random(number)
    for _ in range(number):  # quarters have an exact sum, in whatever order; the bounds themselves belong below
        value = chance.choice([*(bound for bound in BUILD.buckets if bound * 4 % 1 == 0), 0.0, 0.75, 7.25, 1000.0])
        add(value)
        child.observe(value)
    assert samples(ours) == samples(theirs)
    assert samples(ours) == samples(theirs), "a second collection counts again"


def test_a_value_that_is_added_while_a_batch_is_counted_is_in_the_next_one() -> None:
    made = durations.Durations(BUILD)
    batch = made.of(("redis",))

    class Late(float):
        def __lt__(self, other: float) -> bool:  # it is compared when the batch is sorted
            batch.add(0.5)
            return float.__lt__(self, other)

    batch.add(Late(1.0))
    batch.add(Late(0.25))
    registry = CollectorRegistry()
    registry.register(made)
    name = f"{BUILD.prometheus_name}_count"
    assert registry.get_sample_value(name, {"backend": "redis"}) == 2
    assert registry.get_sample_value(name, {"backend": "redis"}) == 3


def test_no_value_of_many_threads_is_lost_while_others_collect(report: Report) -> None:
    pairs, threads = 401, 4  # no whole number of batches
    with leasehold.connect("memory://") as client:
        report.switch_on(client)

        def work(number: int) -> None:
            lock = client.lock(f"x:{number}", group="g")
            for _ in range(pairs):
                lock.acquire().release()

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            assert 0 <= report.value("leasehold.lock.held", "memory", "g") <= threads
        assert report.value(ACQUIRE, "memory", "g", "exclusive", "acquired") == pairs * threads
        assert report.value(HOLD, "memory", "g", "released") == pairs * threads


def test_a_batch_that_nobody_collects_is_counted_when_it_is_full() -> None:
    counted: list[list[int]] = []

    def count(values: list[int]) -> None:
        counted.append(values.copy())
        values.clear()

    batch = Batch(count, 10)
    for number in range(25):
        batch.add(number)
    assert counted == [list(range(10)), list(range(10, 20))]


def test_a_value_is_added_while_the_same_thread_counts() -> None:
    """As a signal handler or a finalizer does that takes a lock: it must not wait for itself."""
    store = ManualStore()
    report = PrometheusReport()
    with store.connect() as client:
        report.switch_on(client)
        with CHANGING:
            for _ in range(durations.BATCH + 5):
                client.lock("x", group="g").acquire().release()
        assert report.value(ACQUIRE, "manual", "g", "exclusive", "acquired") == durations.BATCH + 5


def test_a_part_of_a_registry_is_up_to_date() -> None:
    registry = CollectorRegistry()
    with leasehold.connect("memory://") as client:
        telemetry.prometheus(client, registry=registry)
        with client.lock("x", group="g").hold():
            pass
        for name in ("leasehold_lock_acquire_duration_seconds_count", "leasehold_lock_hold_duration_seconds_count"):
            (family,) = registry.restricted_registry([name]).collect()
            assert [sample.value for sample in family.samples] == [1]


@pytest.fixture
def without_created() -> Iterator[None]:
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's
    yield
    enable_created_metrics()  # type: ignore[no-untyped-call]  # the library's


def created(registry: CollectorRegistry) -> set[str]:
    return {
        sample.name
        for family in registry.collect()
        for sample in family.samples
        if sample.name.endswith("duration_seconds_created")
    }


def registry_with_a_pair() -> CollectorRegistry:
    registry = CollectorRegistry()
    with leasehold.connect("memory://") as client:
        telemetry.prometheus(client, registry=registry)
        client.lock("x").acquire().release()
    return registry


def test_the_moment_a_series_was_made_is_shown_as_the_library_does() -> None:
    assert len(created(registry_with_a_pair())) == 2


def test_the_moment_a_series_was_made_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(durations, "time", SimpleNamespace(time=lambda: now[0]))
    made, registry = durations.Durations(BUILD), CollectorRegistry()
    registry.register(made)
    made.of(("redis",)).add(0.5)
    now[0] = 2_000.0
    made.of(("redis",)).add(0.5)
    made.of(("etcd",)).add(0.5)
    name = f"{BUILD.prometheus_name}_created"
    found = [registry.get_sample_value(name, {"backend": backend}) for backend in ("redis", "etcd")]
    assert found == [1_000.0, 2_000.0]


def test_that_moment_is_left_out_where_the_program_left_it_out(without_created: None) -> None:
    assert not created(registry_with_a_pair())


def test_each_value_keeps_the_trace_of_its_own_also_one_that_is_counted_by_itself() -> None:
    reader = InMemoryMetricReader()
    tracer = TracerProvider().get_tracer("app")
    with leasehold.connect("memory://") as client:
        telemetry.opentelemetry(client, meter_provider=MeterProvider([reader]), spans=False)
        with client.lock("x").hold(), tracer.start_as_current_span("busy") as busy:
            assert client.lock("x", group="g").try_acquire() is None
        data: Any = reader.get_metrics_data()
        found = {
            point.attributes["leasehold.outcome"]: [exemplar.span_id for exemplar in point.exemplars]
            for metric in data.resource_metrics[0].scope_metrics[0].metrics
            if metric.name == ACQUIRE
            for point in metric.data.data_points
        }
        assert found == {"busy": [busy.get_span_context().span_id], "acquired": []}


def test_a_value_keeps_the_trace_that_it_was_measured_in() -> None:
    reader = InMemoryMetricReader()
    tracer = TracerProvider().get_tracer("app")
    with leasehold.connect("memory://") as client:
        telemetry.opentelemetry(client, meter_provider=MeterProvider([reader]), spans=False)
        with tracer.start_as_current_span("request") as span:
            client.lock("x", group="g").acquire().release()
        data: Any = reader.get_metrics_data()
        exemplars = [
            exemplar.span_id
            for metric in data.resource_metrics[0].scope_metrics[0].metrics
            if metric.name in {ACQUIRE, HOLD}
            for point in metric.data.data_points
            for exemplar in point.exemplars
        ]
        assert exemplars == [span.get_span_context().span_id] * 2


SEVERAL = """
import os, signal
import leasehold
from leasehold import telemetry
client = leasehold.connect("memory://")
telemetry.prometheus(client)
child = os.fork()
for _ in range(3):
    client.lock("x", group="g").acquire().release()
kept = client.lock("kept", group="g").acquire()
if child:
    os.waitpid(child, 0)
os.kill(os.getpid(), signal.SIGKILL)
"""
SUM_UP = """
from prometheus_client import CollectorRegistry, multiprocess
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
name = "leasehold_lock_acquire_duration_seconds_count"
labels = {"backend": "memory", "group": "g", "mode": "exclusive", "outcome": "acquired"}
assert registry.get_sample_value(name, labels) == 8, registry.get_sample_value(name, labels)
held = registry.get_sample_value("leasehold_lock_held", {"backend": "memory", "group": "g"})
assert held == 2, held
"""


def test_in_the_mode_for_several_processes_each_value_is_written_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", SEVERAL], env=environment, check=False)
    assert ended.returncode == -9
    subprocess.run([sys.executable, "-c", SUM_UP], env=environment, check=True)
