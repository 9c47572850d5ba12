"""Pieces of telemetry by themselves: what each event is counted as, values of labels, batches, and both libraries."""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry

import leasehold
from leasehold import __version__, events, telemetry
from leasehold.errors import ConfigurationError
from leasehold.fencing import checks
from leasehold.telemetry import opentelemetry_sink, prometheus_sink
from leasehold.telemetry.batch import CHANGING, Batch
from leasehold.telemetry.instruments import INSTRUMENTS
from leasehold.telemetry.labels import BoundedValues, backend_of
from leasehold.telemetry.recorder import Recorder
from leasehold.telemetry.sink import Hold, Pair, Sink
from leasehold.testing.manual import ManualStore
from leasehold.values import Holder, Loss, LossReason, Skipped
from tests.telemetry.reports import OpenTelemetryReport, PrometheusReport
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.telemetry.reports import Report


class Notes(Sink):
    """A sink that writes down what it is told; durations are left out."""

    def __init__(self, *, traces: bool = False) -> None:
        self.destination = self
        self.traces = traces
        self.seen: list[tuple[Any, ...]] = []

    def observe(self, instrument: str, value: float, *labels: str) -> None:
        self.seen.append(("observe", _short(instrument), value, *labels))

    def count(self, instrument: str, *labels: str) -> None:
        self.seen.append(("count", _short(instrument), *labels))

    def shift(self, instrument: str, by: int, *labels: str) -> None:
        self.seen.append(("shift", _short(instrument), by, *labels))

    def put(self, instrument: str, value: int, *labels: str) -> None:
        self.seen.append(("put", _short(instrument), value, *labels))

    def zero(self, instrument: str, *labels: str) -> None:
        self.seen.append(("zero", _short(instrument), *labels))

    def pair(self, backend: str, group: str, mode: str) -> Pair:
        self.seen.append(("pair", backend, group, mode))
        return Pair(group, mode, lambda waited: self._note("acquired", waited), lambda _: self._note("released"))

    def begin(self, hold: Hold, pair: Pair, name: str, fence: int, waited: float) -> None:
        hold.span = name
        self._note("begin", pair.group, name, fence, waited)

    def not_acquired(self, event: events.Event, outcome: str, group: str) -> None:
        self._note("not acquired", outcome, group)

    def end(self, hold: Hold, end: str) -> None:
        self._note("end", hold.span, end)

    def during(self, hold: Hold, event: events.Event) -> None:
        self._note("during", hold.span, type(event).__name__)

    def _note(self, *facts: Any) -> None:
        self.seen.append(facts)

    def take(self) -> list[tuple[Any, ...]]:
        """What was told since the last time."""
        seen, self.seen = self.seen, []
        return [fact if fact[:2] != ("observe", "lock.hold.duration") else (*fact[:2], *fact[3:]) for fact in seen]


def _short(instrument: str) -> str:
    assert instrument in INSTRUMENTS
    return instrument.removeprefix("leasehold.")


@pytest.fixture
def notes() -> Notes:
    return Notes()


def recorder(notes: Notes, most: int = 100) -> Recorder:
    return Recorder(notes, "redis", BoundedValues(most))


LOSS = Loss(LossReason.EXPIRED, "its time ran out")


# --- events


