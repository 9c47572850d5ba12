"""Measurements as metrics of `prometheus_client`, one set for each registry, whichever clients report to it.

Usually the histograms and the number of locks held are counted in bulk and read when the registry is collected
(`CollectingPrometheusSink`). The library's mode for several processes forbids that: there a value is in the file of the
process as soon as it is measured, so these are plain histograms and gauges (`PrometheusSink`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

from leasehold.errors import ConfigurationError
from leasehold.telemetry.batch import CHANGING
from leasehold.telemetry.durations import Durations
from leasehold.telemetry.instruments import INSTRUMENTS, Instrument
from leasehold.telemetry.sink import ACQUIRE, HELD, HOLD, CollectingSink, Pair, Sink

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import Metric

__all__ = ["CollectingPrometheusSink", "PrometheusSink", "find"]

SEVERAL_PROCESSES = "PROMETHEUS_MULTIPROC_DIR"  # set before prometheus_client is loaded, which asks for it there
_SINKS: dict[CollectorRegistry, PrometheusSink] = {}


def find(registry: Any = None) -> PrometheusSink:
    """The metrics in this registry, which are made when the first client reports to it."""
    if registry is None:
        registry = REGISTRY
    if not isinstance(registry, CollectorRegistry):
        raise ConfigurationError(f"registry must be a CollectorRegistry of prometheus_client, not {registry!r}")
    if registry not in _SINKS:
        kind = PrometheusSink if SEVERAL_PROCESSES in os.environ else CollectingPrometheusSink
        _SINKS[registry] = kind(registry)
    return _SINKS[registry]


class PrometheusSink(Sink):
    """The metrics in one registry, each changed at once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.destination: object = registry
        self._metrics: dict[str, Any] = {name: self._make(one, registry) for name, one in INSTRUMENTS.items()}
        self._children: dict[tuple[str, ...], Any] = {}  # by name and labels: a look-up in the library takes a lock

    def observe(self, instrument: str, value: float, *labels: str) -> None:
        child = self._child(instrument, *labels)
        with CHANGING:
            child.observe(value)

    def count(self, instrument: str, *labels: str) -> None:
        child = self._child(instrument, *labels)
        with CHANGING:
            child.inc()

    def shift(self, instrument: str, by: int, *labels: str) -> None:
        child = self._child(instrument, *labels)
        with CHANGING:
            child.inc(by)

    def put(self, instrument: str, value: int, *labels: str) -> None:
        child = self._child(instrument, *labels)
        with CHANGING:
            child.set(value)

    def zero(self, instrument: str, *labels: str) -> None:
        self.put(instrument, 0, *labels)

    def pair(self, backend: str, group: str, mode: str) -> Pair:
        note_wait = self._child(ACQUIRE, backend, group, mode, "acquired").observe
        note_hold = self._child(HOLD, backend, group, "released").observe
        held = self._child(HELD, backend, group)
        more, less = held.inc, held.dec

        def acquired(waited: float) -> None:
            with CHANGING:
                note_wait(waited)
                more()

        def released(seconds: float) -> None:
            with CHANGING:
                note_hold(seconds)
                less()

        return Pair(group, mode, acquired, released)

    def _child(self, instrument: str, *labels: str) -> Any:
        child = self._children.get((instrument, *labels))
        if child is None:
            with CHANGING:
                child = self._children[instrument, *labels] = self._metrics[instrument].labels(*labels)
        return child

    def _make(self, instrument: Instrument, registry: CollectorRegistry) -> Any:
        name, text, labels = instrument.prometheus_name, instrument.description, instrument.labels
        if instrument.kind == "counter":
            return Counter(name, text, labels, registry=registry)
        if instrument.kind == "histogram":
            return Histogram(name, text, labels, registry=registry, buckets=instrument.buckets)
        return Gauge(name, text, labels, registry=registry, multiprocess_mode="livesum")


class CollectingPrometheusSink(CollectingSink, PrometheusSink):
    """The metrics in one registry; those of every pair are counted when it is collected."""

    def __init__(self, registry: CollectorRegistry) -> None:
        CollectingSink.__init__(self)
        PrometheusSink.__init__(self, registry)

    def observe(self, instrument: str, value: float, *labels: str) -> None:
        self._metrics[instrument].of(labels).add(value)

    def shift_now(self, instrument: str, by: int, *labels: str) -> None:
        PrometheusSink.shift(self, instrument, by, *labels)

    def zero(self, instrument: str, *labels: str) -> None:
        if instrument != HELD:  # which no recorder has any more
            PrometheusSink.zero(self, instrument, *labels)

    def pair(self, backend: str, group: str, mode: str) -> Pair:
        self.shift(HELD, 0, backend, group)
        wait = self._metrics[ACQUIRE].of((backend, group, mode, "acquired"))
        hold = self._metrics[HOLD].of((backend, group, "released"))
        return Pair(group, mode, wait.add, hold.add)

    def _make(self, instrument: Instrument, registry: CollectorRegistry) -> Any:
        made: Any
        if instrument.kind == "histogram":
            made = Durations(instrument)
        elif instrument.name == HELD:
            made = _LocksHeld(self, instrument)
        else:
            return super()._make(instrument, registry)
        registry.register(made)
        return made


class _LocksHeld:
    """The gauge of what is held."""

    def __init__(self, sink: CollectingSink, instrument: Instrument) -> None:
        self._sink = sink
        self._instrument = instrument

    def describe(self) -> Iterable[Metric]:
        facts = self._instrument
        return [GaugeMetricFamily(facts.prometheus_name, facts.description, labels=facts.labels)]

    def collect(self) -> Iterable[Metric]:
        (family,) = self.describe()
        for labels, value in self._sink.held().items():
            family.add_metric(labels, value)  # type: ignore[attr-defined]
        return [family]