@pytest.mark.parametrize(
    ("event", "counted"),
    [
        (
            events.TimedOut("x", 2.0, "g", "shared"),
            [("observe", "lock.acquire.duration", 2.0, "redis", "g", "shared", "timeout"),
             ("not acquired", "timeout", "g")],
        ),
        (
            events.TimedOut("x", 2.0, None, at_once=True),
            [("observe", "lock.acquire.duration", 2.0, "redis", "ungrouped", "exclusive", "busy"),
             ("not acquired", "busy", "ungrouped")],
        ),
        (
            events.Refused("x", 0.5),
            [("observe", "lock.acquire.duration", 0.5, "redis", "ungrouped", "exclusive", "busy"),
             ("not acquired", "busy", "ungrouped")],
        ),
        (
            events.AcquireFailed("x", 0.5, "no route", False),
            [("observe", "lock.acquire.duration", 0.5, "redis", "ungrouped", "exclusive", "error"),
             ("not acquired", "error", "ungrouped")],
        ),
        (
            events.AcquireFailed("x", 0.5, "cancelled", True),
            [("observe", "lock.acquire.duration", 0.5, "redis", "ungrouped", "exclusive", "cancelled"),
             ("not acquired", "cancelled", "ungrouped")],
        ),
        (events.Renewed("x", 1), [("count", "lock.renewals", "redis", "ok")]),
        (events.RenewalFailed("x", 2.0, "no route"), [("count", "lock.renewals", "redis", "failed")]),
        (events.StoreUnreachable("x", 2.0, "no route"), [("count", "store.outages", "redis")]),
        (events.Lost("x", 1, LOSS), [("count", "lock.lost", "redis", "ungrouped", "expired")]),
        (
            events.Lost("x", 1, Loss(LossReason.MAX_HOLD, "over")),
            [("count", "lock.lost", "redis", "ungrouped", "max_hold")],
        ),
        (events.Dropped("x", 1), []),
        (events.Campaigning("x", None), [("put", "leader.status", 0, "redis", "x")]),
        (events.Campaigning("x", "g"), [("put", "leader.status", 0, "redis", "g")]),
        (events.Elected("x", 1, None), []),
        (events.PartitionTaken("x/1", "x", 1, 7), []),
        (events.RunEnded("x:7", "x", "s", 7, 0.5, False, True), [("count", "once.runs", "redis", "x", "done")]),
        (events.RunEnded("x:7", "x", "s", 7, 0.5, True, True), [("count", "once.runs", "redis", "x", "failed")]),
        (
            events.RunSkipped("x:7", Skipped("x:7", "s", Holder("h", 1)), "x"),
            [("count", "once.runs", "redis", "x", "skipped")],
        ),
        (
            events.RunSkipped("x:7", Skipped("x:7", "s", Holder("h", 1))),
            [("count", "once.runs", "redis", "x:7", "skipped")],
        ),
        (events.Completed("x", 1), [("count", "idempotency.requests", "redis", "executed")]),
        (events.Replayed("x"), [("count", "idempotency.requests", "redis", "replayed")]),
        (events.KeyRefused("x", "expired"), [("count", "idempotency.requests", "redis", "expired")]),
        (events.KeyRefused("x", "missing"), [("count", "idempotency.requests", "redis", "missing")]),
        (events.Unprotected("x", "no route"), [("count", "idempotency.requests", "redis", "unprotected")]),
        (events.NotRecorded("x", "no route"), []),
        (events.CacheRead("c:x", "c", "stale"), [("count", "cache.requests", "redis", "c", "stale")]),
        (events.Built("c:x", 1, 0.25), [("observe", "cache.build.duration", 0.25, "redis")]),
        (events.BuildFailed("c:x", ValueError(), True), [("count", "cache.failures", "redis", "build")]),
        (events.FillRefused("c:x", 1), [("count", "cache.failures", "redis", "refused")]),
        (events.FillFailed("c:x", "no route"), [("count", "cache.failures", "redis", "store")]),
        (events.StoreReached("x", 2), []),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, events.Event) else "",
)  # fmt: skip
def test_what_each_event_is_counted_as(notes: Notes, event: events.Event, counted: list[tuple[Any, ...]]) -> None:
    recorder(notes).record(event)
    assert notes.take() == counted


@pytest.mark.parametrize(
    ("event", "counted"),
    [
        (events.Dropped("x", 1), [("observe", "lock.hold.duration", "redis", "g", "dropped")]),
        (
            events.ReleaseFailed("x", "no route", fence=1),
            [("observe", "lock.hold.duration", "redis", "g", "unconfirmed")],
        ),
        (
            events.Lost("x", 1, LOSS),
            [("count", "lock.lost", "redis", "g", "expired"), ("observe", "lock.hold.duration", "redis", "g", "lost")],
        ),
        (
            events.Lost("x", 1, Loss(LossReason.BROKEN, "stuck")),
            [("count", "lock.lost", "redis", "g", "broken"), ("observe", "lock.hold.duration", "redis", "g", "forced")],
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, events.Event) else "",
)
def test_a_lock_that_is_held_ends_once_whatever_ends_it(
    notes: Notes, event: events.Event, counted: list[tuple[Any, ...]]
) -> None:
    made = recorder(notes)
    made.acquired("x", 1, 0.5, "g", "exclusive", 0)
    assert notes.take() == [("pair", "redis", "g", "exclusive"), ("acquired", 0.5)]
    assert list(made.held()) == [("redis", "g")]
    made.record(event)
    assert notes.take() == [*counted, ("shift", "lock.held", -1, "redis", "g")]
    assert list(made.held()) == []
    made.released("x", 1)
    made.record(events.Dropped("x", 1))
    assert notes.take() == []


def test_a_hold_is_counted_with_the_time_that_it_lasted_whatever_ended_it(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, held = [50.0], list[float]()
    monkeypatch.setattr("leasehold.telemetry.recorder.monotonic", lambda: now[0])
    monkeypatch.setattr(notes, "pair", lambda _, group, mode: Pair(group, mode, lambda _: None, held.append))
    made = recorder(notes)
    made.acquired("x", 1, 0.5, "g", "exclusive", 0)
    now[0] = 52.5
    for name in ("x", "y", "z"):
        made.acquired(name, 2, 0.5, "g", "exclusive", 0)
    now[0] = 60.0
    made.released("x", 1)
    now[0] = 61.0
    made.record(events.Dropped("y", 2))
    now[0] = 64.0
    made.record(events.Lost("z", 2, LOSS))
    made.released("x", 2)
    assert held == [10.0, 11.5]
    assert [fact[2:] for fact in notes.seen if fact[:2] == ("observe", "lock.hold.duration")] == [
        (8.5, "redis", "g", "dropped"),
        (11.5, "redis", "g", "lost"),
    ]


def test_a_pair_is_found_once_for_each_group_and_mode_and_others_are_not_kept(notes: Notes) -> None:
    made = recorder(notes, most=2)
    for fence, (group, mode) in enumerate([("a", "exclusive"), ("a", "shared"), ("a", "exclusive"), (None, "shared")]):
        made.acquired("x", fence, 0.0, group, mode, 0)
        made.released("x", fence)
    found = [fact[1:] for fact in notes.take() if fact[0] == "pair"]
    assert found == [("redis", "a", "exclusive"), ("redis", "a", "shared"), ("redis", "ungrouped", "shared")]
    for number in range(5):
        made.acquired("x", number, 0.0, f"group {number}", "exclusive", 0)
    assert len(made._pairs) == 4, "what counts as `other` may be without end"


def test_a_call_that_waits_is_counted_until_it_ends_in_any_way(notes: Notes) -> None:
    made = recorder(notes)
    ends: tuple[Callable[[], None], ...] = (
        lambda: made.acquired("x", 1, 0.5, "g", "exclusive", 7),
        lambda: made.record(events.TimedOut("x", 2.0, "g", call=7)),
        lambda: made.record(events.Refused("x", 2.0, "g", call=7)),
        lambda: made.record(events.AcquireFailed("x", 0.5, "no route", False, group="g", call=7)),
    )
    for end in ends:
        made.record(events.WaitBegan("x", "g", "exclusive", 7))
        assert notes.take() == [("shift", "lock.waiters", 1, "redis", "g")]
        end()
        assert ("shift", "lock.waiters", -1, "redis", "g") in notes.take()
        end()
        assert ("shift", "lock.waiters", -1, "redis", "g") not in notes.take()


def test_a_leader_and_a_partition_are_counted_while_their_lock_is_held(notes: Notes) -> None:
    made = recorder(notes)
    made.acquired("x", 1, 0.5, None, "exclusive", 0)
    made.acquired("p/1", 2, 0.5, None, "exclusive", 0)
    notes.take()
    made.record(events.Elected("x", 1, "boss"))
    made.record(events.PartitionTaken("p/1", "p", 1, 2))
    assert notes.take() == [
        ("put", "leader.status", 1, "redis", "boss"),
        ("shift", "partitions.owned", 1, "redis", "p"),
    ]
    made.released("x", 1)
    made.record(events.Lost("p/1", 2, LOSS))
    seen = notes.take()
    assert ("put", "leader.status", 0, "redis", "boss") in seen
    assert ("shift", "partitions.owned", -1, "redis", "p") in seen


def test_switching_off_takes_back_all_that_is_open(notes: Notes) -> None:
    notes.traces = True
    made = recorder(notes)
    made.acquired("x", 1, 0.5, "g", "exclusive", 0)
    made.record(events.Elected("x", 1, None))
    made.record(events.WaitBegan("y", "h", "exclusive", 7))
    notes.take()
    made.close()
    assert notes.take() == [
        ("shift", "lock.waiters", -1, "redis", "h"),
        ("shift", "lock.held", -1, "redis", "g"),
        ("put", "leader.status", 0, "redis", "x"),
        ("end", "x", "unobserved"),
    ]
    made.close()
    assert notes.take() == []


def test_in_a_child_everything_that_its_parent_had_is_zero_and_no_span_ends(notes: Notes) -> None:
    notes.traces = True
    made = recorder(notes)
    made.acquired("x", 1, 0.5, "g", "exclusive", 0)
    made.acquired("p/1", 2, 0.5, "p", "exclusive", 0)
    made.record(events.Elected("x", 1, "boss"))
    made.record(events.PartitionTaken("p/1", "p", 1, 2))
    made.record(events.WaitBegan("y", "h", "exclusive", 7))
    notes.take()
    made.after_fork()
    seen = notes.take()
    assert sorted(seen) == sorted([
        *(("zero", instrument, "redis", group) for group in "ghp" for instrument in ("lock.held", "lock.waiters")),
        ("zero", "leader.status", "redis", "boss"),
        ("zero", "partitions.owned", "redis", "p"),
    ])  # fmt: skip
    made.released("x", 1)
    made.record(events.TimedOut("y", 2.0, "h", call=7))
    assert {fact[0] for fact in notes.take()} == {"observe", "not acquired"}


def test_a_hold_has_a_span_with_what_happened_during_it(notes: Notes) -> None:
    notes.traces = True
    made = recorder(notes)
    made.acquired("x", 1, 0.5, "g", "exclusive", 0)
    assert notes.take()[-1] == ("begin", "g", "x", 1, 0.5)
    made.record(events.RenewalFailed("x", 2.0, "no route", fence=1))
    made.record(events.RenewalFailed("x", 2.0, "no route", fence=2))  # of another
    assert [fact for fact in notes.take() if fact[0] == "during"] == [("during", "x", "RenewalFailed")]
    made.released("x", 1)
    assert notes.take() == [("released",), ("end", "x", "released")]
    made.acquired("x", 2, 0.5, "g", "exclusive", 0)
    notes.take()
    made.record(events.Lost("x", 2, LOSS))
    assert [fact for fact in notes.take() if fact[0] in ("during", "end")] == [
        ("during", "x", "Lost"),
        ("end", "x", "lost"),
    ]


def test_known_groups_and_those_without_a_group_show_a_zero(notes: Notes) -> None:
    Recorder(notes, "redis", BoundedValues(5, ["a", "b"])).announce()
    assert notes.take() == [
        ("shift", instrument, 0, "redis", group)
        for group in ("ungrouped", "a", "b")
        for instrument in ("lock.held", "lock.waiters")
    ]


# --- values of labels


def test_so_many_groups_are_known_and_the_rest_are_other(caplog: pytest.LogCaptureFixture) -> None:
    values = BoundedValues(3, ["a"])
    assert [values.of(value) for value in (None, "b", "c", "d", "a", "d", "e", None)] == [
        "ungrouped", "b", "c", "other", "a", "other", "other", "ungrouped",
    ]  # fmt: skip
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    assert "more than 3 groups" in caplog.text


@pytest.mark.parametrize(
    ("most", "groups", "is_taken"), [(2, ["a", "b"], True), (2, ["a", "b", "c"], False), (1, (), True)]
)
def test_known_groups_are_not_more_than_there_is_room_for(most: int, groups: list[str], is_taken: bool) -> None:
    if is_taken:
        BoundedValues(most, groups)
        return
    with pytest.raises(ConfigurationError, match="3 groups are more than max_groups=2"):
        BoundedValues(most, groups)


def test_a_store_is_known_by_its_kind(tmp_path: Any) -> None:
    class MyStore: ...

    class Store: ...

    assert (backend_of(MyStore()), backend_of(Store())) == ("my", "custom")
    for url, kind in (("memory://", "memory"), (f"sqlite:///{tmp_path}/x.db", "sqlite"), ("redis://h", "redis")):
        with leasehold.connect(url) as client:
            assert backend_of(client._twin._store) == kind


# --- batches


def clearing(counted: list[list[int]]) -> Any:
    def count(values: list[int]) -> None:
        counted.append(values.copy())
        values.clear()

    return count


def test_a_collection_counts_what_there_is_and_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.telemetry.batch.PATIENCE", 0.01)
    counted: list[list[int]] = []
    batch = Batch(clearing(counted), 10)
    batch.flush()
    batch.add(1)
    batch.flush()
    batch.add(2)
    with CHANGING:
        batch.flush()
        assert counted == [[1]]
    batch.flush()
    assert counted == [[1], [2]]


def test_a_batch_that_cannot_be_counted_keeps_no_other_from_it() -> None:
    def fail(_: list[int]) -> None:
        raise ZeroDivisionError

    batch = Batch(fail, 1)
    with pytest.raises(ZeroDivisionError):
        batch.add(1)
    assert not CHANGING.locked()


def test_values_that_others_keep_from_being_counted_are_not_collected_without_end() -> None:
    """Up to ten batches a call goes on at once; then it waits until it can count."""
    counted: list[list[int]] = []
    batch = Batch(clearing(counted), 3)
    with CHANGING:
        for number in range(29):
            batch.add(number)
        last = threading.Thread(target=batch.add, args=(29,))
        last.start()
        eventually(lambda: len(batch._values) == 30)
        last.join(0.02)
        assert last.is_alive()
        assert counted == []
    last.join()
    assert counted == [list(range(30))]


# --- both libraries


def test_the_metrics_of_a_registry_and_of_a_pair_of_providers_are_made_once() -> None:
    one, two = CollectorRegistry(), CollectorRegistry()
    assert prometheus_sink.find(one) is prometheus_sink.find(one)
    assert prometheus_sink.find(one) is not prometheus_sink.find(two)
    meters, tracers = MeterProvider(), TracerProvider()
    sink = opentelemetry_sink.find(meters, tracers)
    assert opentelemetry_sink.find(meters, tracers) is sink
    assert opentelemetry_sink.find(meters, TracerProvider()) is not sink
    assert opentelemetry_sink.find(MeterProvider(), tracers) is not sink
    assert opentelemetry_sink.find(meters, tracers, spans=False) is not sink


def test_two_clients_of_two_faces_and_stores_share_the_metrics_and_not_their_values(report: Report) -> None:
    store = ManualStore()
    with leasehold.connect("memory://") as client, store.connect() as other:
        for each in (client, other):
            report.switch_on(each)
        with client.lock("x", group="g").hold(), other.lock("x", group="g").hold(), other.lock("y", group="g").hold():
            assert report.value("leasehold.lock.held", "memory", "g") == 1
            assert report.value("leasehold.lock.held", "manual", "g") == 2


def test_every_instrument_has_its_name_unit_and_kind_in_opentelemetry() -> None:
    report = OpenTelemetryReport()
    with leasehold.connect("memory://") as client:
        report.switch_on(client)
        with client.lock("x", group="g").hold():
            pass
        found = {metric.name: metric for metric in report._metrics()}
        duration = found["leasehold.lock.acquire.duration"]
        (point,) = duration.data.data_points
        assert (duration.unit, tuple(point.explicit_bounds)) == ("s", INSTRUMENTS[duration.name].buckets)
        assert duration.description == INSTRUMENTS[duration.name].description
        assert dict(point.attributes) == {
            "leasehold.backend": "memory", "leasehold.group": "g", "leasehold.mode": "exclusive",
            "leasehold.outcome": "acquired",
        }  # fmt: skip
        held = found["leasehold.lock.held"]
        assert (held.unit, type(held.data).__name__, held.data.is_monotonic) == ("{lock}", "Sum", False)
        (scope,) = {
            (scope.scope.name, scope.scope.version)
            for one in report._reader.get_metrics_data().resource_metrics  # type: ignore[union-attr]
            for scope in one.scope_metrics
        }
        assert scope == ("leasehold", __version__)


def test_counters_only_rise_and_gauges_do_not_in_opentelemetry() -> None:
    report = OpenTelemetryReport()
    with leasehold.connect("memory://") as client:
        report.switch_on(client)
        for _ in range(2):
            client.once("job", slot="x").run(lambda: None)
        with client.election("boss").lead():
            found = {metric.name: metric for metric in report._metrics()}
        assert found["leasehold.once.runs"].data.is_monotonic
        assert type(found["leasehold.leader.status"].data).__name__ == "Gauge"
        assert sum(report.series("leasehold.once.runs").values()) == 2


def test_prometheus_has_units_in_names_and_the_buckets_of_the_table() -> None:
    report = PrometheusReport()
    with leasehold.connect("memory://") as client:
        report.switch_on(client)
        with client.lock("x", group="g").hold():
            pass
        client.once("job", slot="x").run(lambda: None)
    text = report.text()
    labels = 'backend="memory",group="g",'
    for bound in INSTRUMENTS["leasehold.lock.acquire.duration"].buckets:
        rest = f'{labels}le="{float(bound)}",mode="exclusive",outcome="acquired"'
        assert f"leasehold_lock_acquire_duration_seconds_bucket{{{rest}}}" in text
    assert f"leasehold_lock_held{{{labels[:-1]}}} 0.0" in text
    assert 'leasehold_once_runs_total{backend="memory",outcome="done",task="job"} 1.0' in text
    assert "# TYPE leasehold_lock_acquire_duration_seconds histogram" in text
    assert "# TYPE leasehold_lock_held gauge" in text
    assert "# HELP leasehold_lock_held Locks that this process holds." in text


def test_in_the_mode_for_several_processes_each_value_is_counted_at_once_and_as_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "not used here: the library asks for it when it is loaded")
    report, other = PrometheusReport(), ManualStore()
    assert type(prometheus_sink.find(report.registry)) is prometheus_sink.PrometheusSink
    with leasehold.connect("memory://") as client, other.connect() as manual:
        report.switch_on(client)
        report.switch_on(manual)
        lock = client.lock("x", group="g")
        with lock.hold():
            assert report.value("leasehold.lock.held", "memory", "g") == 1
            assert lock.try_acquire() is None
        lease = manual.lock("x", group="g", renew=False).acquire()
        other.pass_time(60)
        assert lease.loss is not None
        eventually(lambda: report.value("leasehold.lock.lost", "manual", "g", "expired") == 1)
        assert report.series("leasehold.lock.held") == {
            ("memory", "g"): 0, ("manual", "g"): 0, ("memory", "ungrouped"): 0, ("manual", "ungrouped"): 0,
        }  # fmt: skip
        assert report.value("leasehold.lock.acquire.duration", "memory", "g", "exclusive", "acquired") == 1
        assert report.value("leasehold.lock.acquire.duration", "memory", "g", "exclusive", "busy") == 1
        assert report.value("leasehold.lock.hold.duration", "memory", "g", "released") == 1
        assert report.value("leasehold.lock.hold.duration", "manual", "g", "lost") == 1
        bounds = re.findall(r'hold_duration_seconds_bucket{[^}]*group="g"[^}]*le="([^"]+)"', report.text())
        assert {float(bound) for bound in bounds} == {
            *INSTRUMENTS["leasehold.lock.hold.duration"].buckets,
            float("inf"),
        }


# --- spans


def test_a_span_says_what_lock_it_is_of_and_how_it_ended(traces: OpenTelemetryReport) -> None:
    store = ManualStore()
    with store.connect() as client:
        traces.switch_on(client)
        with client.rwlock("x", group="g").read.hold() as lease:
            pass
        spans = {span.name: span for span in traces.spans.get_finished_spans()}
        assert set(spans) == {"leasehold.acquire g", "leasehold.hold g"}
        for name, span in spans.items():
            facts = dict(span.attributes or {})
            end = facts.pop("leasehold.end", None)
            assert end == ("released" if name == "leasehold.hold g" else None)
            assert facts == {
                "leasehold.name": "x", "leasehold.group": "g", "leasehold.mode": "shared",
                "leasehold.fence": lease.fence,
            }  # fmt: skip
            assert span.instrumentation_scope is not None
            assert span.instrumentation_scope.name == "leasehold"


def test_a_hold_begins_where_its_wait_ended_and_what_was_not_acquired_has_its_mode(traces: OpenTelemetryReport) -> None:
    sink = opentelemetry_sink.find(traces.meters, traces.tracers)
    hold = Hold()
    sink.begin(hold, Pair("g", "shared", lambda _: None, lambda _: None), "x", 41, 2.5)
    sink.end(hold, "released")
    waiting, holding = traces.spans.get_finished_spans()
    assert (waiting.name, holding.name) == ("leasehold.acquire g", "leasehold.hold g")
    assert waiting.end_time == holding.start_time
    assert waiting.end_time - (waiting.start_time or 0) == 2_500_000_000  # type: ignore[operator] # it has ended
    for event, outcome in (
        (events.TimedOut("x", 2.0, "g", "shared"), "timeout"),
        (events.Refused("x", 2.0, "g", "permit"), "busy"),
        (events.AcquireFailed("x", 2.0, "no route", False, group="g", mode="shared"), "error"),
    ):
        sink.not_acquired(event, outcome, "g")
        facts = dict(traces.spans.get_finished_spans()[-1].attributes or {})
        assert facts == {
            "leasehold.name": "x", "leasehold.group": "g", "leasehold.mode": event.mode, "leasehold.outcome": outcome,
        }  # fmt: skip


def test_the_events_of_a_span_tell_why(traces: OpenTelemetryReport) -> None:
    store = ManualStore()
    with store.connect() as client:
        traces.switch_on(client)
        lease = client.lock("x", group="g").acquire()
        for _ in range(50):
            store.faults.refuse_next("renew")
        store.pass_time(60)
        eventually(lambda: len(traces.spans.get_finished_spans()) == 2)
        span = traces.spans.get_finished_spans()[-1]
        failed, lost = ({**(event.attributes or {})} for event in span.events)
        assert set(failed) == {"leasehold.remaining", "error"}
        assert 0 < failed["leasehold.remaining"] < 30  # type: ignore[operator]
        assert lease.loss is not None
        assert lost == {"leasehold.loss.reason": str(lease.loss.reason), "leasehold.loss.detail": lease.loss.detail}
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == f"lost: {lease.loss.reason}"


def test_a_cancelled_wait_is_no_error_and_a_failed_one_says_why(traces: OpenTelemetryReport) -> None:
    sink = opentelemetry_sink.find(traces.meters, traces.tracers)
    sink.not_acquired(events.AcquireFailed("x", 3.0, "cancelled", True, group="g"), "cancelled", "g")
    sink.not_acquired(events.AcquireFailed("x", 3.0, "no route", False, group="g"), "error", "g")
    cancelled, failed = traces.spans.get_finished_spans()
    assert cancelled.status.status_code is StatusCode.UNSET
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "no route")
    for span in (cancelled, failed):
        assert span.end_time is not None
        assert span.start_time is not None
        assert span.end_time - span.start_time == 3_000_000_000
        assert dict(span.attributes or {})["leasehold.name"] == "x"
        assert "leasehold.fence" not in dict(span.attributes or {})


# --- switching on


def test_what_is_already_reported_elsewhere_may_be_reported_here_too() -> None:
    one, two = PrometheusReport(), PrometheusReport()
    with leasehold.connect("memory://") as client:
        off = one.switch_on(client, groups=["g"])
        two.switch_on(client)
        off()
        with client.lock("x", group="g").hold():
            assert one.value("leasehold.lock.held", "memory", "g") == 0
            assert two.value("leasehold.lock.held", "memory", "g") == 1
        again = one.switch_on(client)
        off()
        with client.lock("x", group="g").hold():
            assert one.value("leasehold.lock.held", "memory", "g") == 1, "the first switch is off already"
        again()


def test_what_guards_decide_is_counted_once_in_each_place_however_many_clients_report_there(report: Report) -> None:
    other = type(report)()
    with leasehold.connect("memory://") as client, ManualStore().connect() as manual:
        for each in (client, manual):
            report.switch_on(each)
        off = other.switch_on(client)
        for note in (checks.note_passed, checks.note_passed, checks.note_stale):
            note()
        for place in (report, other):
            assert place.series("leasehold.fence.checks") == {("ok",): 2, ("stale",): 1}
        off()
        other.switch_on(client)
        checks.note_stale()
        assert other.series("leasehold.fence.checks") == {("ok",): 2, ("stale",): 2}


@pytest.mark.parametrize(
    ("switch_on", "extra"), [(telemetry.opentelemetry, "otel"), (telemetry.prometheus, "prometheus")]
)
def test_what_is_not_installed_is_named_with_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch, switch_on: Any, extra: str
) -> None:
    def missing(_: str) -> None:
        raise ImportError("no", name="the_library")

    monkeypatch.setattr(telemetry, "import_module", missing)
    said = re.escape(f"the_library is not installed; run: pip install 'leasehold[{extra}]'")
    with leasehold.connect("memory://") as client, pytest.raises(ConfigurationError, match=said):
        switch_on(client)


def test_limits_of_groups_are_passed_on(report: Report) -> None:
    with leasehold.connect("memory://") as client:
        report.switch_on(client, groups=["a"], max_groups=1)
        for group in ("a", "b"):
            with client.lock("x", group=group).hold():
                pass
        groups = {labels[1] for labels in report.series("leasehold.lock.acquire.duration")}
        assert groups == {"a", "other"}
    assert telemetry.MOST_GROUPS == 100
